//! Products of `bf16` matrices, ours beside the fastest of 16 algorithms of cuBLASLt's heuristics, in turns in one run.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; on the emulated one only a small shape is multiplied. Arguments are shapes,
//! `4096` or `4096x11008x4096` (m, n, k); without any, 4096 and 8192. Inputs are normally distributed, since the power that a
//! product draws depends on them. Each figure is the median of the rounds, each timed by events around several products,
//! after the clock has settled; power and clock are read after each round.

use half::bf16;
use warpsmith_core::{Device, DeviceBuffer, Result, Stream};
use warpsmith_runtime::library::blas::{self, Matmul, Matrix, MatrixMut, Search};

const ROUNDS: usize = 15;
const ROUND_US: f64 = 100_000.0;
const SETTLE_US: f64 = 3_000_000.0;

fn main() -> Result<()> {
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    let stream = Stream::new(&device)?;
    println!("{}", device.name());
    let mut shapes: Vec<[usize; 3]> = std::env::args().skip(1).filter_map(|text| shape(&text)).collect();
    if device.is_emulated() {
        shapes = vec![[128, 256, 64]];
    } else if shapes.is_empty() {
        shapes = vec![[4096; 3], [8192; 3]];
    }
    shapes.into_iter().try_for_each(|shape| compare(&stream, shape))
}

/// `4096` or `4096x11008x4096`; `None` for what cargo passes.
fn shape(text: &str) -> Option<[usize; 3]> {
    let sides: Vec<usize> = text.split('x').map(|side| side.parse().ok()).collect::<Option<_>>()?;
    match sides[..] {
        [side] => Some([side; 3]),
        [m, n, k] => Some([m, n, k]),
        _ => None,
    }
}

/// Normally distributed numbers.
fn normals(seed: u64, len: usize) -> Vec<bf16> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut pair = || {
        let radius = (-2.0 * (1.0 - random.f32()).ln()).sqrt();
        let angle = random.f32() * std::f32::consts::TAU;
        [radius * angle.cos(), radius * angle.sin()]
    };
    let mut numbers: Vec<bf16> = (0..len.div_ceil(2)).flat_map(|_| pair()).map(bf16::from_f32).collect();
    numbers.truncate(len);
    numbers
}

/// What is enqueued, once.
type Call<'a> = Box<dyn FnMut() -> Result<()> + 'a>;

fn compare(stream: &Stream, [m, n, k]: [usize; 3]) -> Result<()> {
    let a = DeviceBuffer::from_host(stream, &normals(1, m * k))?;
    let b = DeviceBuffer::from_host(stream, &normals(2, n * k))?;
    let mut ours = DeviceBuffer::<bf16>::zeros(stream, m * n)?;
    let mut theirs = DeviceBuffer::<bf16>::zeros(stream, m * n)?;
    {
        let (a_view, b_view) = (a.as_2d(k, m)?, b.as_2d(k, n)?);
        let mut c_view = ours.as_2d_mut(n, m)?;
        let (a_matrix, b_matrix) = (Matrix::new(&a, m, k)?, Matrix::new(&b, n, k)?.transposed());
        let mut c_matrix = MatrixMut::new(&mut theirs, m, n)?;
        let options = Matmul { search: Search::Timed { candidates: 16, repeats: 5 }, ..Matmul::default() };
        let mut calls: [(&str, Call<'_>); 2] = [
            (
                "warpsmith",
                Box::new(|| {
                    warpsmith_tensor::matmul(
                        stream,
                        a_view,
                        warpsmith_tensor::Matrix::from(b_view).transposed(),
                        &mut c_view,
                    )
                }),
            ),
            (
                "cuBLASLt",
                Box::new(|| blas::matmul(stream, &options, a_matrix, b_matrix, c_matrix.reborrow())),
            ),
        ];
        measure(stream, [m, n, k], &mut calls)?;
    }
    let (ours, theirs) = (ours.to_host()?, theirs.to_host()?);
    let largest = ours.iter().zip(&theirs).map(|(x, y)| (x.to_f32() - y.to_f32()).abs()).fold(0.0, f32::max);
    println!("{m}x{n}x{k} largest difference of the results: {largest}");
    Ok(())
}

fn measure(stream: &Stream, [m, n, k]: [usize; 3], calls: &mut [(&str, Call<'_>); 2]) -> Result<()> {
    let time = |call: &mut Call<'_>, count: usize| -> Result<f64> {
        let start = stream.record_timed_event()?;
        (0..count).try_for_each(|_| call())?;
        let end = stream.record_timed_event()?;
        stream.synchronize()?;
        Ok(end.elapsed_us(&start)? / count as f64)
    };
    let mut once = 1.0f64;
    for (_, call) in calls.iter_mut() {
        time(call, 2)?;
        once = once.max(time(call, 2)?);
    }
    let is_emulated = stream.device().is_emulated();
    let (settle_us, round_us) = if is_emulated { (0.0, 0.0) } else { (SETTLE_US, ROUND_US) };
    let count = ((round_us / once) as usize).clamp(1, 2000);
    let mut settled = 0.0;
    while settled < settle_us {
        for (_, call) in calls.iter_mut() {
            settled += time(call, count)? * count as f64;
        }
    }
    let mut times = [Vec::new(), Vec::new()];
    let mut power = [Vec::new(), Vec::new()];
    let mut clocks = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        // Each goes first as often.
        for which in [round % 2, 1 - round % 2] {
            times[which].push(time(&mut calls[which].1, count)?);
            let now = stream.device().telemetry()?;
            power[which].extend(now.power_w);
            clocks[which].extend(now.sm_clock_mhz.map(f64::from));
        }
    }
    let flops = 2.0 * m as f64 * n as f64 * k as f64;
    let [ours, theirs] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        (median(times.clone()), times[0])
    });
    for ((name, _), ((median_us, best), (power, clocks))) in
        calls.iter().zip([ours, theirs].into_iter().zip(power.into_iter().zip(clocks)))
    {
        println!(
            "{m}x{n}x{k} {name:9} {median_us:9.1} us {:7.1} TFLOP/s, best {:7.1}, {} W, {} MHz",
            flops / median_us / 1e6,
            flops / best / 1e6,
            median(power).round(),
            median(clocks).round(),
        );
    }
    println!("{m}x{n}x{k} ratio to cuBLASLt {:.3} ({ROUNDS} rounds of {count} in turns)", theirs.0 / ours.0);
    Ok(())
}

/// NaN of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
