//! [`Lock`]: a spin lock for state that one thread uses almost exclusively.
//!
//! Without contention, acquiring the lock takes one atomic exchange, and releasing it takes a plain store: half the
//! cost of a lock that wakes its waiters. This cost matters because every allocation and free acquires the lock.
//! Waiting threads poll at increasing intervals of up to [`LONGEST`], because the holder may be waiting for the device.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest interval between two polls of a held lock.
const LONGEST: Duration = Duration::from_micros(200);

/// A spin lock; see the [module's documentation](self).
#[derive(Debug, Default)]
pub(super) struct Lock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed only through a guard, of which one exists at a time. As with `std::sync::Mutex`,
// `T: Send` suffices.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if !self.try_hold() {
            self.wait();
        }
        Guard(self)
    }

    #[inline]
    fn try_hold(&self) -> bool {
        self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        let mut looks = 0u32;
        loop {
            match looks {
                0..100 => std::hint::spin_loop(),
                100..120 => std::thread::yield_now(),
                _ => std::thread::sleep(LONGEST.min(Duration::from_micros(u64::from(looks - 119) * 10))),
            }
            looks = looks.saturating_add(1);
            // Read first: while the lock is held, this does not take the cache line from its holder.
            if !self.held.load(Ordering::Relaxed) && self.try_hold() {
                return;
            }
        }
    }
}

/// Guard that provides access to the value of a [`Lock`] and releases the lock when dropped.
pub(super) struct Guard<'a, T>(&'a Lock<T>);

// SAFETY: a shared guard provides only a `&T`.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock, so every reference to the value is obtained through it.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns() {
        let lock = Lock::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..20_000 {
                        let mut guard = lock.lock();
                        let (before, after) = &mut *guard;
                        *before += 1;
                        if round % 5000 == 0 {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        *after += 1;
                        assert_eq!(before, after);
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (160_000, 160_000));
    }

    #[test]
    fn a_panic_gives_the_lock_back() {
        let lock = Lock::new(1);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("on purpose");
        }))
        .unwrap_err();
        assert_eq!(*lock.lock(), 1);
    }
}
