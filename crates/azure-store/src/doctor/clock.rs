//! Offset between this machine's clock and the service's.
//!
//! Grants do not depend on it: deadlines use a clock that is never set, and tokens
//! follow the service's clock. Signatures depend on it.

use std::time::Duration;

use azure_core::{
    http::headers::{HeaderName, Headers},
    time::{Duration as Span, OffsetDateTime, parse_rfc7231},
};

use leasehold_store::finding::Finding;

/// Minimum offset that is reported as a warning.
const CONSIDERABLE: Duration = Duration::from_secs(5);

/// Minimum offset at which the service refuses signatures.
const REFUSED: Duration = Duration::from_secs(15 * 60);

/// Clock of the service when it answered, truncated to the second.
pub(super) fn date(headers: &Headers) -> Option<OffsetDateTime> {
    parse_rfc7231(headers.get_optional_str(&HeaderName::from_static("date"))?).ok()
}

/// Minimum lead of this machine's clock over the service's; negative if it is behind.
/// The second of the answer and the duration of the call limit the accuracy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockSkew(Span);

impl ClockSkew {
    /// Computes the minimum offset of the service's clock from one call. `sent` and
    /// `answered` are times of our clock. `date` is the service's time of the answer, in
    /// whole seconds.
    pub(super) fn of(sent: OffsetDateTime, date: OffsetDateTime, answered: OffsetDateTime) -> Self {
        let ahead = sent - (date + Span::SECOND);
        let behind = answered - date;
        Self(ahead.max(Span::ZERO) + behind.min(Span::ZERO))
    }

    pub(super) fn finding(self) -> Finding {
        const CHECK: &str = "clock";
        let direction = if self.0.is_negative() { "behind" } else { "ahead of" };
        let length = self.0.unsigned_abs();
        // Rounded up, so that a small offset is not printed as zero.
        let rounded = Duration::from_millis((length.as_millis() as u64).next_multiple_of(100));
        let rounded = humantime::format_duration(rounded);
        let text = format!("this machine's clock is {rounded} {direction} the service's");
        if length.is_zero() {
            Finding::note(CHECK, "in sync with the storage service")
        } else if length > REFUSED {
            Finding::failed(
                CHECK,
                format!("{text}; the service refuses signatures from 15 minutes on"),
            )
            .fix(SYNCHRONIZE)
        } else if length > CONSIDERABLE {
            Finding::warning(CHECK, text).fix(SYNCHRONIZE)
        } else {
            Finding::note(CHECK, text)
        }
    }
}

const SYNCHRONIZE: &str = "Synchronize this machine's clock, for example by NTP";

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_store::finding::CheckStatus;

    #[test]
    fn only_certain_offset_is_reported() {
        let at = |millis| OffsetDateTime::UNIX_EPOCH + Span::milliseconds(millis);
        let of = |sent, date, answered| {
            ClockSkew::of(at(sent), at(date), at(answered)).0.whole_milliseconds()
        };
        // The service answered at some point within its second, during the call.
        assert_eq!(of(5_000, 5_000, 5_010), 0);
        assert_eq!(of(5_990, 5_000, 6_010), 0);
        assert_eq!(of(6_000, 5_000, 6_010), 0);
        assert_eq!(of(4_000, 5_000, 5_000), 0);
        assert_eq!(of(6_200, 5_000, 6_210), 200);
        assert_eq!(of(3_000, 5_000, 4_900), -100);
    }

    #[test]
    fn larger_offset_is_more_severe() {
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
