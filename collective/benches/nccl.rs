//! Benchmark of `all_reduce` with NCCL, through a communicator and with raw NCCL calls in the same run. Each GPU of the
//! machine is a rank, on its own thread.
//!
//! The host time per call is the minimum over many rounds of 100 consecutive calls. Bandwidth is NCCL's bus bandwidth:
//! bytes times 2 (n - 1) / n, divided by the time per call.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use libloading::Library;
use warpsmith_collective::{BackendChoice, Communicator, CommunicatorOptions, ReduceOp, nccl_library};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const CALLS: u32 = 100;
const ROUNDS: usize = 50;
const SIZES: [usize; 8] = [1 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30];

#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

type AllReduce =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;

/// NCCL communicator, as a program without Warpsmith uses it.
struct Raw {
    library: Library,
    comm: *mut c_void,
    all_reduce: AllReduce,
}

impl Raw {
    fn new(id: UniqueId, rank: usize, world: usize, device: &Device) -> Result<Self> {
        // SAFETY: NCCL is already loaded; its functions have these signatures, and the pointer points to a local
        // variable.
        unsafe {
            let library = open()?;
            let init: unsafe extern "C" fn(*mut *mut c_void, c_int, UniqueId, c_int) -> c_int =
                *library.get(b"ncclCommInitRank")?;
            let all_reduce = *library.get(b"ncclAllReduce")?;
            let mut raw = Self { library, comm: std::ptr::null_mut(), all_reduce };
            let _calls = device.bind()?;
            match init(&mut raw.comm, world as c_int, id, rank as c_int) {
                0 => Ok(raw),
                status => Err(format!("ncclCommInitRank failed with {status}").into()),
            }
        }
    }

    fn id() -> Result<UniqueId> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: as above.
        let status = unsafe {
            let library = open()?;
            let get: unsafe extern "C" fn(*mut UniqueId) -> c_int = *library.get(b"ncclGetUniqueId")?;
            get(&mut id)
        };
        if status == 0 { Ok(id) } else { Err(format!("ncclGetUniqueId failed with {status}").into()) }
    }

    /// Enqueues an in-place sum of `f32`.
    fn all_reduce(&self, x: &mut DeviceBuffer<f32>, stream: &Stream) {
        let address = std::ptr::with_exposed_provenance_mut::<c_void>(x.as_device_ptr().0 as usize);
        let stream = std::ptr::with_exposed_provenance_mut(stream.handle().0 as usize);
        // SAFETY: the buffer lives until the stream is synchronized; only this thread uses the communicator.
        let status = unsafe { (self.all_reduce)(address, address, x.len(), 7, 0, self.comm, stream) };
        assert_eq!(status, 0, "ncclAllReduce failed");
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the communicator is not used again; the function has this signature.
        unsafe {
            if let Ok(destroy) =
                self.library.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(b"ncclCommDestroy")
            {
                destroy(self.comm);
            }
        }
    }
}

/// # Safety
/// NCCL's initializers must be safe to run.
unsafe fn open() -> Result<Library> {
    let path = nccl_library()?.path.ok_or("where NCCL lies is not known")?;
    // SAFETY: forwarded from the caller.
    Ok(unsafe { Library::new(path) }?)
}

/// State of a rank's measurements.
struct Harness<'a> {
    ranks: Communicator,
    raw: Raw,
    stream: Stream,
    together: &'a Barrier,
}

impl Harness<'_> {
    /// Returns the host time per call, in microseconds.
    fn host_us(&mut self, mut call: impl FnMut(&mut Self)) -> Result<f64> {
        let mut minimum = f64::INFINITY;
        for _ in 0..ROUNDS {
            self.stream.synchronize()?;
            self.together.wait();
            let begun = Instant::now();
            (0..CALLS).for_each(|_| call(self));
            minimum = minimum.min(begun.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
        }
        self.stream.synchronize()?;
        Ok(minimum)
    }

    /// Returns the device time per call, in microseconds.
    fn device_us(&mut self, calls: u32, mut call: impl FnMut(&mut Self)) -> Result<f64> {
        let mut all = Vec::new();
        for _ in 0..7 {
            call(self);
            self.stream.synchronize()?;
            self.together.wait();
            let begun = Instant::now();
            (0..calls).for_each(|_| call(self));
            self.stream.synchronize()?;
            all.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(calls));
        }
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }

    fn measure(&mut self) -> Result<()> {
        let (rank, world, stream) = (self.ranks.rank(), self.ranks.world_size(), self.stream.clone());
        let mut x = DeviceBuffer::<f32>::zeros(&stream, 256)?;
        let raw = self.host_us(|harness| harness.raw.all_reduce(&mut x, &stream))?;
        let ours = self.host_us(|harness| drop(harness.ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)))?;
        if rank == 0 {
            println!("host, us per call: raw {raw:.2}, communicator {ours:.2}, more by {:.2}", ours - raw);
            println!(
                "{:>12} {:>12} {:>12} {:>9} {:>9} {:>6}",
                "bytes", "raw us", "us", "raw GB/s", "GB/s", "ratio"
            );
        }
        for bytes in SIZES {
            let mut x = DeviceBuffer::<f32>::zeros(&stream, bytes / 4)?;
            let calls = if bytes < 8 << 20 { 100 } else { 10 };
            let raw = self.device_us(calls, |harness| harness.raw.all_reduce(&mut x, &stream))?;
            let ours = self
                .device_us(calls, |harness| drop(harness.ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)))?;
            let bus = |us: f64| bytes as f64 / us / 1e3 * 2.0 * (world - 1) as f64 / world as f64;
            if rank == 0 {
                let (raw_bus, bus) = (bus(raw), bus(ours));
                println!(
                    "{bytes:>12} {raw:>12.1} {ours:>12.1} {raw_bus:>9.1} {bus:>9.1} {:>6.3}",
                    raw / ours
                );
            }
        }
        Ok(())
    }
}

fn main() -> Result<()> {
    let gpus = Device::cuda_count()?;
    if gpus == 0 {
        return Err("there is no GPU to measure".into());
    }
    let library = nccl_library()?;
    println!("NCCL {library}, {gpus} ranks");
    let streams: Vec<Stream> = (0..gpus)
        .map(|ordinal| Stream::new(&Device::open(&format!("cuda:{ordinal}"))?))
        .collect::<std::result::Result<_, _>>()?;
    let options = CommunicatorOptions::new().backend(BackendChoice::Nccl).timeout(Duration::from_secs(60));
    let ranks = Communicator::init_all(&streams, &options)?;
    let (id, world) = (Raw::id()?, ranks.len());
    let (together, failed) = (Barrier::new(world), Mutex::new(None));
    let failed = Arc::new(failed);
    std::thread::scope(|scope| {
        for ranks in ranks {
            let (together, failed) = (&together, Arc::clone(&failed));
            scope.spawn(move || {
                let measured = (|| {
                    let stream = ranks.stream().clone();
                    let raw = Raw::new(id, ranks.rank(), world, stream.device())?;
                    let mut harness = Harness { ranks, raw, stream, together };
                    harness.measure()?;
                    Ok(harness.ranks.finish()?)
                })();
                if let Err(error) = measured {
                    let error: Box<dyn std::error::Error + Send + Sync> = error;
                    eprintln!("{error}");
                    *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                }
            });
        }
    });
    match failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
