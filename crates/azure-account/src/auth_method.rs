//! Authentication methods of an account.

use crate::SecretText;

/// Authentication method of calls to an account. `T` is the source of access
/// tokens.
#[derive(Clone, Debug)]
pub enum AuthMethod<T> {
    /// Signature with the account key.
    Key {
        /// Name of the account.
        account: String,
        /// The key, in base64.
        key: SecretText,
    },
    /// Shared access signature in the query.
    Sas(SecretText),
    /// Access token from Entra ID.
    Token(T),
}
