//! Selection of an algorithm by timing.

use super::super::handle;
use super::plan::{self, Key, Plan, Pointers};
use warpsmith_runtime::extension::BufferUse;
use warpsmith_runtime::{DeviceBuffer, DeviceCopy, Result, Stream};

/// Returns a plan that uses the fastest of the first `candidates` algorithms. Each algorithm runs once and then
/// `repeats` times between two events on the stream. The runs write to a separate buffer instead of the output of the
/// call. Algorithms that fail are skipped. Ties are resolved in the order of the heuristics.
pub(super) fn fastest<S, C: DeviceCopy>(
    stream: &Stream,
    key: &Key,
    pointers: &Pointers,
    scalars: &(S, S),
    (inputs, mut output): (&[BufferUse<'_>], DeviceBuffer<C>),
    candidates: usize,
    repeats: usize,
) -> Result<Plan> {
    let mut plan = plan::make(stream, key, pointers, candidates)?;
    let (count, bytes) = plan.choices();
    if count < 2 {
        return Ok(plan);
    }
    let pointers = Pointers { d: output.as_device_ptr().0, ..*pointers };
    let output = output.as_mut_slice();
    let mut times = Vec::new();
    for index in 0..count {
        let run = || enqueue(stream, &plan, index, &pointers, scalars, (inputs, &output.used()), bytes);
        if run().is_err() {
            continue;
        }
        let start = stream.record_timed_event()?;
        if (0..repeats.max(1)).try_for_each(|_| run()).is_err() {
            continue;
        }
        times.push((index, start, stream.record_timed_event()?));
    }
    stream.synchronize()?;
    let mut best: Option<(usize, f64)> = None;
    for (index, start, end) in times {
        let time = end.elapsed_us(&start)?;
        if best.is_none_or(|(_, minimum)| time < minimum) {
            best = Some((index, time));
        }
    }
    if let Some((index, _)) = best {
        plan.choose(index);
    }
    Ok(plan)
}

fn enqueue<S>(
    stream: &Stream,
    plan: &Plan,
    index: usize,
    pointers: &Pointers,
    scalars: &(S, S),
    (inputs, output): (&[BufferUse<'_>], &BufferUse<'_>),
    bytes: usize,
) -> Result<()> {
    let mut parts: Vec<BufferUse<'_>> = Vec::with_capacity(inputs.len() + 1);
    parts.extend(inputs.iter().chain([output]).cloned());
    handle::enqueue_lt(stream, &parts, bytes, |handle, workspace, stream_handle| {
        // SAFETY: the operands lie inside the parts, the output has its own part, and the workspace is large enough for
        // every candidate.
        unsafe { plan.run(index, handle, pointers, scalars, workspace, stream_handle) }
    })
}
