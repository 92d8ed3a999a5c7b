//! Atomic operations on pointers. The ordering is an argument, and the type and scope are part of the name, as in
//! `atomic_fetch_add_f32_device(pointer, ordering, value)`.
//!
//! # Safety
//! The pointer passed to an `unsafe` function must be aligned and valid for reads and writes. All accesses that can
//! happen concurrently must be atomic, in a scope that contains both threads.

use core::sync::atomic::Ordering;

use gpu_std::atomic::scope::{Block, Device, System};
use gpu_std::atomic::{Atomic, fence};

macro_rules! fences {
    ($($name:ident: $scope:ident;)*) => { $(
        /// Memory fence that orders the memory accesses of the calling thread for all threads in the scope. `Relaxed`
        /// has no effect.
        #[inline(always)]
        pub fn $name(ordering: Ordering) {
            if ordering != Ordering::Relaxed {
                fence::<$scope>(ordering);
            }
        }
    )* };
}
fences! { block_thread_fence: Block; device_thread_fence: Device; system_thread_fence: System; }

macro_rules! transfers {
    ($($t:ident $width:literal;)*) => { transfers! { @ $($t $width block Block; $t $width device Device; $t $width system System;)* } };
    (@ $($t:ident $width:literal $name:ident $scope:ident;)*) => { pastey::paste! { $(
        /// Loads the value.
        ///
        /// # Panics
        /// Panics if the ordering is `Release` or `AcqRel`.
        ///
        /// # Safety
        /// The caller must uphold the [module's safety contract](self).
        #[inline(always)]
        #[track_caller]
        pub unsafe fn [<atomic_load_ $width _ $name>](pointer: *mut $t, ordering: Ordering) -> $t {
            // SAFETY: guaranteed by the caller.
            unsafe { Atomic::<$t, $scope>::from_ptr(pointer) }.load(ordering)
        }

        /// Stores a value.
        ///
        /// # Panics
        /// Panics if the ordering is `Acquire` or `AcqRel`.
        ///
        /// # Safety
        /// The caller must uphold the [module's safety contract](self).
        #[inline(always)]
        #[track_caller]
        pub unsafe fn [<atomic_store_ $width _ $name>](pointer: *mut $t, ordering: Ordering, value: $t) {
            // SAFETY: guaranteed by the caller.
            unsafe { Atomic::<$t, $scope>::from_ptr(pointer) }.store(value, ordering);
        }
    )* } };
}
transfers! { u32 32; u64 64; }

/// Defines each operation for each type in each scope. The closure implements the operation on an atomic of that type.
macro_rules! operations {
    ($($op:ident($($t:ident)*) = |$atomic:ident, $value:ident, $order:ident| $result:expr;)*) => { $(
        $(operations! { @scope $op $t block Block |$atomic, $value, $order| $result }
          operations! { @scope $op $t device Device |$atomic, $value, $order| $result }
          operations! { @scope $op $t system System |$atomic, $value, $order| $result })*
    )* };
    (@scope $op:ident $t:ident $name:ident $scope:ident |$atomic:ident, $value:ident, $order:ident| $result:expr) => {
        pastey::paste! {
            #[doc = concat!("Atomic `", stringify!($op), "`. Returns the previous value.")]
            ///
            /// # Safety
            /// The caller must uphold the [module's safety contract](self).
            #[inline(always)]
            pub unsafe fn [<atomic_fetch_ $op _ $t _ $name>](pointer: *mut $t, $order: Ordering, $value: $t) -> $t {
                // SAFETY: guaranteed by the caller.
                let $atomic = unsafe { Atomic::<$t, $scope>::from_ptr(pointer) };
                $result
            }
        }
    };
}
operations! {
    add(u32 u64 i32 i64 f32 f64) = |atomic, value, order| atomic.fetch_add(value, order);
    sub(f32 f64) = |atomic, value, order| atomic.fetch_add(-value, order);
    sub(u32 u64 i32 i64) = |atomic, value, order| atomic.fetch_add(value.wrapping_neg(), order);
    exch(u32 u64 i32 i64 f32 f64) = |atomic, value, order| atomic.swap(value, order);
    min(u32 u64 i32 i64) = |atomic, value, order| atomic.fetch_min(value, order);
    max(u32 u64 i32 i64) = |atomic, value, order| atomic.fetch_max(value, order);
    and(u32 u64 i32 i64) = |atomic, value, order| atomic.fetch_and(value, order);
    or(u32 u64 i32 i64) = |atomic, value, order| atomic.fetch_or(value, order);
    xor(u32 u64 i32 i64) = |atomic, value, order| atomic.fetch_xor(value, order);
}
