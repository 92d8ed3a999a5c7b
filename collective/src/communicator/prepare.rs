//! [`Prepared`]: an operation with checked arguments, before it is enqueued. [`Place`] checks them.

use std::borrow::Cow;

use warpsmith_runtime::extension::{Access, BufferUse};
use warpsmith_runtime::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};

use crate::backend::{Call, Kind, Memory};
use crate::element::{ReduceOp, Reducible, Reduction};
use crate::error::{CollectiveError, Error, Result};
use crate::fingerprint::{Fingerprint, type_name};

/// Checked operation, ready to be enqueued.
pub(super) struct Prepared<'a> {
    pub call: Call,
    pub uses: Vec<BufferUse<'a>>,
}

/// Rank and world size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub rank: usize,
    pub world: usize,
}

impl<'a> Prepared<'a> {
    pub fn new<T>(kind: Kind, count: usize) -> Self {
        let mut fingerprint = Fingerprint::new(kind.method(), type_name::<T>(), count);
        match kind {
            Kind::Reduce { root }
            | Kind::Broadcast { root }
            | Kind::Gather { root }
            | Kind::Scatter { root } => fingerprint.root = Some(root),
            Kind::Send { to: peer } | Kind::Receive { from: peer } => fingerprint.peer = Some(peer),
            Kind::Barrier => fingerprint.element = Cow::Borrowed(""),
            Kind::AllReduce | Kind::AllGather | Kind::ReduceScatter | Kind::AllToAll => {}
        }
        let (from, to) = (Memory::default(), Memory::default());
        let call = Call { kind, fingerprint, reduction: None, from, to };
        Self { call, uses: Vec::new() }
    }

    pub fn reads<T: DeviceCopy>(mut self, x: &DeviceSlice<'a, T>) -> Self {
        self.call.from = Memory { address: x.as_device_ptr().0, bytes: x.len() * size_of::<T>() };
        self.uses.push(x.used(Access::Read));
        self
    }

    pub fn writes<T: DeviceCopy>(mut self, y: &DeviceSliceMut<'a, T>) -> Self {
        self.call.to = Memory { address: y.as_device_ptr().0, bytes: y.len() * size_of::<T>() };
        self.uses.push(y.used());
        self
    }

    pub fn reduces<T: Reducible>(mut self, operator: ReduceOp) -> Self {
        self.call.fingerprint.reduction = Some(Cow::Borrowed(operator.name()));
        self.call.reduction = Some(Reduction { element: T::TYPE, operator });
        self
    }
}

impl Place {
    fn error(self, operation: &'static str, reason: String) -> Error {
        CollectiveError::Argument { operation, rank: self.rank, reason }.into()
    }

    pub fn check_rank(self, operation: &'static str, what: &str, rank: usize) -> Result<()> {
        if rank < self.world {
            return Ok(());
        }
        Err(self.error(
            operation,
            format!("the {what} is rank {rank}, but the ranks are 0 to {}", self.world - 1),
        ))
    }

    /// Fails unless the two lengths are equal.
    pub fn check_equal(self, operation: &'static str, x: usize, y: usize) -> Result<()> {
        if x == y {
            return Ok(());
        }
        Err(self.error(
            operation,
            format!(
                "the source has {x} elements, but the target has {y}; the lengths must be \
                                           equal"
            ),
        ))
    }

    /// Fails unless `whole` consists of one block of `part` elements per rank.
    pub fn check_blocks(
        self,
        operation: &'static str,
        (whole_name, whole): (&str, usize),
        (part_name, part): (&str, usize),
    ) -> Result<()> {
        if part.checked_mul(self.world) == Some(whole) {
            return Ok(());
        }
        Err(self.error(
            operation,
            format!(
                "the {whole_name} has {whole} elements and the {part_name} has {part}; with {} ranks, the \
                 {whole_name} must have {} times the elements of the {part_name}",
                self.world, self.world
            ),
        ))
    }

    /// Returns the length of each rank's block in a buffer of length `len`.
    pub fn block_len(self, operation: &'static str, len: usize) -> Result<usize> {
        if len.is_multiple_of(self.world) {
            return Ok(len / self.world);
        }
        let world = self.world;
        Err(self.error(operation, format!("{len} elements cannot be divided evenly among {world} ranks")))
    }

    /// Returns this rank's block of a buffer that has one block per rank.
    pub fn own_block(self, whole: Memory) -> Memory {
        let bytes = whole.bytes / self.world;
        Memory { address: whole.address + (self.rank * bytes) as u64, bytes }
    }

    /// Fails unless the root has passed the argument that only the root needs.
    pub fn check_given<S>(
        self,
        operation: &'static str,
        root: usize,
        what: &str,
        given: &Option<S>,
    ) -> Result<()> {
        if self.rank != root || given.is_some() {
            return Ok(());
        }
        Err(self.error(operation, format!("this rank is the root, so it must pass a {what}, not `None`")))
    }

    /// Fails if a message is addressed to this rank itself. Only a group can contain such a message; outside a group,
    /// it would wait forever for its counterpart.
    pub fn check_other(self, operation: &'static str, peer: usize) -> Result<()> {
        if peer != self.rank {
            return Ok(());
        }
        Err(self.error(
            operation,
            "a rank can send to itself only in a group that contains both the `send` and the `recv`"
                .to_owned(),
        ))
    }
}
