//! Kernels with one fault each, and kernels that look alike and have none: what `warpsmith check` has to find.
//!
//! | module | its kernels |
//! | --- | --- |
//! | `shared` | race in shared memory, or read what nothing has written there |
//! | `global` | race in global memory |
//! | `atomics` | have atomics and fences that do not order what they should |
//! | `bounds` | reach outside of memory, into freed and into uninitialized memory |
//! | `scopes`, `samples` | are faults that others publish, rewritten |
//! | `patterns` | are known algorithms with one line missing or wrong |
//! | `clean` | have no fault |
//! | [`case`] | the tables: what is found, and how a kernel is launched |
//!
//! A line that takes part in the fault of a kernel ends in `//~`. The program `corpus` in `tests/` launches all of them on the
//! emulated device and compares; the package `planted` launches one of them on a device.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![allow(clippy::missing_safety_doc, reason = "each kernel is launched in one way, by the table beside it")]

/// The table of a module: a line for each kernel, of what `warpsmith check` finds in it, what finds it on a GPU, and its launch.
macro_rules! cases {
    ($($kernel:ident: $found:expr, $tool:expr, $shape:expr;)*) => {
        #[cfg(not(target_arch = "nvptx64"))]
        /// The kernels of this module.
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
mod patterns;
mod samples;
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
        samples::CASES,
        patterns::CASES,
        clean::CASES,
    ];
    tables.into_iter().flatten()
}
