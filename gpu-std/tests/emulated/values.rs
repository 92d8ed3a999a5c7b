//! Numbers, vectors, 16-bit floats, math functions, glam types.

use crate::common::{Args, floats, launch, launch_shared, randoms};
#[cfg(feature = "glam")]
use glam::{Mat4, Vec3, Vec3A, Vec4};
use gpu_std::math::{self, Math};
use gpu_std::prelude::*;

#[kernel(types(T = u8, f16, f32, f64, u64), consts(N = 1, 2, 4, 8))]
fn copy_vectors<T: Scalar, const N: usize>(input: &[T], mut out: DisjointMut<T, Chunks<N>>) {
    let i = thread::unique_index();
    if let Some(chunk) = out.get_mut(i) {
        // SAFETY: the tests pass whole, aligned vectors.
        let vector: Vector<T, N> = unsafe { Vector::load(input.as_ptr().add(i.get() * N)) };
        let doubled = vector.map(|x| x.wrapping_add(x));
        // SAFETY: as above.
        unsafe { doubled.store(chunk.as_mut_ptr()) };
    }
}

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Aligned<T>([T; 64]);

#[test]
fn vectors_move_all_elements() {
    fn check<K: gpu_std::Kernel, T: Scalar>(n: usize) {
        let input = Aligned::<T>(std::array::from_fn(|_| crate::common::random().cast::<u8>().cast::<T>()));
        let mut out = Aligned([T::ZERO; 64]);
        launch::<K>([1, 1, 1], [64 / n as u32, 1, 1], &Args::new().slice(&input.0).view(&mut out.0));
        assert!(out.0.iter().zip(input.0).all(|(&out, x)| out == x.wrapping_add(x)));
    }
    check::<copy_vectors<u8, 1>, u8>(1);
    check::<copy_vectors<u8, 8>, u8>(8);
    check::<copy_vectors<f16, 2>, f16>(2);
    check::<copy_vectors<f16, 8>, f16>(8);
    check::<copy_vectors<f32, 1>, f32>(1);
    check::<copy_vectors<f32, 4>, f32>(4);
    check::<copy_vectors<f32, 8>, f32>(8);
    check::<copy_vectors<f64, 2>, f64>(2);
    check::<copy_vectors<u64, 4>, u64>(4);
}

#[test]
fn a_misaligned_vector_is_refused() {
    let input = Aligned([0_f32; 64]);
    let mut out = Aligned([0_f32; 64]);
    let args = Args::new().slice(&input.0[1..]).view(&mut out.0[..60]);
    let fault = launch_shared::<copy_vectors<f32, 4>>([1, 1, 1], [1, 1, 1], 0, &args).unwrap_err();
    assert!(fault.message().contains("misaligned"), "{fault}");
    assert_eq!((Vector::<f32, 4>::ALIGN, Vector::<f32, 8>::ALIGN, Vector::<f32, 3>::ALIGN), (16, 16, 4));
}

#[test]
fn minimum_and_maximum_propagate_nan_and_order_zeros() {
    fn check<T: Float>() {
        let [nan, one, two] = [f32::NAN, 1.0, 2.0].map(|x| x.cast::<T>());
        let zero = T::ZERO;
        for (a, b) in [(nan, one), (one, nan), (nan, nan), (nan, T::MAX_IDENTITY)] {
            assert!(a.min_propagate(b).cast::<f64>().is_nan(), "{}", T::NAME);
            assert!(a.max_propagate(b).cast::<f64>().is_nan(), "{}", T::NAME);
        }
        for (a, b) in [(one, two), (two, one)] {
            assert_eq!((a.min_propagate(b), a.max_propagate(b)), (one, two));
        }
        for (a, b) in [(zero, -zero), (-zero, zero)] {
            assert!(a.min_propagate(b).cast::<f64>().is_sign_negative());
            assert!(a.max_propagate(b).cast::<f64>().is_sign_positive());
        }
        assert_eq!(T::MIN_IDENTITY.min_propagate(one), one);
        assert_eq!(T::MAX_IDENTITY.max_propagate(one), one);
    }
    check::<f32>();
    check::<f64>();
    check::<f16>();
    check::<bf16>();
    assert_eq!((u8::MIN_IDENTITY, i64::MAX_IDENTITY, 3_i8.min_propagate(-4)), (255, i64::MIN, -4));
}

#[test]
fn casts_are_rusts_own() {
    for bits in randoms(2000) {
        let (int, uint) = (bits as i64 >> (bits % 64), bits >> (bits % 61));
        let float = f64::from_bits(bits);
        let small = f32::from_bits(bits as u32);
        assert_eq!(int.cast::<f32>().to_bits(), (int as f32).to_bits());
        assert_eq!(uint.cast::<i8>(), uint as i8);
        assert_eq!((int as i16).cast::<u64>(), int as i16 as u64);
        assert_eq!(float.cast::<i32>(), float as i32);
        assert_eq!(float.cast::<u64>(), float as u64);
        assert_eq!(small.cast::<u8>(), small as u8);
        assert_eq!(small.cast::<f64>().to_bits(), (small as f64).to_bits());
        assert_eq!(float.cast::<f32>().to_bits(), (float as f32).to_bits());
        assert_eq!(bf16::from_bits(bits as u16).cast::<i32>(), bf16::from_bits(bits as u16).to_f32() as i32);
    }
    assert_eq!((f32::NAN.cast::<i32>(), f64::INFINITY.cast::<u8>(), (-1.5_f32).cast::<u32>()), (0, 255, 0));
}

#[test]
fn doubles_round_once_to_sixteen_bits() {
    fn check<T: Scalar>(infinity: u16) {
        for bits in randoms(500) {
            let low = bits as u16 % infinity;
            let [a, b] = [low, low + 1].map(bytemuck::cast::<u16, T>);
            if low + 1 == infinity {
                continue;
            }
            let even = if low.is_multiple_of(2) { a } else { b };
            let middle = (a.cast::<f64>() + b.cast::<f64>()) / 2.0;
            assert_eq!(middle.cast::<T>(), even, "{middle:e}");
            assert_eq!(middle.next_up().cast::<T>(), b, "{middle:e}");
            assert_eq!(middle.next_down().cast::<T>(), a, "{middle:e}");
            let negative = |x: T| (-x.cast::<f64>()).cast::<T>();
            assert_eq!((-middle.next_up()).cast::<T>(), negative(b));
        }
        for special in [f64::INFINITY, f64::MAX, f64::NEG_INFINITY, f64::NAN, 5e-324, -0.0] {
            let found = special.cast::<T>().cast::<f64>();
            let expected = if special.abs() == f64::MAX { f64::INFINITY } else { special };
            let expected = if special == 5e-324 { 0.0 } else { expected };
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && special.is_nan(), "{special}");
        }
    }
    check::<f16>(f16::INFINITY.to_bits());
    check::<bf16>(bf16::INFINITY.to_bits());
}

/// Returns the 16-bit float nearest to an integer, found by comparing with all of them.
fn nearest<T: Scalar>(value: i128, all: &[(T, f64)]) -> T {
    let distance = |x: f64| ((x as i128) * 2 - value * 2).unsigned_abs();
    let best = all.iter().map(|&(_, x)| distance(x)).min().expect("there are some");
    let mut ties = all.iter().filter(|&&(_, x)| distance(x) == best);
    let first = ties.next().expect("the best is among them");
    match ties.next() {
        Some(second) if bytemuck::cast::<T, u16>(second.0).is_multiple_of(2) => second.0,
        _ => first.0,
    }
}

#[test]
fn integers_round_once_on_the_way_to_bf16() {
    let all: Vec<(bf16, f64)> = (0..=0xFF7F_u16)
        .map(bf16::from_bits)
        .filter(|x| {
            x.is_finite() && (x.to_f32() == 0.0 || x.to_f32().abs() >= 1.0) && x.to_f32().abs() < 3e19
        })
        .filter(|x| x.to_bits() != 0x8000)
        .map(|x| (x, x.to_f64()))
        .collect();
    let tie = (1_u64 << 62) + (1 << 54);
    let mut values = vec![0, 1, tie, tie + 1, tie - 1, u64::MAX, (1 << 53) + 1];
    values.extend(randoms(40).into_iter().map(|bits| bits >> (bits % 64)));
    for value in values {
        assert_eq!(value.cast::<bf16>(), nearest(value.into(), &all), "{value}");
        assert_eq!((value as i64).cast::<bf16>(), nearest((value as i64).into(), &all), "{}", value as i64);
    }
    assert_eq!(
        (70_000_u64.cast::<f16>(), (-2049_i64).cast::<f16>()),
        (f16::INFINITY, f16::from_f32(-2048.0))
    );
}

#[kernel]
fn sixteen_bits(input: &[f32], mut halves: DisjointMut<f16>, mut brains: DisjointMut<bf16>) {
    let i = thread::unique_index();
    if let (Some(half), Some(brain)) = (halves.get_mut(i), brains.get_mut(i)) {
        *half = f16::from_f32(input[i.get()]) * f16::from_f32(0.5);
        *brain = bf16::from_acc(bf16::from_f32(input[i.get()]).to_acc() + 1.0);
    }
}

#[test]
fn sixteen_bit_floats_compute() {
    let mut input = floats(96);
    input.extend([f32::NAN, f32::INFINITY, -0.0, 65520.0, 1e-8, f32::MAX]);
    let n = input.len();
    let (mut halves, mut brains) = (vec![f16::ONE; n], vec![bf16::ONE; n]);
    launch::<sixteen_bits>(
        [1, 1, 1],
        [n as u32, 1, 1],
        &Args::new().slice(&input).view(&mut halves).view(&mut brains),
    );
    for ((x, half), brain) in input.iter().zip(halves).zip(brains) {
        let expected = f16::from_f64(f16::from_f32(*x).to_f64() * 0.5);
        assert!(half == expected || half.is_nan() && x.is_nan(), "{x}: {half}");
        let expected = bf16::from_f64(bf16::from_f32(*x).to_f64() + 1.0);
        assert!(brain == expected || brain.is_nan() && x.is_nan(), "{x}: {brain}");
    }
}

/// Calls the functions as generic code does, in which the trait's methods take precedence.
#[test]
fn the_traits_functions_agree_with_the_standard_library() {
    for x in floats(200).into_iter().map(f64::from) {
        for y in [1.5, -1.5] {
            assert_eq!(Math::rem_euclid(x, y), x.rem_euclid(y));
            assert_eq!(Math::div_euclid(x, y), x.div_euclid(y));
        }
        assert_eq!(
            (Math::fract(x), Math::powi(x, -2), Math::sin_cos(x)),
            (x.fract(), x.powi(-2), x.sin_cos())
        );
        assert_eq!((Math::powf(x.abs(), x), Math::log(x.abs(), 3.0)), (x.abs().powf(x), x.abs().log(3.0)));
        let x = x as f32;
        assert_eq!((Math::powi(x, 5), Math::rem_euclid(x, 0.7)), (x.powi(5), x.rem_euclid(0.7)));
    }
}

#[test]
fn functions_agree_with_the_standard_library() {
    for x in floats(200).into_iter().map(f64::from) {
        let positive = x.abs() + 1e-3;
        let close = |found: f64, expected: f64| {
            assert!(
                (found - expected).abs() <= 1e-12 * (1.0 + expected.abs()),
                "{x}: {found}, not {expected}"
            );
        };
        close(math::exp(x), x.exp());
        close(math::ln(positive), positive.ln());
        close(math::pow(positive, x), positive.powf(x));
        close(math::atan2(x, positive), x.atan2(positive));
        close(math::rsqrt(positive), positive.sqrt().recip());
        close(math::exp10(x), 10_f64.powf(x));
        close(math::erf(x) + math::erfc(x), 1.0);
        close(math::mul_add(x, x, 1.0), x * x + 1.0);
        close(math::gamma(positive + 1.0), positive * math::gamma(positive));
        close(Math::gelu(x), 0.5 * x * (1.0 + libm::erf(x / 2_f64.sqrt())));
        close(math::copysign(positive, x), positive.copysign(x));
        let x = x as f32;
        assert!((math::fast::exp(x) / x.exp() - 1.0).abs() < 1e-5);
        assert!((math::fast::tanh(x) - x.tanh()).abs() < 1e-3);
        assert!((math::fast::div(x, 3.0) - x / 3.0).abs() < 1e-5);
    }
    assert_eq!(
        (math::round_ties_even(2.5_f32), math::round(2.5_f32), math::fmod(-7.5_f32, 2.0)),
        (2.0, 3.0, -1.5)
    );
}

#[cfg(feature = "glam")]
#[kernel]
fn transform(matrix: Mat4, offset: Vec3, points: &[Vec3A], mut out: DisjointMut<Vec4>) {
    let i = thread::unique_index();
    if let Some(out) = out.get_mut(i) {
        *out = matrix * (Vec3::from(points[i.get()]) + offset).extend(1.0);
    }
}

#[cfg(feature = "glam")]
#[test]
fn glam_types_are_parameters_and_elements() {
    let f = floats(19 + 3 * 40);
    let matrix = Mat4::from_cols_slice(&f[..16]);
    let offset = Vec3::from_slice(&f[16..]);
    let points: Vec<Vec3A> = f[19..].chunks_exact(3).map(Vec3A::from_slice).collect();
    let mut out = vec![Vec4::NAN; points.len()];
    let args = Args::new().value(matrix).value(offset).slice(&points).view(&mut out);
    launch::<transform>([1, 1, 1], [points.len() as u32, 1, 1], &args);
    for (out, point) in out.into_iter().zip(points) {
        assert_eq!(out, matrix * (Vec3::from(point) + offset).extend(1.0));
    }
}

#[kernel]
fn which_arch(mut out: DisjointMut<u32>) {
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = gpu_std::arch();
    }
}

#[test]
fn the_emulated_device_has_no_architecture() {
    let mut out = [9];
    launch::<which_arch>([1, 1, 1], [1, 1, 1], &Args::new().view(&mut out));
    assert_eq!(out, [0]);
}
