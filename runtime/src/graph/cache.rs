//! [`GraphCache`]: graphs captured on first use.

use std::collections::HashMap;
use std::hash::Hash;

use super::{Graph, GraphExec};
use crate::device::Device;
use crate::error::{Error, GraphError};
use crate::memory::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;

/// A buffer or value that distinguishes captured graphs with the same key: a buffer's address, element type and length,
/// or a number that kernels receive by value.
///
/// See the example of [`GraphCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheInput {
    address: u64,
    elements: u64,
    element: std::any::TypeId,
}

impl CacheInput {
    /// A number that is passed to kernels by value, given as its bits: `CacheInput::value(scale.to_bits())`.
    pub fn value(bits: impl Into<u64>) -> Self {
        Self { address: bits.into(), elements: 0, element: std::any::TypeId::of::<()>() }
    }
}

impl<'a, T: DeviceCopy> From<&DeviceSlice<'a, T>> for CacheInput {
    fn from(slice: &DeviceSlice<'a, T>) -> Self {
        Self {
            address: slice.as_device_ptr().0,
            elements: slice.len() as u64,
            element: std::any::TypeId::of::<T>(),
        }
    }
}

impl<'a, T: DeviceCopy> From<&DeviceSliceMut<'a, T>> for CacheInput {
    fn from(slice: &DeviceSliceMut<'a, T>) -> Self {
        Self::from(&slice.as_slice())
    }
}

impl<T: DeviceCopy> From<&DeviceBuffer<T>> for CacheInput {
    fn from(buffer: &DeviceBuffer<T>) -> Self {
        Self::from(&buffer.as_slice())
    }
}

/// Counters of a cache.
///
/// See the example of [`GraphCache`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Number of launches that reused a cached graph.
    pub hits: u64,
    /// Number of captures.
    pub misses: u64,
    /// Number of evicted graphs.
    pub evictions: u64,
}

/// Cache of captured graphs, identified by a key that the program chooses and by the capture's inputs.
///
/// The cache is bounded and evicts the least recently launched graph. Evicting a running graph is safe: it is freed
/// after it has finished.
///
/// ```
/// use warpsmith_runtime::graph::GraphCache;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let device = Device::emulated(0)?;
/// let stream = device.default_stream();
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0])?;
/// let mut y = DeviceBuffer::zeros(&stream, 2)?;
/// let mut cache = GraphCache::new(&device, 16);
/// for _ in 0..3 {
///     let inputs = [(&x).into(), (&y).into()];
///     cache.launch(&stream, "copy", &inputs, |stream| stream.copy(&x, &mut y))?;
/// }
/// assert_eq!((cache.stats().hits, cache.stats().misses), (2, 1));
/// assert_eq!(y.to_host()?, [1.0, 2.0]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct GraphCache<K> {
    device: Device,
    capacity: usize,
    entries: HashMap<(K, Vec<CacheInput>), Entry>,
    /// Number of launches so far, used as the time of a graph's last use.
    clock: u64,
    stats: CacheStats,
    /// Stream used only for captures, so that no other work becomes part of a graph.
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Entry {
    exec: GraphExec,
    used: u64,
}

impl<K: Hash + Eq + Clone> GraphCache<K> {
    /// Creates a cache for up to `capacity` graphs; a capacity of 0 counts as 1.
    pub fn new(device: &Device, capacity: usize) -> Self {
        Self {
            device: device.clone(),
            capacity: capacity.max(1),
            entries: HashMap::new(),
            clock: 0,
            stats: CacheStats::default(),
            stream: None,
        }
    }

    /// Launches the graph for this key and these inputs on `stream`. The graph is captured first if it is not in the
    /// cache, if one of its buffers was dropped, or if it may contain foreign work ([`GraphError::Invalidated`]).
    /// `capture` must enqueue the work to capture on the stream that it receives.
    ///
    /// `inputs` must list all buffers and values that `capture` uses and that may differ between calls with the same
    /// key.
    ///
    /// # Errors
    /// Returns the same errors as [`Graph::capture`] and [`GraphExec::launch`], and the error that `capture` returns.
    #[track_caller]
    pub fn launch<E: From<Error>>(
        &mut self,
        stream: &Stream,
        key: K,
        inputs: &[CacheInput],
        capture: impl FnOnce(&Stream) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.clock += 1;
        let key = (key, inputs.to_vec());
        if let Some(entry) = self.entries.get_mut(&key) {
            match entry.exec.launch(stream) {
                Err(
                    Error::Graph(GraphError::BufferDropped { .. }) | Error::Graph(GraphError::Invalidated),
                ) => {
                    self.entries.remove(&key);
                }
                launched => {
                    entry.used = self.clock;
                    self.stats.hits += u64::from(launched.is_ok());
                    return Ok(launched?);
                }
            }
        }
        let captured = match &self.stream {
            Some(stream) => stream,
            None => self.stream.insert(Stream::new(&self.device)?),
        };
        let graph = Graph::capture(captured, || capture(captured))?;
        let exec = graph.instantiate()?;
        self.stats.misses += 1;
        exec.launch(stream)?;
        while self.entries.len() >= self.capacity {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.entries.remove(&oldest);
            self.stats.evictions += 1;
        }
        self.entries.insert(key, Entry { exec, used: self.clock });
        Ok(())
    }

    /// Returns the number of cached graphs.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all graphs from the cache.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Returns the number of hits, misses and evictions so far.
    pub fn stats(&self) -> CacheStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalidated_graphs_are_captured_again() -> Result<(), Error> {
        let device = Device::emulated(0)?;
        let stream = Stream::new(&device)?;
        let x = DeviceBuffer::from_host(&stream, &[1u8, 2])?;
        let mut y = DeviceBuffer::zeros(&stream, 2)?;
        let mut cache = GraphCache::new(&device, 4);
        let inputs = [(&x).into(), (&y).into()];
        for misses in 1..=2 {
            for _ in 0..2 {
                cache.launch(&stream, (), &inputs, |stream| stream.copy(&x, &mut y))?;
            }
            assert_eq!((cache.stats().misses, cache.stats().hits), (misses, misses));
            cache.entries.values().for_each(|entry| entry.exec.invalidate());
        }
        assert_eq!(y.to_host()?, [1, 2]);
        Ok(())
    }
}
