//! [`OutOfMemory`]: details of a failed memory request.

use std::fmt;

use super::{Bytes, DeviceId};

/// A memory request that failed, and the memory usage at the time of the request. All sizes are in bytes.
///
/// ```
/// use warpsmith_runtime::emulated::EmulatedDriver;
/// use warpsmith_runtime::{Device, DeviceBuffer, Error};
///
/// let driver = EmulatedDriver::builder().memory(64 << 20).build();
/// let stream = Device::with_driver(driver, 0)?.default_stream();
/// let Err(Error::OutOfMemory(error)) = DeviceBuffer::<u8>::uninit(&stream, 1 << 30) else { unreachable!() };
/// assert_eq!((error.asked, error.total), (1 << 30, 64 << 20));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The device.
    pub device: DeviceId,
    /// Requested bytes.
    pub asked: u64,
    /// Bytes requested from the driver to serve the request.
    pub segment: u64,
    /// Total memory of the device.
    pub total: u64,
    /// Device memory that no process uses.
    pub free: u64,
    /// Maximum bytes that the program may reserve; `None` if no memory fraction is set.
    pub limit: Option<u64>,
    /// Memory that the program has reserved from the driver.
    pub reserved: u64,
    /// Total size of blocks in use.
    pub allocated: u64,
    /// Total size of freed blocks that work on other streams may still use.
    pub pending: u64,
    /// Total size of free blocks in the request's stream and pool.
    pub cached: u64,
    /// Size of the largest free block in the request's stream and pool.
    pub largest_cached: u64,
    /// Total size of other streams' free blocks in the default pool.
    pub cached_by_other_streams: u64,
    /// Total size of free blocks in private pools other than the request's pool.
    pub cached_in_private_pools: u64,
    /// Process ID and memory usage of each other process on the device, if the system reports them.
    pub other_processes: Vec<(u32, u64)>,
    /// True if a graph was being captured, in which case the allocator could not wait for work.
    pub capturing: bool,
    /// True if the request's pool uses segments that can grow in place.
    pub expandable: bool,
}

impl OutOfMemory {
    /// Returns suggested remedies, the most promising one first.
    fn advice(&self) -> &'static str {
        let over_limit = self.limit.is_some_and(|limit| self.reserved.saturating_add(self.segment) > limit);
        let others: u64 = self.other_processes.iter().map(|(_, bytes)| bytes).sum();
        if self.capturing {
            "run the work once before capturing it, so that its memory is in the pool"
        } else if over_limit && self.limit.is_some_and(|limit| self.segment > limit) {
            "allocate less, or raise the limit with a larger memory fraction"
        } else if self.segment > self.total {
            "allocate less than the device's memory"
        } else if self.pending >= self.segment {
            "wait for the streams that still use the freed blocks"
        } else if self.cached_in_private_pools >= self.segment {
            "empty or release the private pools, or allow their use with `use_on_oom`"
        } else if self.cached + self.cached_by_other_streams >= self.segment && !self.expandable {
            "the free memory is fragmented: set `expandable_segments:True` (WARPSMITH_ALLOC_CONF)"
        } else if self.cached_by_other_streams >= self.segment {
            "use fewer streams, because each keeps its own free memory"
        } else if over_limit {
            "free buffers first, or raise the limit with a larger memory fraction"
        } else if others >= self.segment {
            "end other processes on the device, or use another device"
        } else {
            "free buffers first, or process the data in smaller parts"
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, asked, segment, free, total, reserved, allocated, .. } = self;
        write!(f, "out of memory on {device}: requested {}", Bytes(*asked))?;
        if segment > asked {
            write!(f, " (a segment of {})", Bytes(*segment))?;
        }
        write!(f, ", {} of {} are free", Bytes(*free), Bytes(*total))?;
        if let Some(limit) = self.limit {
            write!(f, ", {} are allowed by the memory fraction", Bytes(limit))?;
        }
        write!(f, "; this program has {} reserved: {} in use", Bytes(*reserved), Bytes(*allocated))?;
        if self.cached > 0 {
            write!(f, ", {} free", Bytes(self.cached))?;
            if self.largest_cached < self.cached {
                write!(f, " (the largest block {})", Bytes(self.largest_cached))?;
            }
        }
        for (bytes, what) in [
            (self.cached_by_other_streams, "free for other streams"),
            (self.pending, "waiting for events of other streams"),
            (self.cached_in_private_pools, "free in private pools"),
        ] {
            if bytes > 0 {
                write!(f, ", {} {what}", Bytes(bytes))?;
            }
        }
        for (pid, bytes) in &self.other_processes {
            write!(f, "; process {pid} has {}", Bytes(*bytes))?;
        }
        if self.capturing {
            write!(f, "; a capture is active")?;
        }
        write!(f, "; {}", self.advice())
    }
}
