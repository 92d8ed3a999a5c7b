//! GEMM throughput, and the host time of a call compared with cuBLAS's own.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the emulated device runs only small shapes. Each value is the median of 9
//! rounds of about 20 ms each, timed by events after a warm-up. `benches/peers/gemm.py` measures the same with PyTorch
//! and prints the same lines.

use std::ffi::c_void;
use std::time::Instant;

use cudarc::cublas::sys;
use half::bf16;
use warpsmith_libraries::blas::{self, Gemm, Math, Matmul, VectorType};
use warpsmith_runtime::{Device, DeviceBuffer, Result, Stream};

/// Sizes m, n and k: square, transformer layers, skinny and flat, and odd sizes.
const SHAPES: [[usize; 3]; 20] = [
    [512, 512, 512],
    [1024, 1024, 1024],
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [16, 4096, 4096],
    [128, 4096, 4096],
    [512, 4096, 4096],
    [2048, 12288, 4096],
    [2048, 4096, 4096],
    [2048, 11008, 4096],
    [2048, 4096, 11008],
    [64, 32000, 4096],
    [8192, 1024, 1024],
    [32768, 128, 512],
    [65536, 256, 256],
    [256, 256, 65536],
    [4096, 4096, 64],
    [1000, 1000, 1000],
    [4095, 4097, 2049],
];

const ROUNDS: usize = 9;
const ROUND_US: f64 = 20_000.0;

fn main() -> Result<()> {
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    let stream = Stream::new(&device)?;
    println!("{}", device.name());
    let largest = if device.is_emulated() { 1 << 28 } else { usize::MAX };
    let exact = Math::default();
    for [m, n, k] in SHAPES.into_iter().filter(|[m, n, k]| m * n * k <= largest) {
        let single = |math| products::<f32>(&stream, math, |x| x, [m, n, k]);
        report("f32", [m, n, k], single(exact)?);
        report("tf32", [m, n, k], single(Math { allow_tf32: true, ..exact })?);
        report("bf16", [m, n, k], products::<bf16>(&stream, exact, bf16::from_f32, [m, n, k])?);
    }
    if !device.is_emulated() {
        host_cost(&stream)?;
    }
    Ok(())
}

fn report(name: &str, [m, n, k]: [usize; 3], time_us: f64) {
    let rate = 2.0 * (m * n * k) as f64 / time_us / 1e6;
    println!("{name:5} {m:6} {n:6} {k:6} {time_us:10.2} us {rate:8.2} TFLOP/s");
}

/// Returns random numbers in -1..1.
fn numbers(seed: u64, len: usize) -> impl Iterator<Item = f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(move |_| random.f32() * 2.0 - 1.0)
}

/// Returns the time of a GEMM in microseconds.
fn products<T: VectorType>(
    stream: &Stream,
    math: Math,
    of: impl Fn(f32) -> T,
    [m, n, k]: [usize; 3],
) -> Result<f64> {
    let upload = |seed, len| {
        let host: Vec<T> = numbers(seed, len).map(&of).collect();
        DeviceBuffer::from_host(stream, &host)
    };
    let (a, b) = (upload(1, m * k)?, upload(2, k * n)?);
    let mut c = DeviceBuffer::<T>::zeros(stream, m * n)?;
    let (a, b, mut c) = (a.as_2d(m, k)?, b.as_2d(k, n)?, c.as_2d_mut(m, n)?);
    let options = Gemm { math: Some(math), ..Gemm::default() };
    let mut run = |count: usize| -> Result<f64> {
        let start = stream.record_timed_event()?;
        for _ in 0..count {
            blas::gemm(stream, options, a, b, c.reborrow())?;
        }
        let end = stream.record_timed_event()?;
        stream.synchronize()?;
        Ok(end.elapsed_us(&start)? / count as f64)
    };
    run(3)?;
    let once = run(3)?.max(1.0);
    let count = ((ROUND_US / once) as usize).clamp(1, 1000);
    run(count)?;
    let times = (0..ROUNDS).map(|_| run(count)).collect::<Result<Vec<_>>>()?;
    Ok(median(times))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures the host time of a call, interleaved with cuBLAS's own call with the same arguments.
fn host_cost(stream: &Stream) -> Result<()> {
    const SIZE: usize = 128;
    const CALLS: usize = 200;
    let a = DeviceBuffer::<f32>::zeros(stream, SIZE * SIZE)?;
    let mut c = DeviceBuffer::<f32>::zeros(stream, SIZE * SIZE)?;
    let workspace = DeviceBuffer::<u8>::uninit(stream, blas::workspaces(stream.device()).cublas)?;
    let pointers = (a.as_device_ptr().0 as *const c_void, c.as_device_ptr().0 as *mut c_void);
    let handle = raw_handle(stream, &workspace)?;
    let matrix = a.as_2d(SIZE, SIZE)?;
    let mut ours = || blas::gemm(stream, Gemm::default(), matrix, matrix, c.as_2d_mut(SIZE, SIZE)?);
    let mut d = DeviceBuffer::<f32>::zeros(stream, SIZE * SIZE)?;
    let options = Matmul::default();
    let mut planned = || blas::matmul(stream, &options, matrix, matrix, d.as_2d_mut(SIZE, SIZE)?);
    let raw = || {
        let (size, one, zero) = (SIZE as i64, 1f32, 0f32);
        let operation = sys::cublasOperation_t::CUBLAS_OP_N;
        let data = sys::cudaDataType::CUDA_R_32F;
        // SAFETY: the matrices are of this size and type; both buffers outlive the work, because the program waits for
        // the work.
        let status = unsafe {
            sys::cublasGemmEx_64(
                handle,
                operation,
                operation,
                size,
                size,
                size,
                (&raw const one).cast(),
                pointers.0,
                data,
                size,
                pointers.0,
                data,
                size,
                (&raw const zero).cast(),
                pointers.1,
                data,
                size,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        assert_eq!(status, sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS);
        Ok(())
    };
    let time = |call: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        stream.synchronize()?;
        let start = Instant::now();
        (0..CALLS).try_for_each(|_| call())?;
        let elapsed = start.elapsed();
        stream.synchronize()?;
        Ok(elapsed.as_secs_f64() * 1e6 / CALLS as f64)
    };
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..60 {
        let calls = [time(&mut { raw })?, time(&mut ours)?, time(&mut planned)?];
        if round >= 10 {
            times.iter_mut().zip(calls).for_each(|(times, time)| times.push(time));
        }
    }
    let [raw, ours, planned] = times.map(median);
    println!("host cost of a call: cuBLAS {raw:.2} us, gemm {ours:.2} us, difference {:.2} us", ours - raw);
    println!("host cost of a call: matmul, whose plan is kept, {planned:.2} us");
    // SAFETY: it is exclusive, and its work has completed.
    unsafe { sys::cublasDestroy_v2(handle) };
    drop(workspace);
    Ok(())
}

fn raw_handle(stream: &Stream, workspace: &DeviceBuffer<u8>) -> Result<sys::cublasHandle_t> {
    // SAFETY: only the context is made current, while the device is alive.
    let (driver, context) = unsafe { stream.device().driver() };
    let _calls = driver.bind(context)?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: the library was loaded by earlier calls; stream and workspace outlive the handle.
    let statuses = unsafe {
        [
            sys::cublasCreate_v2(&mut handle),
            sys::cublasSetStream_v2(handle, stream.handle().0 as *mut _),
            sys::cublasSetWorkspace_v2(handle, workspace.as_device_ptr().0 as *mut c_void, workspace.len()),
        ]
    };
    assert!(
        statuses.iter().all(|status| *status == sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS),
        "{statuses:?}"
    );
    Ok(handle)
}
