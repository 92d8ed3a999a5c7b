//! [`HostBuffer`]: host memory that graphs copy from and to.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::nodes::{COPY_THERE, copy_work};
use super::{Graph, Node};
use crate::device::Device;
use crate::device::observe::{CopyDirection, site, site_of_node};
use crate::driver::{NodeWork, Place};
use crate::error::{GraphError, Result};
use crate::memory::capturing::CapturedUse;
use crate::memory::graph_resource::GraphResource;
use crate::memory::slice::check_lengths;
use crate::memory::storage::BufferUse;
use crate::memory::usage::{Access, Usage};
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut, PinnedBuffer};
use crate::stream::Stream;

/// Page-locked host memory that graphs copy from or to in each launch, and that the program accesses between launches.
///
/// ```
/// use warpsmith_runtime::graph::{Graph, HostBuffer};
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let device = Device::emulated(0)?;
/// let stream = Stream::new(&device)?;
/// let input = HostBuffer::zeroed(&device, 3)?;
/// let mut x = DeviceBuffer::uninit(&stream, 3)?;
/// let graph = Graph::capture(&stream, || stream.copy_from_host_buffer_async(&input, &mut x))?;
/// let exec = graph.instantiate()?;
/// for value in [7u32, 8] {
///     input.lock()?.fill(value); // waits for launches that use it
///     exec.launch(&stream)?;
///     assert_eq!(x.to_host()?, [value; 3]);
/// }
/// # Ok(())
/// # }
/// ```
pub struct HostBuffer<T: DeviceCopy> {
    shared: Arc<Shared<T>>,
}

struct Shared<T: DeviceCopy> {
    /// The memory. The host uses it only through a guard, and graphs use it only while no guard exists.
    memory: PinnedBuffer<T>,
    tracked: Arc<GraphResource>,
}

impl<T: DeviceCopy> HostBuffer<T> {
    /// Allocates memory for `len` elements, and fills it with zero bytes.
    ///
    /// # Errors
    /// Returns [`Error::PinnedOutOfMemory`](crate::Error::PinnedOutOfMemory) or
    /// [`Error::TooManyElements`](crate::Error::TooManyElements).
    pub fn zeroed(device: &Device, len: usize) -> Result<Self> {
        let memory = PinnedBuffer::zeroed(device, len)?;
        let bytes = len * size_of::<T>();
        let tracked = GraphResource::new(&device.default_stream(), bytes, None, Usage::unused());
        Ok(Self { shared: Arc::new(Shared { memory, tracked }) })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shared.memory.len()
    }

    /// Returns true if the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for launches that use the memory, and returns a guard through which the program can access it. Launches
    /// that use the memory fail until the guard is dropped.
    ///
    /// # Errors
    /// Returns [`GraphError::HostBufferInUse`] while another guard exists, [`GraphError::UsedInCapture`], or the fault
    /// if a kernel faulted.
    #[track_caller]
    pub fn lock(&self) -> Result<HostGuard<'_, T>> {
        let _site = site();
        self.shared.tracked.lend("HostBuffer::lock")?;
        // From here on, no new launch can use the memory, so waiting for its existing uses suffices.
        let guard = HostGuard { shared: &self.shared };
        self.shared.tracked.synchronize()?;
        Ok(guard)
    }

    fn place(&self) -> Place {
        Place::Host(self.shared.memory.address().cast())
    }
}

/// Guard through which the program reads and writes the elements of a [`HostBuffer`]. No launch uses the elements while
/// the guard exists.
///
/// See the example of [`HostBuffer`].
#[derive(Debug)]
pub struct HostGuard<'a, T: DeviceCopy> {
    shared: &'a Shared<T>,
}

impl<T: DeviceCopy> Deref for HostGuard<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.shared.memory
    }
}

impl<T: DeviceCopy> DerefMut for HostGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let memory = &self.shared.memory;
        // SAFETY: the memory contains this number of elements, for which every bit pattern is valid. Only one guard
        // exists at a time, it is borrowed exclusively, and no launch uses the memory meanwhile.
        unsafe { std::slice::from_raw_parts_mut(memory.address(), memory.len()) }
    }
}

impl<T: DeviceCopy> Drop for HostGuard<'_, T> {
    fn drop(&mut self) {
        self.shared.tracked.take_back();
    }
}

impl Stream {
    /// Captures a copy from a host buffer to a device buffer.
    ///
    /// # Errors
    /// Returns [`GraphError::NotCapturing`] if the stream is not being captured (outside captures, use
    /// [`Stream::copy_from_host_async`]), [`Error::LengthMismatch`](crate::Error::LengthMismatch),
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices), or any [driver error](crate::Error::Driver).
    #[track_caller]
    pub fn copy_from_host_buffer_async<'t, T: DeviceCopy>(
        &self,
        source: &HostBuffer<T>,
        target: impl Into<DeviceSliceMut<'t, T>>,
    ) -> Result<()> {
        let _site = site();
        const OPERATION: &str = "copying from a host buffer";
        let target = target.into();
        check_lengths(OPERATION, target.len(), source.len())?;
        self.check_device(target.device(), || (OPERATION.to_owned(), "the target".to_owned()))?;
        let (to, address, handle) = (target.used(), target.as_device_ptr(), self.handle());
        let bytes = to.range.len();
        source.capture(self, "Stream::copy_from_host_buffer_async", Access::Read, &to, |host| {
            self.observed_copy(CopyDirection::HostToDevice, host.addr() as u64, address.0, bytes, || {
                // SAFETY: both sides have the same size. The graph keeps the host memory allocated, and the program
                // accesses it only while no launch does. The use of the device memory is recorded.
                self.call(|driver, context| unsafe {
                    driver.copy_to_device(context, address, host.cast_const().cast(), bytes, handle)
                })
            })
        })
    }

    /// Captures a copy from a device buffer to a host buffer.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::copy_from_host_buffer_async`]. Outside captures, use
    /// [`Stream::copy_to_host_async`].
    #[track_caller]
    pub fn copy_to_host_buffer_async<'s, T: DeviceCopy>(
        &self,
        source: impl Into<DeviceSlice<'s, T>>,
        target: &HostBuffer<T>,
    ) -> Result<()> {
        let _site = site();
        const OPERATION: &str = "copying to a host buffer";
        let source = source.into();
        check_lengths(OPERATION, target.len(), source.len())?;
        self.check_device(source.device(), || (OPERATION.to_owned(), "the source".to_owned()))?;
        let (from, address, handle) = (source.used(Access::Read), source.as_device_ptr(), self.handle());
        let bytes = from.range.len();
        target.capture(self, "Stream::copy_to_host_buffer_async", Access::Write, &from, |host| {
            self.observed_copy(CopyDirection::DeviceToHost, address.0, host.addr() as u64, bytes, || {
                // SAFETY: as above; every bit pattern is a valid element.
                self.call(|driver, context| unsafe {
                    driver.copy_to_host(context, host.cast(), address, bytes, handle)
                })
            })
        })
    }
}

impl<T: DeviceCopy> HostBuffer<T> {
    /// Captures a copy between the entire host memory and a range of a device buffer.
    fn capture(
        &self,
        stream: &Stream,
        call: &'static str,
        access: Access,
        part: &BufferUse<'_>,
        copy: impl FnOnce(*mut T) -> Result<()>,
    ) -> Result<()> {
        let Some(capturing) = stream.capturing() else {
            return Err(GraphError::NotCapturing { call }.into());
        };
        if part.range.is_empty() {
            return Ok(());
        }
        let uses = vec![self.use_of(access), CapturedUse::of(part)];
        capturing.keep(Arc::clone(&self.shared) as Arc<dyn Any + Send + Sync>);
        capturing.enqueue(stream, uses, |_, _| copy(self.shared.memory.address()))
    }

    fn use_of(&self, access: Access) -> CapturedUse {
        let tracked = Arc::clone(&self.shared.tracked);
        CapturedUse { range: 0..tracked.bytes(), tracked, access, ordered: true }
    }
}

impl Graph {
    /// Adds a copy from a host buffer to a device buffer.
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`](crate::Error::LengthMismatch),
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices), [`GraphError::NodeOfOtherGraph`], or any [driver
    /// error](crate::Error::Driver).
    #[track_caller]
    pub fn add_copy_from_host<'t, T: DeviceCopy>(
        &mut self,
        source: &HostBuffer<T>,
        target: impl Into<DeviceSliceMut<'t, T>>,
        after: &[Node],
    ) -> Result<Node> {
        let _site = site_of_node();
        let target = target.into();
        check_lengths("adding a copy to a graph", target.len(), source.len())?;
        self.check_device(target.device(), "the target", COPY_THERE)?;
        let part = target.used();
        let work = copy_work(Place::Device(target.as_device_ptr()), source.place(), part.range.len());
        self.add_host_copy(source, Access::Read, &part, work, after)
    }

    /// Adds a copy from a device buffer to a host buffer.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::add_copy_from_host`].
    #[track_caller]
    pub fn add_copy_to_host<'s, T: DeviceCopy>(
        &mut self,
        source: impl Into<DeviceSlice<'s, T>>,
        target: &HostBuffer<T>,
        after: &[Node],
    ) -> Result<Node> {
        let _site = site_of_node();
        let source = source.into();
        check_lengths("adding a copy to a graph", target.len(), source.len())?;
        self.check_device(source.device(), "the source", COPY_THERE)?;
        let part = source.used(Access::Read);
        let work = copy_work(target.place(), Place::Device(source.as_device_ptr()), part.range.len());
        self.add_host_copy(target, Access::Write, &part, work, after)
    }

    fn add_host_copy<T: DeviceCopy>(
        &mut self,
        host: &HostBuffer<T>,
        access: Access,
        part: &BufferUse<'_>,
        work: NodeWork<'_>,
        after: &[Node],
    ) -> Result<Node> {
        let mut uses = vec![CapturedUse::of(part), host.use_of(access)];
        uses.retain(|used| !used.range.is_empty());
        self.content.keep(Arc::clone(&host.shared) as Arc<dyn Any + Send + Sync>);
        // SAFETY: both sides have the same size. The device memory is borrowed, and its use is recorded. The content
        // keeps the host memory allocated, and the program accesses it only while no launch does.
        unsafe { self.add_work(after, uses, work) }
    }
}

impl<T: DeviceCopy> fmt::Debug for HostBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer<{}>({})", std::any::type_name::<T>(), self.len())
    }
}

impl<T: DeviceCopy> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}
