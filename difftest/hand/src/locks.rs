//! Kernels that use crates of locks and atomics.

use core::sync::atomic::Ordering;

use difftest_support::mix;
use portable_atomic::{AtomicBool, AtomicI16, AtomicU8, AtomicU32, AtomicU64};

kernels! {
    /// `portable-atomic` on a thread's own memory.
    portable_atomics(c, s) {
        let (a, b, d, e) = (AtomicU8::new(c.w(1) as u8), AtomicI16::new(c.w(2) as i16), AtomicU32::new(c.w(3) as u32), AtomicU64::new(c.w(4)));
        s.add(a.fetch_add(c.w(5) as u8, Ordering::Relaxed) as u64);
        s.add(a.fetch_nand(c.w(6) as u8, Ordering::AcqRel) as u64);
        s.add(b.fetch_max(c.w(7) as i16, Ordering::SeqCst) as u64);
        s.add(b.swap(5, Ordering::Acquire) as u64);
        s.add(d.compare_exchange(c.w(3) as u32, 9, Ordering::AcqRel, Ordering::Relaxed).unwrap_or(1) as u64);
        s.add(d.fetch_not(Ordering::Relaxed) as u64);
        s.add(e.compare_exchange_weak(c.w(8), 9, Ordering::AcqRel, Ordering::Relaxed).unwrap_or_else(|x| !x));
        s.add(e.fetch_neg(Ordering::Relaxed));
        let flag = AtomicBool::new(c.w(9) & 1 == 0);
        s.add(flag.fetch_not(Ordering::Relaxed) as u64);
        s.add(a.into_inner() as u64 ^ b.into_inner() as u64 ^ d.into_inner() as u64 ^ e.into_inner());
    }
    /// `spin`: thread-private locks.
    spin_locks(c, s) {
        let lock = spin::Mutex::new(c.w(1));
        { let mut x = lock.lock(); *x = x.wrapping_mul(3); s.add(lock.try_lock().is_none() as u64); }
        s.add(*lock.lock());
        let shared = spin::RwLock::new([c.w(2); 3]);
        { let (a, b) = (shared.read(), shared.read()); s.add(a[0] ^ b[1].rotate_left(1)); }
        shared.write()[2] = 5;
        s.add(shared.read().iter().fold(0, |h, x| mix(h, *x)));
        let once = spin::Once::new();
        s.add(*once.call_once(|| c.w(3)));
        s.add(*once.call_once(|| 1));
    }
}
