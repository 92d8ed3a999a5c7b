//! Kernels of `examples/own-operations`.

use gpu_std::prelude::*;

/// Price of `count` pieces, with a discount of ten percent above `limit`.
#[elementwise(scalars(limit))]
pub fn discounted(price: f32, count: u16, limit: f32) -> f32 {
    let total = price * f32::from(count);
    if total > limit { 0.9 * total } else { total }
}

/// Sum in f64.
#[reduction(identity = 0.0, fold = |sum, total: f32| sum + f64::from(total))]
pub fn revenue(a: f64, b: f64) -> f64 {
    a + b
}

/// A purchase of a customer.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Purchase {
    /// Total amount.
    pub total: f32,
    /// Customer number.
    pub customer: u32,
}

/// The larger purchase; among equal ones, the one of the customer with the lower number.
#[reduction(identity = Purchase { total: f32::NEG_INFINITY, customer: u32::MAX })]
pub fn largest(a: Purchase, b: Purchase) -> Purchase {
    if b.total > a.total || (b.total == a.total && b.customer < a.customer) { b } else { a }
}
