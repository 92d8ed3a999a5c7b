//! The kernels of `ops` beside CUB and PyTorch, size by size; `docs/kernels.md` has the table.
//!
//! `kernels [--list] [--peers LIBRARY] [--torch FILE] [FILTER]`. `WARPSMITH_BENCH_DEVICE` names the device, by default the best
//! there is. LIBRARY is `peers/kernels.cu`, compiled: its functions run on our stream and our arrays, in turns with ours, timed by
//! one loop. FILE is what `peers/kernels.py` wrote for the cases that `--list` prints. `run-kernels` of the bundle does all of it.
//!
//! A time is that of a launch among many between two events: what the host does for a launch counts where it takes longer than the
//! kernel. Each launch works on arrays that no longer are in the L2 cache. Medians of batches.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};

use half::bf16;
use libloading::Library;
use warpsmith::driver::DevicePtr;
use warpsmith::ops::{self, Number, Real};
use warpsmith::prelude::*;
use warpsmith::random;

type Failure = Box<dyn std::error::Error>;

/// The arrays of all sets together take at least this number of bytes, more than an L2 cache holds.
const COLD_BYTES: usize = 256 << 20;
/// How long a batch takes, about.
const BATCH_US: f64 = 2000.0;
/// Batches of each side.
const BATCHES: usize = 15;

/// An operation on one type and size.
#[derive(Clone)]
struct Case {
    operation: &'static str,
    dtype: &'static str,
    rows: usize,
    columns: usize,
}

impl Case {
    fn elements(&self) -> usize {
        self.rows * self.columns
    }

    /// Elements of the input read, and of the output written, for each element of the size.
    fn traffic(&self) -> f64 {
        match self.operation {
            "axpy" | "add" => 3.0,
            "sum" | "max" | "argmax" | "row_sum" | "column_sum" | "histogram" | "fill" => 1.0,
            // Half of the elements are kept.
            "select" => 1.5,
            // Keys and values.
            "sort_pairs" => 4.0,
            _ => 2.0,
        }
    }

    fn bytes(&self) -> f64 {
        let element = match self.dtype {
            "u8" => 1.0,
            "bf16" | "f16" => 2.0,
            "f64" | "u64" => 8.0,
            _ => 4.0,
        };
        self.traffic() * self.elements() as f64 * element
    }

    fn size(&self) -> String {
        match self.rows {
            1 if self.columns.is_power_of_two() => format!("2^{}", self.columns.ilog2()),
            1 => self.columns.to_string(),
            rows => format!("{rows} × {}", self.columns),
        }
    }
}

/// All cases on a GPU; small ones on the emulated device, where they only show that everything runs.
fn cases(emulated: bool) -> Vec<Case> {
    let flat: &[u32] = if emulated { &[12] } else { &[12, 16, 20, 24, 28] };
    let mut cases = Vec::new();
    for (operation, dtypes) in FLAT {
        for &dtype in dtypes.iter() {
            for &log in flat {
                cases.push(Case { operation, dtype, rows: 1, columns: 1 << log });
            }
        }
    }
    cases
}

/// Operations on a whole array, with their types.
const FLAT: [(&str, &[&str]); 9] = [
    ("copy", &["f32"]),
    ("relu", &["f32", "bf16"]),
    ("gelu", &["f32", "bf16"]),
    ("exp", &["f32", "bf16"]),
    ("add", &["f32", "bf16"]),
    ("axpy", &["f32", "bf16"]),
    ("sum", &["f32", "bf16"]),
    ("max", &["f32", "bf16"]),
    ("argmax", &["f32", "bf16"]),
];

/// What CUB's functions of `kernels.cu` are given.
#[repr(C)]
struct Arrays {
    x: *const c_void,
    y: *const c_void,
    out: *mut c_void,
    second_out: *mut c_void,
    n: usize,
    rows: usize,
    columns: usize,
}

type PeerRun = unsafe extern "C" fn(*mut c_void, *mut usize, *const Arrays, *mut c_void) -> c_int;
type PeerFind = unsafe extern "C" fn(*const c_char, *const c_char) -> Option<PeerRun>;

/// The arrays of a case: `sets` times its size, one after the other.
struct Data<T: Number> {
    n: usize,
    sets: usize,
    x: DeviceBuffer<T>,
    y: DeviceBuffer<T>,
    out: DeviceBuffer<T>,
    sum: DeviceBuffer<T::DeviceSum>,
    extreme: DeviceBuffer<T::DeviceExtreme>,
    /// Indices, counts, bins, and what CUB writes beside its output.
    words: DeviceBuffer<u64>,
}

impl<T: Number> Data<T> {
    fn new(stream: &Stream, case: &Case) -> warpsmith::Result<Self> {
        let n = case.elements();
        let sets = (COLD_BYTES / (2 * n * size_of::<T>()).max(1)).clamp(1, 4096);
        Ok(Self {
            n,
            sets,
            x: DeviceBuffer::uninit(stream, sets * n)?,
            y: DeviceBuffer::uninit(stream, sets * n)?,
            out: DeviceBuffer::uninit(stream, sets * n)?,
            sum: DeviceBuffer::uninit(stream, case.rows)?,
            extreme: DeviceBuffer::uninit(stream, case.rows)?,
            words: DeviceBuffer::uninit(stream, n.max(1024))?,
        })
    }

    /// CUB's view of a set.
    fn arrays(&self, case: &Case, set: usize) -> Arrays {
        let offset = (set * self.n * size_of::<T>()) as u64;
        let at = |ptr: DevicePtr| (ptr.0 + offset) as *mut c_void;
        Arrays {
            x: at(self.x.as_device_ptr()),
            y: at(self.y.as_device_ptr()),
            out: at(self.out.as_device_ptr()),
            second_out: self.words.as_device_ptr().0 as *mut c_void,
            n: self.n,
            rows: case.rows,
            columns: case.columns,
        }
    }
}

/// Enqueues our operation on a set; `None` where there is none of the name.
fn ours<T: Real>(
    stream: &Stream,
    case: &Case,
    data: &mut Data<T>,
    set: usize,
) -> Option<warpsmith::Result<()>> {
    let range = set * data.n..(set + 1) * data.n;
    let (x, y, out) = (data.x.slice(range.clone()), data.y.slice(range.clone()), data.out.slice_mut(range));
    Some(match case.operation {
        "copy" => ops::copy(stream, x, out),
        "relu" => ops::relu(stream, x, out),
        "gelu" => ops::gelu(stream, x, out),
        "exp" => ops::exp(stream, x, out),
        "add" => ops::add(stream, x, y, out),
        "axpy" => ops::axpy(stream, T::from_f64(1.5), x, out),
        "sum" => ops::sum_into(stream, x, &mut data.sum),
        "max" => ops::max_into(stream, x, &mut data.extreme),
        "argmax" => ops::argmax_into(stream, x, data.words.slice_mut(..1)),
        _ => return None,
    })
}

/// Medians of both sides, in microseconds a launch.
struct Times {
    ours: Option<f64>,
    cub: Option<f64>,
}

/// Times our side and CUB's in turns.
fn measure<T: Real>(stream: &Stream, case: &Case, peers: Option<&Library>) -> Result<Times, Failure> {
    let mut data = Data::<T>::new(stream, case)?;
    let generator = random::default_generator(stream.device());
    random::uniform(stream, &generator, &mut data.x)?;
    random::uniform(stream, &generator, &mut data.y)?;
    let peer = match peers {
        Some(library) => find(library, case)?,
        None => None,
    };
    let memory = match peer {
        Some(run) => {
            let mut bytes = 0;
            // SAFETY: without memory the function writes the number of bytes, and nothing else.
            check(unsafe {
                run(std::ptr::null_mut(), &mut bytes, &data.arrays(case, 0), std::ptr::null_mut())
            })?;
            Some(DeviceBuffer::<u8>::uninit(stream, bytes.max(1))?)
        }
        None => None,
    };
    let has_ours = ours(stream, case, &mut data, 0).transpose()?.is_some();
    let mut batches = [Vec::new(), Vec::new()];
    let mut launches = [0; 2];
    for batch in 0..=BATCHES {
        for (side, times) in batches.iter_mut().enumerate() {
            if (side == 0 && !has_ours) || (side == 1 && peer.is_none()) {
                continue;
            }
            let mut time = |launches: usize| -> Result<f64, Failure> {
                let (start, end) = (Event::timed(stream.device())?, Event::timed(stream.device())?);
                start.record(stream)?;
                for launch in 0..launches {
                    let set = launch % data.sets;
                    if let (1, Some(run), Some(memory)) = (side, peer, &memory) {
                        let (room, mut bytes) = (memory.as_device_ptr().0 as *mut c_void, memory.len());
                        let arrays = data.arrays(case, set);
                        // SAFETY: the arrays are of the case's type and size and live until the end of the batch; the stream is
                        // that of all their other uses; the memory has the bytes that the function asked for.
                        check(unsafe { run(room, &mut bytes, &arrays, stream.handle().0 as *mut c_void) })?;
                    } else {
                        ours(stream, case, &mut data, set).transpose()?;
                    }
                }
                end.record(stream)?;
                end.synchronize()?;
                Ok(end.elapsed_us(&start)? / launches as f64)
            };
            if batch == 0 {
                time(3)?;
                launches[side] = ((BATCH_US / time(5)?) as usize).clamp(1, 2000);
            } else {
                times.push(time(launches[side])?);
            }
        }
    }
    let [ours, cub] = batches.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied()
    });
    Ok(Times { ours, cub })
}

/// CUB's function for the case, if it has one.
fn find(library: &Library, case: &Case) -> Result<Option<PeerRun>, Failure> {
    let (operation, dtype) = (CString::new(case.operation)?, CString::new(case.dtype)?);
    // SAFETY: `kernels.cu` declares the function so; both names end in 0.
    Ok(unsafe { library.get::<PeerFind>(b"peer_find\0")?(operation.as_ptr(), dtype.as_ptr()) })
}

fn check(code: c_int) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(format!("CUB: CUDA error {code}").into()) }
}

/// PyTorch's times by case, from the file that `kernels.py` wrote.
fn torch_times(path: &str) -> Result<BTreeMap<String, f64>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let mut times = BTreeMap::new();
    for line in text.lines() {
        let (case, us) =
            line.rsplit_once('\t').ok_or_else(|| format!("{path}: {line:?} is not a case and a time"))?;
        times.insert(case.to_owned(), us.parse()?);
    }
    Ok(times)
}

/// The value after an option.
fn option(arguments: &[String], name: &str) -> Result<Option<String>, Failure> {
    let Some(at) = arguments.iter().position(|argument| argument == name) else { return Ok(None) };
    let value = arguments.get(at + 1).ok_or_else(|| format!("{name} needs a value"))?;
    Ok(Some(value.clone()))
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => Device::open(&name).map_err(|error| format!("WARPSMITH_BENCH_DEVICE={name}: {error}"))?,
        Err(_) => Device::best()?,
    };
    let [peers, torch] = [option(&arguments, "--peers")?, option(&arguments, "--torch")?];
    let filter = arguments.iter().enumerate().find(|(at, argument)| {
        !argument.starts_with("--")
            && (*at == 0 || !matches!(arguments[at - 1].as_str(), "--peers" | "--torch"))
    });
    let filter = filter.map_or("", |(_, filter)| filter);
    let cases = cases(device.is_emulated()).into_iter().filter(|case| case.operation.starts_with(filter));
    if arguments.iter().any(|argument| argument == "--list") {
        for Case { operation, dtype, rows, columns } in cases {
            println!("{operation}\t{dtype}\t{rows}\t{columns}");
        }
        return Ok(());
    }
    // SAFETY: the library is `kernels.cu`, whose initialisers touch nothing of ours.
    let peers = peers.map(|path| unsafe { Library::new(path) }).transpose()?;
    let torch = torch.map(|path| torch_times(&path)).transpose()?.unwrap_or_default();
    let stream = Stream::new(&device)?;
    println!("{}", device.name());
    println!("| operation | type | size | ours us | CUB us | PyTorch us | ours GB/s | to CUB | to PyTorch |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for case in cases {
        let times = match case.dtype {
            "bf16" => measure::<bf16>(&stream, &case, peers.as_ref())?,
            _ => measure::<f32>(&stream, &case, peers.as_ref())?,
        };
        device.memory().empty_cache()?;
        let key = format!("{}\t{}\t{}\t{}", case.operation, case.dtype, case.rows, case.columns);
        let torch = torch.get(&key).copied();
        let us = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
        let ratio = |peer: Option<f64>| match (peer, times.ours) {
            (Some(peer), Some(ours)) => format!("{:.2}", peer / ours),
            _ => "-".to_owned(),
        };
        let rate = times.ours.map_or_else(|| "-".to_owned(), |us| format!("{:.0}", case.bytes() / us / 1e3));
        println!(
            "| {} | {} | {} | {} | {} | {} | {rate} | {} | {} |",
            case.operation,
            case.dtype,
            case.size(),
            us(times.ours),
            us(times.cub),
            us(torch),
            ratio(times.cub),
            ratio(torch),
        );
    }
    Ok(())
}
