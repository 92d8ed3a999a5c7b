//! Values of a store and the operations that all in-memory stores share.

use std::collections::HashMap;

/// Values by key.
#[derive(Debug, Default)]
pub(super) struct Values {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// Total size of keys and values, in bytes.
    bytes: usize,
}

impl Values {
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.values.contains_key(key)
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// Returns the total size of keys and values, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn set(&mut self, key: &[u8], value: Vec<u8>) {
        self.bytes += value.len();
        match self.values.get_mut(key) {
            Some(present) => self.bytes -= std::mem::replace(present, value).len(),
            None => {
                self.bytes += key.len();
                self.values.insert(key.to_vec(), value);
            }
        }
    }

    /// Adds to a decimal number, which counts as 0 if the key is not set. If the value is not a number, returns `None`
    /// and changes nothing.
    pub fn add(&mut self, key: &[u8], amount: i64) -> Option<i64> {
        let number = self.get(key).map_or(Some(0), number)?;
        let sum = number.wrapping_add(amount);
        self.set(key, sum.to_string().into_bytes());
        Some(sum)
    }

    /// Sets a key, provided that its current value is `expected`. If `expected` is empty, the key must not be set.
    /// Returns the resulting value, and whether this call has set the key.
    pub fn compare_set(&mut self, key: &[u8], expected: &[u8], desired: &[u8]) -> (Option<Vec<u8>>, bool) {
        match self.get(key) {
            Some(present) if present != expected => (Some(present.to_vec()), false),
            None if !expected.is_empty() => (None, false),
            _ => {
                self.set(key, desired.to_vec());
                (Some(desired.to_vec()), true)
            }
        }
    }

    pub fn append(&mut self, key: &[u8], value: &[u8]) {
        match self.values.get_mut(key) {
            Some(present) => {
                present.extend_from_slice(value);
                self.bytes += value.len();
            }
            None => self.set(key, value.to_vec()),
        }
    }

    /// Removes a key. Returns whether the key was set before the call.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let removed = self.values.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |value| key.len() + value.len());
        removed.is_some()
    }
}

/// Parses a value as a decimal number.
pub(super) fn number(value: &[u8]) -> Option<i64> {
    str::from_utf8(value).ok()?.parse().ok()
}
