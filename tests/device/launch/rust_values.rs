//! Computations whose results on the device under test must match Rust on the host.

use std::ops::Rem;

use half::{bf16, f16};
use test_kernels::IMAGE;
use test_kernels::rust_values::{
    self as kernels, first, floats_from_wide, local_atomics, negated, remainders, roots, second,
    wide_from_floats,
};
use warpsmith::gpu_std::{Kernel as _, KernelType};
use warpsmith::prelude::*;

use crate::common::{Random, device, stream};

/// A float type with access to its bits.
trait RustFloat: KernelType + Rem<Output = Self> + PartialEq + std::fmt::Debug {
    const BITS: u32;
    fn of(bits: u64) -> Self;
    fn near(x: f64) -> Self;
    fn same(self, other: Self) -> bool;
}

macro_rules! floats {
    ($($t:ty, $bits:ty, $near:expr;)*) => { $(
        impl RustFloat for $t {
            const BITS: u32 = <$bits>::BITS;
            fn of(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn near(x: f64) -> Self {
                ($near)(x)
            }
            /// Returns true for equal bits, or if both are NaN.
            fn same(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
        }
    )* };
}
floats! {
    f32, u32, |x: f64| x as f32;
    f64, u64, |x: f64| x;
    f16, u16, f16::from_f64;
    bf16, u16, bf16::from_f64;
}

/// All pairs of special numbers, and random pairs: of any magnitudes, and of similar magnitudes.
fn pairs<T: RustFloat>(random: &mut Random) -> (Vec<T>, Vec<T>) {
    let special: Vec<f64> = [
        0.0,
        0.1,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        7.0,
        1e9,
        1e10,
        3e38,
        65504.0,
        16_777_215.0,
        16_777_217.0,
        1.5e300,
        1e-7,
        1e-38,
        1e-45,
        3e-45,
        2e-41,
        5e-324,
        2.2e-308,
        f64::INFINITY,
        f64::NAN,
        3.3e38,
        1.1e38,
    ]
    .into_iter()
    .flat_map(|x| [x, -x])
    .collect();
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for a in &special {
        for b in &special {
            x.push(T::near(*a));
            y.push(T::near(*b));
        }
    }
    for _ in 0..100_000 {
        let mut bits = || (random.below(1 << 32) << 32 | random.below(1 << 32)) as u64;
        let (a, b, mix) = (bits(), bits(), bits());
        x.push(T::of(a));
        // Both have the same upper bits: quotients range from 0 to some millions.
        let shift = T::BITS - 6;
        y.push(T::of(if mix & 1 == 0 { b } else { (a >> shift << shift) ^ (b & ((1 << shift) - 1)) }));
    }
    (x, y)
}

macro_rules! remainder_test {
    ($($name:ident: $t:ty;)*) => { $(
        #[test]
        fn $name() {
            let mut random = Random::new();
            let (x, y) = pairs::<$t>(&mut random);
            let kernel = device().load(&IMAGE).unwrap().kernel::<remainders<$t>>().unwrap();
            let [a, b] = [&x, &y].map(|values| DeviceBuffer::from_host(&stream(), values).unwrap());
            let mut out = DeviceBuffer::<$t>::zeros(&stream(), x.len()).unwrap();
            kernel.launch(&stream(), Launch::auto(x.len()), (&a, &b, &mut out)).unwrap();
            for ((x, y), r) in x.iter().zip(&y).zip(out.to_host().unwrap()) {
                assert!(r.same(x % y), "{x:?} % {y:?} is {:?}, not {r:?}; seed {}", x % y, random.seed);
            }
        }
    )* };
}
remainder_test! {
    remainders_of_f32_are_exact: f32;
    remainders_of_f64_are_exact: f64;
    remainders_of_f16_are_exact: f16;
    remainders_of_bf16_are_exact: bf16;
}

macro_rules! roots_test {
    ($($name:ident: $t:ty, $bits:ty, $ulps:expr;)*) => { $(
        #[test]
        fn $name() {
            let mut random = Random::new();
            let mut number = || {
                let bits = (random.below(1 << 32) << 32 | random.below(1 << 32)) as u64;
                <$t>::from_bits(bits as $bits >> 1)
            };
            let mut x: Vec<$t> = vec![0.0, -0.0, -1.0, 2.0, <$t>::INFINITY, <$t>::NAN, <$t>::MIN_POSITIVE, <$t>::MAX];
            x.extend((0..1 << 20).map(|_| number()));
            let y: Vec<$t> = x.iter().map(|x| <$t>::from_bits(x.to_bits() ^ number().to_bits() >> 9)).collect();
            let kernel = device().load(&IMAGE).unwrap().kernel::<roots<$t>>().unwrap();
            let [a, b] = [&x, &y].map(|values| DeviceBuffer::from_host(&stream(), values).unwrap());
            let [mut root, mut side] = [0, 1].map(|_| DeviceBuffer::<$t>::zeros(&stream(), x.len()).unwrap());
            kernel.launch(&stream(), Launch::auto(x.len()), (&a, &b, &mut root, &mut side)).unwrap();
            let (root, side) = (root.to_host().unwrap(), side.to_host().unwrap());
            for i in 0..x.len() {
                let expected = x[i].sqrt();
                assert!(root[i].same(expected), "√{:?} is {expected:?}, not {:?}; seed {}", x[i], root[i], random.seed);
                let expected = x[i].hypot(y[i]);
                let bound = $ulps * <$t>::EPSILON * expected + <$t>::from_bits(2);
                // If the other side is infinite, a signalling NaN gives NaN on the host only.
                let is_special = expected.is_nan() && (x[i].is_infinite() || y[i].is_infinite());
                let is_near = is_special || side[i].same(expected) || (side[i] - expected).abs() <= bound;
                assert!(is_near, "hypot({:?}, {:?}) is {expected:?}, not {:?}", x[i], y[i], side[i]);
            }
        }
    )* };
}
roots_test! {
    roots_of_f32_are_rounded_correctly: f32, u32, 2.0;
    roots_of_f64_are_rounded_correctly: f64, u64, 2.0;
}

#[test]
fn the_smallest_integers_are_negated() {
    let mut random = Random::new();
    let mut n: Vec<i64> = (0..1000).map(|_| random.bits() as i64).collect();
    for smallest in [i64::from(i8::MIN), i64::from(i16::MIN), i64::from(i32::MIN), i64::MIN] {
        n.extend((-2..3).map(|i| smallest.wrapping_add(i)));
    }
    let kernel = device().load(&IMAGE).unwrap().kernel::<negated>().unwrap();
    let x = DeviceBuffer::from_host(&stream(), &n).unwrap();
    let mut out = DeviceBuffer::<i64>::zeros(&stream(), 24 * n.len()).unwrap();
    kernel.launch(&stream(), Launch::auto(n.len()), (&x, &mut out)).unwrap();
    for (n, out) in n.iter().zip(out.to_host().unwrap().chunks(24)) {
        assert_eq!(out, kernels::negations(*n), "{n}, seed {}", random.seed);
    }
}

#[test]
fn floats_are_cast_to_128_bits() {
    let mut random = Random::new();
    let (mut x, mut y) = (pairs::<f32>(&mut random).0, pairs::<f64>(&mut random).0);
    for power in -2..=130 {
        for factor in [-1.0, 1.0, 1.5, -1.999_999] {
            x.push(factor as f32 * 2f32.powi(power));
            y.push(factor * 2f64.powi(power));
        }
    }
    let kernel = device().load(&IMAGE).unwrap().kernel::<wide_from_floats>().unwrap();
    let (a, b) =
        (DeviceBuffer::from_host(&stream(), &x).unwrap(), DeviceBuffer::from_host(&stream(), &y).unwrap());
    let mut out = DeviceBuffer::<u128>::zeros(&stream(), 4 * x.len()).unwrap();
    kernel.launch(&stream(), Launch::auto(x.len()), (&a, &b, &mut out)).unwrap();
    for ((x, y), out) in x.iter().zip(&y).zip(out.to_host().unwrap().chunks(4)) {
        assert_eq!(out, kernels::wide(*x, *y), "{x:?} {y:?}, seed {}", random.seed);
    }
}

#[test]
fn numbers_of_128_bits_are_cast_to_floats() {
    let mut random = Random::new();
    let mut n = vec![0, 1, u128::MAX, u128::MAX - 1, 1 << 127, (1 << 127) - 1, i128::MIN as u128 + 1];
    for _ in 0..100_000 {
        let mut bits = || random.below(1 << 32) as u128;
        let number = bits() << 96 | bits() << 64 | bits() << 32 | bits();
        // Near a number halfway between two floats.
        let kept = 24 + bits() as u32 % 31;
        let tie = (number >> (128 - kept)) << (bits() as u32 % (129 - kept));
        n.extend([number >> (bits() as u32 % 128), tie, tie + 1, tie.wrapping_sub(1), tie.wrapping_neg()]);
    }
    let kernel = device().load(&IMAGE).unwrap().kernel::<floats_from_wide>().unwrap();
    let numbers = DeviceBuffer::from_host(&stream(), &n).unwrap();
    let mut x = DeviceBuffer::<f32>::zeros(&stream(), 2 * n.len()).unwrap();
    let mut y = DeviceBuffer::<f64>::zeros(&stream(), 2 * n.len()).unwrap();
    kernel.launch(&stream(), Launch::auto(n.len()), (&numbers, &mut x, &mut y)).unwrap();
    let (x, y) = (x.to_host().unwrap(), y.to_host().unwrap());
    for (i, &n) in n.iter().enumerate() {
        let (of_32, of_64) = kernels::floats(n);
        assert_eq!(
            (&x[2 * i..][..2], &y[2 * i..][..2]),
            (&of_32[..], &of_64[..]),
            "{n}, seed {}",
            random.seed
        );
    }
}

#[test]
fn atomics_of_local_memory_work() {
    let x: Vec<u32> = (0..5000).map(|i: u32| i.wrapping_mul(0x9E37_79B9)).chain(0..100).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<local_atomics>().unwrap();
    let numbers = DeviceBuffer::from_host(&stream(), &x).unwrap();
    let mut out = DeviceBuffer::<u64>::zeros(&stream(), x.len()).unwrap();
    let mut total = DeviceBuffer::<u32>::zeros(&stream(), 1).unwrap();
    kernel.launch(&stream(), Launch::auto(x.len()), (&numbers, &mut out, &mut total)).unwrap();
    let expected: Vec<u64> = x.iter().map(|&x| kernels::of_local(x)).collect();
    assert_eq!(out.to_host().unwrap(), expected);
    assert_eq!(total.to_host().unwrap(), [x.len() as u32]);
}

/// Output of a kernel that writes one number to every element.
macro_rules! written {
    ($kernel:ty, $t:ty) => {{
        let kernel = device().load(&IMAGE).unwrap().kernel::<$kernel>().unwrap();
        let mut out = DeviceBuffer::<$t>::zeros(&stream(), 3).unwrap();
        kernel.launch(&stream(), Launch::auto(3), (&mut out,)).unwrap();
        let out = out.to_host().unwrap();
        assert_eq!(out, [out[0]; 3]);
        out[0]
    }};
}

#[test]
fn kernels_have_any_name() {
    assert_eq!(written!(kernels::größe, u32), 1);
    assert_eq!(written!(kernels::r#loop, u32), 2);
    assert_eq!(written!(kernels::vprintf, u32), 3);
    assert_eq!((kernels::größe::spec().name, kernels::größe::spec().symbol), ("größe", "gr$f6$$df$e"));
    assert_eq!((kernels::r#loop::spec().name, kernels::r#loop::spec().symbol), ("loop", "loop"));
}

#[test]
fn kernels_of_two_modules_have_one_name() {
    assert_eq!((written!(first::twin<u32>, u32), written!(second::twin<u32>, u32)), (4, 5));
    assert_eq!((written!(first::twin<u64>, u64), written!(second::twin<u64>, u64)), (4, 5));
}
