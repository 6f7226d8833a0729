//! Limits for sessions.

use std::time::Duration;

use crate::error::RequestError;

/// Minimum TTL.
pub const MIN_TTL: Duration = Duration::from_secs(1);

/// Minimum of a maximum hold time.
pub const MIN_HOLD_TIME: Duration = Duration::from_secs(1);

/// What sessions must know of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The ttl of those who ask for none.
    pub default_ttl: Duration,
    /// The longest that may be asked for.
    pub max_ttl: Duration,
    /// How many sessions there may be.
    pub max_sessions: usize,
    /// How many locks one session may hold or wait for.
    pub max_locks_per_session: usize,
}

impl Settings {
    /// The ttl that a session gets; zero asks for the default.
    pub fn ttl(&self, asked: Duration) -> Result<Duration, RequestError> {
        if asked.is_zero() {
            return Ok(self.default_ttl);
        }
        if asked < MIN_TTL || asked > self.max_ttl {
            let [asked, least, most] =
                [asked, MIN_TTL, self.max_ttl].map(humantime::format_duration);
            return Err(RequestError::invalid(
                "ttl_ms",
                format_args!("{asked} is out of range: this daemon allows {least} to {most}"),
            ));
        }
        Ok(asked)
    }
}
