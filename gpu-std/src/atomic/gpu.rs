//! GPU implementation of the atomic operations: PTX instructions with an explicit ordering and scope.
//!
//! The instructions are written as inline assembly because LLVM drops the ordering of `core::sync::atomic` operations
//! and does not support scopes. Where relaxed operations are sufficient, this module uses LLVM's atomics. For relaxed
//! operations, LLVM infers the address space (`atom.shared`, `atom.global`), which is faster than generic addressing.
//! The LLVM atomics are called through rustc's intrinsics, which take the ordering as a const parameter. Therefore, all
//! LLVM atomics from this module are `monotonic`, even before optimization, and an LLVM atomic with any other ordering
//! must come from a use of `core::sync::atomic`.

use core::arch::asm;
use core::intrinsics::{self, AtomicOrdering};
use core::sync::atomic::Ordering;

use super::raw::{Raw, RawInteger};
use super::scope::{Level, Scope};
use crate::scalar::Scalar;

const RELAXED: AtomicOrdering = AtomicOrdering::Relaxed;

#[inline(always)]
pub fn fence<S: Scope>(order: Ordering) {
    // SAFETY: a fence has no operands. By default, LLVM assumes that inline assembly may change memory.
    unsafe {
        match (order, S::LEVEL) {
            (Ordering::SeqCst, Level::Block) => asm!("fence.sc.cta;", options(nostack)),
            (Ordering::SeqCst, Level::Device) => asm!("fence.sc.gpu;", options(nostack)),
            (Ordering::SeqCst, Level::System) => asm!("fence.sc.sys;", options(nostack)),
            (_, Level::Block) => asm!("fence.acq_rel.cta;", options(nostack)),
            (_, Level::Device) => asm!("fence.acq_rel.gpu;", options(nostack)),
            (_, Level::System) => asm!("fence.acq_rel.sys;", options(nostack)),
        }
    }
}

#[inline(always)]
fn fence_if_sequential<S: Scope>(order: Ordering) {
    if matches!(order, Ordering::SeqCst) {
        fence::<S>(order);
    }
}

/// Passes the scope's PTX name to a macro.
macro_rules! with_scope {
    ($emit:ident!($sem:literal, $($rest:tt)*)) => {
        match S::LEVEL {
            Level::Block => $emit!($sem, "cta", $($rest)*),
            Level::Device => $emit!($sem, "gpu", $($rest)*),
            Level::System => $emit!($sem, "sys", $($rest)*),
        }
    };
}

/// Passes the PTX names of a read-modify-write operation's ordering and scope to a macro.
macro_rules! with_order {
    ($order:expr, $emit:ident!($($rest:tt)*)) => {
        match $order {
            Ordering::Relaxed => with_scope!($emit!("relaxed", $($rest)*)),
            Ordering::Acquire => with_scope!($emit!("acquire", $($rest)*)),
            Ordering::Release => with_scope!($emit!("release", $($rest)*)),
            _ => with_scope!($emit!("acq_rel", $($rest)*)),
        }
    };
}

macro_rules! emit_atom {
    ($sem:literal, $scope:literal, $class:ident, $op:literal, $p:ident, $value:ident, $old:ident) => {
        asm!(
            concat!("atom.", $sem, ".", $scope, ".", $op, " {0}, [{1}], {2};"),
            out($class) $old, in(reg64) $p, in($class) $value, options(nostack)
        )
    };
}

macro_rules! emit_cas {
    ($sem:literal, $scope:literal, $class:ident, $op:literal, $p:ident, $current:ident, $new:ident, $old:ident) => {
        asm!(
            concat!("atom.", $sem, ".", $scope, ".", $op, " {0}, [{1}], {2}, {3};"),
            out($class) $old, in(reg64) $p, in($class) $current, in($class) $new, options(nostack)
        )
    };
}

macro_rules! emit_ld {
    ($sem:literal, $scope:literal, $class:ident, $ty:literal, $p:ident, $value:ident) => {
        asm!(
            concat!("ld.", $sem, ".", $scope, ".", $ty, " {0}, [{1}];"),
            out($class) $value, in(reg64) $p, options(nostack)
        )
    };
}

macro_rules! emit_st {
    ($sem:literal, $scope:literal, $class:ident, $ty:literal, $p:ident, $value:ident) => {
        asm!(
            concat!("st.", $sem, ".", $scope, ".", $ty, " [{0}], {1};"),
            in(reg64) $p, in($class) $value, options(nostack)
        )
    };
}

/// Defines functions `name(p, value, order)`, each a single `atom` instruction.
macro_rules! atoms {
    ($class:ident: $($name:ident = $op:literal),*) => { $(
        #[inline(always)]
        unsafe fn $name<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
            fence_if_sequential::<S>(order);
            let old: Self;
            // SAFETY: guaranteed by the caller.
            unsafe { with_order!(order, emit_atom!($class, $op, p, value, old)) };
            old
        }
    )* };
}

/// Defines integer functions `name(p, value, order)` that use LLVM's atomics if the ordering is relaxed.
macro_rules! integer_atoms {
    ($class:ident: $($name:ident = $relaxed:expr, $op:literal;)*) => { $(
        #[inline(always)]
        unsafe fn $name<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
            if matches!((order, S::LEVEL), (Ordering::Relaxed, Level::Block | Level::Device)) {
                // SAFETY: guaranteed by the caller; a wider scope than requested is harmless.
                return unsafe { $relaxed(p, value) };
            }
            fence_if_sequential::<S>(order);
            let old: Self;
            // SAFETY: guaranteed by the caller.
            unsafe { with_order!(order, emit_atom!($class, $op, p, value, old)) };
            old
        }
    )* };
}

/// Functions that have the same form for every type. Relaxed loads and stores with block scope access shared memory in
/// nearly all cases, so they use LLVM's atomics.
macro_rules! common {
    ($class:ident, $bits_ty:literal, $exch:literal, $cas:literal, $bits:ty, $to:expr, $from:expr) => {
        #[inline(always)]
        unsafe fn load<S: Scope>(p: *mut Self, order: Ordering) -> Self {
            if matches!((order, S::LEVEL), (Ordering::Relaxed, Level::Block)) {
                let from: fn($bits) -> Self = $from;
                // SAFETY: guaranteed by the caller; the value has the same layout as its bits.
                return from(unsafe { intrinsics::atomic_load::<$bits, RELAXED>(p.cast_const().cast()) });
            }
            fence_if_sequential::<S>(order);
            let value: Self;
            // SAFETY: guaranteed by the caller.
            unsafe {
                match order {
                    Ordering::Relaxed => with_scope!(emit_ld!("relaxed", $class, $bits_ty, p, value)),
                    _ => with_scope!(emit_ld!("acquire", $class, $bits_ty, p, value)),
                }
            }
            value
        }
        #[inline(always)]
        unsafe fn store<S: Scope>(p: *mut Self, value: Self, order: Ordering) {
            if matches!((order, S::LEVEL), (Ordering::Relaxed, Level::Block)) {
                let to: fn(Self) -> $bits = $to;
                // SAFETY: guaranteed by the caller; the value has the same layout as its bits.
                return unsafe { intrinsics::atomic_store::<$bits, RELAXED>(p.cast(), to(value)) };
            }
            fence_if_sequential::<S>(order);
            // SAFETY: guaranteed by the caller.
            unsafe {
                match order {
                    Ordering::Release => with_scope!(emit_st!("release", $class, $bits_ty, p, value)),
                    _ => with_scope!(emit_st!("relaxed", $class, $bits_ty, p, value)),
                }
            }
        }
        atoms!($class: swap = $exch);
        #[inline(always)]
        unsafe fn compare_exchange<S: Scope>(
            p: *mut Self,
            current: Self,
            new: Self,
            success: Ordering,
            failure: Ordering,
        ) -> Result<Self, Self> {
            let order = stronger(success, failure);
            fence_if_sequential::<S>(order);
            let (to, from): (fn(Self) -> $bits, fn($bits) -> Self) = ($to, $from);
            let (current, new) = (to(current), to(new));
            let old: $bits;
            // SAFETY: guaranteed by the caller.
            unsafe { with_order!(order, emit_cas!($class, $cas, p, current, new, old)) };
            if old == current { Ok(from(old)) } else { Err(from(old)) }
        }
    };
}

/// Returns the weakest ordering that is at least as strong as both arguments.
#[inline(always)]
fn stronger(success: Ordering, failure: Ordering) -> Ordering {
    match (success, failure) {
        (Ordering::SeqCst, _) | (_, Ordering::SeqCst) => Ordering::SeqCst,
        (Ordering::Relaxed, Ordering::Acquire) => Ordering::Acquire,
        (Ordering::Release, Ordering::Acquire) => Ordering::AcqRel,
        (success, _) => success,
    }
}

macro_rules! integers {
    ($($t:ty: $smallest:ident $largest:ident $class:ident $b:literal $exch:literal $cas:literal $and:literal $or:literal $xor:literal
        $add:literal $min:literal $max:literal;)*) => { $(
        impl Raw for $t {
            common!($class, $b, $exch, $cas, $t, |value| value, |bits| bits);
            integer_atoms! {
                $class:
                add = intrinsics::atomic_xadd::<Self, Self, RELAXED>, $add;
                min = intrinsics::$smallest::<Self, RELAXED>, $min;
                max = intrinsics::$largest::<Self, RELAXED>, $max;
            }
        }
        impl RawInteger for $t {
            integer_atoms! {
                $class:
                and = intrinsics::atomic_and::<Self, Self, RELAXED>, $and;
                or = intrinsics::atomic_or::<Self, Self, RELAXED>, $or;
                xor = intrinsics::atomic_xor::<Self, Self, RELAXED>, $xor;
            }
        }
    )* };
}
integers! {
    i32: atomic_min atomic_max reg32 "b32" "exch.b32" "cas.b32" "and.b32" "or.b32" "xor.b32" "add.s32" "min.s32" "max.s32";
    u32: atomic_umin atomic_umax reg32 "b32" "exch.b32" "cas.b32" "and.b32" "or.b32" "xor.b32" "add.u32" "min.u32" "max.u32";
    i64: atomic_min atomic_max reg64 "b64" "exch.b64" "cas.b64" "and.b64" "or.b64" "xor.b64" "add.u64" "min.s64" "max.s64";
    u64: atomic_umin atomic_umax reg64 "b64" "exch.b64" "cas.b64" "and.b64" "or.b64" "xor.b64" "add.u64" "min.u64" "max.u64";
}

macro_rules! floats {
    ($($t:ty, $bits:ty: $class:ident $b:literal $exch:literal $cas:literal $add:literal;)*) => { $(
        impl Raw for $t {
            common!($class, $b, $exch, $cas, $bits, <$t>::to_bits, <$t>::from_bits);
            atoms!($class: add = $add);
            #[inline(always)]
            unsafe fn min<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { update::<Self, S>(p, order, |old| old.min_propagate(value)) }
            }
            #[inline(always)]
            unsafe fn max<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { update::<Self, S>(p, order, |old| old.max_propagate(value)) }
            }
        }
    )* };
}
floats! {
    f32, u32: reg32 "b32" "exch.b32" "cas.b32" "add.f32";
    f64, u64: reg64 "b64" "exch.b64" "cas.b64" "add.f64";
}

/// Updates a number in a compare-exchange loop, because PTX has no floating-point minimum or maximum.
///
/// # Safety
/// The caller must uphold the safety contract of [`Raw`].
#[inline(always)]
unsafe fn update<T: Raw, S: Scope>(p: *mut T, order: Ordering, f: impl Fn(T) -> T) -> T {
    // SAFETY: guaranteed by the caller.
    let mut old = unsafe { T::load::<S>(p, Ordering::Relaxed) };
    loop {
        // SAFETY: as above.
        match unsafe { T::compare_exchange::<S>(p, old, f(old), order, Ordering::Relaxed) } {
            Ok(old) => return old,
            Err(seen) => old = seen,
        }
    }
}
