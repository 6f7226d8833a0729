//! Boot-time clock of the operating system, which counts during suspend.

/// Linux: CLOCK_MONOTONIC stops during suspend, CLOCK_BOOTTIME does not.
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_BOOTTIME;

/// Apple: CLOCK_MONOTONIC_RAW is `mach_continuous_time`. CLOCK_MONOTONIC also
/// counts during sleep, but follows adjustments of the wall clock.
/// CLOCK_UPTIME_RAW, which `std::time::Instant` reads, stops during sleep.
#[cfg(target_vendor = "apple")]
const CLOCK: nix::time::ClockId = nix::time::ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);

/// Other Unix systems (BSD): CLOCK_MONOTONIC counts during suspend.
#[cfg(all(unix, not(any(target_os = "linux", target_os = "android", target_vendor = "apple"))))]
const CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_MONOTONIC;

/// Returns the nanoseconds since a fixed point in the past; `None` if the clock
/// can't be read.
#[cfg(unix)]
pub(crate) fn now() -> Option<u64> {
    const NANOS_PER_SECOND: u64 = 1_000_000_000;
    let read = nix::time::clock_gettime(CLOCK).ok()?;
    // The clock is never negative. 64 bits overflow after 584 years.
    Some(read.tv_sec() as u64 * NANOS_PER_SECOND + read.tv_nsec() as u64)
}

/// Returns the nanoseconds since a fixed point in the past.
///
/// Windows: `std::time::Instant` reads QueryPerformanceCounter, which counts
/// "including the time when the machine was in a sleep state such as standby,
/// hibernate, or connected standby" (Microsoft, "Acquiring high-resolution time
/// stamps"). The standard library does not guarantee that clock. If it ever reads
/// another one, a sleep is detected as a clock jump, which ends grants as well.
#[cfg(windows)]
#[allow(clippy::disallowed_methods, reason = "other code uses this function instead")]
pub(crate) fn now() -> Option<u64> {
    use std::{
        sync::OnceLock,
        time::{Duration, Instant},
    };

    /// Reading of the clock at the first call. Not zero, so that earlier moments
    /// can be represented.
    const ORIGIN: Duration = Duration::from_secs(1 << 32);
    static FIRST: OnceLock<Instant> = OnceLock::new();
    Some((ORIGIN + FIRST.get_or_init(Instant::now).elapsed()).as_nanos() as u64)
}
