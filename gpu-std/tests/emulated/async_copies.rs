//! `cp.async`: copies complete when their thread waits for them, and not before.

use crate::common::{Args, launch};
use gpu_std::prelude::*;
use gpu_std::shared::{commit_copies, copy_async, wait_copies, wait_copies_leaving};

/// Bytes of shared memory that a copy has not reached.
const POISON: u32 = 0xa5a5_a5a5;

/// Copies three elements per thread, the first two in a group each. `out` receives the thread's elements in shared
/// memory after waiting for all groups but the latest `LATEST` (3 for no wait, and 4 for all copies).
#[kernel(consts(LATEST = 0, 1, 2, 3, 4), block(64))]
unsafe fn three<const LATEST: usize>(x: &[u32], mut out: DisjointMut<u32, Chunks<3>>) {
    let memory: *mut u32 = shared_array![u32; 192];
    let own = thread::linear_in_block() as usize;
    // SAFETY: the elements belong to this thread, except for the seeded bugs.
    unsafe {
        for i in 0..3 {
            copy_async(&x[3 * own + i], memory.add(3 * own + i));
            if i < 2 {
                commit_copies();
            }
        }
        match const { LATEST } {
            0 => wait_copies_leaving::<0>(),
            1 => wait_copies_leaving::<1>(),
            2 => wait_copies_leaving::<2>(),
            3 => {}
            _ => wait_copies(),
        }
        thread::sync_threads();
        if let Some(out) = out.get_mut(thread::unique_index()) {
            for (i, out) in out.iter_mut().enumerate() {
                *out = memory.add(3 * own + i).read();
            }
        }
    }
}

fn complete<const LATEST: usize>(expected: usize)
where
    three<LATEST>: gpu_std::Kernel,
{
    let x: Vec<u32> = (0..192).collect();
    let mut out = vec![0; 192 * 2];
    launch::<three<LATEST>>([2, 1, 1], [64, 1, 1], &Args::new().slice(&x).view(&mut out));
    for (i, value) in out.into_iter().enumerate() {
        assert_eq!(value, if i % 3 < expected { i as u32 % 192 } else { POISON }, "element {i}, {LATEST}");
    }
}

#[test]
fn groups_complete_in_order_and_only_after_a_wait() {
    complete::<4>(3);
    complete::<0>(2);
    complete::<1>(1);
    complete::<2>(0);
    complete::<3>(0);
}
