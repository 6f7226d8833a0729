//! One property of an entity, as JSON with OData's annotations.

use azure_core::base64;
use serde_json::{Map, Number, Value};

/// Value of a property, by its type in the table service.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Property {
    Bool(bool),
    Int32(i32),
    Int64(i64),
    Double(f64),
    Text(String),
    Guid(String),
    DateTime(String),
    Binary(Vec<u8>),
}

impl Property {
    /// Returns the JSON value, and the type if JSON does not imply it.
    fn json(&self) -> (Value, Option<&'static str>) {
        match self {
            Self::Bool(value) => ((*value).into(), None),
            Self::Int32(value) => ((*value).into(), None),
            Self::Int64(value) => (value.to_string().into(), Some("Edm.Int64")),
            Self::Double(value) => (double(*value), Some("Edm.Double")),
            Self::Text(text) => (text.as_str().into(), None),
            Self::Guid(text) => (text.as_str().into(), Some("Edm.Guid")),
            Self::DateTime(text) => (text.as_str().into(), Some("Edm.DateTime")),
            Self::Binary(bytes) => (base64::encode(bytes).into(), Some("Edm.Binary")),
        }
    }

    /// Returns its share of an entity's size, by Azure's formula.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Bool(_) => 1,
            Self::Int32(_) => 4,
            Self::Int64(_) | Self::Double(_) | Self::DateTime(_) => 8,
            Self::Guid(_) => 16,
            Self::Text(text) => 4 + 2 * text.encode_utf16().count(),
            Self::Binary(bytes) => 4 + bytes.len(),
        }
    }

    /// Adds the property to an entity.
    pub(super) fn write(&self, name: &str, entity: &mut Map<String, Value>) {
        let (value, kind) = self.json();
        if let Some(kind) = kind {
            entity.insert(format!("{name}@odata.type"), kind.into());
        }
        entity.insert(name.to_owned(), value);
    }

    /// Parses a property. `kind` is its type annotation, if any. Returns `None` for
    /// null.
    pub(super) fn read(value: Value, kind: Option<&str>) -> Result<Option<Self>, &'static str> {
        Ok(Some(match (kind, value) {
            (_, Value::Null) => return Ok(None),
            (_, Value::Bool(value)) => Self::Bool(value),
            (Some("Edm.Int64"), Value::String(text)) => {
                Self::Int64(text.parse().map_err(|_| "is not a 64-bit integer")?)
            }
            (Some("Edm.Double"), Value::String(text)) => match text.as_str() {
                "NaN" => Self::Double(f64::NAN),
                "Infinity" => Self::Double(f64::INFINITY),
                "-Infinity" => Self::Double(f64::NEG_INFINITY),
                _ => Self::Double(text.parse().map_err(|_| "is not a number")?),
            },
            (Some("Edm.Guid"), Value::String(text)) => Self::Guid(text),
            (Some("Edm.DateTime"), Value::String(text)) => Self::DateTime(text),
            (Some("Edm.Binary"), Value::String(text)) => {
                Self::Binary(base64::decode(text).map_err(|_| "is not base64")?)
            }
            (_, Value::String(text)) => Self::Text(text),
            (Some("Edm.Double"), Value::Number(number)) => {
                Self::Double(number.as_f64().ok_or("is not a number")?)
            }
            (_, Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(value), _) => Self::Int64(value),
                (None, Some(value)) => Self::Double(value),
                (None, None) => return Err("is not a number"),
            },
            (_, Value::Array(_) | Value::Object(_)) => return Err("is not a plain value"),
        }))
    }
}

fn double(value: f64) -> Value {
    Number::from_f64(value).map_or_else(
        || {
            let text = if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            text.into()
        },
        Value::Number,
    )
}
