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

/// Up to how many ranks, the most bytes of one shot, and the most bytes that Auto does not leave to NCCL.
///
/// Two ranks move as many bytes in one shot as in two.
const THRESHOLDS: [(usize, usize, usize); 3] =
    [(2, 512 << 10, 16 << 20), (4, 256 << 10, 4 << 20), (8, 128 << 10, 4 << 20)];
/// The same for emulated devices, small enough for tests to have both.
const EMULATED_THRESHOLDS: (usize, usize) = (4 << 10, 1 << 20);

/// How a reduction is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    pub is_two_shot: bool,
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
        match call.kind {
            Kind::Barrier => true,
            Kind::AllReduce => {
                let is_f8 = call.reduction.is_some_and(|reduction| reduction.element.is_f8());
                !is_f8 && (!self.is_auto || call.to.bytes <= self.thresholds().1)
            }
            _ => false,
        }
    }

    /// Whether this number of bytes is reduced in two shots.
    pub fn is_two_shot(&self, bytes: usize) -> bool {
        bytes > self.thresholds().0
    }

    /// How a launch reduces this number of bytes: of memory that all ranks reach in two shots, whatever the number.
    pub fn plan(&self, bytes: usize, is_direct: bool) -> Plan {
        let threads = self.of(THREADS);
        let is_two_shot = is_direct || self.is_two_shot(bytes);
        let per_rank = if is_two_shot { bytes.div_ceil(self.world) } else { bytes };
        let blocks = per_rank.div_ceil(16 * threads as usize).clamp(1, self.of(BLOCKS)) as u32;
        Plan { is_two_shot, blocks, threads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_grow_with_the_bytes() {
        let choice = Choice { world: 4, is_emulated: false, is_auto: true };
        assert_eq!(choice.plan(0, false), Plan { is_two_shot: false, blocks: 1, threads: 512 });
        assert_eq!(choice.plan(256 << 10, false), Plan { is_two_shot: false, blocks: 32, threads: 512 });
        assert_eq!(choice.plan((256 << 10) + 1, false), Plan { is_two_shot: true, blocks: 9, threads: 512 });
        assert_eq!(choice.plan(16 << 20, false), Plan { is_two_shot: true, blocks: 48, threads: 512 });
    }
}
