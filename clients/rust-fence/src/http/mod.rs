//! Servers of HTTP and gRPC that refuse a stale holder, as a layer
//! of `tower`: for axum, tonic, and whatever else is built on it.
//!
//! A client sends its lock and token with each request ([`headers`]):
//!
//! ```text
//! leasehold-lock: default/orders
//! leasehold-token: 1865274368000001
//! ```
//!
//! The layer remembers the highest token of each lock, and refuses a lower one:
//! 412, or FAILED_PRECONDITION for gRPC. The service finds the [`LockToken`] in the
//! request's extensions, and may hand it on, to a database for instance.
//!
//! ```
//! use leasehold_fence::http::TokenGate;
//!
//! let layer = TokenGate::new()
//!     .lock_of(|request| request.uri.path().starts_with("/orders").then(|| "default/orders".into()))
//!     .layer();
//! ```
//!
//! # What is guaranteed, and what not
//!
//! - **It is checked at the door.** A request that was let in before a newer
//!   token came may still be at work after that. Where this matters, compare
//!   again where the data is, in one step with the write
//!   ([`sql`](crate::sql)).
//! - **Memory ends with the process**, unless [`TokenGate::remember`] and
//!   [`TokenGate::known`] see to it; and each process has its own.
//! - **A client is believed which lock it holds**, unless [`TokenGate::lock_of`]
//!   says which lock it must be; and is believed its token. This stops those who
//!   are late, not those who lie.
//! - **Nothing is forgotten to make room.** When there are too many locks
//!   ([`TokenGate::max_locks`]), those of further locks are refused (503,
//!   RESOURCE_EXHAUSTED): a forgotten token would let a stale holder in.
//! - Requests without a token are refused (428, INVALID_ARGUMENT), except GET,
//!   HEAD and OPTIONS of HTTP.

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

use crate::{
    LockToken,
    escape::{escape, unescape},
};
use refusal::Refusal;

/// The header with the lock: its namespace, a slash and its name; everything but
/// ASCII letters, digits and `-._~/` escaped by `%` and two hexadecimal digits.
pub const LOCK: &str = "leasehold-lock";
/// The header with the token.
pub const TOKEN: &str = "leasehold-token";

/// What a client sends with each request. For tonic, put them into the
/// request's metadata.
#[must_use]
pub fn headers(fence: &LockToken) -> [(&'static str, String); 2] {
    [(LOCK, escape(&fence.qualified_lock(), b"/")), (TOKEN, fence.token().to_string())]
}

/// What a client has sent; none if it sent neither.
fn read(headers: &HeaderMap) -> Result<Option<LockToken>, Refusal> {
    let (lock, token) = match (only(headers, LOCK)?, only(headers, TOKEN)?) {
        (None, None) => return Ok(None),
        (Some(lock), Some(token)) => (lock, token),
        _ => return Err(Refusal::Malformed("one of the two is missing")),
    };
    let token: Option<Token> = token.to_str().ok().and_then(|token| token.parse().ok());
    let token = token.filter(|token| (1..1 << 53).contains(&token.get()));
    let lock = lock.to_str().ok().and_then(unescape);
    let lock = lock.as_deref().and_then(|lock| lock.split_once('/'));
    match (lock, token) {
        (Some((namespace, lock)), Some(token)) if !namespace.is_empty() && !lock.is_empty() => {
            Ok(Some(LockToken::new(namespace, lock, token)))
        }
        (_, None) => Err(Refusal::Malformed("the token is no token")),
        _ => Err(Refusal::Malformed("the lock is not a namespace, a slash and a name")),
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (first, None) => Ok(first),
        _ => Err(Refusal::Malformed("one of them is there twice")),
    }
}
