//! Data source for serde that reads the values of a pickle.
//!
//! Values that are nested too deeply or that contain themselves cause an error instead of a stack overflow. The total
//! size to which shared lists expand is limited by a [`Budget`], because a file of 300 bytes can represent more values
//! than fit in memory.

use std::borrow::Cow;
use std::cell::Cell;

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::machine::{Machine, Problem, Value};
use super::text;

/// Reads a value from a pickle that occupies `in_file` bytes in its file. Bytes after the value are ignored, as in
/// Python.
pub fn read<T: DeserializeOwned>(bytes: &[u8], in_file: usize) -> Result<T, Problem> {
    let mut machine = Machine::new(bytes, SOME_VALUES + in_file as u64 * VALUES);
    let value = machine.run()?;
    let budget = Budget::of(in_file);
    let source = Source { lists: &machine.lists, texts: &machine.texts, budget: &budget };
    T::deserialize(Data { source, value, deep: 0 }).map_err(Problem::Content)
}

/// Maximum number of values for each byte of a file, and the number of values that is always permitted. Only a
/// compressed file contains more than one value per byte.
const VALUES: u64 = 8;
const SOME_VALUES: u64 = 1 << 20;

/// Maximum nesting depth of values. It exceeds the depth of every snapshot, but is too small to overflow the stack.
const DEEPEST: usize = 32;

/// Number of bytes that the remaining values may occupy in memory.
struct Budget {
    left: Cell<u64>,
    all: u64,
}

/// Approximate size of a value in bytes, without its text.
const VALUE_BYTES: u64 = 16;
/// Maximum number of bytes in memory for each byte of a file. This is twice the ratio of a history whose entries share
/// call stacks of a hundred frames.
const UNFOLDED_BYTES: u64 = 512;
/// Minimum and maximum of the limit on the expanded size of a file, in bytes.
const MIN_BUDGET: u64 = 16 << 20;
const MAX_BUDGET: u64 = 16 << 30;

impl Budget {
    /// Returns the budget for a file of this length.
    fn of(file_bytes: usize) -> Self {
        let all = (file_bytes as u64).saturating_mul(UNFOLDED_BYTES).clamp(MIN_BUDGET, MAX_BUDGET);
        Self { left: Cell::new(all), all }
    }

    fn spend(&self, value: Value<'_>, texts: &[String]) -> Result<(), Error> {
        let text = match value {
            Value::Text(text) => text.len() as u64,
            Value::Unescaped(text) => texts.get(text).map_or(0, String::len) as u64,
            _ => 0,
        };
        let left = self.left.get().checked_sub(VALUE_BYTES + text);
        let too_many =
            || Error::custom(format_args!("shared values expand to more than {} MiB", self.all >> 20));
        self.left.set(left.ok_or_else(too_many)?);
        Ok(())
    }
}

/// Lists and texts to which values may refer.
#[derive(Clone, Copy)]
struct Source<'s, 'a> {
    lists: &'s [Vec<Value<'a>>],
    texts: &'s [String],
    budget: &'s Budget,
}

/// A value, and the lists and texts to which it may refer.
#[derive(Clone, Copy)]
struct Data<'s, 'a> {
    source: Source<'s, 'a>,
    value: Value<'a>,
    /// Nesting depth of the value.
    deep: usize,
}

impl<'s, 'a> Data<'s, 'a> {
    /// Returns the text of the value; empty if it is not a text.
    fn text(self) -> Cow<'s, str>
    where
        'a: 's,
    {
        match self.value {
            Value::Text(bytes) => text::lossy(bytes),
            Value::Unescaped(text) => Cow::Borrowed(self.source.texts.get(text).map_or("", String::as_str)),
            _ => Cow::Borrowed(""),
        }
    }

    fn items(self, list: usize) -> Result<Items<'s, 'a>, Error> {
        if self.deep == DEEPEST {
            return Err(Error::custom("it is nested too deeply"));
        }
        Ok(Items { rest: self.source.lists.get(list).map_or(&[][..], Vec::as_slice), data: self })
    }
}

impl<'a> Deserializer<'a> for Data<'_, 'a> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::None => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(value) => match (u64::try_from(value), i64::try_from(value)) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                _ => Err(Error::custom("a number is too large")),
            },
            Value::Float(value) => visitor.visit_f64(value),
            Value::Text(_) | Value::Unescaped(_) => visitor.visit_str(&self.text()),
            Value::Class(_) => Err(Error::custom("it names a type")),
            Value::List(list) => visitor.visit_seq(self.items(list)?),
            Value::Dict(list) => visitor.visit_map(self.items(list)?),
        }
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::None => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (Value::Text(_) | Value::Unescaped(_)) = self.value else { return self.deserialize_any(visitor) };
        let text = self.text();
        let text: StrDeserializer<'_, Error> = (*text).into_deserializer();
        text.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        <W: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier
    }
}

/// Items of a list, or keys and values of a dict, that have not been read yet.
struct Items<'s, 'a> {
    rest: &'s [Value<'a>],
    data: Data<'s, 'a>,
}

impl<'s, 'a> Items<'s, 'a> {
    fn next(&mut self) -> Result<Option<Data<'s, 'a>>, Error> {
        let Some((&value, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        self.data.source.budget.spend(value, self.data.source.texts)?;
        Ok(Some(Data { value, deep: self.data.deep + 1, ..self.data }))
    }
}

impl<'a> SeqAccess<'a> for Items<'_, 'a> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.next()?.map(|item| seed.deserialize(item)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

impl<'a> MapAccess<'a> for Items<'_, 'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.next()?.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.next()?.ok_or_else(|| Error::custom("a key has no value"))?;
        seed.deserialize(value)
    }
}
