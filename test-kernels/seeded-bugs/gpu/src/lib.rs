//! Kernels with one seeded bug each, and similar kernels without bugs: the test corpus of `warpsmith check`.
//!
//! | module | kernels |
//! | --- | --- |
//! | `shared` | races in shared memory, or reads of uninitialized shared memory |
//! | `global` | races in global memory |
//! | `atomics` | atomics and fences with insufficient ordering |
//! | `bounds` | accesses out of bounds, to freed and to uninitialized memory |
//! | `lengths` | dynamic shared memory as slices |
//! | `scopes` | published bugs, rewritten |
//! | `patterns` | known algorithms with one line missing or wrong |
//! | `clean` | no bugs |
//! | [`case`] | the table entries: expected findings and launches |
//!
//! Each line involved in the bug of a kernel ends in `//~`. The test program `corpus` in `tests/` launches all kernels
//! on the emulated device and compares the findings. The package `seeded-bugs` launches one of them on a device.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "each kernel is launched in one way, by the table beside it, and does on purpose what is wrong"
)]

/// Defines the table of a module. Each line has a kernel, the finding of `warpsmith check`, the compute-sanitizer tool,
/// and the launch.
macro_rules! cases {
    ($($kernel:ident: $found:expr, $tool:expr, $shape:expr;)*) => {
        #[cfg(not(target_arch = "nvptx64"))]
        /// Kernels of this module.
        pub const CASES: &[$crate::case::Case] = {
            #[allow(unused_imports, reason = "some tables need some of them")]
            use $crate::case::{
                Case, FOUR_BLOCKS, Found::{self, *}, ONE_BLOCK, Tool::*, blocks, freed, uninit, zeros,
            };
            #[allow(unused_imports, reason = "some tables need some of them")]
            use warpsmith_emulator::check::FindingKind::*;
            &[$(Case::new::<$kernel>(file!(), $found, $tool, $shape)),*]
        };
    };
}

mod atomics;
mod bounds;
#[cfg(not(target_arch = "nvptx64"))]
pub mod case;
mod clean;
mod global;
mod lengths;
mod patterns;
mod scopes;
mod shared;

/// All kernels.
#[cfg(not(target_arch = "nvptx64"))]
pub fn cases() -> impl Iterator<Item = &'static case::Case> {
    let tables = [
        shared::CASES,
        global::CASES,
        atomics::CASES,
        scopes::CASES,
        bounds::CASES,
        lengths::CASES,
        patterns::CASES,
        clean::CASES,
    ];
    tables.into_iter().flatten()
}
