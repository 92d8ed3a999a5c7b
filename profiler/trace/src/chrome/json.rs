//! Streaming JSON reader that tolerates the deviations of trace writers.
//!
//! Memory is bounded regardless of the length and depth of the file. The tolerated deviations are words for non-finite
//! numbers (`NaN`, `Infinity`, `-inf`), missing and extra commas, control characters, unknown escapes, unpaired
//! surrogates, and invalid UTF-8.

use std::io::{self, BufRead};

use serde_json::{Map, Value};

use super::event::Loose;
use super::number::Number;
use crate::names::LONGEST;

/// Reason why a value could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The file ends inside the value.
    End,
    /// The value is not JSON.
    Wrong(&'static str),
    /// The file cannot be read further.
    Input(io::Error),
    /// The destination failed.
    Output(io::Error),
}

/// Maximum length of a word in bytes; any number is shorter.
const LONGEST_WORD: usize = 1 << 10;
/// Maximum nesting depth up to which values are kept.
const DEEPEST: usize = 16;

/// JSON reader.
#[derive(Debug)]
pub(super) struct Json<R> {
    input: R,
    at: u64,
    /// String or word that is currently being read.
    held: Vec<u8>,
}

impl<R: BufRead> Json<R> {
    pub(super) fn new(input: R) -> Self {
        Json { input, at: 0, held: Vec::new() }
    }

    /// Returns the number of bytes that have been read.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    fn take(&mut self, count: usize) {
        self.input.consume(count);
        self.at += count as u64;
    }

    /// Returns the next bytes. The slice is empty at the end of the file.
    fn ahead(&mut self) -> Result<&[u8], Fault> {
        // `fill_buf` is called twice to satisfy the borrow checker. The second call returns the buffered bytes.
        while let Err(error) = self.input.fill_buf() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(Fault::Input(error));
            }
        }
        self.input.fill_buf().map_err(Fault::Input)
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        self.ahead()?.first().copied().ok_or(Fault::End)
    }

    /// Skips leading bytes as long as `skipped` returns true. Returns the byte that follows, or `None` at the end of
    /// the file.
    fn skip_all(&mut self, skipped: impl Fn(u8) -> bool) -> Result<Option<u8>, Fault> {
        loop {
            let ahead = self.ahead()?;
            if ahead.is_empty() {
                return Ok(None);
            }
            let found = ahead.iter().position(|byte| !skipped(*byte));
            let (count, byte) = (found.unwrap_or(ahead.len()), found.map(|at| ahead[at]));
            self.take(count);
            if byte.is_some() {
                return Ok(byte);
            }
        }
    }

    /// Returns the first byte of the next value, or `None` at the end of the file.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, Fault> {
        self.skip_all(|byte| byte.is_ascii_whitespace())
    }

    /// Enters a list or an object that starts with the byte `begin`.
    pub(super) fn enter(&mut self, begin: u8) -> Result<(), Fault> {
        match self.peek()?.ok_or(Fault::End)? {
            byte if byte == begin => {
                self.take(1);
                Ok(())
            }
            _ => Err(Fault::Wrong(if begin == b'{' { "an object is missing" } else { "a list is missing" })),
        }
    }

    /// Returns true if the current list contains another item.
    pub(super) fn next_item(&mut self) -> Result<bool, Fault> {
        match self.skip_all(|byte| byte.is_ascii_whitespace() || byte == b',')?.ok_or(Fault::End)? {
            b']' => {
                self.take(1);
                Ok(false)
            }
            b'}' | b':' => Err(Fault::Wrong("a list does not end there")),
            _ => Ok(true),
        }
    }

    /// Returns true if the current object contains another entry, and stores the entry's key in `key`.
    pub(super) fn next_key(&mut self, key: &mut String) -> Result<bool, Fault> {
        match self.skip_all(|byte| byte.is_ascii_whitespace() || byte == b',')?.ok_or(Fault::End)? {
            b'}' => {
                self.take(1);
                Ok(false)
            }
            b'"' => {
                *key = self.text()?;
                match self.peek()?.ok_or(Fault::End)? {
                    b':' => self.take(1),
                    _ => return Err(Fault::Wrong("a key has no value")),
                }
                Ok(true)
            }
            _ => Err(Fault::Wrong("a key is missing")),
        }
    }

    /// Reads the next value. An object is read as `None`, and a list is read as its first three numbers.
    pub(super) fn value(&mut self) -> Result<Loose, Fault> {
        match self.peek()?.ok_or(Fault::End)? {
            b'"' => Ok(Loose::Text(self.text()?)),
            b'{' => self.skip().map(|()| Loose::None),
            b'[' => {
                self.take(1);
                let (mut size, mut count) = ([0; 3], 0);
                while self.next_item()? {
                    if matches!(self.byte()?, b'[' | b'{') {
                        self.skip()?;
                    } else if let (Some(place), Some(value)) = (size.get_mut(count), self.value()?.uint()) {
                        *place = u32::try_from(value).unwrap_or(u32::MAX);
                        count += 1;
                    }
                }
                Ok(Loose::Size(size))
            }
            _ => self.word(),
        }
    }

    /// Skips a value of any depth.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        let mut deep = 0_u64;
        loop {
            match self
                .skip_all(|byte| byte.is_ascii_whitespace() || matches!(byte, b',' | b':'))?
                .ok_or(Fault::End)?
            {
                b'"' => drop(self.text()?),
                b'{' | b'[' => {
                    deep += 1;
                    self.take(1);
                }
                b'}' | b']' if deep > 0 => {
                    deep -= 1;
                    self.take(1);
                }
                _ => drop(self.word()?),
            }
            if deep == 0 {
                return Ok(());
            }
        }
    }

    /// Reads the next value including all nested values. Values that are nested too deeply, or that exceed the
    /// remaining `budget` (in bytes), become null.
    pub(super) fn tree(&mut self, budget: &mut usize, deep: usize) -> Result<Value, Fault> {
        // Approximate memory size of a value, in bytes.
        const EACH: usize = 64;
        let first = self.peek()?.ok_or(Fault::End)?;
        if deep == DEEPEST || *budget < EACH {
            return self.skip().map(|()| Value::Null);
        }
        *budget -= EACH;
        Ok(match first {
            b'{' => {
                self.take(1);
                let (mut map, mut key) = (Map::new(), String::new());
                while self.next_key(&mut key)? {
                    *budget = budget.saturating_sub(key.len());
                    let value = self.tree(budget, deep + 1)?;
                    if *budget > 0 {
                        map.insert(std::mem::take(&mut key), value);
                    }
                }
                Value::Object(map)
            }
            b'[' => {
                self.take(1);
                let mut list = Vec::new();
                while self.next_item()? {
                    let item = self.tree(budget, deep + 1)?;
                    if *budget > 0 {
                        list.push(item);
                    }
                }
                Value::Array(list)
            }
            b'"' => {
                let text = self.text()?;
                *budget = budget.saturating_sub(text.len());
                Value::String(text)
            }
            b't' | b'f' => Value::Bool(self.word().map(|_| first == b't')?),
            _ => match self.word()? {
                Loose::Number(number) => match number.times_ten_to(0).filter(|_| number.is_integer()) {
                    Some(value) => match (u64::try_from(value), i64::try_from(value)) {
                        (Ok(value), _) => value.into(),
                        (_, Ok(value)) => value.into(),
                        _ => number.float().into(),
                    },
                    None => number.float().into(),
                },
                _ => Value::Null,
            },
        })
    }

    /// Reads a number, or a word that represents a value.
    fn word(&mut self) -> Result<Loose, Fault> {
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b",:]}[{\"".contains(byte);
        let ahead = self.ahead()?;
        if let Some(length) = ahead.iter().position(ends) {
            let word = meaning(&ahead[..length]);
            self.take(length);
            return word;
        }
        // The word continues in the next chunk of the file.
        self.held.clear();
        loop {
            let ahead = self.ahead()?;
            let length = ahead.iter().position(ends);
            let is_last = length.is_some() || ahead.is_empty();
            let length = length.unwrap_or(ahead.len());
            if self.held.len() + length > LONGEST_WORD {
                return Err(Fault::Wrong("a number is too long"));
            }
            let piece = self.input.fill_buf().map_err(Fault::Input)?;
            self.held.extend_from_slice(&piece[..length]);
            self.take(length);
            if is_last {
                return meaning(&self.held);
            }
        }
    }

    /// Reads a string. If the string is longer than [`LONGEST`], only slightly more than its first [`LONGEST`] bytes
    /// are kept.
    fn text(&mut self) -> Result<String, Fault> {
        self.take(1);
        self.held.clear();
        let mut held = std::mem::take(&mut self.held);
        let text = self.text_into(&mut held).map(|()| match std::str::from_utf8(&held) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(&held).into_owned(),
        });
        self.held = held;
        text
    }

    fn text_into(&mut self, held: &mut Vec<u8>) -> Result<(), Fault> {
        // One half of a surrogate pair, whose other half may follow.
        let mut half = None;
        let put = |held: &mut Vec<u8>, bytes: &[u8]| {
            let room = (LONGEST + 4).saturating_sub(held.len());
            held.extend_from_slice(&bytes[..bytes.len().min(room)]);
        };
        let put_char = |held: &mut Vec<u8>, char: char| put(held, char.encode_utf8(&mut [0; 4]).as_bytes());
        loop {
            let ahead = self.ahead()?;
            if ahead.is_empty() {
                return Err(Fault::End);
            }
            let found = ahead.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            let length = found.unwrap_or(ahead.len());
            if length > 0 && half.take().is_some() {
                put_char(held, char::REPLACEMENT_CHARACTER);
            }
            put(held, &ahead[..length]);
            let end = found.map(|at| ahead[at]);
            self.take(length + usize::from(found.is_some()));
            match end {
                None => continue,
                Some(b'"') => {
                    if half.is_some() {
                        put_char(held, char::REPLACEMENT_CHARACTER);
                    }
                    return Ok(());
                }
                Some(_) => {}
            }
            let escaped = self.byte()?;
            self.take(1);
            let unit = if escaped == b'u' { self.unit()? } else { Err(Vec::new()) };
            if let (Ok(low @ 0xdc00..0xe000), Some(high)) = (&unit, half) {
                let code = 0x10000 + ((u32::from(high) & 0x3ff) << 10 | u32::from(*low) & 0x3ff);
                put_char(held, char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                half = None;
                continue;
            }
            if half.take().is_some() {
                put_char(held, char::REPLACEMENT_CHARACTER);
            }
            match (escaped, unit) {
                (b'u', Ok(high @ 0xd800..0xdc00)) => half = Some(high),
                (b'u', Ok(unit)) => {
                    put_char(held, char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                (b'n', _) => put(held, b"\n"),
                (b't', _) => put(held, b"\t"),
                (b'r', _) => put(held, b"\r"),
                (b'b', _) => put(held, b"\x08"),
                (b'f', _) => put(held, b"\x0c"),
                (b'"' | b'\\' | b'/', _) => put(held, &[escaped]),
                // This is probably a Windows path whose backslashes were not escaped.
                (_, Err(digits)) => {
                    put(held, &[b'\\', escaped]);
                    put(held, &digits);
                }
                (_, Ok(_)) => put(held, &[b'\\', escaped]),
            }
        }
    }

    /// Reads four hexadecimal digits. If there are fewer digits, returns those that are available.
    fn unit(&mut self) -> Result<Result<u16, Vec<u8>>, Fault> {
        let (mut unit, mut digits) = (0, Vec::new());
        while digits.len() < 4 {
            let byte = self.byte()?;
            let Some(digit) = char::from(byte).to_digit(16) else { return Ok(Err(digits)) };
            self.take(1);
            digits.push(byte);
            unit = unit << 4 | digit as u16;
        }
        Ok(Ok(unit))
    }
}

fn meaning(word: &[u8]) -> Result<Loose, Fault> {
    if let Some(number) = Number::of(word) {
        return Ok(Loose::Number(number));
    }
    let bare = word.strip_prefix(b"-").or(word.strip_prefix(b"+")).unwrap_or(word).to_ascii_lowercase();
    match bare.as_slice() {
        b"true" => Ok(Loose::Number(1.into())),
        b"false" => Ok(Loose::Number(0.into())),
        b"null" | b"none" | b"undefined" | b"inf" | b"infinity" => Ok(Loose::None),
        // C libraries append words in parentheses to NaN.
        _ if bare.starts_with(b"nan") => Ok(Loose::None),
        _ => Err(Fault::Wrong("there is a word that JSON does not have")),
    }
}
