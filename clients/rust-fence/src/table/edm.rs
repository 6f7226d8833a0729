//! Property types that JSON does not have.

use std::fmt;

use azure_core::{
    Uuid,
    time::{OffsetDateTime, parse_rfc3339, to_rfc3339},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

/// Type names by which the encoder recognizes these types.
pub(super) const GUID: &str = "$leasehold::Guid";
pub(super) const DATE_TIME: &str = "$leasehold::DateTime";

/// A property of type `Edm.Guid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub Uuid);

/// A property of type `Edm.DateTime`, with a resolution of 100 ns. A write refuses
/// values outside the years 1601 to 9999 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DateTime(OffsetDateTime);

/// A property of type `Edm.Binary`, at most 64 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binary(pub Vec<u8>);

impl DateTime {
    /// Creates it from a date and time, rounded down to 100 ns.
    #[must_use]
    pub fn new(moment: OffsetDateTime) -> Self {
        let rounded = moment.nanosecond() / 100 * 100;
        Self(moment.replace_nanosecond(rounded).unwrap_or(moment))
    }

    /// Returns the stored form. `None` if the year is not from 1601 to 9999, the range
    /// of the service.
    fn stored(self) -> Option<String> {
        let utc = self.0.checked_to_offset(OffsetDateTime::UNIX_EPOCH.offset())?;
        (1601..=9999).contains(&utc.year()).then(|| to_rfc3339(&utc))
    }

    /// Returns the date and time.
    #[must_use]
    pub const fn get(self) -> OffsetDateTime {
        self.0
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stored() {
            Some(text) => f.write_str(&text),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Guid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(GUID, &self.0.to_string())
    }
}

impl<'de> Deserialize<'de> for Guid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| de::Error::custom("is not a GUID"))
    }
}

impl Serialize for DateTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.stored().ok_or_else(|| {
            ser::Error::custom(format!("{self} can't be stored; use the years 1601 to 9999 in UTC"))
        })?;
        serializer.serialize_newtype_struct(DATE_TIME, &text)
    }
}

impl<'de> Deserialize<'de> for DateTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_rfc3339(&text).map(Self).map_err(|_| de::Error::custom("is not a date and time"))
    }
}

impl Serialize for Binary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Binary;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Binary, E> {
                Ok(Binary(bytes.to_vec()))
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<Binary, E> {
                Ok(Binary(bytes))
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}
