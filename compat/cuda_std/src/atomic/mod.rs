//! Atomic floats in three scopes. New code should use `gpu_std::atomic::Atomic<T, Scope>`, which supports all numeric
//! types and operations.
//!
//! [`mid`] provides the same operations as functions on pointers, for floats and integers.

pub mod intrinsics;
pub mod mid;

pub use core::sync::atomic::Ordering;

use gpu_std::atomic::Atomic;
use gpu_std::atomic::scope::{Block, Device, System};

macro_rules! floats {
    ($($(#[$doc:meta])* $name:ident: $t:ident as $bits:ident in $scope:ident $(, $safety:ident)?;)*) => { $(
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

            /// Performs a bitwise AND on the bits of the current value and `value`. Returns the previous value.
            $(#[doc = concat!(
                "\n# Safety\n\nNo thread of another block may access the atomic concurrently with this ",
                stringify!($safety), " call."
            )])?
            #[inline(always)]
            pub $($safety)? fn fetch_and(&self, value: $t, order: Ordering) -> $t {
                $t::from_bits(self.bits().fetch_and(value.to_bits(), order))
            }

            /// Performs a bitwise OR on the bits of the current value and `value`. Returns the previous value.
            $(#[doc = concat!(
                "\n# Safety\n\nNo thread of another block may access the atomic concurrently with this ",
                stringify!($safety), " call."
            )])?
            #[inline(always)]
            pub $($safety)? fn fetch_or(&self, value: $t, order: Ordering) -> $t {
                $t::from_bits(self.bits().fetch_or(value.to_bits(), order))
            }

            /// Performs a bitwise XOR on the bits of the current value and `value`. Returns the previous value.
            $(#[doc = concat!(
                "\n# Safety\n\nNo thread of another block may access the atomic concurrently with this ",
                stringify!($safety), " call."
            )])?
            #[inline(always)]
            pub $($safety)? fn fetch_xor(&self, value: $t, order: Ordering) -> $t {
                $t::from_bits(self.bits().fetch_xor(value.to_bits(), order))
            }

            /// Loads the value.
            ///
            /// # Panics
            ///
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
            ///
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

            /// Returns the bits as an atomic integer.
            #[inline(always)]
            fn bits(&self) -> &Atomic<$bits, $scope> {
                // SAFETY: both types have the same layout and scope, and all accesses through references are atomic.
                unsafe { Atomic::from_ptr(self.0.as_ptr().cast()) }
            }
        }
    )* };
}

floats! {
    /// Atomic `f32` with device scope.
    AtomicF32: f32 as u32 in Device;
    /// Atomic `f64` with device scope.
    AtomicF64: f64 as u64 in Device;
    /// Atomic `f32` with block scope.
    BlockAtomicF32: f32 as u32 in Block, unsafe;
    /// Atomic `f64` with block scope.
    BlockAtomicF64: f64 as u64 in Block, unsafe;
    /// Atomic `f32` with system scope, which includes all devices and the host.
    SystemAtomicF32: f32 as u32 in System;
    /// Atomic `f64` with system scope, which includes all devices and the host.
    SystemAtomicF64: f64 as u64 in System;
}
