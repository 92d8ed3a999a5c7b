//! Text in a fixed buffer.

use core::fmt;

use crate::mix;

/// Written text, up to 160 bytes; more is an error.
pub struct Text {
    bytes: [u8; 160],
    len: usize,
}

impl Default for Text {
    fn default() -> Self {
        Text { bytes: [0; 160], len: 0 }
    }
}

impl Text {
    /// Creates an empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the text; empty if its end was cut off within a character.
    pub fn as_str(&self) -> &str {
        self.bytes.get(..self.len).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or("")
    }

    /// Hash of the bytes.
    pub fn hash(&self) -> u64 {
        self.bytes.iter().take(self.len).fold(self.len as u64, |hash, byte| mix(hash, u64::from(*byte)))
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            let place = self.bytes.get_mut(self.len).ok_or(fmt::Error)?;
            *place = byte;
            self.len += 1;
        }
        Ok(())
    }
}
