//! Limits of sessions.

use std::time::Duration;

use crate::error::RequestError;

/// Minimum TTL.
pub const MIN_TTL: Duration = Duration::from_secs(1);

/// Minimum value of `max_hold_time`.
pub const MIN_HOLD_TIME: Duration = Duration::from_secs(1);

/// Configuration of sessions.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// TTL of clients that request none.
    pub default_ttl: Duration,
    /// Maximum TTL.
    pub max_ttl: Duration,
    /// Maximum number of sessions.
    pub max_sessions: usize,
    /// Maximum number of grants and waiting acquires of one session.
    pub max_locks_per_session: usize,
}

impl Settings {
    /// Returns the TTL of a session that requests this TTL; zero means the default.
    pub fn ttl(&self, requested: Duration) -> Result<Duration, RequestError> {
        if requested.is_zero() {
            return Ok(self.default_ttl);
        }
        if requested < MIN_TTL || requested > self.max_ttl {
            let [requested, min, max] =
                [requested, MIN_TTL, self.max_ttl].map(humantime::format_duration);
            return Err(RequestError::invalid(
                "ttl_ms",
                format_args!("{requested} is out of range: this daemon allows {min} to {max}"),
            ));
        }
        Ok(requested)
    }
}
