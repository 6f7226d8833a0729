//! The locks that all clients share.

use std::ops::Range;

use rand::{RngExt, rngs::StdRng};

const NAMES: [&str; 8] =
    ["orders", "invoices", "stock", "prices", "mail", "audit", "quiet", "sabotaged"];

/// Held for longer than the others.
pub(crate) const LONG: u32 = 5;

/// Wanted less often than the others, so that it is idle at times.
pub(crate) const QUIET: u32 = 6;

/// Its blob is deleted while it is leased. After such an act of an operator
/// only the token protects: there may be two holders until the first one's
/// daemon has noticed.
pub(crate) const SABOTAGED: u32 = 7;

pub(crate) fn all() -> Range<u32> {
    0..NAMES.len() as u32
}

pub(crate) fn name(lock: u32) -> &'static str {
    NAMES[lock as usize]
}

/// The lock that a blob stands for.
pub(crate) fn of_blob(path: &str) -> Option<u32> {
    let name = path.strip_prefix("locks/default/")?;
    NAMES.iter().position(|known| *known == name).map(|index| index as u32)
}

/// The path of its blob.
pub(crate) fn blob(lock: u32) -> String {
    format!("locks/default/{}", name(lock))
}

/// What a client wants next.
pub(crate) fn draw(chance: &mut StdRng) -> u32 {
    match chance.random_range(0..100) {
        0..6 => QUIET,
        6..12 => SABOTAGED,
        _ => chance.random_range(0..QUIET),
    }
}
