//! Atomic operations on the emulated device: the host's own.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use warpsmith_emulator::collective::spin_hint;

use super::scope::Scope;
use crate::scalar::Scalar;

/// The operations that all types have.
///
/// # Safety
///
/// Of every function: `p` is aligned and valid, and all access that may be simultaneous is atomic.
pub trait Raw: Copy {
    unsafe fn load<S: Scope>(p: *mut Self, order: Ordering) -> Self;
    unsafe fn store<S: Scope>(p: *mut Self, value: Self, order: Ordering);
    unsafe fn swap<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn add<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn min<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn max<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn compare_exchange<S: Scope>(
        p: *mut Self,
        current: Self,
        new: Self,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Self, Self>;
}

/// The operations that integers have besides.
///
/// # Safety
///
/// As [`Raw`].
pub trait RawInteger: Raw {
    unsafe fn and<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn or<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn xor<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
}

macro_rules! same_name {
    ($atomic:ident: $($name:ident = $method:ident),*) => { $(
        #[inline(always)]
        unsafe fn $name<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
            // SAFETY: the caller's promise.
            unsafe { $atomic::from_ptr(p) }.$method(value, order)
        }
    )* };
}

macro_rules! integers {
    ($($t:ty: $atomic:ident;)*) => { $(
        impl Raw for $t {
            #[inline(always)]
            unsafe fn load<S: Scope>(p: *mut Self, order: Ordering) -> Self {
                spin_hint();
                // SAFETY: the caller's promise.
                unsafe { $atomic::from_ptr(p) }.load(order)
            }
            #[inline(always)]
            unsafe fn store<S: Scope>(p: *mut Self, value: Self, order: Ordering) {
                // SAFETY: the caller's promise.
                unsafe { $atomic::from_ptr(p) }.store(value, order);
            }
            same_name!($atomic: swap = swap, add = fetch_add, min = fetch_min, max = fetch_max);
            #[inline(always)]
            unsafe fn compare_exchange<S: Scope>(
                p: *mut Self,
                current: Self,
                new: Self,
                success: Ordering,
                failure: Ordering,
            ) -> Result<Self, Self> {
                // SAFETY: the caller's promise.
                let result = unsafe { $atomic::from_ptr(p) }.compare_exchange(current, new, success, failure);
                if result.is_err() {
                    spin_hint();
                }
                result
            }
        }

        impl RawInteger for $t {
            same_name!($atomic: and = fetch_and, or = fetch_or, xor = fetch_xor);
        }
    )* };
}
integers! { i32: AtomicI32; u32: AtomicU32; i64: AtomicI64; u64: AtomicU64; }

macro_rules! floats {
    ($($t:ty, $bits:ty: $atomic:ident;)*) => { $(
        impl Raw for $t {
            #[inline(always)]
            unsafe fn load<S: Scope>(p: *mut Self, order: Ordering) -> Self {
                // SAFETY: the caller's promise; bits of the same size.
                Self::from_bits(unsafe { <$bits as Raw>::load::<S>(p.cast(), order) })
            }
            #[inline(always)]
            unsafe fn store<S: Scope>(p: *mut Self, value: Self, order: Ordering) {
                // SAFETY: as above.
                unsafe { <$bits as Raw>::store::<S>(p.cast(), value.to_bits(), order) }
            }
            #[inline(always)]
            unsafe fn swap<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
                // SAFETY: as above.
                Self::from_bits(unsafe { <$bits as Raw>::swap::<S>(p.cast(), value.to_bits(), order) })
            }
            #[inline(always)]
            unsafe fn add<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
                // SAFETY: as above.
                Self::update(unsafe { $atomic::from_ptr(p.cast()) }, order, |old| old + value)
            }
            #[inline(always)]
            unsafe fn min<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
                // SAFETY: as above.
                Self::update(unsafe { $atomic::from_ptr(p.cast()) }, order, |old| old.min_propagate(value))
            }
            #[inline(always)]
            unsafe fn max<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
                // SAFETY: as above.
                Self::update(unsafe { $atomic::from_ptr(p.cast()) }, order, |old| old.max_propagate(value))
            }
            #[inline(always)]
            unsafe fn compare_exchange<S: Scope>(
                p: *mut Self,
                current: Self,
                new: Self,
                success: Ordering,
                failure: Ordering,
            ) -> Result<Self, Self> {
                let (current, new) = (current.to_bits(), new.to_bits());
                // SAFETY: as above.
                unsafe { <$bits as Raw>::compare_exchange::<S>(p.cast(), current, new, success, failure) }
                    .map(Self::from_bits)
                    .map_err(Self::from_bits)
            }
        }

        impl Updated for $t {
            type Cell = $atomic;
            fn update(cell: &$atomic, order: Ordering, mut f: impl FnMut(Self) -> Self) -> Self {
                let bits = cell.fetch_update(order, Ordering::Relaxed, |bits| Some(f(Self::from_bits(bits)).to_bits()));
                // The closure never declines.
                Self::from_bits(bits.unwrap_or_else(|bits| bits))
            }
        }
    )* };
}
floats! { f32, u32: AtomicU32; f64, u64: AtomicU64; }

/// A float that is changed by trying until nobody else did.
trait Updated: Copy {
    type Cell;
    fn update(cell: &Self::Cell, order: Ordering, f: impl FnMut(Self) -> Self) -> Self;
}

/// The host's fences know one scope.
#[inline(always)]
#[expect(clippy::extra_unused_type_parameters, reason = "the GPU's fence has the same form")]
pub fn fence<S: Scope>(order: Ordering) {
    core::sync::atomic::fence(order);
}
