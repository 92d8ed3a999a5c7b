//! Shared arrays: block computations with them, raw and safe, and behavior when threads have returned.

use crate::alone::only_alone;
use crate::common::{Random, TestNumber, device, stream};
use test_kernels::IMAGE;
use test_kernels::tiles::{
    Candidate, argmax_tiled, fill_without_returned, heat_raw, heat_tiled, histogram_tiled, matmul_tiled,
    transpose_raw, transpose_tiled,
};
use warpsmith::TypedKernel;
use warpsmith::gpu_std::Kernel;
use warpsmith::gpu_std::scalar::Float;
use warpsmith::prelude::*;

/// Widths and heights: smaller and larger than tiles, and not multiples of them.
const SHAPES: [(usize, usize); 8] =
    [(1, 1), (16, 16), (17, 5), (3, 40), (32, 32), (33, 31), (100, 77), (512, 130)];

fn kernel<K: Kernel>() -> TypedKernel<K> {
    device().load(&IMAGE).unwrap().kernel::<K>().unwrap()
}

fn poisoned(stream: &Stream, count: usize) -> DeviceBuffer<f32> {
    DeviceBuffer::from_host(stream, &vec![f32::poison(); count]).unwrap()
}

fn heat(width: usize, height: usize, alpha: f32, image: &[f32]) -> Vec<f32> {
    let at = |x: usize, y: usize| f64::from(image[y.min(height - 1) * width + x.min(width - 1)]);
    let step = |i: usize| {
        let (x, y) = (i % width, i / width);
        let around = at(x.saturating_sub(1), y) + at(x + 1, y) + at(x, y.saturating_sub(1)) + at(x, y + 1);
        (at(x, y) + f64::from(alpha) * (around - 4.0 * at(x, y))) as f32
    };
    (0..width * height).map(step).collect()
}

#[test]
fn heat_is_correct_raw_and_safe() {
    let stream = stream();
    let mut random = Random::new();
    for (width, height) in SHAPES {
        let host: Vec<f32> = random.values(width * height, 10.0);
        let image = DeviceBuffer::from_host(&stream, &host).unwrap();
        let (mut raw, mut safe) = (poisoned(&stream, host.len()), poisoned(&stream, host.len()));
        let alpha = 0.1f32;
        let launch = Launch::cover((width, height));
        let arguments = (width as u32, height as u32, alpha, &image, &mut raw);
        // SAFETY: both buffers have one element per position.
        unsafe { kernel::<heat_raw>().launch_unsafe(&stream, launch, arguments) }.unwrap();
        let arguments = (alpha, image.as_2d(height, width).unwrap(), safe.as_2d_mut(height, width).unwrap());
        kernel::<heat_tiled>().launch(&stream, launch, arguments).unwrap();
        let expected = heat(width, height, alpha, &host);
        for (form, out) in [("raw", raw), ("safe", safe)] {
            for (found, expected) in out.to_host().unwrap().into_iter().zip(&expected) {
                let what = format!("{form}, {width} x {height}, seed {}", random.seed);
                assert!((found - expected).abs() < 1e-4, "{found}, not {expected}: {what}");
            }
        }
    }
}

#[test]
fn transposes_are_correct_raw_and_safe() {
    let stream = stream();
    let mut random = Random::new();
    for (width, height) in SHAPES {
        let host: Vec<f32> = random.values(width * height, 10.0);
        let image = DeviceBuffer::from_host(&stream, &host).unwrap();
        let (mut raw, mut safe) = (poisoned(&stream, host.len()), poisoned(&stream, host.len()));
        let launch = Launch::cover((width, height)).tile((32, 32));
        let arguments = (width as u32, height as u32, &image, &mut raw);
        // SAFETY: both buffers have one element per position.
        unsafe { kernel::<transpose_raw>().launch_unsafe(&stream, launch, arguments) }.unwrap();
        let arguments = (image.as_2d(height, width).unwrap(), safe.as_2d_mut(width, height).unwrap());
        kernel::<transpose_tiled>().launch(&stream, launch, arguments).unwrap();
        let expected: Vec<f32> = (0..width * height).map(|i| host[i % height * width + i / height]).collect();
        for (form, out) in [("raw", raw), ("safe", safe)] {
            assert!(out.to_host().unwrap() == expected, "{form}, {width} x {height}, seed {}", random.seed);
        }
    }
}

fn products<T: TestNumber + Float + DeviceCopy>(stream: &Stream, random: &mut Random)
where
    matmul_tiled<T>: Instance,
{
    for (rows, inner, columns) in [(1, 1, 1), (16, 16, 16), (5, 33, 17), (40, 100, 31)] {
        let (a, b): (Vec<T>, Vec<T>) =
            (random.values(rows * inner, 1.0), random.values(inner * columns, 1.0));
        let on_device = |host: &[T]| DeviceBuffer::from_host(stream, host).unwrap();
        let (a_device, b_device) = (on_device(&a), on_device(&b));
        let mut out = on_device(&vec![T::poison(); rows * columns]);
        let arguments = (
            a_device.as_2d(rows, inner).unwrap(),
            b_device.as_2d(inner, columns).unwrap(),
            out.as_2d_mut(rows, columns).unwrap(),
        );
        kernel::<matmul_tiled<T>>().launch(stream, Launch::cover((columns, rows)), arguments).unwrap();
        for (i, found) in out.to_host().unwrap().into_iter().enumerate() {
            let (row, column) = (i / columns, i % columns);
            let expected: f64 =
                (0..inner).map(|k| a[row * inner + k].to_f64() * b[k * columns + column].to_f64()).sum();
            let error = (found.to_f64() - expected).abs();
            assert!(
                error <= 4.0 * inner as f64 * T::EPSILON,
                "{found:?}, not {expected}, seed {}",
                random.seed
            );
        }
    }
}

#[test]
fn products_of_two_tiles_are_correct() {
    let (stream, mut random) = (stream(), Random::new());
    products::<f32>(&stream, &mut random);
    products::<f64>(&stream, &mut random);
}

#[test]
fn histograms_of_shared_atomics_are_exact() {
    let stream = stream();
    let mut random = Random::new();
    for count in [0, 1, 1000, 300_001] {
        let host: Vec<u8> = (0..count).map(|_| random.bits() as u8).collect();
        let data = DeviceBuffer::from_host(&stream, &host).unwrap();
        let mut expected = vec![0u32; 256];
        host.iter().for_each(|byte| expected[usize::from(*byte)] += 1);
        for threads in [32, 100, 256, 1024] {
            let mut totals = DeviceBuffer::<u32>::zeros(&stream, 256).unwrap();
            let launch = Launch::grid_block(7, threads);
            kernel::<histogram_tiled<256>>().launch(&stream, launch, (&data, &mut totals)).unwrap();
            assert_eq!(totals.to_host().unwrap(), expected, "{threads} threads, seed {}", random.seed);
        }
    }
}

#[test]
fn the_best_struct_of_each_block_is_found() {
    let stream = stream();
    let mut random = Random::new();
    let host: Vec<f32> = (0..5000).map(|_| random.below(100) as f32).collect();
    let scores = DeviceBuffer::from_host(&stream, &host).unwrap();
    let blocks = host.len().div_ceil(256);
    let none = Candidate { score: 0.0, index: 0 };
    let mut out = DeviceBuffer::from_host(&stream, &vec![none; blocks]).unwrap();
    let launch = Launch::grid_block(blocks as u32, 256);
    kernel::<argmax_tiled>().launch(&stream, launch, (&scores, &mut out)).unwrap();
    for (block, (found, own)) in out.to_host().unwrap().into_iter().zip(host.chunks(256)).enumerate() {
        let best = (0..own.len()).rev().max_by(|a, b| own[*a].total_cmp(&own[*b])).unwrap();
        let expected = Candidate { score: own[best], index: (block * 256 + best) as u32 };
        assert_eq!(found, expected, "seed {}", random.seed);
    }
}

/// A GPU does not wait for threads that have returned; the emulated device reports them.
#[test]
fn returned_threads_are_not_waited_for() {
    only_alone!();
    let (device, stream) = (device(), stream());
    let kernel = kernel::<fill_without_returned>();
    for threads in [256u32, 224, 32, 100, 1] {
        let mut out = DeviceBuffer::from_host(&stream, &[7u32; 256]).unwrap();
        let launch = Launch::grid_block(1, 256);
        let result = kernel.launch(&stream, launch, (threads, &mut out)).and_then(|()| out.to_host());
        if device.is_emulated() && threads < 256 {
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains("have exited without it") || error.contains("has exited without it"),
                "{error}"
            );
            return;
        }
        let own = |i: u32| (0..10).map(|round| (i + 1) % threads + round).sum();
        let expected: Vec<u32> = (0..256).map(|i| if i < threads { own(i) } else { 7 }).collect();
        assert_eq!(result.unwrap(), expected, "{threads} threads");
    }
}
