//! State file: the values that must survive the process.

use std::time::Duration;

use leasehold_types::token::TOKEN_END;

/// First line of the file. Version 1 stored an epoch instead of a token.
const FORMAT: &str = "leasehold state 2";
const FORMAT_1: &str = "leasehold state 1";

/// Contents of the state file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Highest token that a process may have issued.
    pub highest_token: u64,
    /// Maximum TTL of the sessions since the last clean shutdown.
    pub max_ttl: Duration,
    /// True after a clean shutdown, with no lease held.
    pub clean: bool,
}

impl Record {
    pub(super) fn encode(&self) -> String {
        let Self { highest_token, max_ttl, clean } = self;
        seal(FORMAT, "highest-token", *highest_token, *max_ttl, *clean)
    }

    /// Decodes a state file. Accepts only text that `encode` writes, in this
    /// version or in version 1.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
        let first = text.lines().next().unwrap_or_default();
        if ![FORMAT, FORMAT_1].contains(&first) {
            return Err(if text.is_empty() {
                "it is empty".to_owned()
            } else if first.starts_with("leasehold state ") {
                let found: String = first.chars().take(40).collect();
                format!("unknown format {found:?}, expected {FORMAT:?}")
            } else {
                format!("expected {FORMAT:?}")
            });
        }
        let field = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
                .ok_or_else(|| format!("{key} is missing"))
        };
        let number =
            |key: &str| field(key)?.parse::<u64>().map_err(|_| format!("{key} is not a number"));
        let max_ttl = Duration::from_millis(number("longest-ttl-ms")?);
        let clean = match field("stopped-cleanly")? {
            "true" => true,
            "false" => false,
            _ => return Err("stopped-cleanly is neither true nor false".to_owned()),
        };
        let (highest_token, written) = if first == FORMAT {
            let highest = number("highest-token")?;
            (Some(highest), seal(FORMAT, "highest-token", highest, max_ttl, clean))
        } else {
            // Any token of the epoch may have been issued.
            let epoch = number("epoch")?;
            let end = epoch.checked_add(1).and_then(|next| next.checked_mul(1 << 20));
            (end.map(|end| end - 1), seal(FORMAT_1, "epoch", epoch, max_ttl, clean))
        };
        let highest_token = highest_token
            .filter(|highest| *highest < TOKEN_END - 1)
            .ok_or_else(|| "its tokens exceed 53 bits".to_owned())?;
        if written != text {
            return Err("its checksum does not match".to_owned());
        }
        Ok(Self { highest_token, max_ttl, clean })
    }
}

fn seal(format: &str, key: &str, number: u64, max_ttl: Duration, clean: bool) -> String {
    let ttl = max_ttl.as_millis();
    let body = format!("{format}\n{key} {number}\nlongest-ttl-ms {ttl}\nstopped-cleanly {clean}\n");
    let sum = crc32fast::hash(body.as_bytes());
    format!("{body}crc32 {sum:08x}\n")
}

#[cfg(test)]
mod tests {
    use leasehold_fuzz::Fuzz;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn record_reads_back(highest_token in 0..TOKEN_END - 1, ttl in 0..100_000_u64, clean: bool) {
            let record = Record { highest_token, max_ttl: Duration::from_millis(ttl), clean };
            prop_assert_eq!(Record::decode(record.encode().as_bytes()), Ok(record));
        }

        #[test]
        fn changed_byte_is_detected(at in 0..100_usize, flip in 1..=255_u8) {
            let record =
                Record { highest_token: 7 << 40, max_ttl: Duration::from_secs(10), clean: true };
            let mut bytes = record.encode().into_bytes();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(Record::decode(&bytes).is_err());
        }

        #[test]
        fn truncation_is_detected(keep in 0..100_usize) {
            let record = Record { highest_token: 7, max_ttl: Duration::from_secs(10), clean: true };
            let bytes = record.encode().into_bytes();
            prop_assert!(Record::decode(&bytes[..keep % bytes.len()]).is_err());
        }

        #[test]
        fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Record::decode(&bytes).is_err());
        }

        #[test]
        fn version_1_counts_its_epoch_as_used(epoch in 0..(1_u64 << 33) - 1, clean: bool) {
            let text = seal(FORMAT_1, "epoch", epoch, Duration::from_secs(10), clean);
            let record = Record::decode(text.as_bytes()).unwrap();
            prop_assert_eq!(record.highest_token, (epoch << 20) + (1 << 20) - 1);
            prop_assert_eq!((record.max_ttl, record.clean), (Duration::from_secs(10), clean));
        }
    }

    #[test]
    fn tokens_beyond_53_bits_are_refused() {
        for (format, key, number) in [
            (FORMAT, "highest-token", TOKEN_END - 1),
            (FORMAT, "highest-token", u64::MAX),
            (FORMAT_1, "epoch", (1 << 33) - 1),
            (FORMAT_1, "epoch", u64::MAX),
        ] {
            let text = seal(format, key, number, Duration::ZERO, true);
            let why = Record::decode(text.as_bytes()).unwrap_err();
            assert_eq!(why, "its tokens exceed 53 bits", "{text}");
        }
    }

    #[test]
    fn state_file_decoder_accepts_only_encoded_records_fuzzed() {
        Fuzz::new("state-file").max_bytes(8192).run(|bytes| match Record::decode(bytes) {
            Ok(record) => {
                let version_1 = bytes.starts_with(FORMAT_1.as_bytes());
                assert!(version_1 || record.encode().as_bytes() == bytes);
                assert!(record.highest_token < TOKEN_END - 1, "{record:?}");
                format!("{version_1} {}", record.clean)
            }
            Err(why) => {
                assert!(why.len() < 600 && !why.chars().any(char::is_control), "{why:?}");
                why
            }
        });
    }
}
