//! Atomic floats in three scopes. New code should use `gpu_std::atomic::Atomic<T, Scope>`, which supports all numeric
//! types and operations.
//!
//! [`mid`] provides the same operations as functions on pointers, for floats and integers.

pub mod mid;

pub use core::sync::atomic::Ordering;

use gpu_std::atomic::Atomic;
use gpu_std::atomic::scope::{Block, Device, System};

macro_rules! floats {
    ($($(#[$doc:meta])* $name:ident: $t:ident in $scope:ident $(, $safety:ident)?;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub struct $name(Atomic<$t, $scope>);

        impl $name {
            /// Creates an atomic with the given value.
            pub const fn new(value: $t) -> Self {
                Self(Atomic::new(value))
            }

            /// Returns the value.
            pub fn into_inner(self) -> $t {
                // SAFETY: `self` is owned, so nothing else can access the value.
                unsafe { self.0.as_ptr().read() }
            }

            /// Adds `value` and returns the previous value.
            $(#[doc = concat!(
                "\n# Safety\n\nNo thread of another block may access the atomic concurrently with this ",
                stringify!($safety), " call."
            )])?
            #[inline(always)]
            pub $($safety)? fn fetch_add(&self, value: $t, order: Ordering) -> $t {
                self.0.fetch_add(value, order)
            }

            /// Subtracts `value` and returns the previous value.
            $(#[doc = concat!(
                "\n# Safety\n\nNo thread of another block may access the atomic concurrently with this ",
                stringify!($safety), " call."
            )])?
            #[inline(always)]
            pub $($safety)? fn fetch_sub(&self, value: $t, order: Ordering) -> $t {
                self.0.fetch_add(-value, order)
            }

            /// Loads the value.
            ///
            /// # Panics
            /// Panics if `order` is `Release` or `AcqRel`.
            $(#[doc = concat!(
                "\n# Safety\n\nNo thread of another block may access the atomic concurrently with this ",
                stringify!($safety), " call."
            )])?
            #[inline(always)]
            #[track_caller]
            pub $($safety)? fn load(&self, order: Ordering) -> $t {
                self.0.load(order)
            }

            /// Stores a value.
            ///
            /// # Panics
            /// Panics if `order` is `Acquire` or `AcqRel`.
            $(#[doc = concat!(
                "\n# Safety\n\nNo thread of another block may access the atomic concurrently with this ",
                stringify!($safety), " call."
            )])?
            #[inline(always)]
            #[track_caller]
            pub $($safety)? fn store(&self, value: $t, order: Ordering) {
                self.0.store(value, order);
            }
        }
    )* };
}

floats! {
    /// Atomic `f32` with device scope.
    AtomicF32: f32 in Device;
    /// Atomic `f64` with device scope.
    AtomicF64: f64 in Device;
    /// Atomic `f32` with block scope.
    BlockAtomicF32: f32 in Block, unsafe;
    /// Atomic `f64` with block scope.
    BlockAtomicF64: f64 in Block, unsafe;
    /// Atomic `f32` with system scope, which includes all devices and the host.
    SystemAtomicF32: f32 in System;
    /// Atomic `f64` with system scope, which includes all devices and the host.
    SystemAtomicF64: f64 in System;
}
