//! How far this machine's clock is from the service's.
//!
//! Grants do not depend on it: deadlines are counted on a clock that nobody
//! sets, and tokens follow the service's. Signatures do.

use std::time::Duration;

use azure_core::{
    http::headers::{HeaderName, Headers},
    time::{Duration as Span, OffsetDateTime, parse_rfc7231},
};

use leasehold_store::finding::Finding;

/// More than this is worth a warning.
const CONSIDERABLE: Duration = Duration::from_secs(5);

/// From here on the service refuses signatures.
const REFUSED: Duration = Duration::from_secs(15 * 60);

/// The service's clock when it answered; the second has begun by then.
pub(super) fn date(headers: &Headers) -> Option<OffsetDateTime> {
    parse_rfc7231(headers.get_optional_str(&HeaderName::from_static("date"))?).ok()
}

/// How far this machine's clock is ahead of the service's, at least; less than
/// zero if it is behind. No more is known than what the second of an answer
/// and the time that it took allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockSkew(Span);

impl ClockSkew {
    /// From a call that was sent and answered then by our clock, and was
    /// answered in the second of `date` by the service's.
    pub(super) fn of(sent: OffsetDateTime, date: OffsetDateTime, answered: OffsetDateTime) -> Self {
        let ahead = sent - (date + Span::SECOND);
        let behind = answered - date;
        Self(ahead.max(Span::ZERO) + behind.min(Span::ZERO))
    }

    pub(super) fn finding(self) -> Finding {
        const CHECK: &str = "clock";
        let direction = if self.0.is_negative() { "behind" } else { "ahead of" };
        let length = self.0.unsigned_abs();
        // No finer than it matters, and not down to nothing.
        let shown = Duration::from_millis((length.as_millis() as u64).next_multiple_of(100));
        let shown = humantime::format_duration(shown);
        let text = format!("this machine's clock is {shown} {direction} the service's");
        if length.is_zero() {
            Finding::note(CHECK, "in sync with the storage service")
        } else if length > REFUSED {
            Finding::failed(CHECK, format!("{text}; signatures are refused from 15 minutes on"))
                .fix(SYNCHRONISE)
        } else if length > CONSIDERABLE {
            Finding::warning(CHECK, text).fix(SYNCHRONISE)
        } else {
            Finding::note(CHECK, text)
        }
    }
}

const SYNCHRONISE: &str = "Synchronise this machine's clock, for example by NTP";

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_store::finding::CheckStatus;

    #[test]
    fn only_what_is_certain_is_a_difference() {
        let at = |millis| OffsetDateTime::UNIX_EPOCH + Span::milliseconds(millis);
        let of = |sent, date, answered| {
            ClockSkew::of(at(sent), at(date), at(answered)).0.whole_milliseconds()
        };
        // The service answered somewhere in its second, somewhere on the way.
        assert_eq!(of(5_000, 5_000, 5_010), 0);
        assert_eq!(of(5_990, 5_000, 6_010), 0);
        assert_eq!(of(6_000, 5_000, 6_010), 0);
        assert_eq!(of(4_000, 5_000, 5_000), 0);
        assert_eq!(of(6_200, 5_000, 6_210), 200);
        assert_eq!(of(3_000, 5_000, 4_900), -100);
    }

    #[test]
    fn the_further_the_worse() {
        for (seconds, expected) in [
            (0, CheckStatus::Note),
            (5, CheckStatus::Note),
            (6, CheckStatus::Warning),
            (15 * 60, CheckStatus::Warning),
            (15 * 60 + 1, CheckStatus::Failed),
        ] {
            for seconds in [seconds, -seconds] {
                let finding = ClockSkew(Span::seconds(seconds)).finding();
                assert_eq!(finding.status, expected, "{finding:?}");
                assert_eq!(finding.fix.is_some(), expected > CheckStatus::Note);
            }
        }
        let behind = ClockSkew(Span::milliseconds(-1_234)).finding();
        assert_eq!(behind.text, "this machine's clock is 1s 300ms behind the service's");
    }
}
