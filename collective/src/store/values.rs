//! The values of a store, and what each operation does to them: the same for every store that is in memory.

use std::collections::HashMap;

/// A value under a key.
#[derive(Debug, Default)]
pub(super) struct Values {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// What keys and values take.
    bytes: usize,
}

impl Values {
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.values.contains_key(key)
    }

    /// The number of keys.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    /// What keys and values take.
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

    /// Adds to a decimal number, which is 0 when there is none. `None` when the value is no number; then it stays.
    pub fn add(&mut self, key: &[u8], amount: i64) -> Option<i64> {
        let number = self.get(key).map_or(Some(0), number)?;
        let sum = number.wrapping_add(amount);
        self.set(key, sum.to_string().into_bytes());
        Some(sum)
    }

    /// Sets a key when its value is `expected`, or, when that is empty, when it has none. Returns the value after that,
    /// and whether it was set.
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

    /// Removes a key; whether there was one.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let removed = self.values.remove(key);
        self.bytes -= removed.as_ref().map_or(0, |value| key.len() + value.len());
        removed.is_some()
    }
}

/// The decimal number that a value holds.
pub(super) fn number(value: &[u8]) -> Option<i64> {
    str::from_utf8(value).ok()?.parse().ok()
}
