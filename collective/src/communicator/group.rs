//! [`Group`]: operations that are enqueued together.

use warpsmith_core::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};

use super::prepare::{Place, Prepared};
use crate::element::{Element, ReduceOp};
use crate::error::Result;

/// The operations of [`Communicator::group`](super::Communicator::group). Each is checked when it is called, and enqueued
/// when the closure has returned. The methods are those of [`Communicator`](super::Communicator).
pub struct Group<'a> {
    pub(super) place: Place,
    pub(super) calls: Vec<Prepared<'a>>,
}

impl<'a> Group<'a> {
    fn add(&mut self, call: Result<Prepared<'a>>) -> Result<()> {
        self.calls.push(call?);
        Ok(())
    }

    /// See [`Communicator::send`](super::Communicator::send).
    ///
    /// # Errors
    /// As there.
    pub fn send<T: DeviceCopy>(&mut self, x: impl Into<DeviceSlice<'a, T>>, to: usize) -> Result<()> {
        self.add(self.place.send(x.into(), to))
    }

    /// See [`Communicator::recv`](super::Communicator::recv).
    ///
    /// # Errors
    /// As there.
    pub fn recv<T: DeviceCopy>(&mut self, y: impl Into<DeviceSliceMut<'a, T>>, from: usize) -> Result<()> {
        self.add(self.place.recv(y.into(), from))
    }

    /// See [`Communicator::all_reduce`](super::Communicator::all_reduce).
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce<T: Element>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: impl Into<DeviceSliceMut<'a, T>>,
        op: ReduceOp<T>,
    ) -> Result<()> {
        self.add(self.place.all_reduce(x.into(), y.into(), op))
    }

    /// See [`Communicator::all_reduce_in_place`](super::Communicator::all_reduce_in_place).
    ///
    /// # Errors
    /// As there.
    pub fn all_reduce_in_place<T: Element>(
        &mut self,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
        op: ReduceOp<T>,
    ) -> Result<()> {
        self.add(self.place.all_reduce_in_place(buffer.into(), op))
    }

    /// See [`Communicator::reduce`](super::Communicator::reduce).
    ///
    /// # Errors
    /// As there.
    pub fn reduce<T: Element>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: Option<DeviceSliceMut<'a, T>>,
        op: ReduceOp<T>,
        root: usize,
    ) -> Result<()> {
        self.add(self.place.reduce(x.into(), y, op, root))
    }

    /// See [`Communicator::broadcast`](super::Communicator::broadcast).
    ///
    /// # Errors
    /// As there.
    pub fn broadcast<T: DeviceCopy>(
        &mut self,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        self.add(self.place.broadcast(buffer.into(), root))
    }

    /// See [`Communicator::all_gather`](super::Communicator::all_gather).
    ///
    /// # Errors
    /// As there.
    pub fn all_gather<T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add(self.place.all_gather(x.into(), y.into()))
    }

    /// See [`Communicator::all_gather_in_place`](super::Communicator::all_gather_in_place).
    ///
    /// # Errors
    /// As there.
    pub fn all_gather_in_place<T: DeviceCopy>(
        &mut self,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add(self.place.all_gather_in_place(buffer.into()))
    }

    /// See [`Communicator::reduce_scatter`](super::Communicator::reduce_scatter).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: impl Into<DeviceSliceMut<'a, T>>,
        op: ReduceOp<T>,
    ) -> Result<()> {
        self.add(self.place.reduce_scatter(x.into(), y.into(), op))
    }

    /// See [`Communicator::reduce_scatter_in_place`](super::Communicator::reduce_scatter_in_place).
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter_in_place<T: Element>(
        &mut self,
        buffer: impl Into<DeviceSliceMut<'a, T>>,
        op: ReduceOp<T>,
    ) -> Result<()> {
        self.add(self.place.reduce_scatter_in_place(buffer.into(), op))
    }

    /// See [`Communicator::all_to_all`](super::Communicator::all_to_all).
    ///
    /// # Errors
    /// As there.
    pub fn all_to_all<T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add(self.place.all_to_all(x.into(), y.into()))
    }

    /// See [`Communicator::gather`](super::Communicator::gather).
    ///
    /// # Errors
    /// As there.
    pub fn gather<T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'a, T>>,
        y: Option<DeviceSliceMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        self.add(self.place.gather(x.into(), y, root))
    }

    /// See [`Communicator::scatter`](super::Communicator::scatter).
    ///
    /// # Errors
    /// As there.
    pub fn scatter<T: DeviceCopy>(
        &mut self,
        x: Option<DeviceSlice<'a, T>>,
        y: impl Into<DeviceSliceMut<'a, T>>,
        root: usize,
    ) -> Result<()> {
        self.add(self.place.scatter(x, y.into(), root))
    }
}

impl std::fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.calls.iter().map(|prepared| &prepared.call.fingerprint)).finish()
    }
}
