//! Traits with the atomic operations of each type, implemented for the target device.

use core::sync::atomic::Ordering;

use super::scope::Scope;

/// Operations that all types support.
///
/// # Safety
/// For every function, `p` must be aligned and valid, and all accesses that may happen at the same time must be atomic.
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

/// Additional operations that integers support.
///
/// # Safety
/// The caller must uphold the safety contract of [`Raw`].
pub trait RawInteger: Raw {
    unsafe fn and<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn or<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
    unsafe fn xor<S: Scope>(p: *mut Self, value: Self, order: Ordering) -> Self;
}
