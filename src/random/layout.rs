//! [`Layout`]: the virtual threads among which numbers are divided.

use warpsmith_runtime::{Device, DeviceProperties, Result};

use crate::op_error::OpError;

/// Number of threads per block in PyTorch's launches.
const BLOCK: u64 = 256;
/// Arrays are halved if the distance between their first and last elements, in bytes, is at least this value.
const FARTHEST: u64 = (1 << 31) - 1;

/// The number of SMs and the threads per SM, which determine how numbers are divided among virtual threads. PyTorch
/// fills an array with as many threads as fit on the device at the same time, each of which has its own subsequence.
/// Generators use the same division on any device.
///
/// ```
/// use warpsmith::random::Layout;
///
/// let h200 = Layout::new(132, 2048)?;
/// assert_eq!(h200, Layout::H200);
/// assert!(Layout::new(132, 100).is_err());
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    multiprocessors: u32,
    threads_per_multiprocessor: u32,
}

impl Layout {
    /// The layout of NVIDIA's H100 (SXM) and H200.
    pub const H200: Self = Self { multiprocessors: 132, threads_per_multiprocessor: 2048 };

    /// Returns the layout of a device with this number of SMs and this number of threads per SM.
    ///
    /// # Errors
    /// Returns [`OpError::Random`] if there are no SMs, fewer than 256 threads per SM, or 2³⁰ threads or more in total.
    pub fn new(multiprocessors: u32, threads_per_multiprocessor: u32) -> Result<Self> {
        let layout = Self { multiprocessors, threads_per_multiprocessor };
        let problem = if multiprocessors == 0 || u64::from(threads_per_multiprocessor) < BLOCK {
            "there must be an SM, with at least 256 threads"
        } else if layout.max_blocks() * BLOCK >= 1 << 30 {
            "there must be fewer than 2^30 threads in all"
        } else {
            return Ok(layout);
        };
        let found = format!("{problem}; found {multiprocessors} with {threads_per_multiprocessor} each");
        Err(OpError::Random { call: "Layout::new", problem: found }.into())
    }

    /// Returns the layout of a device. For the emulated device, it is [`Self::H200`].
    pub fn of(device: &Device) -> Self {
        let DeviceProperties { multiprocessors, max_threads_per_multiprocessor, .. } = *device.properties();
        match Self::new(multiprocessors, max_threads_per_multiprocessor) {
            Ok(layout) if !device.is_emulated() => layout,
            _ => Self::H200,
        }
    }

    /// Returns the number of SMs.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Returns the number of threads per SM.
    pub fn threads_per_multiprocessor(&self) -> u32 {
        self.threads_per_multiprocessor
    }

    fn max_blocks(&self) -> u64 {
        u64::from(self.multiprocessors) * (u64::from(self.threads_per_multiprocessor) / BLOCK)
    }

    /// Returns the number of virtual threads for `n` elements. `n` must be at least 1.
    pub(crate) fn threads(&self, n: usize) -> u32 {
        // `new` limits the result to less than 2^30.
        ((n as u64).div_ceil(BLOCK).min(self.max_blocks()) * BLOCK) as u32
    }

    /// Returns how far the offset advances for `n` elements if each block of words yields `lanes` numbers. `n` must be
    /// at least 1.
    pub(crate) fn increment(&self, n: usize, lanes: usize) -> u64 {
        ((n as u64 - 1) / (u64::from(self.threads(n)) * lanes as u64) + 1) * 4
    }
}

/// Returns the lengths of the parts into which an array is divided. The array is halved until the last element of a
/// part starts less than 2³¹ − 1 bytes after the first.
pub(super) fn parts(n: usize, element_bytes: usize) -> Vec<usize> {
    let last = (n as u64).saturating_sub(1).saturating_mul(element_bytes as u64);
    if last < FARTHEST { vec![n] } else { [n / 2, n - n / 2].map(|half| parts(half, element_bytes)).concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_fill_the_device_in_blocks_of_256() {
        let of = |n| Layout::H200.threads(n);
        assert_eq!([of(1), of(256), of(257), of(1 << 28)], [256, 256, 512, 132 * 2048]);
        let odd = Layout::new(82, 1536).unwrap();
        assert_eq!(odd.threads(1 << 28), 82 * 1536);
        assert_eq!(Layout::new(3, 700).unwrap().threads(1 << 20), 3 * 2 * 256);
    }

    #[test]
    fn increments_are_those_of_pytorch() {
        let layout = Layout::new(1, 256).unwrap();
        let of = |n| layout.increment(n, 4);
        assert_eq!([of(1), of(1024), of(1025), of(2048), of(2049)], [4, 4, 8, 8, 12]);
        assert_eq!(layout.increment(513, 2), 8);
        assert_eq!(Layout::H200.increment(1 << 28, 4), ((1 << 28) / (132 * 2048 * 4) + 1) * 4);
    }

    #[test]
    fn large_arrays_are_halved() {
        assert_eq!(parts(1 << 29, 4), [1 << 29]);
        assert_eq!(parts((1 << 29) + 1, 4), [1 << 28, (1 << 28) + 1]);
        let quarter = 1 << 28;
        assert_eq!(parts((1 << 30) + 3, 4), [quarter, quarter + 1, quarter + 1, quarter + 1]);
        assert_eq!(parts(1 << 30, 2), [1 << 30]);
        assert_eq!(parts(0, 4), [0]);
    }

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        for (multiprocessors, threads) in [(0, 2048), (132, 255), (1 << 20, 2048), (u32::MAX, u32::MAX)] {
            let text = Layout::new(multiprocessors, threads).unwrap_err().to_string();
            assert!(text.contains(&threads.to_string()), "{text}");
        }
    }
}
