//! Hand-written kernels of the differential test.
//!
//! | module | kernels |
//! | --- | --- |
//! | [`numbers`], [`hashes`], [`random`], [`collections`], [`words`], [`geometry`], [`locks`] | crates of the registry |
//! | [`warps`], [`blocks`] | each operation of `difftest_support::collective`, in blocks of several sizes |
//! | [`launches`] | shared arrays of all kinds, tiles, atomics of all scopes, barriers behind `dyn`, many and large parameters |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![deny(missing_docs)]

/// Declares one-step kernels: a function of a thread's input and state, and the kernel that calls it.
macro_rules! kernels {
    ($($(#[doc = $doc:literal])* $name:ident($c:ident, $s:ident) $body:block)*) => {
        $(
            $(#[doc = $doc])*
            #[gpu_std::kernel(stack = 16384)]
            pub fn $name(
                data: &[u64],
                atomics: &[difftest_support::Atomic<u64>],
                zero: u64,
                mut out: gpu_std::prelude::DisjointMut<u64, gpu_std::prelude::Chunks<8>>,
            ) {
                let place = gpu_std::thread::unique_index();
                let c = difftest_support::Input { data, atomics, zero, thread: place.get() as u64 };
                let mut s = difftest_support::State::new(c.thread);
                own::$name(&c, &mut s);
                if let Some(out) = out.get_mut(place) {
                    out.copy_from_slice(&[s.h, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
        )*

        /// Functions that the kernels call.
        pub mod own {
            use super::*;
            use difftest_support::{Input, State};
            $(
                $(#[doc = $doc])*
                pub fn $name($c: &Input, $s: &mut State) $body
            )*
        }

        /// Test cases of the kernels.
        #[cfg(not(target_arch = "nvptx64"))]
        pub fn cases() -> Vec<difftest_runner::Case> {
            vec![$(difftest_runner::by_hand!(
                $name, stringify!($name), 64, 3, concat!(module_path!(), "::", stringify!($name)),
                [difftest_runner::Step::Own(own::$name)]
            )),*]
        }
    };
}

pub mod blocks;
pub mod collections;
pub mod geometry;
pub mod hashes;
pub mod launches;
pub mod locks;
pub mod numbers;
pub mod random;
mod collectives;
pub mod warps;
pub mod words;

/// All cases.
#[cfg(not(target_arch = "nvptx64"))]
pub fn cases() -> Vec<difftest_runner::Case> {
    [
        numbers::cases(),
        hashes::cases(),
        random::cases(),
        collections::cases(),
        words::cases(),
        geometry::cases(),
        locks::cases(),
        warps::cases(),
        blocks::cases(),
        launches::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
