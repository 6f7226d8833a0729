//! W3C Trace Context: the headers `traceparent` and `tracestate`, as they arrive in
//! requests and are sent to other services.

use std::{fmt, str};

/// Maximum length of a `tracestate`, in bytes. A longer one is ignored.
pub const MAX_TRACE_STATE_BYTES: usize = 512;

/// Maximum number of members of a `tracestate`.
const MAX_TRACE_STATE_MEMBERS: usize = 32;

/// Length of a `traceparent` of version 00, in bytes.
const V00_BYTES: usize = 55;

/// Maximum length of a `traceparent` of a later version, in bytes.
const MAX_BYTES: usize = 128;

/// Position of a request in a trace, from a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// ID of the trace; not 0.
    pub trace_id: u128,
    /// ID of the span that sent the request; not 0.
    pub span_id: u64,
    /// True if the sender records the trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Parses a `traceparent`. Returns `None` for an invalid one, which the receiver
    /// ignores. A version after 00 may have further parts.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() < V00_BYTES || bytes.len() > MAX_BYTES {
            return None;
        }
        let version = hex(&bytes[..2])?;
        let has_valid_end = match bytes.get(V00_BYTES) {
            None => true,
            Some(next) => version != 0 && *next == b'-',
        };
        let has_separators = [2, 35, 52].iter().all(|at| bytes[*at] == b'-');
        if version == 0xff || !has_valid_end || !has_separators {
            return None;
        }
        let trace_id = hex(&bytes[3..35])?;
        let span_id = hex(&bytes[36..52])? as u64;
        let flags = hex(&bytes[53..55])?;
        (trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            is_sampled: flags & 1 == 1,
        })
    }
}

/// Formats a `traceparent` of version 00.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace_id, span_id, is_sampled } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{:02x}", u8::from(*is_sampled))
    }
}

/// Returns a `tracestate` if its size and its characters are valid, and an empty one
/// otherwise: an invalid state is dropped, and the trace continues without it.
#[must_use]
pub fn valid_trace_state(text: &str) -> &str {
    let is_valid = text.len() <= MAX_TRACE_STATE_BYTES
        && text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
        && text.split(',').count() <= MAX_TRACE_STATE_MEMBERS;
    if is_valid { text } else { "" }
}

/// Parses lowercase hexadecimal digits, at most 32.
fn hex(digits: &[u8]) -> Option<u128> {
    if !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    u128::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn trace_parent_is_parsed_and_formatted() {
        let parsed = TraceParent::parse(VALID).unwrap();
        assert_eq!(parsed.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(parsed.span_id, 0xb7ad_6b71_6920_3331);
        assert!(parsed.is_sampled);
        assert_eq!(parsed.to_string(), VALID);
        let unsampled = VALID.replace("-01", "-00");
        assert!(!TraceParent::parse(&unsampled).unwrap().is_sampled);
        assert!(TraceParent::parse(&VALID.replace("-01", "-03")).unwrap().is_sampled);
    }

    #[test]
    fn later_version_may_have_more_parts() {
        let later = VALID.replacen("00", "cc", 1);
        assert!(TraceParent::parse(&later).is_some());
        assert!(TraceParent::parse(&format!("{later}-what-ever")).is_some());
        assert!(TraceParent::parse(&format!("{later}.what-ever")).is_none());
        assert!(TraceParent::parse(&format!("{later}-{}", "x".repeat(MAX_BYTES))).is_none());
    }

    #[test]
    fn invalid_trace_parent_is_ignored() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        for invalid in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-00"),
            &VALID.replacen("00", "ff", 1),
            &VALID.to_uppercase(),
            &VALID.replacen("0a", "+a", 1),
            &VALID.replace('-', "_"),
            &VALID.replacen("0a", "é", 1),
            &zero_trace,
            &zero_span,
        ] {
            assert_eq!(TraceParent::parse(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn invalid_trace_state_is_dropped() {
        assert_eq!(valid_trace_state("rojo=00f067,congo=t61rc"), "rojo=00f067,congo=t61rc");
        assert_eq!(valid_trace_state(&"x".repeat(MAX_TRACE_STATE_BYTES + 1)), "");
        assert_eq!(valid_trace_state(&"a=1,".repeat(MAX_TRACE_STATE_MEMBERS)), "");
        assert_eq!(valid_trace_state("a=1\r\nx: y"), "");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_ignored(text in ".{0,160}") {
            if let Some(parsed) = TraceParent::parse(&text) {
                prop_assert_eq!(TraceParent::parse(&parsed.to_string()), Some(parsed));
            }
        }
    }
}
