//! Protobuf wire format without a schema.

/// Field with number and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Field number.
    pub number: u32,
    /// Field value.
    pub value: Value,
}

/// Value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Variable-length number.
    Varint(u64),
    /// Eight bytes, fixed length.
    Fixed64([u8; 8]),
    /// Text, bytes, or a message.
    Bytes(Vec<u8>),
    /// Four bytes, fixed length.
    Fixed32([u8; 4]),
}

impl Field {
    /// Creates a field with a number.
    #[must_use]
    pub const fn varint(number: u32, value: u64) -> Self {
        Self { number, value: Value::Varint(value) }
    }

    /// Creates a field with text, bytes, or a message.
    pub fn bytes(number: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self { number, value: Value::Bytes(bytes.into()) }
    }
}

/// Reads fields until the end of the input, or until an invalid field. Returns
/// whether the whole input was read.
#[must_use]
pub fn read(mut bytes: &[u8]) -> (Vec<Field>, bool) {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let Some(field) = field(&mut bytes) else { return (fields, false) };
        fields.push(field);
    }
    (fields, true)
}

fn field(bytes: &mut &[u8]) -> Option<Field> {
    let key = varint(bytes)?;
    let number = u32::try_from(key >> 3).ok().filter(|number| *number > 0)?;
    let value = match key & 7 {
        0 => Value::Varint(varint(bytes)?),
        1 => Value::Fixed64(*bytes.split_off(..8)?.first_chunk()?),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Value::Bytes(bytes.split_off(..length)?.to_vec())
        }
        5 => Value::Fixed32(*bytes.split_off(..4)?.first_chunk()?),
        _ => return None,
    };
    Some(Field { number, value })
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..10 {
        let byte = bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Encodes fields.
#[must_use]
pub fn write(fields: &[Field]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Field { number, value } in fields {
        let mut key = |kind: u64| write_varint(u64::from(*number) << 3 | kind, &mut bytes);
        match value {
            Value::Varint(number) => {
                key(0);
                write_varint(*number, &mut bytes);
            }
            Value::Fixed64(fixed) => {
                key(1);
                bytes.extend_from_slice(fixed);
            }
            Value::Bytes(content) => {
                key(2);
                write_varint(content.len() as u64, &mut bytes);
                bytes.extend_from_slice(content);
            }
            Value::Fixed32(fixed) => {
                key(5);
                bytes.extend_from_slice(fixed);
            }
        }
    }
    bytes
}

/// Encodes a variable-length number.
pub fn write_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_fields_decode() {
        let fields = vec![
            Field::varint(1, 0),
            Field::varint(536_870_911, u64::MAX),
            Field::bytes(2, write(&[Field::varint(3, 300)])),
            Field { number: 4, value: Value::Fixed32([1, 2, 3, 4]) },
            Field { number: 5, value: Value::Fixed64([8; 8]) },
        ];
        assert_eq!(read(&write(&fields)), (fields, true));
    }

    #[test]
    fn truncated_input_ends_early() {
        let bytes = write(&[Field::varint(1, 7), Field::bytes(2, *b"abc")]);
        assert_eq!(read(&bytes[..bytes.len() - 1]), (vec![Field::varint(1, 7)], false));
        assert_eq!(read(&[0x08, 0xff]), (vec![], false));
        assert_eq!(read(&[0x00]), (vec![], false));
    }
}
