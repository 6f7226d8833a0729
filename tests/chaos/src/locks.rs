//! Locks shared by all clients.

use std::ops::Range;

use rand::{RngExt, rngs::StdRng};

const NAMES: [&str; 8] =
    ["orders", "invoices", "stock", "prices", "mail", "audit", "quiet", "sabotaged"];

/// Lock with longer holds than the others.
pub(crate) const LONG: u32 = 5;

/// Lock used less often than the others, so that it is sometimes idle.
pub(crate) const QUIET: u32 = 6;

/// Lock whose blob is deleted while it is leased. After that, only the token
/// protects the resource: there may be two holders until the first holder's
/// daemon detects the deletion.
pub(crate) const SABOTAGED: u32 = 7;

pub(crate) fn all() -> Range<u32> {
    0..NAMES.len() as u32
}

pub(crate) fn name(lock: u32) -> &'static str {
    NAMES[lock as usize]
}

/// Returns the lock of a blob.
pub(crate) fn from_blob(path: &str) -> Option<u32> {
    let name = path.strip_prefix("locks/default/")?;
    NAMES.iter().position(|known| *known == name).map(|index| index as u32)
}

/// Returns the path of a lock's blob.
pub(crate) fn blob(lock: u32) -> String {
    format!("locks/default/{}", name(lock))
}

/// Draws the next lock of a client.
pub(crate) fn draw(chance: &mut StdRng) -> u32 {
    match chance.random_range(0..100) {
        0..6 => QUIET,
        6..12 => SABOTAGED,
        _ => chance.random_range(0..QUIET),
    }
}
