//! Kernels in two and three dimensions, launched by type.

use crate::common::{Random, device, stream};
use test_kernels::IMAGE;
use test_kernels::planes::{
    add_everywhere, add_planes, add_to_volume, cluster_ranks, density, heat_step, mirror, normalize_rows,
    smooth_planes, weigh,
};
use warpsmith::gpu_std::Kernel;
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSlice3, DeviceSliceMut3, LaunchError, TypedKernel};

fn kernel<K: Kernel>() -> TypedKernel<K> {
    device().load(&IMAGE).unwrap().kernel::<K>().unwrap()
}

/// Side lengths around block boundaries.
const SIDES: [(usize, usize); 8] =
    [(1, 1), (16, 16), (17, 15), (31, 33), (32, 32), (33, 31), (100, 70), (513, 5)];

#[test]
fn a_required_block_covers_any_extent() {
    let (stream, kernel, mut random) = (stream(), kernel::<add_planes>(), Random::new());
    for (width, height) in SIDES {
        let (a, b): (Vec<f32>, Vec<f32>) =
            (random.values(width * height, 1.0), random.values(width * height, 1.0));
        let (on_device_a, on_device_b) =
            (DeviceBuffer::from_host(&stream, &a).unwrap(), DeviceBuffer::from_host(&stream, &b).unwrap());
        let mut out = DeviceBuffer::from_host(&stream, &vec![f32::NAN; width * height]).unwrap();
        let views = (on_device_a.as_2d(height, width).unwrap(), on_device_b.as_2d(height, width).unwrap());
        let launch = Launch::cover((width, height));
        kernel.launch(&stream, launch, (views.0, views.1, out.as_2d_mut(height, width).unwrap())).unwrap();
        let expected = a.iter().zip(&b).map(|(a, b)| a + b);
        assert!(out.to_host().unwrap().into_iter().eq(expected), "{width} x {height}, seed {}", random.seed);
    }
}

#[test]
fn optional_views_are_passed_or_not() {
    let (stream, kernel, mut random) = (stream(), kernel::<weigh>(), Random::new());
    for (width, height) in [(1, 1), (33, 31), (100, 7)] {
        let n = width * height;
        let (values, weights): (Vec<f32>, Vec<f32>) = (random.values(n, 1.0), random.values(n, 1.0));
        let values_there = DeviceBuffer::from_host(&stream, &values).unwrap();
        let weights_there = DeviceBuffer::from_host(&stream, &weights).unwrap();
        for case in 0..16 {
            let has = |bit: u32| case >> bit & 1 == 1;
            let mut out = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
            let mut planes = DeviceBuffer::<u32>::zeros(&stream, n).unwrap();
            let args = (
                values_there.as_2d(height, width).unwrap(),
                has(0).then(|| weights_there.as_2d(height, width).unwrap()),
                has(1).then(|| out.as_2d_mut(height, width).unwrap()),
                has(2).then(|| planes.as_3d_mut(1, height, width).unwrap()),
                has(3).then(|| weights_there.as_3d(1, height, width).unwrap()),
            );
            kernel.launch(&stream, Launch::cover((width, height)).block((32, 8)), args).unwrap();
            let weighed = |(value, weight): (&f32, &f32)| {
                value * if has(0) { *weight } else { 1.0 } + if has(3) { *weight } else { 0.0 }
            };
            let expected: Vec<f32> = values.iter().zip(&weights).map(weighed).collect();
            let close = |a: f32, b: f32| (a - b).abs() <= 1e-6;
            let out = out.to_host().unwrap();
            let is_correct = out.iter().zip(&expected).all(|(a, b)| close(*a, if has(1) { *b } else { 0.0 }));
            assert!(is_correct, "case {case}, seed {}", random.seed);
            assert_eq!(planes.to_host().unwrap(), vec![u32::from(has(2)); n]);
        }
    }
    let values = DeviceBuffer::<f32>::zeros(&stream, 4).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0_f32; 4]).unwrap();
    let nothing = None::<DeviceSliceMut3<u32>>;
    let args = (
        values.as_2d(2, 2).unwrap(),
        None::<DeviceSlice2<f32>>,
        Some(out.as_2d_mut(2, 2).unwrap()),
        nothing,
        None::<&DeviceSlice3<f32>>,
    );
    kernel.launch(&stream, Launch::cover((2, 2)).block((2, 2)), args).unwrap();
    assert_eq!(out.to_host().unwrap(), [0.0; 4]);
}

#[test]
fn another_block_than_the_required_is_refused() {
    let (stream, kernel) = (stream(), kernel::<add_planes>());
    let a = DeviceBuffer::<f32>::zeros(&stream, 64).unwrap();
    let mut out = DeviceBuffer::<f32>::zeros(&stream, 64).unwrap();
    for launch in [Launch::cover((8, 8)).block((8, 8)), Launch::grid_block(1, (256, 1)), Launch::auto(64)] {
        let views = (a.as_2d(8, 8).unwrap(), a.as_2d(8, 8).unwrap(), out.as_2d_mut(8, 8).unwrap());
        let error = kernel.launch(&stream, launch, views).unwrap_err();
        assert!(
            matches!(error, Error::Launch(LaunchError::RequiredBlock { required: [16, 16, 1], .. })),
            "{error}"
        );
    }
    stream.synchronize().unwrap();
}

/// Host reference of the kernel `heat_step`.
fn heat_on_the_host(rate: f32, from: &[f32], width: usize) -> Vec<f32> {
    let height = from.len() / width;
    let at = |x: usize, y: usize| (x < width && y < height).then(|| from[y * width + x]);
    let step = |i: usize| {
        let (x, y, own) = (i % width, i / width, from[i]);
        let near = |x, y| at(x, y).unwrap_or(own);
        let around =
            near(x.wrapping_sub(1), y) + near(x + 1, y) + near(x, y.wrapping_sub(1)) + near(x, y + 1);
        own + rate * (around - 4.0 * own)
    };
    (0..from.len()).map(step).collect()
}

#[test]
fn heat_spreads_as_on_the_host() {
    let (stream, kernel, mut random) = (stream(), kernel::<heat_step>(), Random::new());
    for (width, height) in SIDES {
        let mut expected: Vec<f32> = random.values(width * height, 100.0);
        let mut from = DeviceBuffer::from_host(&stream, &expected).unwrap();
        let mut to = DeviceBuffer::from_host(&stream, &vec![f32::NAN; width * height]).unwrap();
        for _ in 0..5 {
            let views = (from.as_2d(height, width).unwrap(), to.as_2d_mut(height, width).unwrap());
            kernel.launch(&stream, Launch::cover((width, height)), (0.2f32, views.0, views.1)).unwrap();
            std::mem::swap(&mut from, &mut to);
            expected = heat_on_the_host(0.2, &expected, width);
        }
        // The GPU contracts multiplications and additions to FMA.
        for (found, expected) in from.to_host().unwrap().into_iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-4, "{found} is not {expected}, seed {}", random.seed);
        }
    }
}

#[test]
fn a_stride_covers_parts_of_planes_in_any_launch() {
    let (stream, kernel, mut random) = (stream(), kernel::<add_everywhere>(), Random::new());
    let (pitch, height) = (75, 40);
    let before: Vec<f32> = random.values(pitch * height, 10.0);
    for (width, top) in [(1, 0), (33, 7), (70, 39), (75, 0), (40, 40)] {
        for launch in [
            Launch::grid_block(1, 1),
            Launch::grid_block((3, 2), (16, 4)),
            Launch::cover((width, height)),
            Launch::cover((width, height)).block((8, 8)),
        ] {
            let mut plane = DeviceBuffer::from_host(&stream, &before).unwrap();
            let part = plane.as_2d_mut(height, pitch).unwrap().into_part(top.., ..width);
            kernel.launch(&stream, launch, (2.5f32, part)).unwrap();
            for (i, (found, before)) in plane.to_host().unwrap().into_iter().zip(&before).enumerate() {
                let is_inside = i % pitch < width && i / pitch >= top;
                let expected = if is_inside { before + 2.5 } else { *before };
                assert_eq!(found, expected, "element {i} of {width} columns from row {top}, {launch:?}");
            }
        }
    }
}

#[test]
fn a_stride_covers_volumes_in_any_launch() {
    let (stream, kernel, mut random) = (stream(), kernel::<add_to_volume>(), Random::new());
    for (width, height, depth) in [(1, 1, 1), (8, 4, 4), (33, 5, 3), (3, 70, 2), (0, 2, 2)] {
        let before: Vec<f32> = random.values(width * height * depth, 10.0);
        for launch in [
            Launch::grid_block(1, 1),
            Launch::grid_block((3, 2, 2), (16, 4, 2)),
            Launch::grid_block((20, 20, 5), (8, 8, 2)),
            Launch::cover((width, height)),
        ] {
            let mut volume = DeviceBuffer::from_host(&stream, &before).unwrap();
            let view = volume.as_3d_mut(depth, height, width).unwrap();
            kernel.launch(&stream, launch, (2.5f32, view)).unwrap();
            let expected = before.iter().map(|before| before + 2.5);
            assert!(volume.to_host().unwrap().into_iter().eq(expected), "{launch:?}, seed {}", random.seed);
        }
    }
}

#[test]
fn atomics_of_a_view_count_from_all_blocks() {
    let (stream, kernel, mut random) = (stream(), kernel::<density>(), Random::new());
    let (width, height, pitch) = (37usize, 21usize, 40usize);
    let points: Vec<[i32; 2]> =
        (0..5000).map(|_| [(random.unit() * 25.0) as i32 - 2, (random.unit() * 41.0) as i32 - 2]).collect();
    let on_device = DeviceBuffer::from_host(&stream, &points).unwrap();
    let mut counts = DeviceBuffer::<u32>::zeros(&stream, pitch * height).unwrap();
    for _ in 0..2 {
        let view = counts.as_2d_strided_mut(height, width, pitch).unwrap();
        kernel.launch(&stream, Launch::auto(points.len()), (&on_device, view)).unwrap();
    }
    for (i, found) in counts.to_host().unwrap().into_iter().enumerate() {
        let place = [(i / pitch) as i32, (i % pitch) as i32];
        let is_inside = i % pitch < width;
        let expected = 2 * points.iter().filter(|point| is_inside && **point == place).count();
        assert_eq!(found as usize, expected, "{place:?}, seed {}", random.seed);
    }
}

#[test]
fn rows_belong_to_one_thread_each() {
    let (stream, kernel, mut random) = (stream(), kernel::<normalize_rows>(), Random::new());
    for (width, height) in SIDES {
        let before: Vec<f32> = (0..width * height).map(|_| random.unit() as f32 + 2.0).collect();
        let mut rows = DeviceBuffer::from_host(&stream, &before).unwrap();
        kernel.launch(&stream, Launch::auto(height), (rows.as_2d_mut(height, width).unwrap(),)).unwrap();
        let found = rows.to_host().unwrap();
        for (row, before) in found.chunks(width).zip(before.chunks(width)) {
            let sum: f32 = before.iter().sum();
            let expected = before.iter().map(|value| value / sum);
            assert!(row.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-5), "seed {}", random.seed);
        }
        // Two elements between the rows belong to no view, and keep their values.
        let pitch = width + 2;
        let mut rows = DeviceBuffer::from_host(&stream, &vec![1.0_f32; pitch * height]).unwrap();
        let view = rows.as_2d_strided_mut(height, width, pitch).unwrap();
        kernel.launch(&stream, Launch::auto(height), (view,)).unwrap();
        for (i, found) in rows.to_host().unwrap().into_iter().enumerate() {
            let expected = if i % pitch < width { 1.0 / width as f32 } else { 1.0 };
            assert!((found - expected).abs() <= 1e-5, "element {i} of {width} x {height}");
        }
    }
}

#[test]
fn tiles_are_written_at_the_mirrored_place() {
    fn check<K: warpsmith::gpu_std::SafeKernel>(tile: u32)
    where
        for<'a> (warpsmith::DeviceSlice2<'a, f32>, warpsmith::DeviceSliceMut2<'a, f32>):
            warpsmith::launch::Arguments<K::Params>,
    {
        let (stream, kernel, mut random) = (stream(), kernel::<K>(), Random::new());
        for (width, height) in SIDES {
            let before: Vec<f32> = random.values(width * height, 10.0);
            let from = DeviceBuffer::from_host(&stream, &before).unwrap();
            let mut to = DeviceBuffer::from_host(&stream, &vec![f32::NAN; width * height]).unwrap();
            let views = (from.as_2d(height, width).unwrap(), to.as_2d_mut(width, height).unwrap());
            kernel.launch(&stream, Launch::cover((width, height)).tile((tile, tile)), views).unwrap();
            for (i, found) in to.to_host().unwrap().into_iter().enumerate() {
                let (column, row) = (i % height, i / height);
                assert_eq!(found, before[column * width + row], "{width} x {height}, seed {}", random.seed);
            }
        }
    }
    check::<mirror<16>>(16);
    check::<mirror<32>>(32);
}

#[test]
fn volumes_have_neighbors_in_three_dimensions() {
    let (stream, kernel, mut random) = (stream(), kernel::<smooth_planes>(), Random::new());
    for (width, height, depth) in [(1, 1, 1), (8, 4, 4), (9, 5, 3), (20, 1, 7), (3, 30, 2)] {
        let before: Vec<f64> = random.values(width * height * depth, 10.0);
        let from = DeviceBuffer::from_host(&stream, &before).unwrap();
        let mut to = DeviceBuffer::from_host(&stream, &vec![f64::NAN; before.len()]).unwrap();
        let views = (from.as_3d(depth, height, width).unwrap(), to.as_3d_mut(depth, height, width).unwrap());
        kernel.launch(&stream, Launch::cover((width, height, depth)), views).unwrap();
        let plane = width * height;
        for (i, found) in to.to_host().unwrap().into_iter().enumerate() {
            let at = |i: Option<usize>, own: f64| i.and_then(|i| before.get(i)).copied().unwrap_or(own);
            let (below, above) = (at(i.checked_sub(plane), before[i]), at(Some(i + plane), before[i]));
            let expected = (below + before[i] + above) / 3.0;
            assert!((found - expected).abs() <= 1e-12, "{found} is not {expected}, seed {}", random.seed);
        }
    }
}

#[test]
fn a_required_cluster_is_that_of_every_launch() {
    let device = device();
    if !device.is_emulated() && device.properties().capability.0 < 9 {
        let error = device.load(&IMAGE).unwrap().kernel::<cluster_ranks>().unwrap_err();
        assert!(matches!(error, Error::KernelNotInImage { .. }), "{error}");
        return;
    }
    let (stream, kernel) = (stream(), kernel::<cluster_ranks>());
    for n in [1, 64, 65, 1000] {
        let mut out = DeviceBuffer::from_host(&stream, &vec![u32::MAX; n]).unwrap();
        for launch in [Launch::auto(n), Launch::cover(n), Launch::linear(n, 32).cluster(2)] {
            kernel.launch(&stream, launch, (&mut out,)).unwrap();
            let expected = (0..n as u32).map(|i| i / 32 % 2);
            assert!(out.to_host().unwrap().into_iter().eq(expected), "{n}, {launch:?}");
        }
    }
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 128).unwrap();
    let error = kernel.launch(&stream, Launch::linear(128, 32).cluster(4), (&mut out,)).unwrap_err();
    assert!(
        matches!(error, Error::Launch(LaunchError::RequiredCluster { required: [2, 1, 1], .. })),
        "{error}"
    );
}
