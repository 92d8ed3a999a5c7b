//! Which operations the Peer backend does itself, and how: from what is equal on all ranks.

use std::time::Duration;

use crate::backend::{Batch, Call, Kind};

/// Bytes of a half of a rank's segment, on GPUs and on emulated devices: what one launch reduces at most.
const HALF_BYTES: (usize, usize) = (16 << 20, 256 << 10);
/// Threads of a block, on GPUs and on emulated devices.
const THREADS: (u32, u32) = (512, 32);
/// The most blocks of a launch, on GPUs and on emulated devices.
const BLOCKS: (usize, usize) = (48, 2);

/// How long a kernel waits at most, whatever the operation's time is: an emulated device is lost with a kernel that runs for
/// 300 s, by default.
const LONGEST: (Duration, Duration) = (Duration::MAX, Duration::from_secs(280));

/// Up to how many ranks, the most bytes of one shot, and the most bytes that Auto does not leave to NCCL. They are estimates from
/// what others have published: nothing was measured.
///
/// Two ranks move as many bytes in one shot as in two.
const THRESHOLDS: [(usize, usize, usize); 3] =
    [(2, 512 << 10, 16 << 20), (4, 256 << 10, 4 << 20), (8, 128 << 10, 4 << 20)];
/// The same for emulated devices, small enough for tests to have both.
const EMULATED_THRESHOLDS: (usize, usize) = (4 << 10, 1 << 20);

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub blocks: u32,
    pub threads: u32,
}

/// What all ranks know alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    pub world: usize,
    pub is_emulated: bool,
    /// Whether operations are left to another backend where that is faster.
    pub is_auto: bool,
}

impl Choice {
    fn of<T>(&self, (gpu, emulated): (T, T)) -> T {
        if self.is_emulated { emulated } else { gpu }
    }

    /// How long a kernel may wait.
    pub fn longest(&self) -> Duration {
        self.of(LONGEST)
    }

    pub fn half_bytes(&self) -> usize {
        self.of(HALF_BYTES)
    }

    /// The bytes of one shot at most, and those of Auto.
    fn thresholds(&self) -> (usize, usize) {
        if self.is_emulated {
            return EMULATED_THRESHOLDS;
        }
        let row = THRESHOLDS.iter().find(|(world, ..)| self.world <= *world);
        row.map_or((0, 0), |(_, one_shot, auto)| (*one_shot, *auto))
    }

    /// Whether all of these operations are done by kernels of this backend.
    pub fn takes(&self, batch: &Batch) -> bool {
        batch.calls.iter().all(|call| self.takes_call(call))
    }

    fn takes_call(&self, call: &Call) -> bool {
        let bytes = call.counted_bytes(self.world);
        let (one_shot, auto) = self.thresholds();
        let is_f8 = call.reduction.is_some_and(|reduction| reduction.element.is_f8());
        let is_within = match call.kind {
            Kind::Send { .. } | Kind::Receive { .. } => return false,
            Kind::Barrier => true,
            Kind::AllReduce | Kind::Reduce { .. } => bytes <= auto,
            // All ranks read all of it from the root.
            Kind::Broadcast { .. } => bytes <= one_shot,
            Kind::AllGather
            | Kind::ReduceScatter
            | Kind::AllToAll
            | Kind::Gather { .. }
            | Kind::Scatter { .. } => bytes <= auto / self.world,
        };
        !is_f8 && (is_within || !self.is_auto)
    }

    /// Whether this number of bytes is reduced in two shots.
    pub fn is_two_shot(&self, bytes: usize) -> bool {
        bytes > self.thresholds().0
    }

    /// The shape of a launch whose threads share vectors of this number of bytes.
    pub fn shape(&self, bytes: usize) -> Shape {
        let threads = self.of(THREADS);
        let blocks = bytes.div_ceil(16 * threads as usize).clamp(1, self.of(BLOCKS)) as u32;
        Shape { blocks, threads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Memory;
    use crate::element::{F8E4M3, ReduceOp, Reduction};
    use crate::fingerprint::Fingerprint;

    const AUTO: Choice = Choice { world: 4, is_emulated: false, is_auto: true };

    #[test]
    fn shapes_grow_with_the_bytes() {
        let blocks = |bytes| AUTO.shape(bytes).blocks;
        assert_eq!([0, 8 << 10, (8 << 10) + 1, 256 << 10, 16 << 20].map(blocks), [1, 1, 2, 32, 48]);
        assert_eq!(AUTO.shape(0).threads, 512);
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
        // What only the root has decides nothing.
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
        let reduction = Some(Reduction::from(ReduceOp::<F8E4M3>::Sum));
        assert!(!peer.takes_call(&Call { reduction, ..call(Kind::AllReduce, 1, 1) }));
    }
}
