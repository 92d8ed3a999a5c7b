//! [`Group`]: operations enqueued together.

use warpsmith_runtime::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};

use super::prepare::{Place, Prepared};
use crate::backend::Kind;
use crate::element::{ReduceOp, Reducible};
use crate::error::Result;

/// Operations of [`Communicator::group`](super::Communicator::group). Each call is checked immediately but enqueued
/// only after the closure returns. Each method corresponds to the method of the same name of
/// [`Communicator`](super::Communicator), and returns the same errors.
pub struct Group<'a> {
    pub(super) place: Place,
    pub(super) calls: Vec<Prepared<'a>>,
}

impl<'a> Group<'a> {
    fn add(&mut self, call: Prepared<'a>) -> Result<()> {
        self.calls.push(call);
        Ok(())
    }

    /// Adds a [`send`](super::Communicator::send) to the group.
    pub fn send<T: DeviceCopy>(&mut self, x: impl Into<DeviceSlice<'a, T>>, to: usize) -> Result<()> {
        let x = x.into();
        self.place.check_rank("send", "receiver", to)?;
        self.add(Prepared::new::<T>(Kind::Send { to }, x.len()).reads(&x))
    }

    /// Adds a [`recv`](super::Communicator::recv) to the group.
    pub fn recv<T: DeviceCopy>(&mut self, from: usize, y: impl Into<DeviceSliceMut<'a, T>>) -> Result<()> {
        let y = y.into();
        self.place.check_rank("recv", "sender", from)?;
        self.add(Prepared::new::<T>(Kind::Receive { from }, y.len()).writes(&y))
    }

    /// Adds an [`all_reduce`](super::Communicator::all_reduce) to the group.
    pub fn all_reduce<T: Reducible>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        op: ReduceOp,
        y: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (x, y) = (x.into(), y.into());
        self.place.check_equal("all_reduce", x.len(), y.len())?;
        self.add(Prepared::new::<T>(Kind::AllReduce, x.len()).reads(&x).writes(&y).reduces::<T>(op))
    }

    /// Adds an [`all_reduce_in_place`](super::Communicator::all_reduce_in_place) to the group.
    pub fn all_reduce_in_place<T: Reducible>(
        &mut self,
        op: ReduceOp,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let buffer = buffer.into();
        let mut prepared = Prepared::new::<T>(Kind::AllReduce, buffer.len()).writes(&buffer).reduces::<T>(op);
        prepared.call.from = prepared.call.to;
        self.add(prepared)
    }

    /// Adds a [`reduce`](super::Communicator::reduce) to the group.
    pub fn reduce<T: Reducible>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        op: ReduceOp,
        root: usize,
        y: Option<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let x = x.into();
        self.place.check_rank("reduce", "root", root)?;
        self.place.check_given("reduce", root, "target", &y)?;
        let prepared = Prepared::new::<T>(Kind::Reduce { root }, x.len()).reads(&x).reduces::<T>(op);
        match y.filter(|_| self.place.rank == root) {
            Some(y) => {
                self.place.check_equal("reduce", x.len(), y.len())?;
                self.add(prepared.writes(&y))
            }
            None => self.add(prepared),
        }
    }

    /// Adds a [`broadcast`](super::Communicator::broadcast) to the group.
    pub fn broadcast<T: DeviceCopy>(
        &mut self,
        root: usize,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let buffer = buffer.into();
        self.place.check_rank("broadcast", "root", root)?;
        self.add(Prepared::new::<T>(Kind::Broadcast { root }, buffer.len()).writes(&buffer))
    }

    /// Adds an [`all_gather`](super::Communicator::all_gather) to the group.
    pub fn all_gather<T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (x, y) = (x.into(), y.into());
        self.place.check_blocks("all_gather", ("target", y.len()), ("source", x.len()))?;
        self.add(Prepared::new::<T>(Kind::AllGather, x.len()).reads(&x).writes(&y))
    }

    /// Adds an [`all_gather_in_place`](super::Communicator::all_gather_in_place) to the group.
    pub fn all_gather_in_place<T: DeviceCopy>(
        &mut self,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let buffer = buffer.into();
        let len = self.place.block_len("all_gather", buffer.len())?;
        let mut prepared = Prepared::new::<T>(Kind::AllGather, len).writes(&buffer);
        prepared.call.from = self.place.own_block(prepared.call.to);
        self.add(prepared)
    }

    /// Adds a [`reduce_scatter`](super::Communicator::reduce_scatter) to the group.
    pub fn reduce_scatter<T: Reducible>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        op: ReduceOp,
        y: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (x, y) = (x.into(), y.into());
        self.place.check_blocks("reduce_scatter", ("source", x.len()), ("target", y.len()))?;
        self.add(Prepared::new::<T>(Kind::ReduceScatter, y.len()).reads(&x).writes(&y).reduces::<T>(op))
    }

    /// Adds a [`reduce_scatter_in_place`](super::Communicator::reduce_scatter_in_place) to the group.
    pub fn reduce_scatter_in_place<T: Reducible>(
        &mut self,
        op: ReduceOp,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let buffer = buffer.into();
        let len = self.place.block_len("reduce_scatter", buffer.len())?;
        let mut prepared = Prepared::new::<T>(Kind::ReduceScatter, len).writes(&buffer).reduces::<T>(op);
        let call = &mut prepared.call;
        (call.from, call.to) = (call.to, self.place.own_block(call.to));
        self.add(prepared)
    }

    /// Adds an [`all_to_all`](super::Communicator::all_to_all) to the group.
    pub fn all_to_all<T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (x, y) = (x.into(), y.into());
        self.place.check_equal("all_to_all", x.len(), y.len())?;
        let len = self.place.block_len("all_to_all", x.len())?;
        self.add(Prepared::new::<T>(Kind::AllToAll, len).reads(&x).writes(&y))
    }

    /// Adds a [`gather`](super::Communicator::gather) to the group.
    pub fn gather<T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        root: usize,
        y: Option<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let x = x.into();
        self.place.check_rank("gather", "root", root)?;
        self.place.check_given("gather", root, "target", &y)?;
        let prepared = Prepared::new::<T>(Kind::Gather { root }, x.len()).reads(&x);
        match y.filter(|_| self.place.rank == root) {
            Some(y) => {
                self.place.check_blocks("gather", ("target", y.len()), ("source", x.len()))?;
                self.add(prepared.writes(&y))
            }
            None => self.add(prepared),
        }
    }

    /// Adds a [`scatter`](super::Communicator::scatter) to the group.
    pub fn scatter<T: DeviceCopy>(
        &mut self,
        x: Option<DeviceSlice<'a, T>>,
        root: usize,
        y: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let y = y.into();
        self.place.check_rank("scatter", "root", root)?;
        self.place.check_given("scatter", root, "source", &x)?;
        let prepared = Prepared::new::<T>(Kind::Scatter { root }, y.len()).writes(&y);
        match x.filter(|_| self.place.rank == root) {
            Some(x) => {
                self.place.check_blocks("scatter", ("source", x.len()), ("target", y.len()))?;
                self.add(prepared.reads(&x))
            }
            None => self.add(prepared),
        }
    }

    pub(super) fn barrier(&mut self) -> Result<()> {
        self.add(Prepared::new::<u8>(Kind::Barrier, 0))
    }
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.calls.iter().map(|prepared| &prepared.call.fingerprint)).finish()
    }
}
