//! [`SymmetricBuffer`]: a buffer on each rank that the kernels of all ranks can read and write.

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

use warpsmith_runtime::extension::site;
use warpsmith_runtime::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut};
use warpsmith_runtime::{Device, DeviceBuffer, DevicePtr, Stream};

pub(crate) use self::agree::Agreement;
pub(crate) use self::memory::PeerMemory;
use self::pool::Placed;
pub(crate) use self::pool::Pool;
use crate::error::{CollectiveError, Result};
use crate::work::WorkState;

/// Size of a rank's signal pad in bytes. The pad precedes the rank's elements.
const PAD_BYTES: usize = SIGNALS * size_of::<u32>();
/// Number of signals per rank.
const SIGNALS: usize = 4096;

/// Buffer of the same length on each rank of a communicator, which the kernels of all ranks can access.
/// [`Communicator::symmetric_buffer`](crate::Communicator::symmetric_buffer) creates it.
///
/// This rank's elements are a [`DeviceBuffer`], with all its operations. Kernels of the program access peer memory
/// through the addresses of all ranks' elements, [`Self::peers`], and of their signal pads, [`Self::signals`]. A signal
/// pad has 4096 words of 32 bits, initially zero, which the program can use freely. A kernel sets a signal with a
/// release store and waits for one with an acquire load, with atomics of
/// [`scope::System`](https://docs.rs/gpu-std/latest/gpu_std/atomic/scope/). Accesses to other ranks' memory are not
/// ordered automatically. Use [`Communicator::barrier`](crate::Communicator::barrier) between kernels, and signals
/// within kernels.
///
/// With the Peer backend, `all_reduce`, `reduce` and `reduce_scatter` of a symmetric buffer, or of a part of it, need
/// no copy. All ranks must then pass the same part of the same buffer, or all must pass other memory.
///
/// If such an operation fails, another rank may still read or write the elements. From then on, each use of the buffer
/// fails with [`CollectiveError::Withdrawn`]. Drop the buffer, and create another one with a communicator of the
/// remaining ranks.
///
/// The memory stays allocated until the enqueued work that uses it has run and no rank has the buffer anymore. Dropping
/// the buffer is not a collective call and does not block, regardless of the state of other ranks.
///
/// Small buffers share pages (2 MiB on GPUs). If all ranks have dropped a part of a page, the next call reuses this
/// part as long as another buffer is in the page. A page is freed with its last buffer.
pub struct SymmetricBuffer<T: DeviceCopy> {
    /// View of the elements; `common` owns the memory.
    buffer: DeviceBuffer<T>,
    common: Arc<Common>,
}

/// State that the ranks share. It is kept as long as work of a rank may use it.
#[derive(Debug)]
pub(crate) struct Common {
    placed: Arc<Placed>,
    peers: DeviceBuffer<u64>,
    signals: DeviceBuffer<u64>,
    /// Size of a rank's elements, in bytes.
    bytes: usize,
    /// Number of this buffer within the communicator, which is the same on all ranks.
    pub number: u64,
    device: Device,
    /// True if the program has dropped the buffer.
    is_dropped: AtomicBool,
    /// Operations whose kernels on other ranks access the elements.
    operations: Operations,
}

/// Operations that access a rank's elements from other ranks.
#[derive(Debug, Default)]
struct Operations {
    of: OnceLock<Weak<dyn Failing>>,
    /// Operation that was called last.
    last: Mutex<Option<Arc<WorkState>>>,
    /// True if graphs contain such operations.
    are_captured: AtomicBool,
    /// True if such an operation has failed.
    have_failed: AtomicBool,
}

impl Operations {
    /// Returns whether an operation has failed, or may have failed at its end.
    fn have_failed(&self) -> bool {
        if self.have_failed.load(Ordering::Acquire) {
            return true;
        }
        let has_any_failed =
            || self.of.get().and_then(Weak::upgrade).is_some_and(|failing| failing.has_failed());
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match last.map(|last| last.has_failed()) {
            Some(Some(true)) => true,
            // The operation has not ended, as far as the host has observed.
            Some(None) => has_any_failed(),
            _ => self.are_captured.load(Ordering::Acquire) && has_any_failed(),
        }
    }
}

/// Source that reports failures of a communicator's operations.
pub(crate) trait Failing: fmt::Debug + Send + Sync {
    /// Returns whether any operation that has ended has failed.
    fn has_failed(&self) -> bool;
}

/// Live symmetric memory of the process.
static ALL: Mutex<Vec<Weak<Common>>> = Mutex::new(Vec::new());
/// Maximum time until memory is freed after its last use.
const FREED_WITHIN: Duration = Duration::from_secs(1);

/// Waits for the device's work, and until the memory of dropped [`SymmetricBuffer`]s is freed. Returns the number of
/// bytes that are not freed because graphs use their buffers.
///
/// Without this call, the memory is also freed, but in the background, after the last work that uses it.
///
/// # Errors
/// The errors of [`Device::synchronize`].
///
/// ```
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ipc_collect};
/// use warpsmith_runtime::{Device, Stream};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
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
        // The values that are released here must be dropped without the lock.
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
    /// Returns the byte offset of a memory range in this rank's elements, or `None` if the range is not within them.
    pub fn offset_of(&self, address: u64, bytes: usize) -> Option<usize> {
        let start = usize::try_from(address.checked_sub(elements(self.placed.own()).0)?).ok()?;
        (start.checked_add(bytes)? <= self.bytes).then_some(start)
    }

    /// Returns the address of the device array that contains the addresses of all ranks' elements.
    pub fn peers(&self) -> DevicePtr {
        self.peers.as_device_ptr()
    }

    /// Registers the source that reports failures of the operations that access the elements.
    pub fn belong_to(&self, failing: Weak<dyn Failing>) {
        // The call cannot fail, because a buffer belongs to only one communicator.
        let _ = self.operations.of.set(failing);
    }

    /// Registers an operation whose kernels on other ranks access the elements.
    pub fn reached_by(&self, work: &Arc<WorkState>, is_captured: bool) {
        match is_captured {
            true => self.operations.are_captured.store(true, Ordering::Release),
            false => {
                let mut last = self.operations.last.lock().unwrap_or_else(PoisonError::into_inner);
                *last = Some(Arc::clone(work));
            }
        }
    }

    /// Makes final whether the elements can be used. It is called after the communicator has failed.
    pub fn settle(&self) {
        if self.operations.have_failed() {
            self.operations.have_failed.store(true, Ordering::Release);
        }
    }

    /// Fails once a kernel of another rank may access the elements at a time that this rank's program does not expect.
    fn may_use(&self) -> Result<(), warpsmith_runtime::Error> {
        match self.operations.have_failed() {
            false => Ok(()),
            true => Err(CollectiveError::Withdrawn { bytes: self.bytes }.into()),
        }
    }
}

impl<T: DeviceCopy> SymmetricBuffer<T> {
    /// Creates the buffers of all ranks. All ranks must call it.
    pub(crate) fn rendezvous(
        agreement: &Agreement<'_>,
        pool: &mut Pool,
        stream: &Stream,
        len: usize,
    ) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(PAD_BYTES));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= isize::MAX as usize) else {
            let error =
                warpsmith_runtime::Error::TooManyElements { elements: len, element_bytes: size_of::<T>() };
            return Err(error);
        };
        let tables = |placed: &Placed| {
            // This uses a stream that does not wait for other ranks.
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
        // SAFETY: the memory has space for the elements after the pad, and its owner keeps it allocated. Kernels of
        // other ranks access it only through unsafe code of the program, and through operations that all ranks call.
        // After an operation has failed, the buffer cannot be used.
        let buffer = unsafe { DeviceBuffer::from_raw_while(stream, own, len, Arc::clone(&common), may_use) }?;
        Ok(Self { buffer, common })
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Returns the address of a rank's elements, for kernels of this rank.
    ///
    /// # Panics
    /// Panics if the rank does not exist.
    pub fn peer_ptr(&self, rank: usize) -> DevicePtr {
        elements(self.common.placed.address(rank))
    }

    /// Returns the addresses of all ranks' elements, in rank order, for kernels of this rank. Work that uses them must
    /// also name the buffer itself ([`DeviceBuffer::as_slice`]), so that the memory stays allocated.
    pub fn peers(&self) -> &DeviceBuffer<u64> {
        &self.common.peers
    }

    /// Returns the address of a rank's signal pad, for kernels of this rank.
    ///
    /// # Panics
    /// Panics if the rank does not exist.
    pub fn signal_ptr(&self, rank: usize) -> DevicePtr {
        self.common.placed.address(rank)
    }

    /// Returns the addresses of all ranks' signal pads, in rank order, for kernels of this rank.
    pub fn signals(&self) -> &DeviceBuffer<u64> {
        &self.common.signals
    }

    /// Returns the number of 32-bit words of a signal pad.
    pub const fn signal_count(&self) -> usize {
        SIGNALS
    }

    /// Returns this rank's elements, for work that writes them.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_mut_slice()
    }

    /// Returns a range of this rank's elements.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    #[track_caller]
    pub fn slice_mut(&mut self, bounds: impl std::ops::RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        self.buffer.slice_mut(bounds)
    }

    /// Copies elements from the host, as [`DeviceBuffer::copy_from_host`] does.
    ///
    /// # Errors
    /// The errors of that method.
    #[track_caller]
    pub fn copy_from_host(&mut self, elements: &[T]) -> Result<(), warpsmith_runtime::Error> {
        let _site = site();
        self.buffer.copy_from_host(elements)
    }
}

/// Returns the address of the elements in a rank's memory, after the signal pad.
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

impl<T: DeviceCopy + fmt::Debug> fmt::Debug for SymmetricBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SymmetricBuffer({} ranks, {:?})", self.common.placed.world(), self.buffer)
    }
}

/// Returns the host whose processes can map a device's memory, or the reason why none can.
pub(crate) fn host_of(device: &Device) -> Result<String, String> {
    match warpsmith_runtime::memory::SharedMemory::is_supported(device) {
        Ok(true) => Ok(crate::machine::identity().to_owned()),
        Ok(false) => Err(format!("{} has no memory that other ranks can map", device.id())),
        Err(error) => Err(error.to_string()),
    }
}
