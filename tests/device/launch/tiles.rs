//! Shared arrays: what blocks compute with them, raw and safe, and what happens when threads have returned.

use crate::common::{Random, device, own_device, stream};
use test_kernels::IMAGE;
use test_kernels::tiles::{
    Candidate, argmax_tiled, fill_without_returned, heat_raw, heat_tiled, histogram_tiled, matmul_tiled,
    transpose_raw, transpose_tiled,
};
use warpsmith::TypedKernel;
use warpsmith::gpu_std::{Kernel, param};
use warpsmith::prelude::*;

/// Widths and heights: smaller and larger than tiles, and no multiples of them.
const SHAPES: [(usize, usize); 8] =
    [(1, 1), (16, 16), (17, 5), (3, 40), (32, 32), (33, 31), (100, 77), (512, 130)];

fn kernel<K: Kernel>() -> TypedKernel<K> {
    device().load(&IMAGE).unwrap().kernel::<K>().unwrap()
}

fn floats(random: &mut Random, count: usize) -> Vec<f32> {
    (0..count).map(|_| (random.unit() * 20.0 - 10.0) as f32).collect()
}

fn heat(width: usize, height: usize, alpha: f32, image: &[f32]) -> Vec<f32> {
    let at = |x: usize, y: usize| f64::from(image[y.min(height - 1) * width + x.min(width - 1)]);
    let step = |i: usize| {
        let (x, y) = (i % width, i / width);
        let around =
            at(x.saturating_sub(1), y) + at(x + 1, y) + at(x, y.saturating_sub(1)) + at(x, y + 1);
        (at(x, y) + f64::from(alpha) * (around - 4.0 * at(x, y))) as f32
    };
    (0..width * height).map(step).collect()
}

#[test]
fn heat_is_right_raw_and_safe() {
    let stream = stream();
    let mut random = Random::new();
    for (width, height) in SHAPES {
        let host = floats(&mut random, width * height);
        let image = DeviceBuffer::from_host(&stream, &host).unwrap();
        let (mut raw, mut tiled) = (image.poisoned(), image.poisoned());
        let alpha = 0.1;
        let launch = Launch::cover((width, height));
        let sides = (width as u32, height as u32);
        // SAFETY: both buffers have an element for each place.
        unsafe {
            kernel::<heat_raw>().launch_unsafe(&stream, launch, (sides.0, sides.1, alpha, &image, &mut raw))
        }
        .unwrap();
        let arguments =
            (alpha, image.as_2d(width, height).unwrap(), tiled.as_2d_mut(width, height).unwrap());
        kernel::<heat_tiled>().launch(&stream, launch, arguments).unwrap();
        let expected = heat(width, height, alpha, &host);
        for (form, out) in [("raw", raw), ("safe", tiled)] {
            for (found, expected) in out.to_host().unwrap().into_iter().zip(&expected) {
                let message = format!("{form}, {width} x {height}, seed {}", random.seed);
                assert!((found - expected).abs() < 1e-4, "{found}, not {expected}: {message}");
            }
        }
    }
}
