//! Encodes JSON as the message `context.v1.Object`, in one pass.

use std::fmt;

use prost::encoding::encode_varint;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::object::Object;

/// Number of levels that are encoded as messages. Deeper ones are encoded as JSON text (see value.proto).
const MESSAGE_LEVELS: usize = 16;

/// The first byte of each field: its number and wire type.
mod key {
    /// `Object.fields` and `ListValue.values`.
    pub const MEMBER: u8 = 0x0a;
    /// The key of a map's entry.
    pub const MEMBER_KEY: u8 = 0x0a;
    /// The value of a map's entry.
    pub const MEMBER_VALUE: u8 = 0x12;
    pub const NULL_VALUE: u8 = 0x08;
    pub const BOOL_VALUE: u8 = 0x10;
    pub const INT_VALUE: u8 = 0x18;
    pub const DOUBLE_VALUE: u8 = 0x21;
    pub const STRING_VALUE: u8 = 0x2a;
    pub const LIST_VALUE: u8 = 0x32;
    pub const OBJECT_VALUE: u8 = 0x3a;
    pub const JSON_VALUE: u8 = 0x42;
}

/// Encodes the object in `json`.
///
/// # Errors
/// The errors of `json`, and an error when it is not an object.
pub(crate) fn object<'de, D: Deserializer<'de>>(json: D) -> Result<Object, D::Error> {
    let mut to = Vec::new();
    json.deserialize_map(Members {
        to: &mut to,
        level: 1,
    })?;
    Ok(Object::of_encoded(to))
}

/// Begins a length-delimited field and returns the position of its length.
fn begin(to: &mut Vec<u8>, key: u8) -> usize {
    to.push(key);
    to.push(0);
    to.len() - 1
}

/// Ends the field whose length is at this position. `begin` reserved one byte for it, which suffices for most fields.
fn end(to: &mut Vec<u8>, place: usize) {
    let length = to.len() - place - 1;
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => to[place] = short,
        _ => {
            let mut long = Vec::with_capacity(5);
            encode_varint(length as u64, &mut long);
            to.splice(place..=place, long);
        }
    }
}

fn text(to: &mut Vec<u8>, key: u8, text: &str) {
    to.push(key);
    encode_varint(text.len() as u64, to);
    to.extend_from_slice(text.as_bytes());
}

/// Encodes the members of an object.
struct Members<'w> {
    to: &'w mut Vec<u8>,
    /// The level of the object. The outermost one is at level 1.
    level: usize,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<(), M::Error> {
        while let Some(place) = members.next_key_seed(Key { to: self.to })? {
            members.next_value_seed(Item {
                to: self.to,
                key: key::MEMBER_VALUE,
                level: self.level + 1,
            })?;
            end(self.to, place);
        }
        Ok(())
    }
}

/// Encodes the start of a member, up to its key.
struct Key<'w> {
    to: &'w mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<usize, E> {
        let place = begin(self.to, key::MEMBER);
        text(self.to, key::MEMBER_KEY, key);
        Ok(place)
    }
}

/// Encodes a value that is a field of another message.
struct Item<'w> {
    to: &'w mut Vec<u8>,
    key: u8,
    /// The level of the value, if it is an object or a list.
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Item<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let Self { to, key, level } = self;
        let place = begin(to, key);
        if level <= MESSAGE_LEVELS {
            deserializer.deserialize_any(Content { to, level })?;
        } else {
            let json: Box<RawValue> = serde::Deserialize::deserialize(deserializer)?;
            match json.get() {
                nested if nested.starts_with(['{', '[']) => text(to, key::JSON_VALUE, nested),
                plain => serde_json::Deserializer::from_str(plain)
                    .deserialize_any(Content { to, level })
                    .map_err(D::Error::custom)?,
            }
        }
        end(to, place);
        Ok(())
    }
}

/// Encodes the content of a value.
struct Content<'w> {
    to: &'w mut Vec<u8>,
    level: usize,
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.to.extend([key::NULL_VALUE, 0]);
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.to.extend([key::BOOL_VALUE, u8::from(value)]);
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.to.push(key::INT_VALUE);
        encode_varint(value.cast_unsigned(), self.to);
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            // An integer beyond i64 is sent as text, so that the service rejects it with its own error message.
            Err(_) => {
                text(self.to, key::JSON_VALUE, &value.to_string());
                Ok(())
            }
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.to.push(key::DOUBLE_VALUE);
        self.to.extend(value.to_le_bytes());
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        text(self.to, key::STRING_VALUE, value);
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<(), S::Error> {
        let Self { to, level } = self;
        let place = begin(to, key::LIST_VALUE);
        while items
            .next_element_seed(Item {
                to,
                key: key::MEMBER,
                level: level + 1,
            })?
            .is_some()
        {}
        end(to, place);
        Ok(())
    }

    fn visit_map<M: MapAccess<'de>>(self, members: M) -> Result<(), M::Error> {
        let Self { to, level } = self;
        let place = begin(to, key::OBJECT_VALUE);
        Members { to, level }.visit_map(members)?;
        end(to, place);
        Ok(())
    }
}
