//! Wall-clock times for people and programs.

use std::time::Duration;

use jiff::{Timestamp, Zoned, tz::TimeZone};

use super::output::length;
use leasehold_time::clock;

/// Current local date and time, as in "2026-11-18 12:03:11".
pub(super) fn local_now() -> String {
    match Timestamp::try_from(clock::wall()) {
        Ok(now) => local(now).strftime("%F %T").to_string(),
        Err(_) => String::new(),
    }
}

/// Current time in UTC as RFC 3339, with milliseconds.
pub(super) fn utc_now() -> String {
    Timestamp::try_from(clock::wall()).map_or_else(|_| String::new(), |now| format!("{now:.3}"))
}

/// Local time of something that began this long ago, and how long ago that is:
/// "since 12:03:11 (2s)".
pub(super) fn since(passed: Duration) -> String {
    match start(passed) {
        Some(start) => format!("since {start} ({})", length(passed)),
        None => format!("for {}", length(passed)),
    }
}

/// Local time of something that began this long ago, with its date unless that is
/// today.
pub(super) fn start(passed: Duration) -> Option<String> {
    let now = Timestamp::try_from(clock::wall()).ok()?;
    let then = local(now.checked_sub(passed).ok()?);
    let now = local(now);
    let format = if now.date() == then.date() { "%T" } else { "%F %T" };
    Some(then.strftime(format).to_string())
}

fn local(time: Timestamp) -> Zoned {
    time.to_zoned(TimeZone::system())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn times_of_other_days_have_date() {
        let shown = since(2 * DAY);
        assert!(shown.starts_with("since 20") && shown.ends_with(" (2days)"), "{shown}");
        let today = since(Duration::ZERO);
        assert_eq!(today.len(), "since 12:03:11 (0s)".len(), "{today}");
    }

    #[test]
    fn times_outside_calendar_are_left_out() {
        assert!(since(Duration::from_secs(u64::MAX / 4)).starts_with("for "));
    }

    #[test]
    fn utc_is_rfc_3339() {
        let now = utc_now();
        assert!(now.parse::<Timestamp>().is_ok() && now.ends_with('Z'), "{now}");
        assert_eq!(now.len(), "2026-11-18T12:03:11.123Z".len(), "{now}");
    }
}
