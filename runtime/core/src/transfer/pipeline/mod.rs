//! [`Pipeline`]: inputs are copied in, computed with, and their results copied out, all at the same time.
//!
//! Guarantees: results come in the order of the inputs, and are the same with every [`Strategy`] and depth.
//! Memory is bounded, however many inputs there are: `depth` device buffers for inputs, `depth` for results, `depth`
//! page-locked buffers for results, and at most `depth + 1` inputs that were taken and not yet returned. When
//! [`Pipeline::run`] returns, or a panic of a closure leaves it, no work of the run is on the device any more; after
//! a failure the pipeline can be used again.
//!
//! The copies of one direction share a copy engine, and kernels that fill the device run one after the other. So the
//! time of many items is at best that of the slowest stage, instead of the sum of all three. How near a run comes to that
//! depends on its [`Strategy`].
//!
//! | module | what it holds |
//! | --- | --- |
//! | `run` | one run: what is enqueued where, and what is waited for |
//! | [`timeline`] | when each stage of each item ran |
//! | [`failure`] | the error, which names item and stage |

pub mod failure;
mod run;
pub mod timeline;

use std::fmt;

pub use self::failure::{Failure, PipelineError, Stage};
use self::run::Run;
pub use self::timeline::ItemTimes;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut, PinnedBuffer};
use crate::stream::Stream;
use crate::transfer::HostMemory;

/// In which order, on which streams, a pipeline enqueues its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Everything on one stream: copy in, compute, copy out, then the next item. Nothing overlaps on the device; for
    /// comparison, and for finding out whether overlap is the cause of a problem.
    InOrder,
    /// One stream for each place of the pipeline's depth, an item on each. Kernels of several items may run at the same
    /// time, which is good for kernels that do not fill the device. Needs a depth of 3 to overlap all stages.
    StreamPerItem,
    /// Three streams, one for each stage, with events between them. Kernels run one after the other; a copy waits for
    /// nothing but the work whose data or buffer it takes over. Needs a depth of 2 to overlap all stages; one more
    /// absorbs stages of uneven length.
    StreamPerStage,
}

/// Runs items through copy in, compute and copy out. See the [module's documentation](self).
///
/// ```
/// use warpsmith_runtime::transfer::pipeline::{Pipeline, Strategy};
/// use warpsmith_runtime::{Device, PinnedBuffer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = Device::emulated(0)?;
/// let mut pipeline = Pipeline::new(&device, Strategy::StreamPerStage, 3)?;
///
/// // Made when its turn comes, while the device works on those before.
/// let inputs = (0..10).map(|i| Ok(PinnedBuffer::from_slice(&device, &[i as f32; 1000])?));
/// let mut firsts = Vec::new();
/// pipeline.run(
///     inputs,
///     |len| len, // one result for each element
///     |_stream, input, mut output| {
///         // Kernels are launched on the stream that is given; here a copy stands for one.
///         Ok(output.copy_from(input)?)
///     },
///     |_item, _input, output: &mut PinnedBuffer<f32>| {
///         firsts.push(output[0]);
///         Ok(())
///     },
/// )?;
/// assert_eq!(firsts, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
/// # Ok(())
/// # }
/// ```
pub struct Pipeline {
    device: Device,
    strategy: Strategy,
    depth: usize,
    streams: Vec<Stream>,
    records: bool,
    timeline: Vec<ItemTimes>,
}

impl Pipeline {
    /// A pipeline with streams of its own. `depth` is how many items have buffers at the same time; 3 is enough unless
    /// the host's share of the work varies much.
    ///
    /// # Errors
    /// [`Error::NoDepth`] for a depth of 0; whatever the driver reports.
    pub fn new(device: &Device, strategy: Strategy, depth: usize) -> Result<Self> {
        if depth == 0 {
            return Err(Error::NoDepth);
        }
        let streams = match strategy {
            Strategy::InOrder => 1,
            Strategy::StreamPerItem => depth,
            Strategy::StreamPerStage => 3,
        };
        let streams = (0..streams).map(|_| Stream::new(device)).collect::<Result<_>>()?;
        let device = device.clone();
        Ok(Self { device, strategy, depth, streams, records: false, timeline: Vec::new() })
    }

    /// The device on which it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How it orders its work.
    pub fn strategy(&self) -> Strategy {
        self.strategy
    }

    /// How many items have buffers at the same time.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Says whether later runs note when each stage ran, for [`Self::timeline`]. It costs six more events per item, and
    /// memory for each item.
    pub fn record_timeline(&mut self, record: bool) {
        self.records = record;
    }

    /// When the stages of the last run's items ran, as far as they were given to `take`; empty unless it was recorded.
    pub fn timeline(&self) -> &[ItemTimes] {
        &self.timeline
    }

    /// Takes every input through the pipeline.
    ///
    /// - `inputs` yields the next input while the device works on earlier ones, so reading a file there costs no time
    ///   as long as it is faster than the device. Its items are returned to `take`.
    ///   Page-locked memory is copied fastest.
    /// - `output_len` maps an input's length to its number of results. Lengths may differ from item to
    ///   item; buffers grow to the longest.
    /// - `compute` enqueues the work on the stream that it is given, which is also the current one, and does not wait
    ///   for it. The input has the item's length, the output that of `output_len` and any content.
    /// - `take` is given each item's number, its input and its results, in order: when the item `depth` places later
    ///   needs the results' buffer, and at the end. While `inputs` makes the caller wait, it is given nothing. It may
    ///   work on the host; the device continues meanwhile. The buffer is used again; `std::mem::replace` keeps it.
    ///
    /// # Errors
    /// The first failure, with its item and stage; after it nothing is enqueued, what was enqueued is waited for, and
    /// the inputs that were not given to `take` are dropped. When a kernel stops the device, the item is the first that
    /// was not done.
    ///
    /// # Panics
    /// When a closure or `inputs` panics; what was enqueued is waited for first.
    pub fn run<S: HostMemory, U: DeviceCopy>(
        &mut self,
        inputs: impl IntoIterator<Item = std::result::Result<S, Failure>>,
        mut output_len: impl FnMut(usize) -> usize,
        mut compute: impl FnMut(
            &Stream,
            DeviceSlice<'_, S::Element>,
            DeviceSliceMut<'_, U>,
        ) -> std::result::Result<(), Failure>,
        mut take: impl FnMut(usize, S, &mut PinnedBuffer<U>) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), PipelineError> {
        let mut run = Run::new(self);
        for input in inputs {
            run.enqueue(input, &mut output_len, &mut compute, &mut take)?;
        }
        run.finish(&mut take)
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipeline({:?}, depth {}, on {})", self.strategy, self.depth, self.device.id())
    }
}
