//! [`SeqLock`]: a seqlock over a few words that threads write and read without blocking.
//!
//! A read returns words that were written together, or nothing. A writer gives up if another thread is writing.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// `N` words, initially zero.
#[derive(Debug)]
pub(super) struct SeqLock<const N: usize> {
    /// Sequence number: odd during a write, and different after each write.
    sequence: AtomicU64,
    words: [AtomicU64; N],
}

impl<const N: usize> Default for SeqLock<N> {
    fn default() -> Self {
        Self { sequence: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; N] }
    }
}

impl<const N: usize> SeqLock<N> {
    /// Returns the words, unless a thread is writing them.
    #[inline]
    pub fn read(&self) -> Option<[u64; N]> {
        let before = self.sequence.load(Ordering::Acquire);
        if before % 2 == 1 {
            return None;
        }
        let words = std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
        // If a word of a later write was read, the load below observes that write's odd sequence number or a later one.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(words)
    }

    /// Writes all words. Returns false if another thread is writing them.
    #[inline]
    pub fn write(&self, words: [u64; N]) -> bool {
        let before = self.sequence.load(Ordering::Relaxed);
        let claim = |from| {
            self.sequence.compare_exchange(from, from + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if before % 2 == 1 || !claim(before) {
            return false;
        }
        // A thread that reads a word of this write also observes the odd sequence number.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence.store(before + 2, Ordering::Release);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let lock = SeqLock::<3>::default();
        assert_eq!(lock.read(), Some([0; 3]));
        assert!(lock.write([1, 2, 3]));
        assert_eq!(lock.read(), Some([1, 2, 3]));
        assert!(lock.write([4; 3]));
        assert_eq!(lock.read(), Some([4; 3]));
    }

    #[test]
    fn words_of_two_writes_are_never_mixed() {
        let lock = SeqLock::<4>::default();
        std::thread::scope(|scope| {
            for writer in 1..=3u64 {
                let lock = &lock;
                scope.spawn(move || {
                    (0..20_000u64).for_each(|i| {
                        lock.write([writer * i; 4]);
                    })
                });
            }
            let mut read = 0;
            while read < 20_000 {
                if let Some(words) = lock.read() {
                    assert_eq!(words, [words[0]; 4]);
                    read += 1;
                }
            }
        });
    }
}
