//! Host implementation of the atomic operations for the emulated device, based on the host's atomics. Programs built by
//! `warpsmith check` report each operation to the checker.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::host::check::Operation;
use crate::host::collective::spin_hint;

use super::raw::{Raw, RawInteger};
use super::scope::Scope;
use crate::scalar::Scalar;

/// Reports an operation to the checker.
#[inline(always)]
#[cfg(warpsmith_check)]
fn accessed<T, S: Scope>(p: *mut T, operation: Operation, order: Ordering) {
    crate::host::check::atomic_access(p, operation, order, checked_scope::<S>());
}

#[inline(always)]
#[cfg(not(warpsmith_check))]
fn accessed<T, S: Scope>(_: *mut T, _: Operation, _: Ordering) {}

#[cfg(warpsmith_check)]
fn checked_scope<S: Scope>() -> crate::host::check::Scope {
    match S::LEVEL {
        super::scope::Level::Block => crate::host::check::Scope::Block,
        super::scope::Level::Device | super::scope::Level::System => crate::host::check::Scope::Device,
    }
}

/// Defines read-modify-write operations. `$same` takes the old value and the argument and computes whether the
/// operation leaves the memory unchanged. A loop whose operations change nothing is waiting for another thread, so the
/// emulator must let that thread run.
macro_rules! same_name {
    ($atomic:ident: $($name:ident = $method:ident, |$old:ident, $value:ident| $same:expr;)*) => { $(
        #[inline(always)]
        unsafe fn $name<S: Scope>(p: *mut Self, $value: Self, order: Ordering) -> Self {
            accessed::<_, S>(p, Operation::Update, order);
            // SAFETY: guaranteed by the caller.
            let $old = unsafe { $atomic::from_ptr(p) }.$method($value, order);
            if $same {
                spin_hint();
            }
            $old
        }
    )* };
}

macro_rules! integers {
    ($($t:ty: $atomic:ident;)*) => { $(
        impl Raw for $t {
            #[inline(always)]
            unsafe fn load<S: Scope>(p: *mut Self, order: Ordering) -> Self {
                spin_hint();
                accessed::<_, S>(p, Operation::Load, order);
                // SAFETY: guaranteed by the caller.
                unsafe { $atomic::from_ptr(p) }.load(order)
            }
            #[inline(always)]
            unsafe fn store<S: Scope>(p: *mut Self, value: Self, order: Ordering) {
                accessed::<_, S>(p, Operation::Store, order);
                // SAFETY: guaranteed by the caller.
                unsafe { $atomic::from_ptr(p) }.store(value, order);
            }
            same_name! { $atomic:
                swap = swap, |old, value| old == value;
                add = fetch_add, |_old, value| value == 0;
                min = fetch_min, |_old, value| false;
                max = fetch_max, |_old, value| false;
            }
            #[inline(always)]
            unsafe fn compare_exchange<S: Scope>(
                p: *mut Self,
                current: Self,
                new: Self,
                success: Ordering,
                failure: Ordering,
            ) -> Result<Self, Self> {
                // SAFETY: guaranteed by the caller.
                let result = unsafe { $atomic::from_ptr(p) }.compare_exchange(current, new, success, failure);
                match result {
                    Ok(_) => accessed::<_, S>(p, Operation::Update, success),
                    Err(_) => accessed::<_, S>(p, Operation::Load, failure),
                }
                if result.is_err() {
                    spin_hint();
                }
                result
            }
        }

        impl RawInteger for $t {
            same_name! { $atomic:
                and = fetch_and, |old, value| old & value == old;
                or = fetch_or, |old, value| old | value == old;
                xor = fetch_xor, |_old, value| value == 0;
            }
        }
    )* };
}
integers! { i32: AtomicI32; u32: AtomicU32; i64: AtomicI64; u64: AtomicU64; }

/// Updates a float in a compare-exchange loop.
macro_rules! updated {
    ($atomic:ident: $($name:ident = |$old:ident, $value:ident| $new:expr),*) => { $(
        #[inline(always)]
        unsafe fn $name<S: Scope>(p: *mut Self, $value: Self, order: Ordering) -> Self {
            accessed::<_, S>(p, Operation::Update, order);
            // SAFETY: guaranteed by the caller; the atomic has the size of the float's bits.
            let cell = unsafe { $atomic::from_ptr(p.cast()) };
            let new = |bits| {
                let $old = Self::from_bits(bits);
                Some($new.to_bits())
            };
            // The closure never returns `None`.
            Self::from_bits(cell.fetch_update(order, Ordering::Relaxed, new).unwrap_or_else(|bits| bits))
        }
    )* };
}

macro_rules! floats {
    ($($t:ty, $bits:ty: $atomic:ident;)*) => { $(
        impl Raw for $t {
            #[inline(always)]
            unsafe fn load<S: Scope>(p: *mut Self, order: Ordering) -> Self {
                // SAFETY: guaranteed by the caller; the atomic has the size of the float's bits.
                Self::from_bits(unsafe { <$bits as Raw>::load::<S>(p.cast(), order) })
            }
            #[inline(always)]
            unsafe fn store<S: Scope>(p: *mut Self, value: Self, order: Ordering) {
                // SAFETY: as above.
                unsafe { <$bits as Raw>::store::<S>(p.cast(), value.to_bits(), order) }
            }
            updated! {
                $atomic: swap = |_old, value| value, add = |old, value| (old + value),
                min = |old, value| old.min_propagate(value), max = |old, value| old.max_propagate(value)
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
    )* };
}
floats! { f32, u32: AtomicU32; f64, u64: AtomicU64; }

/// The host's fences have only one scope, so the scope is ignored.
#[inline(always)]
#[cfg_attr(
    not(warpsmith_check),
    expect(clippy::extra_unused_type_parameters, reason = "the GPU's fence has the same form")
)]
pub fn fence<S: Scope>(order: Ordering) {
    #[cfg(warpsmith_check)]
    crate::host::check::fence(order, checked_scope::<S>());
    core::sync::atomic::fence(order);
}
