//! Operations of a [`Communicator`].
//!
//! Each operation checks its arguments, enqueues its work on the communicator's stream, ordered after earlier work on
//! its buffers, and returns.

use warpsmith_runtime::extension::site;
use warpsmith_runtime::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};

use super::Communicator;
use super::group::Group;
use crate::element::{ReduceOp, Reducible};
use crate::error::{CollectiveError, Result};
use crate::failure::Failure;
use crate::work::Work;

/// Guard that aborts the communicator if the closure of a group panics.
struct AbortOnPanic<'c> {
    communicator: &'c Communicator,
    is_armed: bool,
}

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.communicator.abort_with("the closure of a group panicked");
        }
    }
}

fn read<'x, T: DeviceCopy>(x: impl Into<DeviceSlice<'x, T>>) -> DeviceSlice<'x, T> {
    x.into()
}

fn write<'y, T: DeviceCopy>(y: impl Into<DeviceSliceMut<'y, T>>) -> DeviceSliceMut<'y, T> {
    y.into()
}

impl Communicator {
    /// Enqueues a group that consists of one operation.
    #[track_caller]
    fn one<'a>(&self, call: impl FnOnce(&mut Group<'a>) -> Result<()>) -> Result<Work> {
        let _site = site();
        let mut group = Group { place: self.place(), calls: Vec::new() };
        call(&mut group)?;
        self.submit(group.calls)
    }

    /// Reduces the elements of all ranks; every rank receives the result. `x` and `y` must have the same length on all
    /// ranks.
    ///
    /// # Errors
    /// Returns [`CollectiveError::Argument`] if the lengths do not match;
    /// [`CommunicatorError`](crate::CommunicatorError) if the communicator has failed; or the error of a lost device.
    /// The [`Work`] reports later failures.
    #[track_caller]
    pub fn all_reduce<'x, 'y, T: Reducible>(
        &mut self,
        x: impl Into<DeviceSlice<'x, T>>,
        op: ReduceOp,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.all_reduce(read(x), op, write(y)))
    }

    /// In-place version of [`Self::all_reduce`].
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`].
    #[track_caller]
    pub fn all_reduce_in_place<'y, T: Reducible>(
        &mut self,
        op: ReduceOp,
        buffer: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.all_reduce_in_place(op, write(buffer)))
    }

    /// Reduces the elements of all ranks; only the root receives the result. Other ranks ignore the target.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`], or [`CollectiveError::Argument`] if the root does not exist or
    /// does not pass a target.
    #[track_caller]
    pub fn reduce<'x, 'y, T: Reducible>(
        &mut self,
        x: impl Into<DeviceSlice<'x, T>>,
        op: ReduceOp,
        root: usize,
        y: Option<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.reduce(read(x), op, root, y))
    }

    /// Copies the root's elements to all ranks. Elements can have any type.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`], or [`CollectiveError::Argument`] if the root does not exist.
    #[track_caller]
    pub fn broadcast<'y, T: DeviceCopy>(
        &mut self,
        root: usize,
        buffer: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.broadcast(root, write(buffer)))
    }

    /// Concatenates the elements of all ranks, in rank order; every rank receives the result. The length of `y` must be
    /// the length of `x` times the number of ranks.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`].
    #[track_caller]
    pub fn all_gather<'x, 'y, T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'x, T>>,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.all_gather(read(x), write(y)))
    }

    /// In-place version of [`Self::all_gather`]. The buffer has one block per rank and already contains this rank's
    /// block.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`].
    #[track_caller]
    pub fn all_gather_in_place<'y, T: DeviceCopy>(
        &mut self,
        buffer: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.all_gather_in_place(write(buffer)))
    }

    /// Reduces the elements of all ranks; rank r receives block r of the result. The length of `x` must be the length
    /// of `y` times the number of ranks.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`].
    #[track_caller]
    pub fn reduce_scatter<'x, 'y, T: Reducible>(
        &mut self,
        x: impl Into<DeviceSlice<'x, T>>,
        op: ReduceOp,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.reduce_scatter(read(x), op, write(y)))
    }

    /// In-place version of [`Self::reduce_scatter`]. The result is stored in this rank's block of the buffer. The
    /// contents of the other blocks become unspecified.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`].
    #[track_caller]
    pub fn reduce_scatter_in_place<'y, T: Reducible>(
        &mut self,
        op: ReduceOp,
        buffer: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.reduce_scatter_in_place(op, write(buffer)))
    }

    /// Sends block r of `x` to rank r and stores the data received from rank r in block r of `y`. Both buffers consist
    /// of one block per rank, and all blocks have the same length.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`].
    #[track_caller]
    pub fn all_to_all<'x, 'y, T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'x, T>>,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.all_to_all(read(x), write(y)))
    }

    /// Concatenates the elements of all ranks on the root, in rank order. Other ranks ignore the target.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::reduce`].
    #[track_caller]
    pub fn gather<'x, 'y, T: DeviceCopy>(
        &mut self,
        x: impl Into<DeviceSlice<'x, T>>,
        root: usize,
        y: Option<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.gather(read(x), root, y))
    }

    /// Distributes the root's elements over the ranks; rank r receives block r. Other ranks ignore the source.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::reduce`].
    #[track_caller]
    pub fn scatter<'x, 'y, T: DeviceCopy>(
        &mut self,
        x: Option<DeviceSlice<'x, T>>,
        root: usize,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.one(|group| group.scatter(x, root, write(y)))
    }

    /// Sends elements to another rank, which must call [`Self::recv`]. Two ranks that send to each other must use a
    /// [group](Self::group).
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`], or [`CollectiveError::Argument`] if the rank does not exist or
    /// is this rank itself.
    #[track_caller]
    pub fn send<'x, T: DeviceCopy>(&mut self, x: impl Into<DeviceSlice<'x, T>>, to: usize) -> Result<Work> {
        self.place().check_other("send", to)?;
        self.one(|group| group.send(read(x), to))
    }

    /// Receives elements from another rank, which must call [`Self::send`] with the same number of elements.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::send`].
    #[track_caller]
    pub fn recv<'y, T: DeviceCopy>(
        &mut self,
        from: usize,
        y: impl Into<DeviceSliceMut<'y, T>>,
    ) -> Result<Work> {
        self.place().check_other("recv", from)?;
        self.one(|group| group.recv(from, write(y)))
    }

    /// Makes later work on the stream wait until the streams of all ranks have reached the barrier.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::all_reduce`].
    #[track_caller]
    pub fn barrier(&mut self) -> Result<Work> {
        self.one(Group::barrier)
    }

    /// Enqueues several operations as one: first, all sends and receives run concurrently; then the other operations
    /// run in order. Use a group for messages in both directions and for many small operations.
    ///
    /// ```
    /// use std::time::Duration;
    /// use warpsmith_collective::{Communicator, CommunicatorOptions};
    /// use warpsmith_emulated::EmulatedDriver;
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let driver = EmulatedDriver::builder().devices(2).build();
    /// let streams = [0, 1].map(|n| Device::with_driver(driver.clone(), n).map(|device| device.default_stream()));
    /// let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// let mut received = Vec::new();
    /// for mut ranks in Communicator::init_all(&streams, &CommunicatorOptions::new())? {
    ///     let (rank, stream) = (ranks.rank(), ranks.stream().clone());
    ///     let x = DeviceBuffer::from_host(&stream, &[rank as u32])?;
    ///     let mut y = DeviceBuffer::<u32>::uninit(&stream, 1)?;
    ///     let work = ranks.group(|group| {
    ///         group.send(&x, 1 - rank)?;
    ///         group.recv(1 - rank, &mut y)
    ///     })?;
    ///     received.push((ranks, work, y));
    /// }
    /// for (ranks, work, y) in received {
    ///     work.wait(Duration::from_secs(60))?;
    ///     assert_eq!(y.to_host()?, [1 - ranks.rank() as u32]);
    /// }
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the closure's error, as [`CollectiveError::Group`]. If the closure fails or panics, nothing is enqueued
    /// and the communicator is aborted, because the other ranks would wait for this one. Also returns the same errors
    /// as [`Self::all_reduce`].
    #[track_caller]
    pub fn group<'a>(&mut self, calls: impl FnOnce(&mut Group<'a>) -> Result<()>) -> Result<Work> {
        let mut group = Group { place: self.place(), calls: Vec::new() };
        let mut guard = AbortOnPanic { communicator: self, is_armed: true };
        let called = calls(&mut group);
        guard.is_armed = false;
        drop(guard);
        if let Err(error) = called {
            self.abort_with(&format!("the closure of a group failed: {error}"));
            return Err(CollectiveError::Group(Box::new(error)).into());
        }
        // The call site is recorded here, because the calls inside the closure record their own source lines.
        let _site = site();
        self.submit(group.calls)
    }

    pub(super) fn abort_with(&self, reason: &str) {
        self.mesh.fail(Failure::Aborted { rank: self.rank(), reason: reason.to_owned() });
    }
}
