//! Mutations of inputs.

use crate::{
    Fuzz,
    pool::Pool,
    rng::Rng,
    wire::{self, Field, Value},
};

/// UTF-8 boundaries, terminal control characters, and characters with a meaning
/// in common formats.
const PIECES: [&[u8]; 24] = [
    b"\0",
    b"\xff",
    b"\x80",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x7f",
    "\u{80}".as_bytes(),
    "\u{85}".as_bytes(),
    "\u{7ff}".as_bytes(),
    "\u{ffff}".as_bytes(),
    "\u{10ffff}".as_bytes(),
    "\u{202e}".as_bytes(),
    b"\x1b[2J",
    b"\r\n",
    b"\n",
    b"%",
    b"%00",
    b"\"",
    b"\\",
    b"=",
    b";",
    b"/",
    b"..",
];

/// Applies a few mutations.
pub(crate) fn change(input: &mut Vec<u8>, pool: &Pool, fuzz: &Fuzz, rng: &mut Rng) {
    let changes = 1 << rng.below(4);
    for _ in 0..changes {
        if fuzz.nested && !rng.one_in(8) {
            nested(input, pool, fuzz, rng, 0);
        } else {
            flat(input, pool, fuzz, rng);
        }
    }
    input.truncate(fuzz.max_bytes);
}

/// Mutates bytes without regard to their meaning.
fn flat(input: &mut Vec<u8>, pool: &Pool, fuzz: &Fuzz, rng: &mut Rng) {
    let at = rng.below(input.len() + 1);
    let max_length = if rng.one_in(4) { 256 } else { 8 };
    let length = 1 + rng.below(max_length);
    let end = input.len().min(at + length);
    match rng.below(14) {
        0 | 1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        2 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = rng.next() as u8;
            }
        }
        3 => _ = input.splice(at..at, (0..length).map(|_| rng.next() as u8)),
        4 => _ = input.drain(at..end),
        5 => input.truncate(at),
        6 => {
            let piece = input[at..end].to_vec();
            let most = if rng.one_in(16) { 300 } else { 3 };
            let times = 1 + rng.below(most);
            input.splice(at..at, piece.repeat(times));
        }
        7 => {
            let piece = input[at..end].to_vec();
            let to = rng.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        8 => {
            let other = pool.pick(rng);
            let from = rng.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        9 => {
            let number = rng.number();
            let end = at + input[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            input.splice(at..end, number.to_string().into_bytes());
        }
        10 => {
            let mut number = Vec::new();
            wire::write_varint(rng.number(), &mut number);
            input.splice(at..end, number);
        }
        11 => _ = input.splice(at..at, rng.pick(&PIECES).copied().unwrap_or_default().to_vec()),
        _ => {
            if let Some(word) = rng.pick(fuzz.words) {
                let end = if rng.one_in(2) { end } else { at };
                input.splice(at..end, word.bytes());
            }
        }
    }
}

/// Mutates one field, at any depth.
fn nested(input: &mut Vec<u8>, pool: &Pool, fuzz: &Fuzz, rng: &mut Rng, depth: usize) {
    let (mut fields, whole) = wire::read(input);
    if fields.is_empty() || (!whole && depth > 0) || rng.one_in(40) {
        return flat(input, pool, fuzz, rng);
    }
    let at = rng.below(fields.len());
    match rng.below(16) {
        0 => _ = fields.remove(at),
        1 => fields.insert(rng.below(fields.len()), fields[at].clone()),
        2 => {
            let other = rng.below(fields.len());
            fields.swap(at, other);
        }
        3 => {
            let end = if rng.one_in(8) { 1 << 29 } else { 12 };
            fields[at].number = 1 + rng.below(end) as u32;
        }
        4 => fields.insert(at, Field::varint(1 + rng.below(12) as u32, rng.number())),
        5 => {
            // Insert a field of another input.
            let (others, _) = wire::read(pool.pick(rng));
            if let Some(other) = rng.pick(&others) {
                fields.insert(at, other.clone());
            }
        }
        _ => match &mut fields[at].value {
            Value::Varint(number) => {
                *number = match rng.below(4) {
                    0 => number.wrapping_add(1),
                    1 => rng.below(6) as u64,
                    _ => rng.number(),
                }
            }
            Value::Fixed64(bytes) => bytes[rng.below(8)] ^= 1 << rng.below(8),
            Value::Fixed32(bytes) => bytes[rng.below(4)] ^= 1 << rng.below(8),
            Value::Bytes(bytes) => {
                let (within, whole) = wire::read(bytes);
                if whole && !within.is_empty() && depth < 6 {
                    nested(bytes, pool, fuzz, rng, depth + 1);
                } else {
                    flat(bytes, pool, fuzz, rng);
                }
            }
        },
    }
    *input = wire::write(&fields);
}
