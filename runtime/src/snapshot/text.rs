//! Decoders for the text encodings that Python writes.
//!
//! Invalid bytes, such as a byte in a file name that the system could not decode, are replaced by the replacement
//! character; the rest of the text is kept.

use std::borrow::Cow;

/// Decodes a text in UTF-8. Python represents bytes that it could not decode as lone surrogates, and writes them as if
/// they were three-byte characters.
pub fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    let mut text = match str::from_utf8(bytes) {
        Ok(text) => return Cow::Borrowed(text),
        Err(_) => String::with_capacity(bytes.len()),
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let (valid, skipped) = match str::from_utf8(rest) {
            Ok(_) => (rest.len(), 0),
            Err(error) => {
                let at = error.valid_up_to();
                let is_surrogate = matches!(rest[at..], [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..]);
                let length = if is_surrogate { 3 } else { error.error_len().unwrap_or(rest.len() - at) };
                (at, length)
            }
        };
        text.push_str(str::from_utf8(&rest[..valid]).unwrap_or_default());
        if skipped > 0 {
            text.push(char::REPLACEMENT_CHARACTER);
        }
        rest = &rest[valid + skipped..];
    }
    Cow::Owned(text)
}

/// Decodes a protocol 0 text, in which bytes are Latin-1 and other characters are escaped by their code point.
pub fn raw_unicode(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                text.push(char::from(byte));
                continue;
            }
        };
        match after.get(1..=digits).and_then(hexadecimal) {
            Some(code) => {
                text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                rest = &after[digits + 1..];
            }
            None => text.push('\\'),
        }
    }
    text
}

/// Decodes a quoted text in the source code form of Python 2; `None` if the quotes are missing.
pub fn quoted(line: &[u8]) -> Option<String> {
    let (&quote, line) = line.split_first().filter(|(quote, _)| b"'\"".contains(quote))?;
    let mut rest = line.strip_suffix(&[quote])?;
    let mut bytes = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some((&escaped, after)) = after.split_first().filter(|_| byte == b'\\') else {
            bytes.push(byte);
            continue;
        };
        rest = after;
        bytes.push(match escaped {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'x' => {
                let code = after.get(..2).and_then(hexadecimal)?;
                rest = &after[2..];
                code as u8
            }
            other => other,
        });
    }
    Some(lossy(&bytes).into_owned())
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |code, digit| Some(code << 4 | char::from(*digit).to_digit(16)?))
}
