//! Wall-clock times in the output: local for text, UTC for JSON.

use std::time::Duration;

use jiff::{Timestamp, Zoned, tz::TimeZone};

use super::output::short_duration;
use leasehold_time::clock;

/// Parses a duration of the command line.
pub(super) fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let parsed = humantime::parse_duration(text);
    parsed.map_err(|_| "use a number with a unit, such as 500ms, 10s or 5m")
}

/// Current local date and time, as in "2026-11-18 12:03:11".
pub(super) fn local_now() -> String {
    match Timestamp::try_from(clock::wall()) {
        Ok(now) => local(now).strftime("%F %T").to_string(),
        Err(_) => String::new(),
    }
}

/// Current time in UTC as RFC 3339, with milliseconds.
pub(super) fn utc_now() -> String {
    utc(Duration::ZERO).unwrap_or_default()
}

/// Time `ago` before now, in UTC as RFC 3339, with milliseconds.
pub(super) fn utc(ago: Duration) -> Option<String> {
    let now = Timestamp::try_from(clock::wall()).ok()?;
    Some(format!("{:.3}", now.checked_sub(ago).ok()?))
}

/// Local start time of a period that began `elapsed` ago, with its duration, as in
/// "since 12:03:11 (2s)".
pub(super) fn since(elapsed: Duration) -> String {
    match start(elapsed) {
        Some(start) => format!("since {start} ({})", short_duration(elapsed)),
        None => format!("for {}", short_duration(elapsed)),
    }
}

/// Local start time of a period that began `elapsed` ago, with its date unless that
/// is today.
pub(super) fn start(elapsed: Duration) -> Option<String> {
    let now = Timestamp::try_from(clock::wall()).ok()?;
    let then = local(now.checked_sub(elapsed).ok()?);
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
        let earlier = since(2 * DAY);
        assert!(earlier.starts_with("since 20") && earlier.ends_with(" (2days)"), "{earlier}");
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
