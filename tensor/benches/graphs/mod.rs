//! Graphs of several calls, and of read probes that read the same bytes.

use half::bf16;
use test_kernels::tensor_cores::{READ_THREADS, read_rate};
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, Graph, GraphExec, Launch, Result, Stream};

const ROUNDS: usize = 9;
/// Number of bytes that all calls of a graph read, unless a single call reads more. It exceeds the L2 cache several
/// times.
const ALL_BYTES: usize = 512 << 20;
/// Maximum number of calls per graph.
const MAX_CALLS: usize = 64;

/// Returns the number of calls per graph, where each call reads `bytes` bytes.
pub fn calls(stream: &Stream, bytes: usize) -> usize {
    if stream.device().is_emulated() { 1 } else { (ALL_BYTES / bytes).clamp(1, MAX_CALLS) }
}

/// Returns a graph that reads the numbers of each call, and a buffer that it uses.
pub fn probe<'a>(
    stream: &Stream,
    calls: usize,
    numbers: impl Fn(usize) -> Result<DeviceSlice<'a, u32>>,
) -> Result<(GraphExec, DeviceBuffer<u32>)> {
    let is_emulated = stream.device().is_emulated();
    let blocks = if is_emulated { 1 } else { 4 * stream.device().properties().multiprocessors };
    let mut found = DeviceBuffer::<u32>::zeros(stream, 1)?;
    let kernel = stream.device().load(&test_kernels::IMAGE)?.kernel::<read_rate>()?;
    let mut read = |call: usize| {
        let launch = Launch::grid_block(blocks, READ_THREADS);
        // SAFETY: the numbers of a call start on a 16-byte boundary.
        unsafe { kernel.launch_unsafe(stream, launch, (numbers(call)?, &mut found)) }
    };
    read(0)?;
    let graph = Graph::capture(stream, || (0..calls).try_for_each(&mut read))?.instantiate()?;
    Ok((graph, found))
}

/// Returns a buffer with normally distributed numbers, which repeat after a million or more.
pub fn normals(stream: &Stream, len: usize) -> Result<DeviceBuffer<bf16>> {
    let mut random = fastrand::Rng::with_seed(len as u64);
    let mut pair = || {
        let radius = (-2.0 * (1.0 - random.f32()).ln()).sqrt();
        let angle = random.f32() * std::f32::consts::TAU;
        [radius * angle.cos(), radius * angle.sin()]
    };
    let table: Vec<bf16> =
        (0..(1 << 20).min(len.div_ceil(2))).flat_map(|_| pair()).map(bf16::from_f32).collect();
    let table = DeviceBuffer::from_host(stream, &table[..len.min(table.len())])?;
    let mut buffer = DeviceBuffer::<bf16>::uninit(stream, len)?;
    let mut first = 0;
    while first < len {
        let count = table.len().min(len - first);
        stream.copy(table.slice(..count), buffer.slice_mut(first..first + count))?;
        first += count;
    }
    Ok(buffer)
}

/// Returns the median microseconds per call of both graphs, each with its number of calls.
pub fn medians(stream: &Stream, graphs: [(usize, &GraphExec); 2]) -> Result<[f64; 2]> {
    let is_emulated = stream.device().is_emulated();
    let time = |(calls, graph): (usize, &GraphExec), count: usize| -> Result<f64> {
        let start = stream.record_timed_event()?;
        (0..count).try_for_each(|_| graph.launch(stream))?;
        let end = stream.record_timed_event()?;
        stream.synchronize()?;
        Ok(end.elapsed_us(&start)? / (count * calls) as f64)
    };
    let once = time(graphs[0], 2)?.max(0.1) * graphs[0].0 as f64;
    let seconds =
        std::env::var("WARPSMITH_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let (rounds, round_us) =
        if is_emulated { (1, 0.0) } else { (ROUNDS, seconds * 1e6 / ROUNDS as f64 / 2.0) };
    let count = ((round_us / once) as usize).clamp(1, 2000);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (times, graph) in times.iter_mut().zip(graphs) {
            times.push(time(graph, count)?);
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}
