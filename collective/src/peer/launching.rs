//! [`Launching`]: an operation as a sequence of kernel launches, each limited to one half of a segment.

use std::time::Duration;

use warpsmith_collective_kernels::device_comm::DeviceComm;
use warpsmith_collective_kernels::exchange::Blocks;
use warpsmith_collective_kernels::number::Step;
use warpsmith_collective_kernels::reduce::options;
use warpsmith_runtime::extension::{Access, BufferUse};
use warpsmith_runtime::launch::{Function, Launch, RawArguments};
use warpsmith_runtime::{DevicePtr, LaunchConfig, Result, Stream};

use super::choice::{Algorithm, Shape};
use super::rank::Rank;
use crate::backend::{Call, Kind};
use crate::element::{ReduceOp, Reduction};

/// Operation to launch. See the [module documentation](self).
pub(super) struct Launching<'a> {
    pub rank: &'a Rank,
    pub stream: &'a Stream,
    pub uses: &'a [BufferUse<'a>],
    pub call: &'a Call,
    /// Maximum time that each kernel of the operation waits.
    pub timeout: Duration,
}

/// Divides `bytes` into one or more ranges of at most `room` bytes. Returns the start and the length of each range.
fn parts(bytes: usize, room: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes.max(1)).step_by(room).map(move |start| (start, room.min(bytes - start)))
}

impl Launching<'_> {
    /// Launches the kernels of the operation.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Backend::enqueue`](crate::backend::Backend::enqueue).
    pub unsafe fn launch(self) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.call.reduction {
                Some(reduction) => self.reduce(reduction),
                None => self.exchange(),
            }
        }
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Self::launch`].
    unsafe fn reduce(&self, reduction: Reduction) -> Result<()> {
        let Reduction { element, operator } = reduction;
        let Some([low_latency, reduce]) = self.rank.kernels.reductions(element) else { return Ok(()) };
        let (step, more) = match operator {
            ReduceOp::Sum => (Step::Add, 0),
            ReduceOp::Avg => (Step::Add, options::AVERAGE),
            ReduceOp::Prod => (Step::Multiply, 0),
            ReduceOp::Min => (Step::Less, 0),
            ReduceOp::Max => (Step::Greater, 0),
        };
        let choice = &self.rank.choice;
        let (world, half) = (choice.world, choice.half_bytes());
        let direct = self.rank.direct(self.call);
        let is_scatter = self.call.kind == Kind::ReduceScatter;
        let to = if let Kind::Reduce { root } = self.call.kind { options::to(root) } else { 0 };
        let is_in_place = self.rank.is_in_place(self.call);
        let total = self.call.counted_bytes(world);
        // The total size determines the algorithm for all ranges, because the remainder does not justify a different
        // kernel.
        let algorithm = match &direct {
            _ if is_scatter => Algorithm::OneShot,
            None => choice.algorithm(total),
            Some(_) => Algorithm::TwoShot,
        };
        let (function, is_two_shot) = (
            if algorithm == Algorithm::LowLatency { low_latency } else { reduce },
            algorithm == Algorithm::TwoShot,
        );
        let room = match (algorithm, &direct) {
            // The half is divided into one part for each other rank.
            (Algorithm::OneShot, None) => (half / (world - 1).max(1)) & !15,
            // The first 50 % of the half contains the elements of the other ranks, the second 50 % the results.
            (Algorithm::TwoShot, _) if !is_in_place => half / 2,
            _ => total.max(1),
        };
        for (start, bytes) in parts(total, room) {
            let shape = match algorithm {
                Algorithm::LowLatency => choice.low_latency_shape(bytes),
                Algorithm::OneShot => choice.shape(bytes),
                Algorithm::TwoShot => choice.shape(bytes.div_ceil(world)),
            };
            let with = |is_so, option| if is_so { option } else { 0 };
            let (table, offset) = match &direct {
                Some((common, offset)) => (common.peers().0, (offset + start) as u64),
                None => (0, 0),
            };
            let comm = DeviceComm {
                direct: table,
                direct_offset: offset,
                options: step as u32
                    | more
                    | with(is_two_shot, options::TWO_SHOT)
                    | with(direct.is_some(), options::DIRECT)
                    | with(is_scatter, options::SCATTER)
                    | with(is_in_place, options::IN_PLACE)
                    | to,
                ..self.rank.comm
            };
            let args = RawArguments::new()
                .pointer(DevicePtr(self.call.from.address).offset(start))
                .pointer(DevicePtr(self.call.to.address).offset(start))
                .value((bytes / element.bytes()) as u64);
            // `push` has no blocks and therefore no stride parameter.
            let args = if algorithm == Algorithm::LowLatency {
                args
            } else {
                args.value((total / element.bytes()) as u64)
            };
            // SAFETY: the arguments match the kernel parameters; the caller guarantees the rest.
            unsafe { self.launch_kernel(function, shape, args, comm) }?;
        }
        Ok(())
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Self::launch`].
    unsafe fn exchange(&self) -> Result<()> {
        let (rank, world) = (self.rank.mesh.rank() as u32, self.rank.choice.world as u32);
        let (from, to) = (self.call.from.address, self.call.to.address);
        let is_root = |root: usize| root == rank as usize;
        // The values are the start and the number of the blocks that this rank provides, the first rank and the number
        // of ranks from which it reads, and the index of the block that it reads from each of them.
        let (from, given, first, taken, block) = match self.call.kind {
            Kind::AllGather => (from, 1, 0, world, 0),
            Kind::Gather { root } => (from, 1, 0, if is_root(root) { world } else { 0 }, 0),
            Kind::Broadcast { root } => (to, is_root(root).into(), root as u32, (!is_root(root)).into(), 0),
            Kind::Scatter { root } => (from, if is_root(root) { world } else { 0 }, root as u32, 1, rank),
            Kind::AllToAll => (from, world, 0, world, rank),
            // This is a barrier. All other kinds are reductions or run on another backend.
            _ => (from, 0, 0, 0, 0),
        };
        let total = self.call.counted_bytes(self.rank.choice.world);
        // Maximum number of blocks that any rank provides. The number of blocks may differ between ranks, but the shape
        // of the launch must not.
        let in_half = match self.call.kind {
            Kind::Scatter { .. } | Kind::AllToAll => self.rank.choice.world,
            _ => 1,
        };
        let (function, bytes_of) = self.rank.kernels.exchange((from | to) as usize | total);
        for (start, bytes) in parts(total, (self.rank.choice.half_bytes() / in_half) & !15) {
            let blocks = Blocks { stride: (total / bytes_of) as u64, given, first, taken, block };
            let args = RawArguments::new()
                .pointer(DevicePtr(from).offset(start))
                .pointer(DevicePtr(to).offset(start))
                .value((bytes / bytes_of) as u64)
                .value(blocks);
            let shape = self.rank.choice.shape(bytes);
            // SAFETY: the arguments match the kernel parameters; the caller guarantees the rest.
            unsafe { self.launch_kernel(function, shape, args, self.rank.comm) }?;
        }
        Ok(())
    }

    /// Launches a kernel whose last parameter is the communicator state.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::launch`]. The arguments that precede the communicator
    /// state must match the kernel parameters.
    unsafe fn launch_kernel(
        &self,
        function: &Function,
        shape: Shape,
        args: RawArguments<'_>,
        comm: DeviceComm,
    ) -> Result<()> {
        let longest = self.timeout.min(self.rank.choice.longest());
        let comm = DeviceComm {
            timeout: u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX),
            hash: self.rank.hash_of(self.call),
            ..comm
        };
        let own = self.rank.segment.as_slice().used(Access::Read).with_access(Access::Write);
        let args = args.value(comm).used(own);
        let args = self.uses.iter().fold(args, |args, used| args.used(used.clone()));
        let mut launch = Launch::from(LaunchConfig::new([shape.blocks, 1, 1], [shape.threads, 1, 1], 0));
        if self.rank.choice.is_emulated {
            // An emulated device runs the blocks of a non-cooperative launch one after another in any order, so blocks
            // that wait for each other would hang.
            launch = launch.cooperative();
        } else {
            launch = launch.dependent();
        }
        // SAFETY: the caller guarantees that the arguments match the kernel parameters and that the memory of the call
        // is valid. The segment keeps the memory of the communicator state allocated. If ranks launch different shapes,
        // their hashes differ, and no rank accesses the data of another.
        unsafe { function.launch_unchecked(self.stream, launch, &args) }
    }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_are_all_bytes_and_one_at_least() {
        assert_eq!(parts(0, 16).collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(parts(16, 16).collect::<Vec<_>>(), [(0, 16)]);
        assert_eq!(parts(33, 16).collect::<Vec<_>>(), [(0, 16), (16, 16), (32, 1)]);
    }
}
