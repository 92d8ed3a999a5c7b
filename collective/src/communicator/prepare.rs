//! Operations with their arguments checked, before they are enqueued.

use std::borrow::Cow;

use warpsmith_core::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};
use warpsmith_core::seam::{Access, BufferUse};

use crate::backend::{Call, Kind, Memory};
use crate::element::{Element, ReduceOp, Reduction};
use crate::error::{Error, Result};
use crate::fingerprint::{Fingerprint, type_name};

/// An operation that can be enqueued.
pub(super) struct Prepared<'a> {
    pub call: Call,
    pub uses: Vec<BufferUse<'a>>,
}

/// A rank, and how many there are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub rank: usize,
    pub world: usize,
}

/// An operation in the making.
struct Making<'a> {
    prepared: Prepared<'a>,
}

impl<'a> Making<'a> {
    fn new<T>(operation: &'static str, kind: Kind, count: usize) -> Self {
        let fingerprint = Fingerprint::new(operation, type_name::<T>(), count);
        let (from, to) = (Memory::default(), Memory::default());
        let call = Call { kind, fingerprint, reduction: None, from, to };
        Self { prepared: Prepared { call, uses: Vec::new() } }
    }

    fn reads<T: DeviceCopy>(mut self, x: &DeviceSlice<'a, T>) -> Self {
        self.prepared.call.from = Memory { address: x.as_device_ptr().0, bytes: x.len() * size_of::<T>() };
        self.prepared.uses.push(x.used(Access::Read));
        self
    }

    fn writes<T: DeviceCopy>(mut self, y: &DeviceSliceMut<'a, T>) -> Self {
        self.prepared.call.to = Memory { address: y.as_device_ptr().0, bytes: y.len() * size_of::<T>() };
        self.prepared.uses.push(y.used());
        self
    }

    fn reduces<T: Element>(mut self, op: ReduceOp<T>) -> Self {
        let reduction = Reduction::from(op);
        self.prepared.call.fingerprint.reduction = Some(Cow::Borrowed(reduction.operator.name()));
        self.prepared.call.reduction = Some(reduction);
        self
    }

    fn root(mut self, root: usize) -> Self {
        self.prepared.call.fingerprint.root = Some(root);
        self
    }

    fn peer(mut self, peer: usize) -> Self {
        self.prepared.call.fingerprint.peer = Some(peer);
        self
    }

    fn done(self) -> Prepared<'a> {
        self.prepared
    }
}

impl Place {
    fn error(self, operation: &'static str, reason: String) -> Error {
        Error::Argument { operation, rank: self.rank, reason }
    }

    fn check_rank(self, operation: &'static str, what: &str, rank: usize) -> Result<()> {
        if rank < self.world {
            return Ok(());
        }
        Err(self
            .error(operation, format!("the {what} is rank {rank}, but ranks are 0 to {}", self.world - 1)))
    }

    /// Fails unless two lengths are equal.
    fn check_equal(self, operation: &'static str, x: usize, y: usize) -> Result<()> {
        if x == y {
            return Ok(());
        }
        Err(self.error(operation, format!("the source has {x} elements, the target {y}; they must be equal")))
    }

    /// Fails unless `whole` has a block of `part` elements for each rank.
    fn check_blocks(
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
                "the {whole_name} has {whole} elements, the {part_name} {part}; with {} ranks the {whole_name} must have \
                 {} times those of the {part_name}",
                self.world, self.world
            ),
        ))
    }

    /// The length of a block, of which a buffer of this length has one for each rank.
    fn block_len(self, operation: &'static str, len: usize) -> Result<usize> {
        if len.is_multiple_of(self.world) {
            return Ok(len / self.world);
        }
        let world = self.world;
        Err(self.error(operation, format!("{len} elements cannot be divided among {world} ranks")))
    }

    /// This rank's block of memory that has one for each.
    fn own_block(self, whole: Memory) -> Memory {
        let bytes = whole.bytes / self.world;
        Memory { address: whole.address + (self.rank * bytes) as u64, bytes }
    }

    /// Fails if the root has not passed what only the root needs.
    fn check_given<S>(
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

    pub fn all_reduce<'a, T: Element>(
        self,
        x: DeviceSlice<'a, T>,
        y: DeviceSliceMut<'a, T>,
        op: ReduceOp<T>,
    ) -> Result<Prepared<'a>> {
        self.check_equal("all_reduce", x.len(), y.len())?;
        Ok(Making::new::<T>("all_reduce", Kind::AllReduce, x.len()).reads(&x).writes(&y).reduces(op).done())
    }

    pub fn all_reduce_in_place<'a, T: Element>(
        self,
        y: DeviceSliceMut<'a, T>,
        op: ReduceOp<T>,
    ) -> Result<Prepared<'a>> {
        let mut making = Making::new::<T>("all_reduce", Kind::AllReduce, y.len()).writes(&y).reduces(op);
        making.prepared.call.from = making.prepared.call.to;
        Ok(making.done())
    }

    pub fn reduce<'a, T: Element>(
        self,
        x: DeviceSlice<'a, T>,
        y: Option<DeviceSliceMut<'a, T>>,
        op: ReduceOp<T>,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_rank("reduce", "root", root)?;
        self.check_given("reduce", root, "target", &y)?;
        let making =
            Making::new::<T>("reduce", Kind::Reduce { root }, x.len()).reads(&x).reduces(op).root(root);
        match y.filter(|_| self.rank == root) {
            Some(y) => {
                self.check_equal("reduce", x.len(), y.len())?;
                Ok(making.writes(&y).done())
            }
            None => Ok(making.done()),
        }
    }

    pub fn broadcast<'a, T: DeviceCopy>(
        self,
        buffer: DeviceSliceMut<'a, T>,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_rank("broadcast", "root", root)?;
        let making = Making::new::<T>("broadcast", Kind::Broadcast { root }, buffer.len());
        Ok(making.writes(&buffer).root(root).done())
    }

    pub fn all_gather<'a, T: DeviceCopy>(
        self,
        x: DeviceSlice<'a, T>,
        y: DeviceSliceMut<'a, T>,
    ) -> Result<Prepared<'a>> {
        self.check_blocks("all_gather", ("target", y.len()), ("source", x.len()))?;
        Ok(Making::new::<T>("all_gather", Kind::AllGather, x.len()).reads(&x).writes(&y).done())
    }

    pub fn all_gather_in_place<'a, T: DeviceCopy>(self, y: DeviceSliceMut<'a, T>) -> Result<Prepared<'a>> {
        let len = self.block_len("all_gather", y.len())?;
        let mut making = Making::new::<T>("all_gather", Kind::AllGather, len).writes(&y);
        making.prepared.call.from = self.own_block(making.prepared.call.to);
        Ok(making.done())
    }

    pub fn reduce_scatter<'a, T: Element>(
        self,
        x: DeviceSlice<'a, T>,
        y: DeviceSliceMut<'a, T>,
        op: ReduceOp<T>,
    ) -> Result<Prepared<'a>> {
        self.check_blocks("reduce_scatter", ("source", x.len()), ("target", y.len()))?;
        let making = Making::new::<T>("reduce_scatter", Kind::ReduceScatter, y.len());
        Ok(making.reads(&x).writes(&y).reduces(op).done())
    }

    pub fn reduce_scatter_in_place<'a, T: Element>(
        self,
        y: DeviceSliceMut<'a, T>,
        op: ReduceOp<T>,
    ) -> Result<Prepared<'a>> {
        let len = self.block_len("reduce_scatter", y.len())?;
        let mut making = Making::new::<T>("reduce_scatter", Kind::ReduceScatter, len).writes(&y).reduces(op);
        let call = &mut making.prepared.call;
        (call.from, call.to) = (call.to, self.own_block(call.to));
        Ok(making.done())
    }

    pub fn all_to_all<'a, T: DeviceCopy>(
        self,
        x: DeviceSlice<'a, T>,
        y: DeviceSliceMut<'a, T>,
    ) -> Result<Prepared<'a>> {
        self.check_equal("all_to_all", x.len(), y.len())?;
        let len = self.block_len("all_to_all", x.len())?;
        let making = Making::new::<T>("all_to_all", Kind::AllToAll, len);
        Ok(making.reads(&x).writes(&y).done())
    }

    pub fn gather<'a, T: DeviceCopy>(
        self,
        x: DeviceSlice<'a, T>,
        y: Option<DeviceSliceMut<'a, T>>,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_rank("gather", "root", root)?;
        self.check_given("gather", root, "target", &y)?;
        let making = Making::new::<T>("gather", Kind::Gather { root }, x.len()).reads(&x).root(root);
        match y.filter(|_| self.rank == root) {
            Some(y) => {
                self.check_blocks("gather", ("target", y.len()), ("source", x.len()))?;
                Ok(making.writes(&y).done())
            }
            None => Ok(making.done()),
        }
    }

    pub fn scatter<'a, T: DeviceCopy>(
        self,
        x: Option<DeviceSlice<'a, T>>,
        y: DeviceSliceMut<'a, T>,
        root: usize,
    ) -> Result<Prepared<'a>> {
        self.check_rank("scatter", "root", root)?;
        self.check_given("scatter", root, "source", &x)?;
        let making = Making::new::<T>("scatter", Kind::Scatter { root }, y.len()).writes(&y).root(root);
        match x.filter(|_| self.rank == root) {
            Some(x) => {
                self.check_blocks("scatter", ("source", x.len()), ("target", y.len()))?;
                Ok(making.reads(&x).done())
            }
            None => Ok(making.done()),
        }
    }

    pub fn send<'a, T: DeviceCopy>(self, x: DeviceSlice<'a, T>, to: usize) -> Result<Prepared<'a>> {
        self.check_rank("send", "receiver", to)?;
        Ok(Making::new::<T>("send", Kind::Send { to }, x.len()).reads(&x).peer(to).done())
    }

    pub fn recv<'a, T: DeviceCopy>(self, y: DeviceSliceMut<'a, T>, from: usize) -> Result<Prepared<'a>> {
        self.check_rank("recv", "sender", from)?;
        Ok(Making::new::<T>("recv", Kind::Receive { from }, y.len()).writes(&y).peer(from).done())
    }

    pub fn barrier(self) -> Prepared<'static> {
        let mut making = Making::new::<u8>("barrier", Kind::Barrier, 0);
        making.prepared.call.fingerprint.element = Cow::Borrowed("");
        making.done()
    }

    /// Fails for a message to oneself, which only a group can have: alone it would wait for its other end.
    pub fn check_other(self, operation: &'static str, peer: usize) -> Result<()> {
        if peer != self.rank {
            return Ok(());
        }
        Err(self.error(
            operation,
            "a rank sends to itself only in a group that has both the send and the recv".to_owned(),
        ))
    }
}
