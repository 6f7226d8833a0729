//! What a leader shows to all who look.

use prost::bytes::Bytes;

use crate::Error;

const MOST_BYTES: usize = 4096;

/// A value that the protocol allows. Checked before anything is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value(Bytes);

impl Value {
    pub(crate) fn new(value: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let value = value.into();
        if value.len() > MOST_BYTES {
            return Err(Error::invalid(
                "value",
                format!(
                    "a leader's value has at most {MOST_BYTES} bytes; this one has {}",
                    value.len()
                ),
            ));
        }
        Ok(Self(value.into()))
    }

    pub(crate) fn encoded(&self) -> Bytes {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_at_most_4_kib() {
        for length in [0, 1, 4096] {
            assert_eq!(Value::new(vec![7; length]).map(|v| v.encoded().len()), Ok(length));
        }
        let Err(Error::Invalid { field, message }) = Value::new(vec![7; 4097]) else {
            panic!("it was accepted")
        };
        assert_eq!(field, "value");
        assert!(message.contains("4096") && message.contains("4097"), "{message}");
    }
}
