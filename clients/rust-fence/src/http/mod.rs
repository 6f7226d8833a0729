//! `tower` layer that makes HTTP and gRPC servers refuse a stale holder, for axum,
//! tonic and other servers that are built on `tower`.
//!
//! A client sends its lock and token with each request ([`headers`]):
//!
//! ```text
//! leasehold-lock: default/orders
//! leasehold-token: 1865274368000001
//! ```
//!
//! The layer stores the highest token of each lock and refuses lower ones with 412,
//! or with FAILED_PRECONDITION for gRPC. The service finds the [`LockToken`] in the
//! extensions of the request and can pass it on, for example to a database.
//!
//! ```
//! use leasehold_fence::http::TokenGate;
//!
//! let layer = TokenGate::new()
//!     .lock_of(|request| request.uri.path().starts_with("/orders").then(|| "default/orders".into()))
//!     .layer();
//! ```
//!
//! # Guarantees and limitations
//!
//! - **The token is checked on admission only.** A request that was admitted before
//!   a higher token arrived may still be running after that. If this matters,
//!   compare the token again in one step with the write ([`sql`](crate::sql)).
//! - **Tokens are stored in the memory of one process.** To keep them over a
//!   restart, use [`TokenGate::remember`] and [`TokenGate::known`]. Processes don't
//!   share tokens.
//! - **Tokens are not authenticated.** The gate refuses stale clients, not malicious
//!   ones. It accepts the lock that the client names unless [`TokenGate::lock_of`]
//!   specifies the lock of the resource.
//! - **No token is evicted**, because that would admit a stale holder. At
//!   [`TokenGate::max_locks`], requests of further locks are refused (503,
//!   RESOURCE_EXHAUSTED).
//! - Requests without a token are refused (428, INVALID_ARGUMENT), except HTTP GET,
//!   HEAD and OPTIONS.

mod body;
#[cfg(test)]
mod fuzz;
mod gate;
mod layer;
mod refusal;

pub use body::FencedBody;
pub use gate::TokenGate;
pub use layer::{TokenLayer, TokenService};

use http::{HeaderMap, HeaderValue};
use leasehold_client::Token;
use leasehold_types::token::TOKEN_END;

use crate::{
    LockToken,
    escape::{escape, unescape},
};
use refusal::Refusal;

/// Header with the lock: its namespace, a slash and its name. All bytes except ASCII
/// letters, digits and `-._~/` are percent-encoded.
pub const LOCK: &str = "leasehold-lock";
/// Header with the token.
pub const TOKEN: &str = "leasehold-token";

/// Returns the headers that a client sends with each request. With tonic, add them
/// to the metadata of the request.
#[must_use]
pub fn headers(lock_token: &LockToken) -> [(&'static str, String); 2] {
    [(LOCK, escape(&lock_token.qualified_lock(), b"/")), (TOKEN, lock_token.token().to_string())]
}

/// Parses the headers of a request. Returns `None` if both are missing.
fn read(headers: &HeaderMap) -> Result<Option<LockToken>, Refusal> {
    let (lock, token) = match (only(headers, LOCK)?, only(headers, TOKEN)?) {
        (None, None) => return Ok(None),
        (Some(lock), Some(token)) => (lock, token),
        _ => return Err(Refusal::Malformed("one of them is missing")),
    };
    let token: Option<Token> = token.to_str().ok().and_then(|token| token.parse().ok());
    let token = token.filter(|token| (1..TOKEN_END).contains(&token.get()));
    let lock = lock.to_str().ok().and_then(unescape);
    let lock = lock.as_deref().and_then(|lock| lock.split_once('/'));
    match (lock, token) {
        (Some((namespace, lock)), Some(token)) if !namespace.is_empty() && !lock.is_empty() => {
            Ok(Some(LockToken::new(namespace, lock, token)))
        }
        (_, None) => Err(Refusal::Malformed("the token is not valid")),
        _ => Err(Refusal::Malformed("the lock is not a namespace, a slash and a name")),
    }
}

/// Returns the value of a header that must not be repeated.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(Refusal::Malformed("one of them is repeated")),
    }
}
