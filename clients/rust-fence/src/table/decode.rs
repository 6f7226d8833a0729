//! Conversion of an entity's JSON into a Rust value: a serde deserializer.

use azure_core::base64;
use serde::{
    de::{
        DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor,
        value::{Error, MapDeserializer, StringDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Map, Value};

use super::property::Property;

/// System properties, which are not part of the value.
pub(super) const SYSTEM: [&str; 3] = ["PartitionKey", "RowKey", "Timestamp"];

/// Deserializes the value of an entity. The error names the property.
pub(super) fn value<T: DeserializeOwned>(entity: &Map<String, Value>) -> Result<T, String> {
    let mut properties = Vec::with_capacity(entity.len());
    for (name, value) in entity {
        if name.contains("odata.") || SYSTEM.contains(&name.as_str()) {
            continue;
        }
        let kind = entity.get(&format!("{name}@odata.type")).and_then(Value::as_str);
        match Property::read(value.clone(), kind) {
            Ok(Some(property)) => properties.push((name.clone(), Read(property))),
            Ok(None) => {}
            Err(why) => return Err(format!("the property {name} {why}")),
        }
    }
    T::deserialize(MapDeserializer::new(properties.into_iter())).map_err(|error| error.to_string())
}

/// Deserializes one property.
pub(super) fn one<T: DeserializeOwned>(property: Property) -> Result<T, Error> {
    T::deserialize(Read(property))
}

struct Read(Property);

impl IntoDeserializer<'_, Error> for Read {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Read {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Property::Bool(value) => visitor.visit_bool(value),
            Property::Int32(value) => visitor.visit_i32(value),
            Property::Int64(value) => visitor.visit_i64(value),
            Property::Double(value) => visitor.visit_f64(value),
            Property::Text(text) | Property::Guid(text) | Property::DateTime(text) => {
                visitor.visit_string(text)
            }
            Property::Binary(bytes) => visitor.visit_string(base64::encode(bytes)),
        }
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_byte_buf(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Property::Binary(bytes) => visitor.visit_byte_buf(bytes),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Property::Text(text) => {
                let text: StringDeserializer<Error> = text.into_deserializer();
                text.deserialize_enum(name, variants, visitor)
            }
            _ => Err(Error::custom("expected a string, the name of a variant")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string
        unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
