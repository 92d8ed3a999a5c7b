//! [`SymmetricBuffer`]: a buffer on each rank, which the kernels of all ranks read and write.

mod agree;
#[cfg(target_os = "linux")]
mod descriptors;
mod memory;
mod pool;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use warpsmith_runtime::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};
use warpsmith_runtime::seam::site;
use warpsmith_runtime::{Device, DeviceBuffer, DevicePtr, Stream};

pub(crate) use self::agree::Agreement;
pub(crate) use self::memory::PeerMemory;
use self::pool::Placed;
pub(crate) use self::pool::Pool;
use crate::error::{Error, Result};
use crate::work::WorkState;

/// Bytes of a rank's signal pad, which lies before its elements.
const PAD_BYTES: usize = SIGNALS * size_of::<u32>();
/// The signals of a rank.
const SIGNALS: usize = 4096;

/// A buffer that each rank of a communicator has, of the same length, and that kernels of all ranks reach: made by
/// [`Communicator::symmetric_buffer`](crate::Communicator::symmetric_buffer).
///
/// This rank's elements are a [`DeviceBuffer`], with all that it does. For kernels of the program that use the memory of
/// peers there are the addresses of all ranks' elements, [`Self::peers`], and of their signal pads, [`Self::signals`]: 4096 words of
/// 32 bits each, zero in the beginning, and the program's own. A kernel sets a signal with a release and waits for one with an
/// acquire, as atomics of [`scope::System`](https://docs.rs/gpu-std/latest/gpu_std/atomic/scope/). Ranks do not order their uses of
/// each other's memory by themselves: [`Communicator::barrier`](crate::Communicator::barrier) does, between kernels, and signals within
/// them.
///
/// `all_reduce`, `reduce` and `reduce_scatter` of one of these, or of a part of it, need no copy with the Peer backend. All ranks
/// then pass the same part of the same buffer, or all pass other memory.
///
/// When such an operation fails, another rank may still read or write the elements. From then on each use of the buffer is
/// [`Error::Withdrawn`]: drop it, and make another with a communicator of the ranks that are left.
///
/// The memory is kept until the work that was enqueued with this value has run and no rank has the buffer any more. Dropping it is
/// no collective call and waits for nothing, whatever has become of the other ranks.
///
/// Small buffers share pages (2 MiB on GPUs). A part of a page that all ranks have dropped is used again by the next call, as long as
/// another buffer lies in the page; with its last buffer the page is freed.
pub struct SymmetricBuffer<T: DeviceCopy> {
    /// Its owner is the other one's value.
    buffer: DeviceBuffer<T>,
    common: Arc<Common>,
}

/// What ranks have in common, as long as a rank's work may use it.
#[derive(Debug)]
pub(crate) struct Common {
    placed: Arc<Placed>,
    peers: DeviceBuffer<u64>,
    signals: DeviceBuffer<u64>,
    /// Bytes of a rank's elements.
    bytes: usize,
    /// Its number among the communicator's, the same on all ranks.
    pub number: u64,
    device: Device,
    /// Whether the program has dropped its buffer.
    is_dropped: AtomicBool,
    /// The operations whose kernels on other ranks read and write the elements.
    operations: Operations,
}

/// The operations that reach a rank's elements from other ranks.
#[derive(Debug, Default)]
struct Operations {
    of: OnceLock<Weak<dyn Failing>>,
    /// The newest that was called.
    last: Mutex<Option<Arc<WorkState>>>,
    /// Whether graphs have some.
    are_captured: AtomicBool,
    /// Whether one has failed.
    have_failed: AtomicBool,
}

impl Operations {
    /// Whether one has failed, or has ended so that it may have.
    fn have_failed(&self) -> bool {
        if self.have_failed.load(Ordering::Acquire) {
            return true;
        }
        let has_any_failed =
            || self.of.get().and_then(Weak::upgrade).is_some_and(|failing| failing.has_failed());
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match last.map(|last| last.has_failed()) {
            Some(Some(true)) => true,
            // It has not ended as far as the host knows.
            Some(None) => has_any_failed(),
            _ => self.are_captured.load(Ordering::Acquire) && has_any_failed(),
        }
    }
}

/// Who knows whether a communicator's operations have failed.
pub(crate) trait Failing: fmt::Debug + Send + Sync {
    /// Whether one has, of those that have ended.
    fn has_failed(&self) -> bool;
}

/// What of the process's symmetric memory is there.
static ALL: Mutex<Vec<Weak<Common>>> = Mutex::new(Vec::new());
/// How long memory may take to be freed once no work uses it.
const FREED_WITHIN: Duration = Duration::from_secs(1);

/// Waits for the device's work and until the memory of [`SymmetricBuffer`]s that the program has dropped is free. Returns the bytes
/// that are not: of buffers that graphs use.
///
/// Without it that happens too, in the background, when the last work that uses the memory is done.
///
/// # Errors
/// As [`Device::synchronize`].
///
/// ```
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ipc_collect};
/// use warpsmith_runtime::{Device, Stream};
///
/// # fn main() -> Result<(), warpsmith_collective::Error> {
/// # if !cfg!(target_os = "linux") { return Ok(()) }
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let mut ranks = Communicator::init_all(&[stream.clone()], &CommunicatorOptions::new())?.remove(0);
/// let buffer = ranks.symmetric_buffer::<f32>(1 << 20)?;
/// drop(buffer);
/// assert_eq!(ipc_collect(stream.device())?, 0);
/// # Ok(())
/// # }
/// ```
pub fn ipc_collect(device: &Device) -> Result<usize> {
    device.synchronize()?;
    let deadline = Instant::now() + FREED_WITHIN;
    loop {
        let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
        // What is dropped here is dropped without the lock.
        let alive: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        let is_left =
            |common: &&Arc<Common>| common.device == *device && common.is_dropped.load(Ordering::Acquire);
        let left = alive.iter().filter(is_left).map(|common| common.bytes).sum();
        ALL.lock().unwrap_or_else(PoisonError::into_inner).extend(alive.iter().map(Arc::downgrade));
        drop(alive);
        if left == 0 || Instant::now() >= deadline {
            return Ok(left);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

impl Common {
    /// Where a range of memory begins among this rank's elements, in bytes; `None` if it is not within them.
    pub fn offset_of(&self, address: u64, bytes: usize) -> Option<usize> {
        let start = usize::try_from(address.checked_sub(elements(self.placed.own()).0)?).ok()?;
        (start.checked_add(bytes)? <= self.bytes).then_some(start)
    }

    /// The addresses of the elements of all ranks, in device memory.
    pub fn peers(&self) -> DevicePtr {
        self.peers.as_device_ptr()
    }

    /// Notes whose operations reach the elements.
    pub fn belong_to(&self, failing: Weak<dyn Failing>) {
        // A buffer has one communicator.
        let _ = self.operations.of.set(failing);
    }

    /// Notes an operation whose kernels on other ranks reach the elements.
    pub fn reached_by(&self, work: &Arc<WorkState>, is_captured: bool) {
        match is_captured {
            true => self.operations.are_captured.store(true, Ordering::Release),
            false => {
                let mut last = self.operations.last.lock().unwrap_or_else(PoisonError::into_inner);
                *last = Some(Arc::clone(work));
            }
        }
    }

    /// After the communicator has failed: whether the elements may be used does not change any more.
    pub fn settle(&self) {
        if self.operations.have_failed() {
            self.operations.have_failed.store(true, Ordering::Release);
        }
    }

    /// Fails once a kernel of another rank may use the elements at a time at which this rank's program would not expect it.
    fn may_use(&self) -> Result<(), warpsmith_runtime::Error> {
        match self.operations.have_failed() {
            false => Ok(()),
            true => Err(Error::Withdrawn { bytes: self.bytes }.into()),
        }
    }
}

impl<T: DeviceCopy> SymmetricBuffer<T> {
    /// Of ranks that all call it.
    pub(crate) fn meet(
        agreement: &Agreement<'_>,
        pool: &mut Pool,
        stream: &Stream,
        len: usize,
    ) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(PAD_BYTES));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= isize::MAX as usize) else {
            let error =
                warpsmith_runtime::Error::TooManyElements { elements: len, element_bytes: size_of::<T>() };
            return Err(error.into());
        };
        let tables = |placed: &Placed| {
            // On a stream that waits for no rank.
            let setup = Stream::new(stream.device())?;
            let table = |of: fn(DevicePtr) -> DevicePtr| {
                let addresses: Vec<u64> =
                    (0..placed.world()).map(|rank| of(placed.address(rank)).0).collect();
                DeviceBuffer::from_host(&setup, &addresses)
            };
            let tables = (table(elements)?, table(|memory| memory)?);
            setup.synchronize().map(|()| tables)
        };
        let (placed, (peers, signals)) = pool.place(agreement, stream.device(), bytes, tables)?;
        let own = if len * size_of::<T>() == 0 { DevicePtr::NULL } else { elements(placed.own()) };
        let (bytes, number) = (len * size_of::<T>(), agreement.operation.sequence);
        let (device, is_dropped) = (stream.device().clone(), AtomicBool::new(false));
        let operations = Operations::default();
        let common =
            Arc::new(Common { placed, peers, signals, bytes, number, device, is_dropped, operations });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|common| common.strong_count() > 0);
        all.push(Arc::downgrade(&common));
        drop(all);
        let known = Arc::clone(&common);
        let may_use = move || known.may_use();
        // SAFETY: behind the pad there is room for the elements; the owner keeps it. Kernels of other ranks use it as the
        // program's unsafe code has them, and operations as all ranks call them; after one has failed, it may not be used.
        let buffer = unsafe { DeviceBuffer::from_raw_while(stream, own, len, Arc::clone(&common), may_use) }?;
        Ok(Self { buffer, common })
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// The address at which kernels of this rank find a rank's elements.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn peer_ptr(&self, rank: usize) -> DevicePtr {
        elements(self.common.placed.address(rank))
    }

    /// The addresses of the elements of all ranks, in their order, for kernels of this rank. Work that uses them also names the
    /// buffer itself, so that it is kept: [`DeviceBuffer::as_slice`].
    pub fn peers(&self) -> &DeviceBuffer<u64> {
        &self.common.peers
    }

    /// The address at which kernels of this rank find a rank's signal pad.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn signal_ptr(&self, rank: usize) -> DevicePtr {
        self.common.placed.address(rank)
    }

    /// The addresses of the signal pads of all ranks, as [`Self::peers`].
    pub fn signals(&self) -> &DeviceBuffer<u64> {
        &self.common.signals
    }

    /// The words of a signal pad.
    pub const fn signal_count(&self) -> usize {
        SIGNALS
    }

    /// This rank's elements, for work that writes them.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_mut_slice()
    }

    /// A range of them.
    ///
    /// # Panics
    /// When it is not within them.
    #[track_caller]
    pub fn slice_mut(&mut self, bounds: impl std::ops::RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        self.buffer.slice_mut(bounds)
    }

    /// Copies from the host, as [`DeviceBuffer::copy_from_host`].
    ///
    /// # Errors
    /// As that.
    #[track_caller]
    pub fn copy_from_host(&mut self, elements: &[T]) -> Result<(), warpsmith_runtime::Error> {
        let _site = site();
        self.buffer.copy_from_host(elements)
    }
}

/// Where the elements begin in a rank's memory.
fn elements(memory: DevicePtr) -> DevicePtr {
    memory.offset(PAD_BYTES)
}

impl<T: DeviceCopy> Drop for SymmetricBuffer<T> {
    fn drop(&mut self) {
        self.common.is_dropped.store(true, Ordering::Release);
    }
}

impl<T: DeviceCopy> Deref for SymmetricBuffer<T> {
    type Target = DeviceBuffer<T>;

    fn deref(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }
}

impl<'a, T: DeviceCopy> From<&'a SymmetricBuffer<T>> for DeviceSlice<'a, T> {
    fn from(buffer: &'a SymmetricBuffer<T>) -> Self {
        buffer.buffer.as_slice()
    }
}

impl<'a, T: DeviceCopy> From<&'a mut SymmetricBuffer<T>> for DeviceSliceMut<'a, T> {
    fn from(buffer: &'a mut SymmetricBuffer<T>) -> Self {
        buffer.buffer.as_mut_slice()
    }
}

impl<T: DeviceCopy> fmt::Debug for SymmetricBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SymmetricBuffer({} ranks, {:?})", self.common.placed.world(), self.buffer)
    }
}

/// Whether a device's memory can be shared with other ranks: the host whose processes can map it, or why none can.
pub(crate) fn host_of(device: &Device) -> Result<String, String> {
    match warpsmith_runtime::memory::SharedMemory::is_supported(device) {
        Ok(true) => Ok(crate::machine::identity().to_owned()),
        Ok(false) => Err(format!("{} has no memory that other ranks can map", device.id())),
        Err(error) => Err(error.to_string()),
    }
}
