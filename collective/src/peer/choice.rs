//! Selection of the operations that the Peer backend runs and of the algorithm for each. The selection depends only on
//! values that are equal on all ranks.

use std::time::Duration;

use warpsmith_collective_kernels::low_latency;
use warpsmith_collective_kernels::words::room;

use crate::backend::{Batch, Call, Kind};

/// Size in bytes of one half of a rank's segment, on GPUs and on emulated devices. This is also the maximum that one
/// launch reduces.
const HALF_BYTES: (usize, usize) = (16 << 20, 256 << 10);
/// Threads per block, on GPUs and on emulated devices.
const THREADS: (u32, u32) = (512, 32);
/// Maximum number of blocks per launch, on GPUs and on emulated devices.
const BLOCKS: (usize, usize) = (128, 2);
/// Initial epoch, on GPUs and on emulated devices. On emulated devices, it is close to the wrap-around, so that tests
/// cover it.
const EPOCHS_BEFORE: (u32, u32) = (0, u32::MAX - 20);

/// Maximum time that a kernel waits, on GPUs and on emulated devices, regardless of the operation's timeout. By
/// default, an emulated device is considered lost if a kernel runs for 300 s.
const LONGEST: (Duration, Duration) = (Duration::MAX, Duration::from_secs(280));

/// Maximum operation sizes, in bytes, for each algorithm.
#[derive(Debug, Clone, Copy)]
struct Thresholds {
    /// Maximum number of ranks to which this row applies.
    world: usize,
    /// Maximum size of low-latency reductions (LL protocol).
    low_latency: usize,
    /// Maximum size for one-shot reductions.
    one_shot: usize,
    /// Maximum size of inputs written to the memory of the other ranks. Larger inputs are read directly from the
    /// program's memory if all ranks can access it.
    written: usize,
    /// Maximum size of operations that `Auto` does not pass on to NCCL.
    auto: usize,
}

const NONE: Thresholds = Thresholds { world: 0, low_latency: 0, one_shot: 0, written: 0, auto: 0 };

/// Thresholds per world size. The row for two ranks was measured on two H100 GPUs with NVLink. The other rows are
/// estimates from published results.
const THRESHOLDS: [Thresholds; 3] = [
    Thresholds { world: 2, low_latency: 1 << 20, one_shot: 512 << 10, written: 8 << 20, auto: 16 << 20 },
    Thresholds { world: 4, low_latency: 64 << 10, one_shot: 256 << 10, written: 256 << 10, auto: 4 << 20 },
    Thresholds { world: 8, low_latency: 32 << 10, one_shot: 128 << 10, written: 128 << 10, auto: 4 << 20 },
];
/// Thresholds of emulated devices, small enough that tests cover all algorithms.
const EMULATED_THRESHOLDS: Thresholds = Thresholds {
    world: usize::MAX,
    low_latency: 2 << 10,
    one_shot: 8 << 10,
    written: 8 << 10,
    auto: 1 << 20,
};

// The words of the largest low-latency reduction must fit into the segment.
const _: () = {
    let mut row = 0;
    while row < THRESHOLDS.len() {
        let Thresholds { world, low_latency, .. } = THRESHOLDS[row];
        assert!(low_latency <= room(world) && EMULATED_THRESHOLDS.low_latency <= room(world));
        row += 1;
    }
};

/// Algorithm of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    LowLatency,
    OneShot,
    TwoShot,
}

/// Grid and block size of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub blocks: u32,
    pub threads: u32,
}

/// Inputs of the selection, which are equal on all ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub world: usize,
    pub is_emulated: bool,
    /// True if operations that another backend runs faster are passed on to that backend.
    pub is_auto: bool,
}

impl Choice {
    fn of<T>(&self, (gpu, emulated): (T, T)) -> T {
        if self.is_emulated { emulated } else { gpu }
    }

    /// Returns the maximum time that a kernel waits.
    pub fn longest(&self) -> Duration {
        self.of(LONGEST)
    }

    pub fn half_bytes(&self) -> usize {
        self.of(HALF_BYTES)
    }

    pub fn epochs_before(&self) -> u32 {
        self.of(EPOCHS_BEFORE)
    }

    fn thresholds(&self) -> Thresholds {
        if self.is_emulated {
            return EMULATED_THRESHOLDS;
        }
        THRESHOLDS.into_iter().find(|row| self.world <= row.world).unwrap_or(NONE)
    }

    /// Returns whether this backend has kernels for all of these operations.
    pub fn takes(&self, batch: &Batch) -> bool {
        batch.calls.iter().all(|call| self.takes_call(call))
    }

    fn takes_call(&self, call: &Call) -> bool {
        let bytes = call.counted_bytes(self.world);
        let Thresholds { one_shot, auto, .. } = self.thresholds();
        let is_f8 = call.reduction.is_some_and(|reduction| reduction.element.is_f8());
        let is_within = match call.kind {
            Kind::Send { .. } | Kind::Receive { .. } => return false,
            Kind::Barrier => true,
            Kind::AllReduce | Kind::Reduce { .. } => bytes <= auto,
            // The buffer is small, so every rank reads all of it from the root.
            Kind::Broadcast { .. } => bytes <= one_shot,
            Kind::AllGather
            | Kind::ReduceScatter
            | Kind::AllToAll
            | Kind::Gather { .. }
            | Kind::Scatter { .. } => bytes <= auto / self.world,
        };
        !is_f8 && (is_within || !self.is_auto)
    }

    /// Returns the algorithm for a reduction of this many bytes whose result is needed on all ranks or on one.
    pub fn algorithm(&self, bytes: usize) -> Algorithm {
        let Thresholds { low_latency, one_shot, .. } = self.thresholds();
        match bytes {
            _ if bytes <= low_latency => Algorithm::LowLatency,
            // With two ranks, the one-shot and two-shot algorithms move the same number of bytes.
            _ if bytes <= one_shot || self.world <= 2 => Algorithm::OneShot,
            _ => Algorithm::TwoShot,
        }
    }

    /// Returns whether a reduction of this many bytes reads the program's memory directly if all ranks can access it.
    pub fn is_direct(&self, bytes: usize) -> bool {
        bytes > self.thresholds().written
    }

    /// Returns the shape of a launch whose threads process this many bytes as vectors.
    pub fn shape(&self, bytes: usize) -> Shape {
        shape(self.of(THREADS), self.of(BLOCKS), bytes)
    }

    /// Returns the shape of a launch that pushes this many bytes.
    pub fn low_latency_shape(&self, bytes: usize) -> Shape {
        let (threads, most) = (self.of((low_latency::threads(self.world), THREADS.1)), self.of(BLOCKS));
        // The launch uses twice as many blocks of half as many threads, provided that there is still a thread for each
        // vector.
        let is_enough = bytes <= 16 * (threads / 2) as usize * most;
        shape(if is_enough { threads / 2 } else { threads }, most, bytes)
    }
}

fn shape(threads: u32, most: usize, bytes: usize) -> Shape {
    let blocks = bytes.div_ceil(16 * threads as usize).clamp(1, most) as u32;
    Shape { blocks, threads }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Memory;
    use crate::element::{ElementType, ReduceOp, Reduction};
    use crate::fingerprint::Fingerprint;

    const AUTO: Choice = Choice { world: 4, is_emulated: false, is_auto: true };

    #[test]
    fn shapes_grow_with_the_bytes() {
        let blocks = |bytes| AUTO.shape(bytes).blocks;
        assert_eq!([0, 8 << 10, (8 << 10) + 1, 256 << 10, 16 << 20].map(blocks), [1, 1, 2, 32, 128]);
        assert_eq!(AUTO.shape(0).threads, 512);
    }

    #[test]
    fn algorithms_are_chosen_by_bytes_and_ranks() {
        let algorithm = |world, bytes| Choice { world, ..AUTO }.algorithm(bytes);
        assert_eq!([0, 64 << 10].map(|bytes| algorithm(4, bytes)), [Algorithm::LowLatency; 2]);
        assert_eq!([(64 << 10) + 1, 256 << 10].map(|bytes| algorithm(4, bytes)), [Algorithm::OneShot; 2]);
        assert_eq!(algorithm(3, (256 << 10) + 1), Algorithm::TwoShot);
        assert_eq!([1 << 20, (1 << 20) + 1, 1 << 30].map(|bytes| algorithm(2, bytes)), {
            [Algorithm::LowLatency, Algorithm::OneShot, Algorithm::OneShot]
        });
        assert_eq!([1, 32 << 10].map(|bytes| algorithm(8, bytes)), [Algorithm::LowLatency; 2]);
        // Each thread has one vector.
        let shape = |world, bytes| Choice { world, ..AUTO }.low_latency_shape(bytes);
        assert_eq!(shape(2, 256 << 10), Shape { blocks: 64, threads: 256 });
        assert_eq!(shape(2, 1 << 20), Shape { blocks: 128, threads: 512 });
        assert_eq!(shape(4, 64 << 10), Shape { blocks: 32, threads: 128 });
    }

    #[test]
    fn auto_decides_by_what_all_ranks_know() {
        let call = |kind, from, to| {
            let memory = |bytes| Memory { address: 0, bytes };
            let fingerprint = Fingerprint::init();
            Call { kind, fingerprint, reduction: None, from: memory(from), to: memory(to) }
        };
        let takes = |kind, from, to| AUTO.takes_call(&call(kind, from, to));
        let (root, mib) = (1, 1 << 20);
        assert!(
            takes(Kind::AllReduce, 4 * mib, 4 * mib) && !takes(Kind::AllReduce, 4 * mib + 1, 4 * mib + 1)
        );
        assert!(takes(Kind::AllGather, mib, 4 * mib) && !takes(Kind::AllGather, mib + 1, 4 * mib + 4));
        assert!(
            takes(Kind::ReduceScatter, 4 * mib, mib) && !takes(Kind::ReduceScatter, 4 * mib + 4, mib + 1)
        );
        assert!(takes(Kind::AllToAll, 4 * mib, 4 * mib) && !takes(Kind::AllToAll, 4 * mib + 4, 4 * mib + 4));
        assert!(
            takes(Kind::Broadcast { root }, 0, mib / 4) && !takes(Kind::Broadcast { root }, 0, mib / 4 + 1)
        );
        // Sizes that only the root passes must not affect the selection.
        for (more, given) in [(0, true), (1, false)] {
            for others in [0, 4 * mib + 4 * more] {
                assert_eq!(takes(Kind::Gather { root }, mib + more, others), given);
                assert_eq!(takes(Kind::Scatter { root }, others, mib + more), given);
                assert_eq!(takes(Kind::Reduce { root }, 4 * mib + more, others), given);
            }
        }
        assert!(!takes(Kind::Send { to: 0 }, 1, 0) && !takes(Kind::Receive { from: 0 }, 0, 1));
        let peer = Choice { is_auto: false, ..AUTO };
        assert!(peer.takes_call(&call(Kind::AllGather, 1 << 30, 4 << 30)));
        let reduction = Some(Reduction { element: ElementType::F8E4M3, operator: ReduceOp::Sum });
        assert!(!peer.takes_call(&Call { reduction, ..call(Kind::AllReduce, 1, 1) }));
    }
}
