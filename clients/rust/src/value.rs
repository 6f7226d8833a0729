//! Value that a leader publishes.

use prost::bytes::Bytes;

use crate::Error;

/// Limit of the protocol.
const MAX_VALUE_BYTES: usize = 4096;

/// Value within the size limit, which is checked before anything is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value(Bytes);

impl Value {
    pub(crate) fn new(value: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let value = value.into();
        if value.len() > MAX_VALUE_BYTES {
            let message =
                format!("the value has {} bytes; the maximum is {MAX_VALUE_BYTES}", value.len());
            return Err(Error::invalid("value", message));
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
    fn value_over_4_kib_is_refused() {
        for length in [0, 1, 4096] {
            assert_eq!(Value::new(vec![7; length]).map(|v| v.encoded().len()), Ok(length));
        }
        let Err(Error::Invalid { field, message }) = Value::new(vec![7; 4097]) else {
            panic!("the value was accepted")
        };
        assert_eq!(field, "value");
        assert!(message.contains("4096") && message.contains("4097"), "{message}");
    }
}
