//! [`Words`]: the hash of the caches' keys, some times as fast as the standard library's.

use std::hash::Hasher;

/// Mixes words by a rotation and a product each: keys are a few dozen words that nobody chooses with ill intent.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Words(u64);

impl Words {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Words {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
        for byte in chunks.remainder() {
            self.add(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        // The map looks at the lowest bits, which products mix least.
        self.0 ^ (self.0 >> 32)
    }
}
