//! [`SymmetricBuffer`]: a buffer on each rank that the kernels of all ranks can read and write.

mod agree;
#[cfg(target_os = "linux")]
mod descriptors;
mod memory;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use warpsmith_runtime::extension::site;
use warpsmith_runtime::{Device, DeviceBuffer, DeviceCopy, DevicePtr, DeviceSlice, DeviceSliceMut, Stream};

pub(crate) use self::agree::Agreement;
pub(crate) use self::memory::PeerMemory;
use crate::error::{CollectiveError, Result};
use crate::work::WorkState;

/// Size of a rank's signal pad in bytes. The pad precedes the rank's elements.
const PAD_BYTES: usize = SIGNALS * size_of::<u32>();
/// Number of signals per rank.
const SIGNALS: usize = 4096;

/// Buffer with the same length on each rank of a communicator, which kernels of all ranks can access.
/// [`Communicator::symmetric_buffer`](crate::Communicator::symmetric_buffer) creates it.
///
/// The elements of this rank form a [`DeviceBuffer`], with all its operations. To access the memory of other ranks, a
/// kernel uses the addresses of all ranks' elements ([`Self::peers`]) and signal pads ([`Self::signals`]). A signal pad
/// consists of 4096 32-bit words that are initially zero and reserved for the program. A kernel sets a signal with a
/// release store and waits for it with acquire loads, using atomics of
/// [`scope::System`](https://docs.rs/gpu-std/latest/gpu_std/atomic/scope/). The runtime does not order accesses to the
/// memory of other ranks. Order them with [`Communicator::barrier`](crate::Communicator::barrier) between kernels and
/// with signals within kernels.
///
/// With the Peer backend, `all_reduce`, `reduce` and `reduce_scatter` access a symmetric buffer, or a slice of one,
/// without a copy. All ranks must then pass the same slice of the same buffer. Otherwise, all ranks must pass other
/// memory.
///
/// If such an operation fails, another rank may still be reading or writing the elements. From then on, every use of
/// the buffer fails with [`CollectiveError::Withdrawn`]. In this case, drop the buffer and create another one with a
/// communicator of the remaining ranks.
///
/// The memory stays allocated until all enqueued work that uses it has run and every rank has dropped the buffer.
/// Dropping the buffer is not a collective call and does not block, regardless of the other ranks' state.
///
/// Each buffer occupies whole allocation pages on each rank, normally of 2 MiB on GPUs.
pub struct SymmetricBuffer<T: DeviceCopy> {
    /// View of the elements; the memory belongs to `common`.
    buffer: DeviceBuffer<T>,
    common: Arc<Common>,
}

/// State that the ranks share. This state is kept as long as work of any rank may use it.
#[derive(Debug)]
pub(crate) struct Common {
    memory: PeerMemory,
    peers: DeviceBuffer<u64>,
    signals: DeviceBuffer<u64>,
    /// Size of a rank's elements, in bytes.
    bytes: usize,
    /// ID of this buffer within the communicator; it is the same on all ranks.
    pub number: u64,
    device: Device,
    /// True if the program has dropped the buffer.
    is_dropped: AtomicBool,
    /// Operations whose kernels access the elements from other ranks.
    operations: Operations,
}

/// Operations that access the elements of a rank from other ranks.
#[derive(Debug, Default)]
struct Operations {
    of: OnceLock<Weak<dyn Failing>>,
    /// The operation that was called last.
    last: Mutex<Option<Arc<WorkState>>>,
    /// True if graphs contain operations that access the elements.
    are_captured: AtomicBool,
    /// True if an operation that accesses the elements has failed.
    have_failed: AtomicBool,
}

impl Operations {
    /// Returns whether an operation has failed, or may have failed when it ended.
    fn have_failed(&self) -> bool {
        if self.have_failed.load(Ordering::Acquire) {
            return true;
        }
        let has_any_failed =
            || self.of.get().and_then(Weak::upgrade).is_some_and(|failing| failing.has_failed());
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match last.map(|last| last.has_failed()) {
            Some(Some(true)) => true,
            // As far as the host knows, the operation has not ended yet.
            Some(None) => has_any_failed(),
            _ => self.are_captured.load(Ordering::Acquire) && has_any_failed(),
        }
    }
}

/// Object that reports whether operations of a communicator have failed.
pub(crate) trait Failing: fmt::Debug + Send + Sync {
    /// Returns whether any of the operations that have ended has failed.
    fn has_failed(&self) -> bool;
}

/// All symmetric memory of the process that is still in use.
static ALL: Mutex<Vec<Weak<Common>>> = Mutex::new(Vec::new());
/// Maximum time between the last use of memory and its release.
const FREED_WITHIN: Duration = Duration::from_secs(1);

/// Waits until the device's work has completed and the memory of dropped [`SymmetricBuffer`]s has been freed. Returns
/// the number of bytes that cannot be freed because graphs use the buffers.
///
/// Without this call, the memory is freed in the background after the last work that uses it.
///
/// # Errors
/// Returns the same errors as [`Device::synchronize`].
///
/// ```
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ipc_collect};
/// use warpsmith_runtime::{Device, Stream};
///
/// # if !cfg!(target_os = "linux") { return Ok(()) }
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let mut ranks = Communicator::init_all(&[stream.clone()], &CommunicatorOptions::new())?.remove(0);
/// let buffer = ranks.symmetric_buffer::<f32>(1 << 20)?;
/// drop(buffer);
/// assert_eq!(ipc_collect(stream.device())?, 0);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub fn ipc_collect(device: &Device) -> Result<usize> {
    device.synchronize()?;
    let deadline = Instant::now() + FREED_WITHIN;
    loop {
        let all = std::mem::take(&mut *ALL.lock().unwrap_or_else(PoisonError::into_inner));
        // The lock must not be held while the released values are dropped.
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
    /// Returns the byte offset of a memory range within this rank's elements, or `None` if the range is not inside
    /// them.
    pub fn offset_of(&self, address: u64, bytes: usize) -> Option<usize> {
        let start = usize::try_from(address.checked_sub(elements(self.memory.own()).0)?).ok()?;
        (start.checked_add(bytes)? <= self.bytes).then_some(start)
    }

    /// Returns the device address of the array that contains the addresses of all ranks' elements.
    pub fn peers(&self) -> DevicePtr {
        self.peers.as_device_ptr()
    }

    /// Registers the source that reports whether operations that access the elements have failed.
    pub fn belong_to(&self, failing: Weak<dyn Failing>) {
        // This cannot fail, because a buffer belongs to only one communicator.
        let _ = self.operations.of.set(failing);
    }

    /// Registers an operation whose kernels access the elements from other ranks.
    pub fn reached_by(&self, work: &Arc<WorkState>, is_captured: bool) {
        match is_captured {
            true => self.operations.are_captured.store(true, Ordering::Release),
            false => {
                let mut last = self.operations.last.lock().unwrap_or_else(PoisonError::into_inner);
                *last = Some(Arc::clone(work));
            }
        }
    }

    /// Determines whether the elements can still be used. Called after the communicator has failed.
    pub fn settle(&self) {
        if self.operations.have_failed() {
            self.operations.have_failed.store(true, Ordering::Release);
        }
    }

    /// Fails if a kernel of another rank may still access the elements.
    fn may_use(&self) -> Result<(), warpsmith_runtime::Error> {
        match self.operations.have_failed() {
            false => Ok(()),
            true => Err(CollectiveError::Withdrawn { bytes: self.bytes }.into()),
        }
    }
}

impl<T: DeviceCopy> SymmetricBuffer<T> {
    /// Creates the buffers on all ranks. All ranks must make this call.
    pub(crate) fn rendezvous(agreement: &Agreement<'_>, stream: &Stream, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(PAD_BYTES));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= isize::MAX as usize) else {
            let error =
                warpsmith_runtime::Error::TooManyElements { elements: len, element_bytes: size_of::<T>() };
            return Err(error);
        };
        let memory = PeerMemory::rendezvous(agreement, stream.device(), bytes)?;
        let tables = tables(stream.device(), &memory);
        // If the agreement fails, all ranks drop the memory.
        agreement.share(tables.as_ref().map(|_| Vec::new()).map_err(ToString::to_string))?;
        let (peers, signals) = tables?;
        let own = if len * size_of::<T>() == 0 { DevicePtr::NULL } else { elements(memory.own()) };
        let (bytes, number) = (len * size_of::<T>(), agreement.operation.sequence);
        let (device, is_dropped) = (stream.device().clone(), AtomicBool::new(false));
        let operations = Operations::default();
        let common =
            Arc::new(Common { memory, peers, signals, bytes, number, device, is_dropped, operations });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|common| common.strong_count() > 0);
        all.push(Arc::downgrade(&common));
        drop(all);
        let known = Arc::clone(&common);
        let may_use = move || known.may_use();
        // SAFETY: the memory has room for the elements after the pad, and the owner of the memory keeps it allocated.
        // Kernels of other ranks access the elements only through unsafe code of the program and through operations
        // that all ranks call. After an operation has failed, the buffer can no longer be used.
        let buffer = unsafe { DeviceBuffer::from_raw_while(stream, own, len, Arc::clone(&common), may_use) }?;
        Ok(Self { buffer, common })
    }

    pub(crate) fn common(&self) -> &Arc<Common> {
        &self.common
    }

    /// Returns the address of the elements of rank `rank`, for kernels that this rank launches.
    ///
    /// # Panics
    /// Panics if the rank does not exist.
    pub fn peer_ptr(&self, rank: usize) -> DevicePtr {
        elements(self.common.memory.address(rank))
    }

    /// Returns the addresses of all ranks' elements, in rank order, for kernels that this rank launches. Work that uses
    /// these addresses must also name the buffer itself ([`DeviceBuffer::as_slice`]), so that the memory stays
    /// allocated.
    pub fn peers(&self) -> &DeviceBuffer<u64> {
        &self.common.peers
    }

    /// Returns the address of rank `rank`'s signal pad, for kernels that this rank launches.
    ///
    /// # Panics
    /// Panics if the rank does not exist.
    pub fn signal_ptr(&self, rank: usize) -> DevicePtr {
        self.common.memory.address(rank)
    }

    /// Returns the addresses of all ranks' signal pads, in rank order, for kernels that this rank launches.
    pub fn signals(&self) -> &DeviceBuffer<u64> {
        &self.common.signals
    }

    /// Returns the number of 32-bit words in a signal pad.
    pub const fn signal_count(&self) -> usize {
        SIGNALS
    }

    /// Returns this rank's elements as a mutable slice.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_mut_slice()
    }

    /// Returns a range of this rank's elements as a mutable slice.
    ///
    /// # Panics
    /// Panics if the range is out of bounds.
    #[track_caller]
    pub fn slice_mut(&mut self, bounds: impl std::ops::RangeBounds<usize>) -> DeviceSliceMut<'_, T> {
        self.buffer.slice_mut(bounds)
    }

    /// Copies elements from the host, like [`DeviceBuffer::copy_from_host`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceBuffer::copy_from_host`].
    #[track_caller]
    pub fn copy_from_host(&mut self, elements: &[T]) -> Result<(), warpsmith_runtime::Error> {
        let _site = site();
        self.buffer.copy_from_host(elements)
    }
}

/// Returns the addresses of all ranks' elements and signal pads, in rank order.
fn tables(device: &Device, memory: &PeerMemory) -> Result<(DeviceBuffer<u64>, DeviceBuffer<u64>)> {
    // The setup uses a separate stream that does not wait for other ranks.
    let setup = Stream::new(device)?;
    let table = |of: fn(DevicePtr) -> DevicePtr| {
        let addresses: Vec<u64> = (0..memory.world()).map(|rank| of(memory.address(rank)).0).collect();
        DeviceBuffer::from_host(&setup, &addresses)
    };
    let tables = (table(elements)?, table(|memory| memory)?);
    setup.synchronize().map(|()| tables)
}

/// Returns the address of a rank's elements, which follow the signal pad in the rank's memory.
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
        write!(f, "SymmetricBuffer({} ranks, {:?})", self.common.memory.world(), self.buffer)
    }
}

/// Returns the host whose processes can map the memory of a device, or the reason why no process can.
pub(crate) fn host_of(device: &Device) -> Result<String, String> {
    match warpsmith_runtime::memory::SharedMemory::is_supported(device) {
        Ok(true) => Ok(crate::machine::identity().to_owned()),
        Ok(false) => Err(format!("{} does not support memory that other ranks can map", device.id())),
        Err(error) => Err(error.to_string()),
    }
}
