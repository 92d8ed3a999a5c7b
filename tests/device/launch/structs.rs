//! Structs, enums, `bool` and optional slices on the device, and launches in generic code.

use std::fmt::Debug;

use crate::common::{Random, device, stream};
use test_kernels::structs::{
    Bend, Candidate, Linear, Mode, Settings, add_optional, bend, best_of_block, by_mode, compose, methods,
};
use warpsmith::gpu_std::{Checked, Instance, Kernel, SafeKernel};
use warpsmith::prelude::*;

fn kernel<K: Kernel>() -> TypedKernel<K> {
    device().load(&test_kernels::IMAGE).unwrap().kernel::<K>().unwrap()
}

#[test]
fn blocks_reduce_structs() {
    let (stream, mut random) = (stream(), Random::new());
    for (n, block) in [(1, 32), (1000, 33), (4097, 256), (5000, 1024)] {
        let mut scores: Vec<f32> = random.values(n, 10.0);
        // Equal scores: the lower index wins.
        scores[n / 2] = 11.0;
        scores[n - 1] = 11.0;
        let blocks = n.div_ceil(block);
        let nothing = Candidate { score: 0.0, index: 0 };
        let mut best = DeviceBuffer::from_host(&stream, &vec![nothing; blocks + 1]).unwrap();
        let on_device = DeviceBuffer::from_host(&stream, &scores).unwrap();
        let shape = Launch::grid_block(blocks as u32, block as u32);
        kernel::<best_of_block>().launch(&stream, shape, (&on_device, &mut best)).unwrap();
        let best = best.to_host().unwrap();
        for (number, scores) in scores.chunks(block).enumerate() {
            let of = |(i, &score): (usize, &f32)| Candidate { score, index: (number * block + i) as u32 };
            let expected = scores.iter().enumerate().map(of).reduce(Candidate::better).unwrap();
            assert_eq!(best[number], expected, "block {number} of {block}, seed {}", random.seed);
        }
        assert_eq!(best[blocks], nothing, "there is no such block");
    }
}

/// Combination of the values before each element, and the total.
fn before(values: &[Linear]) -> (Vec<Linear>, Linear) {
    let mut total = Linear::IDENTITY;
    let mut before = Vec::with_capacity(values.len());
    for value in values {
        before.push(total);
        total = total.then(*value);
    }
    (before, total)
}

#[test]
fn structs_are_scanned_in_order() {
    let (stream, mut random) = (stream(), Random::new());
    for (blocks, block) in [(1, 32), (3, 64), (5, 256)] {
        let n = blocks * block;
        let input: Vec<Linear> = (0..n)
            .map(|_| Linear {
                scale: (random.unit().abs() * 4e9) as u32 | 1,
                offset: (random.unit().abs() * 4e9) as u32,
                sums: std::array::from_fn(|_| (random.unit().abs() * 65e3) as u16),
            })
            .collect();
        let on_device = DeviceBuffer::from_host(&stream, &input).unwrap();
        let mut scans = DeviceBuffer::from_host(&stream, &vec![[Linear::IDENTITY; 3]; n]).unwrap();
        let mut totals = DeviceBuffer::from_host(&stream, &vec![Linear::IDENTITY; blocks]).unwrap();
        let shape = Launch::grid_block(blocks as u32, block as u32);
        kernel::<compose>().launch(&stream, shape, (&on_device, &mut scans, &mut totals)).unwrap();
        let (scans, totals) = (scans.to_host().unwrap(), totals.to_host().unwrap());
        let seed = random.seed;
        for (i, found) in scans.iter().enumerate() {
            let of = |size: usize| (i / size * size, i % size);
            let (start, lane) = of(32);
            assert_eq!(found[0], before(&input[start..=start + lane]).1, "lane {lane}, seed {seed}");
            let (start, rank) = of(8);
            assert_eq!(found[1], before(&input[start..start + rank]).1, "rank {rank}, seed {seed}");
            let (start, thread) = of(block);
            assert_eq!(found[2], before(&input[start..start + thread]).1, "thread {thread}, seed {seed}");
        }
        for (values, total) in input.chunks(block).zip(totals) {
            assert_eq!(total, before(values).1, "block of {block}, seed {seed}");
        }
    }
}

#[test]
fn enums_and_bools_arrive() {
    let stream = stream();
    let values = [Mode::Add, Mode::Multiply, Mode::Keep];
    let mut modes = Checked::from_slice(&values).to_vec();
    // Bytes that are not a valid mode.
    modes.push(bytemuck_of(7));
    let modes = DeviceBuffer::from_host(&stream, &modes).unwrap();
    for is_on in [false, true] {
        for (is_negative, factor) in [(false, 3.0), (true, -3.0)] {
            let mut data = DeviceBuffer::from_host(&stream, &[10.0; 4]).unwrap();
            let mut used = DeviceBuffer::from_host(&stream, &[bytemuck_of(0); 4]).unwrap();
            let settings = Settings { is_negative, factor: 3.0, mode: Mode::Add };
            let args = (is_on, settings, &modes, &mut data, &mut used);
            kernel::<by_mode>().launch(&stream, Launch::linear(4, 32), args).unwrap();
            let expected = [10.0 + factor, 10.0 * factor, 10.0, 10.0 + factor];
            assert_eq!(data.to_host().unwrap(), if is_on { expected } else { [10.0; 4] });
            let used: Vec<_> = used.to_host().unwrap().into_iter().map(Checked::get).collect();
            assert_eq!(used, [Mode::Add, Mode::Multiply, Mode::Keep, Mode::Add].map(Some));
        }
    }
}

/// The mode with this number, if valid.
fn bytemuck_of(number: i16) -> Checked<Mode> {
    bytemuck::cast(number)
}

#[test]
fn optional_slices_are_passed_or_not() {
    let (stream, mut random) = (stream(), Random::new());
    let n = 1001;
    let (x, bias): (Vec<f32>, Vec<f32>) = (random.values(n, 10.0), random.values(n, 10.0));
    let x_there = DeviceBuffer::from_host(&stream, &x).unwrap();
    let bias_there = DeviceBuffer::from_host(&stream, &bias).unwrap();
    let empty = DeviceBuffer::<f32>::zeros(&stream, 0).unwrap();
    for bias_case in 0..3 {
        for has_copy in [false, true] {
            let mut out = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
            let mut copy = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
            let passed = [None, Some(&bias_there), Some(&empty)][bias_case];
            let args = (&x_there, passed, &mut out, has_copy.then_some(&mut copy));
            kernel::<add_optional>().launch(&stream, Launch::linear(n, 128), args).unwrap();
            let expected: Vec<f32> =
                x.iter().zip(&bias).map(|(x, bias)| if bias_case == 1 { x + bias } else { *x }).collect();
            assert_eq!(out.to_host().unwrap(), expected, "seed {}", random.seed);
            assert_eq!(copy.to_host().unwrap(), if has_copy { x.clone() } else { vec![0.0; n] });
        }
    }
    let mut out = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
    let args = (&x_there, None::<&DeviceBuffer<f32>>, &mut out, None::<&mut DeviceBuffer<f32>>);
    kernel::<add_optional>().launch(&stream, Launch::auto(n), args).unwrap();
    assert_eq!(out.to_host().unwrap(), x);
}

#[test]
fn methods_compute_what_the_host_does() {
    let (stream, mut random) = (stream(), Random::new());
    let n = 3000;
    let x: Vec<f32> = (0..n).map(|_| 0.01 + 20.0 * random.unit().abs() as f32).collect();
    let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &vec![[f32::NAN; 10]; n]).unwrap();
    kernel::<methods>().launch(&stream, Launch::linear(n, 256), (&on_device, &mut out)).unwrap();
    for (x, found) in x.into_iter().zip(out.to_host().unwrap()) {
        let x = f64::from(x);
        let y = f64::from(0.7_f32);
        let expected = [
            0.0,
            x.cos(),
            x.powi(-3),
            x.powf(1.5),
            x.log(3.0),
            x.fract(),
            x.rem_euclid(y),
            // The quotient is rounded to f32 before it is truncated.
            f64::from((x as f32).div_euclid(0.7)),
            x.sqrt().mul_add(x, x.exp_m1()),
            x.round_ties_even() + x.hypot(1.0).cbrt(),
        ];
        for (index, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            let error = (f64::from(found) - expected).abs();
            assert!(error <= 1e-5 * (1.0 + expected.abs()), "{index} of {x}: {found}, not {expected}");
        }
    }
}

/// Launches the instance for `T`.
fn bent<T: Bend + DeviceCopy>(stream: &Stream, x: &[T]) -> Result<Vec<T>, Error>
where
    bend<T>: Instance,
{
    let kernel = stream.device().load(&test_kernels::IMAGE)?.kernel::<bend<T>>()?;
    let on_device = DeviceBuffer::from_host(stream, x)?;
    let mut out = DeviceBuffer::from_host(stream, x)?;
    kernel.launch(stream, Launch::auto(x.len()), (&on_device, &mut out))?;
    out.to_host()
}

#[test]
fn generic_code_launches_any_instance() {
    fn check<T: Bend + DeviceCopy + PartialEq + Debug>(x: &[T])
    where
        bend<T>: Instance,
    {
        let expected: Vec<T> = x.iter().map(|x| x.bend()).collect();
        assert_eq!(bent(&stream(), x).unwrap(), expected);
    }
    check(&[1.0_f32, -2.5, 3.0]);
    check(&[1_i64, -2, i64::MAX]);
    check(&[Candidate { score: 1.0, index: 7 }, Candidate { score: -2.0, index: 8 }]);
    fn is_safe<K: SafeKernel>() {}
    is_safe::<bend<f32>>();
}

/// Checks the guarantee of `no_panic`, if there is an image.
#[test]
fn kernels_marked_no_panic_keep_none() {
    let spec = test_kernels::IMAGE.spec();
    let left = |symbol: &str| spec.kernel(symbol).map(|record| record.panics.len());
    for symbol in ["add_optional", "methods", "weigh"] {
        assert!(left(symbol).is_none_or(|left| left == 0), "{symbol}");
    }
    assert!(left("diagnose_panic").is_none_or(|left| left > 0));
}
