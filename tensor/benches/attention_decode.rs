//! Benchmark of attention for decoding: one query per sequence, 32 heads of `q` that share 8 heads of `k` and `v`, 128
//! elements per head, `bf16`.
//!
//! Each figure is the time per call in a graph of several calls, whose caches differ, so that no call finds its cache in
//! the L2 cache. The read probe reads the same bytes in the same way. Both alternate, and each figure is the median of
//! the rounds.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the emulated device runs only a short sequence. Arguments are cases of the
//! form `SEQUENCES:KEYS:CACHE`, where the cache is `contiguous` or `paged` with a page size, such as `16:8192:paged16`.
//! `:GROUP` at the end is the number of heads of `q` per head of `k`, 4 by default. `WARPSMITH_BENCH_SECONDS` is the
//! time per case, 1 by default.

use half::bf16;
use test_kernels::tensor_cores::{READ_THREADS, read_rate};
use warpsmith_runtime::{Device, DeviceBuffer, Graph, GraphExec, Launch, Result, Stream};
use warpsmith_tensor::{AttentionDecode, Heads, HeadsMut, KvCache, attention_decode};

const ROUNDS: usize = 9;
const DIM: usize = 128;
/// Heads of k and v.
const HEADS: usize = 8;
/// Number of bytes of all caches of a case, unless a single one is larger. It exceeds the L2 cache several times.
const ALL_BYTES: usize = 512 << 20;
/// Maximum number of calls per graph.
const MAX_CALLS: usize = 64;

fn main() -> Result<()> {
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    let stream = Stream::new(&device)?;
    println!("{}", device.name());
    // The arguments of cargo itself, such as `--bench`, are not cases.
    let mut cases: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if device.is_emulated() {
        cases = vec!["1:100:contiguous".to_owned(), "1:100:paged16:8".to_owned()];
    } else if cases.is_empty() {
        let lengths = [1024, 2048, 4096, 8192, 16384, 32768, 65536];
        let all = [1, 16, 64].into_iter().flat_map(|sequences| lengths.map(|keys| (sequences, keys)));
        cases = all
            .flat_map(|(sequences, keys)| {
                ["contiguous", "paged16"].map(|cache| format!("{sequences}:{keys}:{cache}"))
            })
            .collect();
    }
    for text in &cases {
        match Case::of(text) {
            Some(case) => measure(&stream, &case)?,
            None => println!("{text}: no case, such as 16:8192:paged16 or 1:1024:contiguous:8"),
        }
    }
    Ok(())
}

/// Problem of one case.
struct Case {
    name: String,
    sequences: usize,
    keys: usize,
    /// Page size of a paged cache.
    page: Option<usize>,
    /// Number of heads of q per head of k and v.
    group: usize,
}

impl Case {
    /// Parses a case. Returns `None` if the text is not a case.
    fn of(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let mut number = || parts.next()?.parse().ok().filter(|&number: &usize| number > 0);
        let (sequences, keys) = (number()?, number()?);
        let page = match parts.next()? {
            "contiguous" => None,
            paged => Some(paged.strip_prefix("paged")?.parse().ok().filter(|&page| page > 0)?),
        };
        let group = parts.next().map_or(Some(4), |text| text.parse().ok())?;
        Some(Self { name: text.to_owned(), sequences, keys, page, group })
    }

    /// Number of planes of k and v, and rows per plane.
    fn planes(&self) -> [usize; 2] {
        match self.page {
            Some(page) => [self.sequences * self.keys.div_ceil(page), page],
            None => [self.sequences, self.keys],
        }
    }
}

/// Returns a buffer with normally distributed numbers, which repeat after a million or more.
fn normals(stream: &Stream, len: usize) -> Result<DeviceBuffer<bf16>> {
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

fn measure(stream: &Stream, case: &Case) -> Result<()> {
    let Case { sequences, keys, group, .. } = *case;
    let [planes, rows] = case.planes();
    let heads = HEADS * group;
    // The elements of k and of v that a call reads.
    let len = sequences * keys * HEADS * DIM;
    let stored = planes * rows * HEADS * DIM;
    let is_emulated = stream.device().is_emulated();
    let calls = if is_emulated { 1 } else { (ALL_BYTES / (4 * stored)).clamp(1, MAX_CALLS) };
    let caches = normals(stream, calls * 2 * stored)?;
    let q = normals(stream, sequences * heads * DIM)?;
    let mut out = DeviceBuffer::<bf16>::uninit(stream, q.len())?;
    let lengths = DeviceBuffer::from_host(stream, &vec![keys as u32; sequences])?;
    let mut table: Vec<u32> = (0..planes as u32).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut table);
    let table = DeviceBuffer::from_host(stream, &table)?;
    let pages = case.page.map(|page| table.as_2d(sequences, keys.div_ceil(page))).transpose()?;
    let mut attend = |call: usize| {
        let half = |which: usize| {
            let first = (2 * call + which) * stored;
            Heads::by_token(caches.slice(first..first + stored).as_3d(planes * rows, HEADS, DIM)?, planes)
        };
        let cache = KvCache { k: half(0)?, v: half(1)?, lengths: lengths.as_slice(), pages };
        let q = Heads::by_token(q.as_3d(sequences, heads, DIM)?, sequences)?;
        let to = HeadsMut::by_token(out.as_3d_mut(sequences, heads, DIM)?, sequences)?;
        attention_decode(stream, &AttentionDecode::default(), q, &cache, to)
    };
    // The first call loads the kernel and allocates the workspace.
    attend(0)?;
    let ours = Graph::capture(stream, || (0..calls).try_for_each(&mut attend))?.instantiate()?;

    let blocks = if is_emulated { 1 } else { 4 * stream.device().properties().multiprocessors };
    let mut found = DeviceBuffer::<u32>::zeros(stream, 1)?;
    let kernel = stream.device().load(&test_kernels::IMAGE)?.kernel::<read_rate>()?;
    let numbers = caches.as_slice().cast::<u32>()?;
    let mut read = |call: usize| {
        let numbers = numbers.slice(call * stored..call * stored + len);
        // SAFETY: the numbers start on a 16-byte boundary, since each cache does.
        unsafe {
            kernel.launch_unsafe(stream, Launch::grid_block(blocks, READ_THREADS), (numbers, &mut found))
        }
    };
    read(0)?;
    let probe = Graph::capture(stream, || (0..calls).try_for_each(&mut read))?.instantiate()?;

    let [ours_us, probe_us] = medians(stream, calls, [&ours, &probe])?;
    let bytes = (4 * len) as f64;
    println!(
        "{} {heads} heads: {ours_us:9.2} us {:7.1} GB/s, read probe {probe_us:9.2} us {:7.1} GB/s, ratio {:.3}",
        case.name,
        bytes / ours_us / 1e3,
        bytes / probe_us / 1e3,
        probe_us / ours_us
    );
    Ok(())
}

/// Returns the median microseconds per call of both graphs of `calls` calls.
fn medians(stream: &Stream, calls: usize, graphs: [&GraphExec; 2]) -> Result<[f64; 2]> {
    let is_emulated = stream.device().is_emulated();
    let time = |graph: &GraphExec, count: usize| -> Result<f64> {
        let start = stream.record_timed_event()?;
        (0..count).try_for_each(|_| graph.launch(stream))?;
        let end = stream.record_timed_event()?;
        stream.synchronize()?;
        Ok(end.elapsed_us(&start)? / (count * calls) as f64)
    };
    let once = time(graphs[0], 2)?.max(0.1) * calls as f64;
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
