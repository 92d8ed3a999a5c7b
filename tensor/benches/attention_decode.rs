//! Benchmark of attention for decoding: one query per sequence, 32 heads of `q` that share 8 heads of `k` and `v`, 128
//! elements per head, `bf16`.
//!
//! Each figure is the time per call in a graph of several calls, whose caches differ, so that no call finds its cache
//! in the L2 cache. The read probe reads the same bytes in the same way. Both alternate, and each figure is the median
//! of the rounds.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the emulated device runs only a short sequence. Arguments are cases of
//! the form `SEQUENCES:KEYS:CACHE`, where the cache is `contiguous` or `paged` with a page size, such as
//! `16:8192:paged16`. A third part is the number of heads of `q` per head of `k`, 4 by default, and a fourth part the
//! type of the cache: `bf16` (by default), `f8e4m3` or `i8`.
//! `WARPSMITH_BENCH_SECONDS` is the time per case, 1 by default.

mod graphs;

use half::bf16;
use warpsmith_runtime::{Device, DeviceBuffer, Graph, Result, Stream};
use warpsmith_tensor::{AttentionDecode, CacheElement, F8E4M3, Heads, HeadsMut, KvCache, attention_decode};

use self::graphs::{calls, medians, normals, probe};

const DIM: usize = 128;
/// Heads of k and v.
const HEADS: usize = 8;

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
            Some(case) => match case.cache.as_str() {
                "bf16" => measure::<bf16>(&stream, &case)?,
                "f8e4m3" => measure::<F8E4M3>(&stream, &case)?,
                "i8" => measure::<i8>(&stream, &case)?,
                other => println!("{text}: no cache of {other}"),
            },
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
    /// Type of the cache.
    cache: String,
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
        let cache = parts.next().unwrap_or("bf16").to_owned();
        Some(Self { name: text.to_owned(), sequences, keys, page, group, cache })
    }

    /// Number of planes of k and v, and rows per plane.
    fn planes(&self) -> [usize; 2] {
        match self.page {
            Some(page) => [self.sequences * self.keys.div_ceil(page), page],
            None => [self.sequences, self.keys],
        }
    }
}

fn measure<C: CacheElement<bf16>>(stream: &Stream, case: &Case) -> Result<()> {
    let Case { sequences, keys, group, .. } = *case;
    let [planes, rows] = case.planes();
    let heads = HEADS * group;
    // The elements of k and of v that a call reads.
    let len = sequences * keys * HEADS * DIM;
    let stored = planes * rows * HEADS * DIM;
    let calls = calls(stream, 2 * size_of::<C>() * stored);
    // In a cache of 8 bits, the numbers are arbitrary.
    let numbers = normals(stream, calls * size_of::<C>() * stored)?;
    let caches = numbers.as_slice().cast::<C>()?;
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
        let cache = KvCache { k: half(0)?, v: half(1)?, lengths: lengths.as_slice(), pages, scales: None };
        let q = Heads::by_token(q.as_3d(sequences, heads, DIM)?, sequences)?;
        let to = HeadsMut::by_token(out.as_3d_mut(sequences, heads, DIM)?, sequences)?;
        attention_decode(stream, &AttentionDecode::default(), q, &cache, to)
    };
    // The first call loads the kernel and allocates the workspace.
    attend(0)?;
    let ours = Graph::capture(stream, || (0..calls).try_for_each(&mut attend))?.instantiate()?;

    let (probe, _found) = probe(stream, calls, |call| {
        let first = call * stored;
        numbers.as_slice().cast::<C>()?.slice(2 * first..2 * (first + len)).cast()
    })?;
    let [ours_us, probe_us] = medians(stream, [(calls, &ours), (calls, &probe)])?;
    let bytes = (2 * size_of::<C>() * len) as f64;
    println!(
        "{} {heads} heads: {ours_us:9.2} us {:7.1} GB/s, read probe {probe_us:9.2} us {:7.1} GB/s, ratio {:.3}",
        case.name,
        bytes / ours_us / 1e3,
        bytes / probe_us / 1e3,
        probe_us / ours_us
    );
    Ok(())
}
