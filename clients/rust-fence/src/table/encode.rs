//! Conversion of a Rust value into the properties of an entity: a serde serializer.
//!
//! The fields of a struct, or the entries of a map, are the properties. `i64`, `u64`,
//! `i128`, `u128` and `u32` are stored as `Edm.Int64`, smaller integers as
//! `Edm.Int32`, floats as `Edm.Double`, unit variants of enums as strings. `None` is
//! left out.

use std::fmt;

use serde::{Serialize, ser};

use super::{edm, property::Property};

/// Reason why a value can't be stored.
#[derive(Debug)]
pub(super) struct EncodeError(String);

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EncodeError {}

impl ser::Error for EncodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

const FLAT: &str = "a table stores plain values only: numbers, strings, booleans, Guid, DateTime and \
    Binary. Serialize nested values to a string or to Binary";
const A_STRUCT: &str = "an entity is a struct, or a map from strings to plain values";

/// Returns the properties of an entity, in order.
pub(super) fn properties(
    entity: &(impl Serialize + ?Sized),
) -> Result<Vec<(String, Property)>, EncodeError> {
    entity.serialize(Entity)
}

/// Serializer of an entity.
struct Entity;

/// Collector of properties.
#[derive(Default)]
struct Fields {
    fields: Vec<(String, Property)>,
    key: Option<String>,
}

impl Fields {
    fn add(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), EncodeError> {
        let value = value
            .serialize(Plain)
            .map_err(|EncodeError(why)| EncodeError(format!("{name}: {why}")))?;
        if let Some(value) = value {
            self.fields.push((name.to_owned(), value));
        }
        Ok(())
    }
}

impl ser::SerializeStruct for Fields {
    type Ok = Vec<(String, Property)>;
    type Error = EncodeError;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), EncodeError> {
        self.add(name, value)
    }

    fn end(self) -> Result<Self::Ok, EncodeError> {
        Ok(self.fields)
    }
}

impl ser::SerializeMap for Fields {
    type Ok = Vec<(String, Property)>;
    type Error = EncodeError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), EncodeError> {
        match key.serialize(Plain)? {
            Some(Property::Text(key)) => {
                self.key = Some(key);
                Ok(())
            }
            _ => Err(EncodeError(A_STRUCT.to_owned())),
        }
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), EncodeError> {
        let key = self.key.take().unwrap_or_default();
        self.add(&key, value)
    }

    fn end(self) -> Result<Self::Ok, EncodeError> {
        Ok(self.fields)
    }
}

/// Defines serializer methods that refuse their value.
macro_rules! refuse {
    ($why:expr; $($name:ident($($argument:ty),*) -> $ok:ty;)*) => {$(
        fn $name(self, $(_: $argument),*) -> Result<$ok, EncodeError> {
            Err(EncodeError($why.to_owned()))
        }
    )*};
}

type Never = ser::Impossible<Vec<(String, Property)>, EncodeError>;
type NeverPlain = ser::Impossible<Option<Property>, EncodeError>;

impl ser::Serializer for Entity {
    type Ok = Vec<(String, Property)>;
    type Error = EncodeError;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Fields;
    type SerializeStruct = Fields;
    type SerializeStructVariant = Never;

    fn serialize_map(self, _: Option<usize>) -> Result<Fields, EncodeError> {
        Ok(Fields::default())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields, EncodeError> {
        Ok(Fields::default())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<Self::Ok, EncodeError> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Self::Ok, EncodeError> {
        value.serialize(self)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Self::Ok, EncodeError> {
        Ok(Vec::new())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Self::Ok, EncodeError> {
        Err(EncodeError(A_STRUCT.to_owned()))
    }

    refuse! { A_STRUCT;
        serialize_bool(bool) -> Self::Ok;
        serialize_i8(i8) -> Self::Ok;
        serialize_i16(i16) -> Self::Ok;
        serialize_i32(i32) -> Self::Ok;
        serialize_i64(i64) -> Self::Ok;
        serialize_u8(u8) -> Self::Ok;
        serialize_u16(u16) -> Self::Ok;
        serialize_u32(u32) -> Self::Ok;
        serialize_u64(u64) -> Self::Ok;
        serialize_f32(f32) -> Self::Ok;
        serialize_f64(f64) -> Self::Ok;
        serialize_char(char) -> Self::Ok;
        serialize_str(&str) -> Self::Ok;
        serialize_bytes(&[u8]) -> Self::Ok;
        serialize_none() -> Self::Ok;
        serialize_unit() -> Self::Ok;
        serialize_unit_variant(&'static str, u32, &'static str) -> Self::Ok;
        serialize_seq(Option<usize>) -> Never;
        serialize_tuple(usize) -> Never;
        serialize_tuple_struct(&'static str, usize) -> Never;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Never;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Never;
    }
}

/// Serializer of one property.
struct Plain;

/// Defines serializer methods that convert a plain value into a property.
macro_rules! plain {
    ($($name:ident($from:ty) => |$value:ident| $property:expr;)*) => {$(
        fn $name(self, $value: $from) -> Result<Option<Property>, EncodeError> {
            Ok(Some($property))
        }
    )*};
}

impl ser::Serializer for Plain {
    type Ok = Option<Property>;
    type Error = EncodeError;
    type SerializeSeq = NeverPlain;
    type SerializeTuple = NeverPlain;
    type SerializeTupleStruct = NeverPlain;
    type SerializeTupleVariant = NeverPlain;
    type SerializeMap = NeverPlain;
    type SerializeStruct = NeverPlain;
    type SerializeStructVariant = NeverPlain;

    plain! {
        serialize_bool(bool) => |value| Property::Bool(value);
        serialize_i8(i8) => |value| Property::Int32(value.into());
        serialize_i16(i16) => |value| Property::Int32(value.into());
        serialize_i32(i32) => |value| Property::Int32(value);
        serialize_i64(i64) => |value| Property::Int64(value);
        serialize_u8(u8) => |value| Property::Int32(value.into());
        serialize_u16(u16) => |value| Property::Int32(value.into());
        serialize_u32(u32) => |value| Property::Int64(value.into());
        serialize_f32(f32) => |value| Property::Double(value.into());
        serialize_f64(f64) => |value| Property::Double(value);
        serialize_char(char) => |value| Property::Text(value.to_string());
        serialize_str(&str) => |value| Property::Text(value.to_owned());
        serialize_bytes(&[u8]) => |value| Property::Binary(value.to_vec());
    }

    fn serialize_u64(self, value: u64) -> Result<Option<Property>, EncodeError> {
        self.serialize_i128(value.into())
    }

    fn serialize_i128(self, value: i128) -> Result<Option<Property>, EncodeError> {
        let fits = i64::try_from(value).map_err(|_| {
            EncodeError(format!("{value} does not fit into a signed 64-bit integer"))
        })?;
        Ok(Some(Property::Int64(fits)))
    }

    fn serialize_u128(self, value: u128) -> Result<Option<Property>, EncodeError> {
        let fits = i64::try_from(value).map_err(|_| {
            EncodeError(format!("{value} does not fit into a signed 64-bit integer"))
        })?;
        Ok(Some(Property::Int64(fits)))
    }

    fn serialize_none(self) -> Result<Option<Property>, EncodeError> {
        Ok(None)
    }

    fn serialize_unit(self) -> Result<Option<Property>, EncodeError> {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(
        self,
        value: &T,
    ) -> Result<Option<Property>, EncodeError> {
        value.serialize(self)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<Option<Property>, EncodeError> {
        Ok(Some(Property::Text(variant.to_owned())))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Option<Property>, EncodeError> {
        Ok(match (name, value.serialize(self)?) {
            (edm::GUID, Some(Property::Text(text))) => Some(Property::Guid(text)),
            (edm::DATE_TIME, Some(Property::Text(text))) => Some(Property::DateTime(text)),
            (_, other) => other,
        })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<Option<Property>, EncodeError> {
        Err(EncodeError(FLAT.to_owned()))
    }

    refuse! { FLAT;
        serialize_unit_struct(&'static str) -> Option<Property>;
        serialize_seq(Option<usize>) -> NeverPlain;
        serialize_tuple(usize) -> NeverPlain;
        serialize_tuple_struct(&'static str, usize) -> NeverPlain;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> NeverPlain;
        serialize_map(Option<usize>) -> NeverPlain;
        serialize_struct(&'static str, usize) -> NeverPlain;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> NeverPlain;
    }
}
