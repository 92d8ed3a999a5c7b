//! Memory fences, and atomic operations whose names also contain the ordering, such as
//! `atomic_fetch_add_relaxed_f32_device(pointer, value)`. Each function calls the corresponding function of
//! [`super::mid`] with this ordering; `volatile` means relaxed.
//!
//! # Safety
//!
//! Callers must uphold the safety contract of [`super::mid`].
#![allow(clippy::missing_safety_doc)]

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::mid;

macro_rules! fences {
    ($($name:ident = $fence:ident($ordering:ident);)*) => { $(
        #[doc = concat!("Calls [`mid::", stringify!($fence), "`] with `", stringify!($ordering), "`.")]
        #[inline(always)]
        pub unsafe fn $name() {
            mid::$fence($ordering);
        }
    )* };
}
fences! {
    membar_block = block_thread_fence(SeqCst);
    membar_device = device_thread_fence(SeqCst);
    membar_system = system_thread_fence(SeqCst);
    fence_sc_block = block_thread_fence(SeqCst);
    fence_sc_device = device_thread_fence(SeqCst);
    fence_sc_system = system_thread_fence(SeqCst);
    fence_acqrel_block = block_thread_fence(AcqRel);
    fence_acqrel_device = device_thread_fence(AcqRel);
    fence_acqrel_system = system_thread_fence(AcqRel);
}

macro_rules! transfers {
    ($($t:ident $width:literal $scope:ident;)*) => { pastey::paste! { $(
        transfers! { @load [<atomic_load_ $width _ $scope>] $t
            relaxed Relaxed [<atomic_load_relaxed_ $width _ $scope>],
            acquire Acquire [<atomic_load_acquire_ $width _ $scope>],
            volatile Relaxed [<atomic_load_volatile_ $width _ $scope>] }
        transfers! { @store [<atomic_store_ $width _ $scope>] $t
            relaxed Relaxed [<atomic_store_relaxed_ $width _ $scope>],
            release Release [<atomic_store_release_ $width _ $scope>],
            volatile Relaxed [<atomic_store_volatile_ $width _ $scope>] }
    )* } };
    (@load $mid:ident $t:ident $($word:ident $ordering:ident $name:ident),*) => { $(
        #[doc = concat!("Atomic ", stringify!($word), " load.")]
        #[inline(always)]
        pub unsafe fn $name(pointer: *const $t) -> $t {
            // SAFETY: guaranteed by the caller.
            unsafe { mid::$mid(pointer.cast_mut(), $ordering) }
        }
    )* };
    (@store $mid:ident $t:ident $($word:ident $ordering:ident $name:ident),*) => { $(
        #[doc = concat!("Atomic ", stringify!($word), " store.")]
        #[inline(always)]
        pub unsafe fn $name(pointer: *mut $t, value: $t) {
            // SAFETY: guaranteed by the caller.
            unsafe { mid::$mid(pointer, $ordering, value) };
        }
    )* };
}
transfers! {
    u32 32 block; u32 32 device; u32 32 system;
    u64 64 block; u64 64 device; u64 64 system;
}

macro_rules! operations {
    ($($op:ident($($t:ident)*);)*) => { $($(
        operations! { @scope $op $t block device system }
    )*)* };
    (@scope $op:ident $t:ident $($scope:ident)*) => { $(
        operations! { @ordering $op $t $scope relaxed Relaxed }
        operations! { @ordering $op $t $scope acquire Acquire }
        operations! { @ordering $op $t $scope release Release }
        operations! { @ordering $op $t $scope acqrel AcqRel }
        operations! { @ordering $op $t $scope volatile Relaxed }
    )* };
    (@ordering $op:ident $t:ident $scope:ident $word:ident $ordering:ident) => { pastey::paste! {
        #[doc = concat!("Atomic ", stringify!($word), " `", stringify!($op), "`. Returns the previous value.")]
        #[inline(always)]
        pub unsafe fn [<atomic_fetch_ $op _ $word _ $t _ $scope>](pointer: *mut $t, value: $t) -> $t {
            // SAFETY: guaranteed by the caller.
            unsafe { mid::[<atomic_fetch_ $op _ $t _ $scope>](pointer, $ordering, value) }
        }
    } };
}
operations! {
    and(u32 u64 i32 i64 f32 f64);
    or(u32 u64 i32 i64 f32 f64);
    xor(u32 u64 i32 i64 f32 f64);
    add(u32 u64 i32 i64 f32 f64);
    sub(u32 u64 i32 i64 f32 f64);
    exch(u32 u64 i32 i64 f32 f64);
    min(u32 u64 i32 i64);
    max(u32 u64 i32 i64);
}
