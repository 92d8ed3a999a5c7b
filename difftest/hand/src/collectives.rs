//! Kernels for each collective operation, with a case per block size.

/// Declares kernels that call an operation twice, with two numbers, and their cases.
macro_rules! collectives {
    ($($kernel:ident $operation:ident [$($size:literal)*];)*) => {
        $(
            #[doc = concat!("`collective::", stringify!($operation), "`, twice.")]
            #[gpu_std::kernel(stack = 4096)]
            pub fn $kernel(
                data: &[u64],
                atomics: &[difftest_support::Atomic<u64>],
                zero: u64,
                mut out: gpu_std::prelude::DisjointMut<u64, gpu_std::prelude::Chunks<8>>,
            ) {
                let place = gpu_std::thread::unique_index();
                let c = difftest_support::Input { data, atomics, zero, thread: place.get() as u64 };
                let mut s = difftest_support::State::new(c.thread);
                let value = $crate::collectives::value(&c, &mut s);
                s.add(difftest_support::collective::$operation(value, 5));
                let first = s.h;
                let value = $crate::collectives::value(&c, &mut s);
                s.add(difftest_support::collective::$operation(value, 38));
                if let Some(out) = out.get_mut(place) {
                    out.copy_from_slice(&[first, s.h, 0, 0, 0, 0, 0, 0]);
                }
            }
        )*

        /// Test cases of the kernels.
        #[cfg(not(target_arch = "nvptx64"))]
        pub fn cases() -> Vec<difftest_runner::Case> {
            use difftest_runner::Step;
            use difftest_support::collective::model;
            vec![$($(difftest_runner::by_hand!(
                $kernel,
                concat!(stringify!($kernel), "_", stringify!($size)),
                $size,
                3,
                concat!("collective::", stringify!($operation), "(value, 5), then 38, in blocks of ", stringify!($size)),
                [
                    Step::Collective($crate::collectives::value, model::$operation, 5),
                    Step::Collective($crate::collectives::value, model::$operation, 38),
                ]
            ),)*)*]
        }
    };
}
pub(crate) use collectives;

/// Input value of a thread.
#[inline(always)]
pub fn value(c: &difftest_support::Input, s: &mut difftest_support::State) -> u64 {
    s.add(c.w(11));
    s.h ^ c.w(s.h & 63)
}
