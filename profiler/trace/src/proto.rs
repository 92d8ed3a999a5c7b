//! Protocol buffers: fields as they are encoded.

/// Appends `value` as a varint.
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a field that is an integer.
pub(crate) fn uint(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}

/// Appends a field of eight bytes.
pub(crate) fn fixed(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a field that is a text or a message.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a field that is a message, which `content` writes.
pub(crate) fn message(out: &mut Vec<u8>, field: u32, content: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(field) << 3 | 2);
    let length_at = out.len();
    // Most messages are shorter than 128 bytes; for others the length is moved in.
    out.push(0);
    content(out);
    let length = out.len() - length_at - 1;
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out[length_at] = short,
        _ => {
            let mut encoded = Vec::with_capacity(10);
            varint(&mut encoded, length as u64);
            out.splice(length_at..=length_at, encoded);
        }
    }
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Field<'a> {
    Uint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    /// As an integer; 0 for bytes.
    pub(crate) fn uint(self) -> u64 {
        match self {
            Field::Uint(value) | Field::Fixed(value) => value,
            Field::Bytes(_) => 0,
        }
    }

    /// As bytes; none for a number.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            _ => &[],
        }
    }
}

/// The fields of a message, in order. What is damaged ends it, and [`Self::is_damaged`] says so.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    damaged: bool,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Fields { rest: message, damaged: false }
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(count).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn field(&mut self) -> Option<(u32, Field<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Field::Uint(self.varint()?),
            1 => Field::Fixed(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed(u32::from_le_bytes(self.take(4)?.try_into().ok()?).into()),
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok().filter(|field| *field > 0)?, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.damaged {
            return None;
        }
        let field = self.field();
        self.damaged = field.is_none();
        field
    }
}
