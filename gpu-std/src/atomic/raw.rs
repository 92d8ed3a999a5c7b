//! Atomic operations per type on the target device.

use core::sync::atomic::Ordering;

use super::scope::Scope;

/// Operations of all types.
///
/// # Safety
///
/// For every function, `p` must be aligned and valid, and all accesses that may be simultaneous must be atomic.
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

/// Additional operations of integers.
///
/// # Safety
///
/// The conditions of [`Raw`] apply.
pub trait RawInteger: Raw {
    unsafe fn and<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn or<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn xor<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
}
