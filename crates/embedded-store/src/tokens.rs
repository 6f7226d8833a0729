//! Tokens of the embedded store: wall-clock time in units of 2^-20 s.
//!
//! The first token of a process is the time of its start, or follows the highest
//! token that an earlier process may have issued. Tokens are never ahead of the
//! wall clock, so the tokens of a later process are higher, even if the data
//! directory was deleted in between. Only the reservation on disk may be ahead,
//! by about a second.

use std::time::{Duration, UNIX_EPOCH};

use leasehold_rules::first_token;
use leasehold_time::{Moment, clock};
use leasehold_types::{
    TokenRange,
    token::{SEQ_BITS, TOKEN_END},
};

/// Tokens per second.
const TOKENS_PER_SECOND: u64 = 1 << SEQ_BITS;

/// Number of tokens that one durable write of the daemon reserves.
pub(super) const RESERVED_TOKENS: u64 = TOKENS_PER_SECOND;

/// Maximum wait, in tokens, for the wall clock to reach the next token. After a
/// crash the wait is up to a second, the size of a reservation. A clock that is
/// further behind was set back.
const MAX_CLOCK_WAIT: u64 = 2 * TOKENS_PER_SECOND;

/// Maximum plausible wall-clock time: the year 2100. Tokens from a wrong, later
/// clock could not be undone.
const MAX_WALL_CLOCK: Duration = Duration::from_secs(4_102_444_800);

/// Returns the wall clock as a token; 0 if it is implausible.
fn wall_clock() -> u64 {
    let wall = clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    if wall < MAX_WALL_CLOCK { tokens_in(wall) } else { 0 }
}

/// Returns the number of tokens in a duration.
fn tokens_in(duration: Duration) -> u64 {
    duration.as_secs() * TOKENS_PER_SECOND
        + u64::from(duration.subsec_nanos()) * TOKENS_PER_SECOND / 1_000_000_000
}

/// Returns the duration of this number of tokens, rounded up.
fn time_of(tokens: u64) -> Duration {
    let (seconds, rest) = (tokens / TOKENS_PER_SECOND, tokens % TOKENS_PER_SECOND);
    let nanos = (rest * 1_000_000_000).div_ceil(TOKENS_PER_SECOND);
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// Outcome of [`TokenSource::take`].
pub(super) enum Take {
    /// One token.
    Taken(TokenRange),
    /// The wall clock reaches the next token after this long.
    Wait(Duration),
    /// The reservation is used up.
    Reserve,
}

/// Tokens of this process.
pub(super) struct TokenSource {
    next: u64,
    /// First token without a reservation on disk.
    reserved_end: u64,
    /// Number of tokens in one reservation.
    reservation: u64,
    /// Point on a clock that starts at the wall clock and is never set back.
    steady: (Moment, u64),
    /// True once the log has the warning that the clock was set back.
    warned: bool,
}

impl TokenSource {
    /// Creates a source of tokens after `highest`, the highest token that an
    /// earlier process may have issued. Nothing is reserved yet. `reservation` is
    /// the number of tokens per reservation.
    pub(super) fn after(highest: Option<u64>, reservation: u64) -> Self {
        let wall = wall_clock();
        let next = first_token(highest, wall);
        let steady = (Moment::now(), wall);
        Self { next, reserved_end: next, reservation, steady, warned: false }
    }

    /// Returns the highest token that may have been issued.
    pub(super) const fn highest(&self) -> u64 {
        self.next - 1
    }

    /// Returns the end of the next reservation: at most one second ahead of the
    /// clock.
    pub(super) fn reservation(&mut self) -> u64 {
        let base = self.next.min(self.now());
        (base + self.reservation).clamp(self.reserved_end, TOKEN_END)
    }

    /// Sets the end of the reserved tokens.
    pub(super) fn reserve(&mut self, end: u64) {
        self.reserved_end = self.reserved_end.max(end);
    }

    /// Returns whether the next reservation is due: at most half of the current
    /// one is left.
    pub(super) const fn is_low(&self) -> bool {
        self.reserved_end - self.next <= self.reservation / 2
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Take {
        let wall = wall_clock();
        if self.next > wall {
            let now = self.now();
            if self.next > now {
                return Take::Wait(time_of(self.next - now));
            }
            if !std::mem::replace(&mut self.warned, true) {
                let behind = humantime::format_duration(time_of(self.next - wall)).to_string();
                tracing::warn!(%behind, "the wall clock was set back; tokens are ahead of it");
            }
        }
        if self.next == self.reserved_end {
            return Take::Reserve;
        }
        self.next += 1;
        Take::Taken(TokenRange::from(self.next - 1, 1))
    }

    /// Returns the wall clock, or the steady clock if the wall clock was set back.
    fn now(&mut self) -> u64 {
        // The wall clock is read first, so that the steady clock is not behind a
        // wall clock that was not adjusted.
        let wall = wall_clock();
        let moment = Moment::now();
        let (since, then) = self.steady;
        let steady = then + tokens_in(moment.since(since));
        if self.next > wall.max(steady) + MAX_CLOCK_WAIT {
            self.steady = (moment, self.next);
        } else if wall >= steady {
            self.steady = (moment, wall);
        } else {
            return steady;
        }
        self.steady.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(highest: Option<u64>) -> TokenSource {
        let mut source = TokenSource::after(highest, RESERVED_TOKENS);
        let end = source.reservation();
        source.reserve(end);
        source
    }

    fn token(source: &mut TokenSource) -> u64 {
        loop {
            match source.take() {
                Take::Taken(mut tokens) => return tokens.take().unwrap().get(),
                Take::Wait(_) => std::hint::spin_loop(),
                Take::Reserve => panic!("a second of tokens is reserved"),
            }
        }
    }

    #[test]
    fn tokens_increase_and_stay_behind_wall_clock() {
        let mut source = source(None);
        let started = wall_clock();
        let mut last = started - TOKENS_PER_SECOND;
        for _ in 0..10_000 {
            let token = token(&mut source);
            assert!(token > last && token <= wall_clock());
            last = token;
        }
    }

    #[test]
    fn later_start_without_record_starts_higher() {
        let mut last = 0;
        for _ in 0..100 {
            let token = token(&mut source(None));
            assert!(token > last);
            last = token;
        }
    }

    #[test]
    fn reservation_is_at_most_one_second_ahead() {
        let mut highest = None;
        for _ in 0..20 {
            let mut source = TokenSource::after(highest, RESERVED_TOKENS);
            let end = source.reservation();
            assert!(end <= wall_clock() + RESERVED_TOKENS + 1);
            highest = Some(end - 1);
        }
    }

    #[test]
    fn crash_reservation_is_waited_for() {
        let highest = wall_clock() + RESERVED_TOKENS - 1;
        let Take::Wait(wait) = source(Some(highest)).take() else { panic!("ahead of the clock") };
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
    }

    #[test]
    fn clock_set_back_does_not_stop_tokens() {
        let highest = wall_clock() + 3600 * TOKENS_PER_SECOND;
        let mut source = source(Some(highest));
        assert_eq!(token(&mut source), highest + 1);
        assert_eq!(token(&mut source), highest + 2);
        assert!(source.warned);
    }

    #[test]
    fn reservation_ends_where_tokens_end() {
        let mut source = source(Some(TOKEN_END - 3));
        assert_eq!(source.reserved_end, TOKEN_END);
        assert_eq!([token(&mut source), token(&mut source)], [TOKEN_END - 2, TOKEN_END - 1]);
        assert!(matches!(source.take(), Take::Reserve));
        assert_eq!(source.reservation(), TOKEN_END);
    }
}
