//! Atomic floats in three scopes. New code: `gpu_std::atomic::Atomic<T, Scope>`, which has all numbers and operations.
//!
//! [`mid`] has the same operations as functions on pointers, and those of integers.

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
            /// With this value.
            pub const fn new(value: $t) -> Self {
                Self(Atomic::new(value))
            }

            /// The value.
            pub fn into_inner(self) -> $t {
                // SAFETY: nothing else has the value any more.
                unsafe { self.0.as_ptr().read() }
            }

            /// Adds, and gives the value before.
            $(#[doc = concat!("\n# Safety\n\nNo thread of another block accesses it: this is ", stringify!($safety), ".")])?
            #[inline(always)]
            pub $($safety)? fn fetch_add(&self, value: $t, order: Ordering) -> $t {
                self.0.fetch_add(value, order)
            }

            /// Subtracts, and gives the value before.
            $(#[doc = concat!("\n# Safety\n\nNo thread of another block accesses it: this is ", stringify!($safety), ".")])?
            #[inline(always)]
            pub $($safety)? fn fetch_sub(&self, value: $t, order: Ordering) -> $t {
                self.0.fetch_add(-value, order)
            }

            /// Keeps the bits that are also set in `value`, and gives the value before.
            $(#[doc = concat!("\n# Safety\n\nNo thread of another block accesses it: this is ", stringify!($safety), ".")])?
            #[inline(always)]
            pub $($safety)? fn fetch_and(&self, value: $t, order: Ordering) -> $t {
                $t::from_bits(self.bits().fetch_and(value.to_bits(), order))
            }

            /// Sets the bits of `value`, and gives the value before.
            $(#[doc = concat!("\n# Safety\n\nNo thread of another block accesses it: this is ", stringify!($safety), ".")])?
            #[inline(always)]
            pub $($safety)? fn fetch_or(&self, value: $t, order: Ordering) -> $t {
                $t::from_bits(self.bits().fetch_or(value.to_bits(), order))
            }

            /// Flips the bits of `value`, and gives the value before.
            $(#[doc = concat!("\n# Safety\n\nNo thread of another block accesses it: this is ", stringify!($safety), ".")])?
            #[inline(always)]
            pub $($safety)? fn fetch_xor(&self, value: $t, order: Ordering) -> $t {
                $t::from_bits(self.bits().fetch_xor(value.to_bits(), order))
            }

            /// The value.
            ///
            /// # Panics
            ///
            /// If `order` is `Release` or `AcqRel`.
            $(#[doc = concat!("\n# Safety\n\nNo thread of another block accesses it: this is ", stringify!($safety), ".")])?
            #[inline(always)]
            #[track_caller]
            pub $($safety)? fn load(&self, order: Ordering) -> $t {
                self.0.load(order)
            }

            /// Sets the value.
            ///
            /// # Panics
            ///
            /// If `order` is `Acquire` or `AcqRel`.
            $(#[doc = concat!("\n# Safety\n\nNo thread of another block accesses it: this is ", stringify!($safety), ".")])?
            #[inline(always)]
            #[track_caller]
            pub $($safety)? fn store(&self, value: $t, order: Ordering) {
                self.0.store(value, order);
            }

            /// The bits as an integer.
            #[inline(always)]
            fn bits(&self) -> &Atomic<$bits, $scope> {
                // SAFETY: the types have the same layout and scope, and all access through references is atomic.
                unsafe { Atomic::from_ptr(self.0.as_ptr().cast()) }
            }
        }
    )* };
}

floats! {
    /// An `f32` that the threads of the device change together.
    AtomicF32: f32 as u32 in Device;
    /// An `f64` that the threads of the device change together.
    AtomicF64: f64 as u64 in Device;
    /// An `f32` that the threads of a block change together.
    BlockAtomicF32: f32 as u32 in Block, unsafe;
    /// An `f64` that the threads of a block change together.
    BlockAtomicF64: f64 as u64 in Block, unsafe;
    /// An `f32` that all devices and the host change together.
    SystemAtomicF32: f32 as u32 in System;
    /// An `f64` that all devices and the host change together.
    SystemAtomicF64: f64 as u64 in System;
}
