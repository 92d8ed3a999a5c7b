//! Tests GEMM with `mma.sync`: layouts, alignments, tiles, split-K, batches and epilogues, with poisoned outputs.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, Stream};
use warpsmith_tensor::{Activation, Epilogue, F8E4M3, Matrix, Schedule, TensorError, matmul, matmul_mma};

use crate::number::{Stored, TestNumber, random, random_integers};
use crate::under_test;

/// Values of m, n and k at the edges of tiles, whose rows are multiples of 16 bytes in all layouts.
const ALIGNED: [[usize; 3]; 5] = [[8, 8, 8], [128, 256, 64], [136, 264, 72], [64, 520, 40], [264, 128, 160]];
/// Values of m, n and k of which no row is a multiple of 16 bytes.
const RAGGED: [[usize; 3]; 5] = [[1, 1, 1], [17, 3, 33], [127, 129, 31], [130, 257, 65], [3, 260, 100]];
/// Transpositions of A and B.
const LAYOUTS: [[bool; 2]; 4] = [[false, true], [false, false], [true, true], [true, false]];
/// Tiles of the kernels for aligned matrices.
const TILES: [[u32; 2]; 3] = [[128, 256], [128, 128], [64, 128]];

fn stream() -> Stream {
    Stream::new(&under_test::device()).unwrap()
}

fn schedule(tile: [u32; 2], split_k: u32) -> Option<Schedule> {
    Some(Schedule { tile, cluster: 1, split_k })
}

/// Multiplies integers, and compares each element of the product.
fn exact<T: TestNumber>(
    stream: &Stream,
    schedule: Option<Schedule>,
    [m, n, k]: [usize; 3],
    [a_transposed, b_transposed]: [bool; 2],
) {
    let a = Stored::<T>::new([m, k], a_transposed, random_integers(fastrand::u64(..), m * k));
    let b = Stored::<T>::new([k, n], b_transposed, random_integers(fastrand::u64(..), n * k));
    let (on_a, on_b) = (a.on(stream), b.on(stream));
    let mut c = DeviceBuffer::from_host(stream, &vec![T::POISON; m * n]).unwrap();
    let to = c.as_2d_mut(m, n).unwrap();
    matmul_mma(stream, schedule, &Epilogue::default(), a.view(&on_a), b.view(&on_b), to).unwrap();
    let name = std::any::type_name::<T>();
    for (i, (value, (expected, _))) in c.to_host().unwrap().into_iter().zip(a.times(&b)).enumerate() {
        let (row, column) = (i / n, i % n);
        assert_eq!(
            T::number_of(value),
            T::rounded(expected),
            "{name} {m} x {n} x {k} {a_transposed} {b_transposed} {schedule:?}, row {row}, column {column}"
        );
    }
}

#[test]
fn integers_are_exact_in_all_layouts_and_alignments() {
    let stream = stream();
    for layout in LAYOUTS {
        for shape in ALIGNED.into_iter().chain(RAGGED) {
            exact::<bf16>(&stream, None, shape, layout);
        }
        exact::<f16>(&stream, None, ALIGNED[2], layout);
        exact::<f16>(&stream, None, RAGGED[2], layout);
    }
}

/// Only one layout has kernels that copy 16 bytes at a time.
#[test]
fn integers_of_8_and_32_bits_are_exact_in_all_layouts_and_alignments() {
    let stream = stream();
    for [m, n, k] in ALIGNED {
        let k = k.next_multiple_of(16);
        exact::<f32>(&stream, None, [m, n, k], LAYOUTS[0]);
        exact::<i8>(&stream, None, [m, n, k], LAYOUTS[0]);
        exact::<F8E4M3>(&stream, None, [m, n, k], LAYOUTS[0]);
    }
    for layout in LAYOUTS {
        for shape in [RAGGED[1], RAGGED[3], ALIGNED[2]] {
            exact::<f32>(&stream, None, shape, layout);
            exact::<i8>(&stream, None, shape, layout);
            exact::<F8E4M3>(&stream, None, shape, layout);
        }
    }
}

/// Eleven stages leave parts of different lengths, and a part less than requested for a factor of 8. The parts of a
/// stream share counters, also for different numbers of tiles.
#[test]
fn integers_are_exact_with_all_tiles_and_parts() {
    let stream = stream();
    let mut layouts = LAYOUTS.into_iter().cycle();
    for split_k in Schedule::SPLIT_K {
        for tile in TILES {
            exact::<bf16>(&stream, schedule(tile, split_k), [136, 264, 344], layouts.next().unwrap());
        }
        // Next time, each tile has another layout.
        layouts.next();
        exact::<f16>(&stream, schedule([128, 128], split_k), [65, 131, 339], layouts.next().unwrap());
        // There are fewer stages than parts.
        exact::<f16>(&stream, schedule([64, 128], split_k), [8, 8, 40], [false, true]);
    }
}

#[test]
fn integers_of_8_and_32_bits_are_exact_with_all_tiles_and_parts() {
    let stream = stream();
    for split_k in Schedule::SPLIT_K {
        for tile in TILES {
            exact::<f32>(&stream, schedule(tile, split_k), [136, 264, 172], LAYOUTS[0]);
            exact::<i8>(&stream, schedule(tile, split_k), [136, 264, 688], LAYOUTS[0]);
            exact::<F8E4M3>(&stream, schedule(tile, split_k), [136, 264, 688], LAYOUTS[0]);
        }
        exact::<f32>(&stream, schedule([128, 128], split_k), [65, 131, 171], LAYOUTS[1]);
        exact::<i8>(&stream, schedule([128, 128], split_k), [65, 131, 687], LAYOUTS[3]);
    }
}

/// Compares random products, computed twice, with sums of `f64`. The relative error of a rounded result is at most
/// `precision`.
fn repeatable<T: TestNumber>([m, n, k]: [usize; 3], precision: f64) {
    let (stream, seed) = (stream(), fastrand::u64(..));
    let a = Stored::<T>::new([m, k], false, random(seed, m * k));
    let b = Stored::<T>::new([k, n], true, random(seed ^ 1, n * k));
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let (expected, name) = (a.times(&b), std::any::type_name::<T>());
    for split_k in [1, 4] {
        let [first, second] = [(); 2].map(|()| {
            let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
            let to = c.as_2d_mut(m, n).unwrap();
            let schedule = schedule([64, 128], split_k);
            matmul_mma(&stream, schedule, &Epilogue::default(), a.view(&on_a), b.view(&on_b), to).unwrap();
            c.to_host().unwrap()
        });
        assert_eq!(first, second, "{name}, seed {seed}, {split_k} parts");
        for (i, (value, (expected, all))) in first.into_iter().zip(&expected).enumerate() {
            let allowed = expected.abs() * precision + all * T::SUM_PRECISION;
            let value = T::number_of(value);
            let error = (value - expected).abs();
            assert!(error <= allowed, "{name}, seed {seed}, element {i}: {value} instead of {expected}");
        }
    }
}

#[test]
fn sums_of_parts_are_within_rounding_and_repeatable() {
    repeatable::<bf16>([72, 136, 1000], 1.0 / 256.0);
    // Each factor is truncated to 10 bits of mantissa.
    repeatable::<f32>([72, 136, 500], 1e-6);
    repeatable::<i8>([72, 136, 2000], 0.0);
    repeatable::<F8E4M3>([72, 136, 2000], 1.0 / 256.0);
}

/// A batch with a broadcast operand, whose rows are padded and of which each matrix is transposed.
#[test]
fn batches_are_multiplied_with_their_epilogue() {
    let stream = stream();
    let [batches, m, n, k] = [3, 40, 24, 144];
    let a = random_integers::<bf16>(1, batches * k * m);
    let b = random_integers::<bf16>(2, n * k);
    let bias = random_integers::<bf16>(3, n);
    let [on_a, on_b, on_bias] = [&a, &b, &bias].map(|host| DeviceBuffer::from_host(&stream, host).unwrap());
    let scaled: Vec<f32> = (0..batches * m * n)
        .map(|i| {
            let (batch, row, column) = (i / n / m, i / n % m, i % n);
            let dot = |x: usize| a[(batch * k + x) * m + row].to_f32() * b[x * n + column].to_f32();
            -0.125 * (0..k).map(dot).sum::<f32>() + bias[column].to_f32()
        })
        .collect();
    for (activation, split_k) in [(Activation::Relu, 1), (Activation::Gelu, 4), (Activation::None, 2)] {
        let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; batches * m * n]).unwrap();
        let epilogue =
            Epilogue { scale: -0.125, bias: Some(on_bias.as_slice()), activation, ..Epilogue::default() };
        let a_view = Matrix::from(on_a.as_3d(batches, k, m).unwrap()).transposed();
        let (b_view, to) = (on_b.as_2d(k, n).unwrap(), c.as_3d_mut(batches, m, n).unwrap());
        matmul_mma(&stream, schedule([64, 128], split_k), &epilogue, a_view, b_view, to).unwrap();
        for (i, (value, &x)) in c.to_host().unwrap().into_iter().zip(&scaled).enumerate() {
            let tanh = (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh();
            let (expected, allowed) = match activation {
                Activation::None => (x, 0.0),
                Activation::SwiGlu => unreachable!("only skinny GEMMs support it"),
                Activation::Relu => (x.max(0.0), 0.0),
                Activation::Gelu => (0.5 * x * (1.0 + tanh), 1.0 / 128.0),
            };
            let error = (value.to_f32() - bf16::from_f32(expected).to_f32()).abs();
            assert!(
                error <= allowed * expected.abs().max(1.0),
                "{activation:?}, element {i}: {value}, {expected}"
            );
        }
    }
}

/// Rows start on 16-byte boundaries and end in front of NaN that must not be read as elements.
#[test]
fn padded_rows_are_multiplied_and_gaps_kept() {
    let stream = stream();
    let pitch = 80;
    let sizes = [([72, 48, 40], [64, 128]), ([70, 43, 37], [128, 128])];
    for (([m, n, k], tile), [a_transposed, b_transposed]) in
        sizes.into_iter().flat_map(|size| LAYOUTS.map(|layouts| (size, layouts)))
    {
        let stored = |seed, rows: usize, columns: usize| -> Vec<bf16> {
            let numbers = random_integers::<bf16>(seed, rows * pitch);
            let gap = |(i, number)| if i % pitch < columns { number } else { bf16::NAN };
            numbers.into_iter().enumerate().map(gap).collect()
        };
        let (a_rows, a_columns) = if a_transposed { (k, m) } else { (m, k) };
        let (b_rows, b_columns) = if b_transposed { (n, k) } else { (k, n) };
        let (a, b) = (stored(1, a_rows, a_columns), stored(2, b_rows, b_columns));
        let [on_a, on_b] = [&a, &b].map(|host| DeviceBuffer::from_host(&stream, host).unwrap());
        let view = |buffer, rows, columns, is_transposed| {
            let matrix =
                Matrix::from(DeviceBuffer::as_slice(buffer).as_2d_strided(rows, columns, pitch).unwrap());
            if is_transposed { matrix.transposed() } else { matrix }
        };
        let a_view = view(&on_a, a_rows, a_columns, a_transposed);
        let b_view = view(&on_b, b_rows, b_columns, b_transposed);
        let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::from_f32(7.5); m * pitch]).unwrap();
        let to = c.as_2d_strided_mut(m, n, pitch).unwrap();
        matmul_mma(&stream, schedule(tile, 1), &Epilogue::default(), a_view, b_view, to).unwrap();
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            let (row, column) = (i / pitch, i % pitch);
            let a = |x: usize| if a_transposed { a[x * pitch + row] } else { a[row * pitch + x] };
            let b = |x: usize| if b_transposed { b[column * pitch + x] } else { b[x * pitch + column] };
            let dot = || (0..k).map(|x| a(x).to_f32() * b(x).to_f32()).sum();
            let expected = if column < n { dot() } else { 7.5 };
            assert_eq!(
                value,
                bf16::from_f32(expected),
                "{a_transposed} {b_transposed}, row {row}, column {column}"
            );
        }
    }
}

#[test]
fn infinities_and_nan_reach_their_rows() {
    let stream = stream();
    let [m, n, k] = [130, 264, 168];
    let mut a = vec![bf16::ONE; m * k];
    a[129 * k + 167] = bf16::INFINITY;
    a[5 * k] = bf16::NAN;
    let (a, b) = (Stored::new([m, k], false, a), Stored::new([k, n], true, vec![bf16::ONE; n * k]));
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    for split_k in [1, 3] {
        let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::ZERO; m * n]).unwrap();
        let to = c.as_2d_mut(m, n).unwrap();
        let schedule = schedule([128, 256], split_k);
        matmul_mma(&stream, schedule, &Epilogue::default(), a.view(&on_a), b.view(&on_b), to).unwrap();
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            match i / n {
                129 => assert_eq!(value, bf16::INFINITY),
                5 => assert!(value.is_nan()),
                _ => assert_eq!(value, bf16::from_f32(k as f32)),
            }
        }
    }
}

/// Products of 1, with one infinity and one NaN.
#[test]
fn infinities_and_nan_of_8_and_32_bits_reach_their_rows() {
    fn check<T: TestNumber>(infinity: Option<T>, nan: T) {
        let stream = stream();
        for ([m, n, k], b_transposed) in [([130, 264, 160], true), ([130, 20, 33], false)] {
            let mut a = vec![T::of(1.0); m * k];
            a[129 * k + k - 1] = infinity.unwrap_or(T::of(1.0));
            a[5 * k] = nan;
            let a = Stored::new([m, k], false, a);
            let b = Stored::new([k, n], b_transposed, vec![T::of(1.0); n * k]);
            let (on_a, on_b) = (a.on(&stream), b.on(&stream));
            let mut c = DeviceBuffer::<T::Output>::zeros(&stream, m * n).unwrap();
            let to = c.as_2d_mut(m, n).unwrap();
            matmul_mma(&stream, None, &Epilogue::default(), a.view(&on_a), b.view(&on_b), to).unwrap();
            for (i, value) in c.to_host().unwrap().into_iter().map(T::number_of).enumerate() {
                match i / n {
                    129 if infinity.is_some() => assert_eq!(value, f64::INFINITY),
                    5 => assert!(value.is_nan(), "element {i}: {value}"),
                    _ => assert_eq!(value, k as f64),
                }
            }
        }
    }
    check::<f32>(Some(f32::INFINITY), f32::NAN);
    // NaN whose payload is in the low bits, which TF32 does not have, become infinite.
    check::<F8E4M3>(None, F8E4M3::NAN);
    check::<F8E4M3>(None, F8E4M3::from_bits(0xff));
}

/// All numbers of E4M3, multiplied by 1.
#[test]
fn numbers_of_8_bits_are_converted_exactly() {
    let (stream, k) = (stream(), 256);
    let numbers = || (0..=255).map(F8E4M3::from_bits);
    let finite = |x: F8E4M3| if x.to_f32().is_nan() { F8E4M3::from_f32(0.0) } else { x };
    let diagonal: Vec<F8E4M3> = (0..k * k)
        .map(
            |i| if i % k == i / k { finite(F8E4M3::from_bits((i / k) as u8)) } else { F8E4M3::from_f32(0.0) },
        )
        .collect();
    let a = DeviceBuffer::from_host(&stream, &diagonal).unwrap();
    let b = DeviceBuffer::from_host(&stream, &vec![F8E4M3::from_f32(1.0); 16 * k]).unwrap();
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; k * 16]).unwrap();
    let b_view = Matrix::from(b.as_2d(16, k).unwrap()).transposed();
    let to = c.as_2d_mut(k, 16).unwrap();
    matmul_mma(&stream, None, &Epilogue::default(), a.as_2d(k, k).unwrap(), b_view, to).unwrap();
    let expected = numbers().flat_map(|x| [finite(x).to_f32(); 16]);
    assert!(c.to_host().unwrap().into_iter().map(f32::from).eq(expected));
}

/// Sums of integers wrap around, also those of parts.
#[test]
fn sums_of_integers_wrap_around() {
    let (stream, k) = (stream(), 1 << 18);
    let a = DeviceBuffer::from_host(&stream, &vec![i8::MIN; k]).unwrap();
    let b_view = Matrix::from(a.as_2d(1, k).unwrap()).transposed();
    for split_k in [1, 8] {
        let mut c = DeviceBuffer::from_host(&stream, &[1]).unwrap();
        let to = c.as_2d_mut(1, 1).unwrap();
        let schedule = schedule([64, 128], split_k);
        matmul_mma(&stream, schedule, &Epilogue::default(), a.as_2d(1, k).unwrap(), b_view, to).unwrap();
        // 2^14 * 2^18 = 2^32.
        assert_eq!(c.to_host().unwrap(), [0]);
    }
}

/// TF32 and FP8 have epilogues in `f32`.
#[test]
fn batches_of_8_and_32_bits_are_multiplied_with_their_epilogue() {
    fn check<T: TestNumber<Sum = f32>>(of: fn(f32) -> T::Output) {
        let stream = stream();
        for [batches, m, n, k] in [[3, 40, 24, 144], [2, 70, 41, 33]] {
            let (a, b) = (random_integers::<T>(1, batches * m * k), random_integers::<T>(2, n * k));
            let bias: Vec<T::Output> = (0..n).map(|i| of(i as f32 - 8.0)).collect();
            let [on_a, on_b] = [&a, &b].map(|host| DeviceBuffer::from_host(&stream, host).unwrap());
            let on_bias = DeviceBuffer::from_host(&stream, &bias).unwrap();
            for split_k in [1, 2] {
                let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; batches * m * n]).unwrap();
                let epilogue = Epilogue {
                    scale: -0.5,
                    bias: Some(on_bias.as_slice()),
                    activation: Activation::Relu,
                    ..Epilogue::default()
                };
                let (a_view, to) = (on_a.as_3d(batches, m, k).unwrap(), c.as_3d_mut(batches, m, n).unwrap());
                let b_view = Matrix::from(on_b.as_2d(n, k).unwrap()).transposed();
                matmul_mma(&stream, schedule([128, 128], split_k), &epilogue, a_view, b_view, to).unwrap();
                for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
                    let (row, column) = (i / n, i % n);
                    let dot: f64 = (0..k).map(|x| a[row * k + x].value() * b[column * k + x].value()).sum();
                    let expected = (-0.5 * dot + column as f64 - 8.0).max(0.0);
                    assert_eq!(T::number_of(value), T::rounded(expected), "element {i}, {split_k} parts");
                }
            }
        }
    }
    check::<f32>(|x| x);
    check::<F8E4M3>(bf16::from_f32);
}

/// With k = 0, the result is the epilogue of zeros. Without rows or columns, there is no result.
#[test]
fn sides_can_be_zero() {
    let stream = stream();
    let x = DeviceBuffer::<f16>::zeros(&stream, 64).unwrap();
    let bias = DeviceBuffer::from_host(&stream, &[f16::from_f32(-3.0), f16::from_f32(2.0)]).unwrap();
    let mut c = DeviceBuffer::from_host(&stream, &[f16::NAN; 6]).unwrap();
    let mut multiply = |m: usize, n: usize, k: usize, bias: Option<&DeviceBuffer<f16>>| {
        c.copy_from_host(&[f16::NAN; 6]).unwrap();
        let bias = bias.map(DeviceBuffer::as_slice);
        let epilogue = Epilogue { bias, activation: Activation::Relu, ..Epilogue::default() };
        let (a, b) = (x.slice(..m * k), x.slice(..k * n));
        let (a, b) = (a.as_2d(m, k).unwrap(), b.as_2d(k, n).unwrap());
        let mut elements = c.slice_mut(..m * n);
        matmul_mma(&stream, None, &epilogue, a, b, elements.as_2d_mut(m, n).unwrap()).unwrap();
        c.to_host().unwrap().into_iter().map(f32::from).collect::<Vec<_>>()
    };
    assert_eq!(multiply(3, 2, 0, Some(&bias)), [0.0, 2.0, 0.0, 2.0, 0.0, 2.0]);
    assert_eq!(multiply(3, 2, 0, None), [0.0; 6]);
    assert_eq!(multiply(3, 2, 1, None), [0.0; 6]);
    for [m, n] in [[0, 2], [3, 0]] {
        assert!(multiply(m, n, 8, None).into_iter().all(f32::is_nan), "{m} x {n}");
    }
}

/// Matrices that TMA cannot copy: `a` and `b` start at any element, or `c` does and `a` is transposed or has integers.
#[test]
fn products_without_tma_take_these_kernels() {
    fn view<T: TestNumber>(
        elements: DeviceSlice<'_, T>,
        [rows, columns]: [usize; 2],
        is_transposed: bool,
    ) -> Matrix<'_, T> {
        if is_transposed {
            Matrix::from(elements.as_2d(columns, rows).unwrap()).transposed()
        } else {
            elements.as_2d(rows, columns).unwrap().into()
        }
    }
    fn check<T: TestNumber>([a_from, b_from, c_from]: [usize; 3], [a_transposed, b_transposed]: [bool; 2]) {
        let (stream, [m, n, k]) = (stream(), [72, 40, 32]);
        let a = Stored::<T>::new([m, k], a_transposed, random_integers(1, m * k));
        let b = Stored::<T>::new([k, n], b_transposed, random_integers(2, n * k));
        let after = |from, elements: &[T]| {
            let elements: Vec<T> =
                vec![T::of(99.0); from].into_iter().chain(elements.iter().copied()).collect();
            DeviceBuffer::from_host(&stream, &elements).unwrap()
        };
        let (on_a, on_b) = (after(a_from, &a.elements), after(b_from, &b.elements));
        let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; c_from + m * n]).unwrap();
        let mut elements = c.slice_mut(c_from..);
        let a_view = view(on_a.slice(a_from..), [m, k], a_transposed);
        let b_view = view(on_b.slice(b_from..), [k, n], b_transposed);
        matmul(&stream, a_view, b_view, elements.as_2d_mut(m, n).unwrap()).unwrap();
        for (i, (value, (expected, _))) in c.to_host().unwrap()[c_from..].iter().zip(a.times(&b)).enumerate()
        {
            assert_eq!(T::number_of(*value), T::rounded(expected), "element {i}");
        }
    }
    check::<f16>([1, 3, 0], [false, false]);
    check::<bf16>([0, 1, 5], [true, false]);
    check::<bf16>([0, 0, 1], [true, false]);
    check::<i8>([0, 0, 1], [false, true]);
    check::<i8>([3, 0, 0], [true, true]);
    check::<f32>([1, 0, 2], [false, true]);
    check::<f32>([0, 0, 0], [false, false]);
    check::<F8E4M3>([0, 5, 1], [true, false]);
}

/// A library that is faster for unaligned matrices can be preferred.
#[test]
fn unaligned_matrices_can_be_left_to_a_library() {
    let stream = stream();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 65).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let mut multiply = |from| {
        let (a, b) = (x.slice(from..from + 64), x.slice(..64));
        let (a, b) = (a.as_2d(8, 8).unwrap().into(), b.as_2d(8, 8).unwrap().into());
        let to = c.as_2d_mut(8, 8).unwrap().into();
        warpsmith_tensor::matmul_or_library(&stream, true, &Epilogue::default(), a, b, to)
    };
    multiply(0).unwrap();
    let error = multiply(1).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(TensorError::Alignment { matrix: "a", .. })), "{error}");
}

#[test]
fn schedules_without_kernels_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 65).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let mut is_refused = |from, schedule| {
        let (a, b) = (x.slice(from..from + 64), x.slice(..64));
        let (a, b) = (a.as_2d(8, 8).unwrap(), b.as_2d(8, 8).unwrap());
        let to = c.as_2d_mut(8, 8).unwrap();
        let result = matmul_mma(&stream, Some(schedule), &Epilogue::default(), a, b, to);
        result.is_err_and(|error| matches!(error.downcast_ref(), Some(TensorError::Schedule { .. })))
    };
    let of = |tile, cluster, split_k| Schedule { tile, cluster, split_k };
    assert!(!is_refused(0, of([64, 128], 1, 1)) && !is_refused(1, of([128, 128], 1, 1)));
    assert!(is_refused(0, of([64, 256], 1, 1)) && is_refused(0, of([64, 128], 2, 1)));
    assert!(is_refused(0, of([64, 128], 1, 0)) && is_refused(1, of([64, 128], 1, 1)));
}
