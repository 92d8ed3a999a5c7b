//! Tests GEMM of large matrices.

mod on_gpu {
    use half::{bf16, f16};
    use warpsmith_runtime::{DeviceBuffer, Stream};
    use warpsmith_tensor::{
        BlockScales, Epilogue, F8E4M3, Matrix, Schedule, matmul, matmul_f32, matmul_grouped, matmul_mma,
        matmul_scaled, matmul_tf32x3, matmul_with,
    };

    use crate::number::{Stored, TestNumber, random, random_integers};
    use crate::under_test;

    /// Checks that samples of a GEMM of random numbers are within the rounding error, and that each repetition is
    /// bit-identical.
    fn is_correct<T: TestNumber>(
        [m, n, k]: [usize; 3],
        [a_transposed, b_transposed]: [bool; 2],
        precision: f64,
        repetitions: usize,
    ) {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        let a = Stored::<T>::new([m, k], a_transposed, random(1, m * k));
        let b = Stored::<T>::new([k, n], b_transposed, random(2, n * k));
        let (on_a, on_b) = (a.on(&stream), b.on(&stream));
        let poison = vec![T::POISON; m * n];
        let mut c = DeviceBuffer::from_host(&stream, &poison).unwrap();
        let mut first: Option<Vec<T::Output>> = None;
        let case = format!("{} {m} x {n} x {k}, {a_transposed} {b_transposed}", std::any::type_name::<T>());
        for repetition in 0..repetitions {
            c.copy_from_host(&poison).unwrap();
            matmul(&stream, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
            let c = c.to_host().unwrap();
            if let Some(first) = &first {
                let same = first.iter().zip(&c).all(|(x, y)| x == y);
                assert!(same, "{case}: repetition {repetition} differs");
                continue;
            }
            let mut random = fastrand::Rng::with_seed(3);
            let corners = [(0, 0), (m - 1, n - 1), (0, n - 1), (m - 1, 0)];
            let samples = (0..2000).map(|_| (random.usize(..m), random.usize(..n)));
            for (row, column) in corners.into_iter().chain(samples) {
                let expected = a.dot(&b, row, column);
                let value = T::number_of(c[row * n + column]);
                let allowed = expected.abs() * precision + T::SUM_PRECISION * k as f64;
                let error = (value - expected).abs();
                assert!(error <= allowed, "{case}, {row}, {column}: {value} instead of {expected}");
            }
            first = Some(c);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn large_products_are_correct_and_repeatable() {
        for (shape, repetitions) in [
            ([2048; 3], 30),
            ([8192, 8192, 1024], 2),
            ([1000, 1200, 776], 5),
            ([128, 4096, 4096], 5),
            ([4096, 128, 8192], 5),
        ] {
            is_correct::<bf16>(shape, [false, true], 1.0 / 256.0, repetitions);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn large_products_of_all_layouts_are_correct() {
        for shape in [[1024; 3], [1000, 1200, 776], [136, 2056, 1032]] {
            for layout in [[false, false], [true, true], [true, false]] {
                is_correct::<bf16>(shape, layout, 1.0 / 256.0, 3);
                is_correct::<f16>(shape, layout, 1.0 / 2048.0, 3);
            }
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn large_products_of_all_types_are_correct() {
        for shape in [[1024; 3], [1000, 1200, 784], [136, 2064, 4096]] {
            is_correct::<f16>(shape, [false, true], 1.0 / 2048.0, 3);
            is_correct::<f32>(shape, [false, true], 1e-6, 3);
            is_correct::<F8E4M3>(shape, [false, true], 1.0 / 256.0, 3);
            is_correct::<i8>(shape, [false, true], 0.0, 3);
        }
    }

    /// Integers have the same products with `mma.sync` and with `wgmma`, in all elements.
    #[test]
    #[ignore = "needs a GPU"]
    fn large_products_by_both_instructions_are_the_same() {
        fn check<T: TestNumber>([a_transposed, b_transposed]: [bool; 2]) {
            let stream = Stream::new(&under_test::gpu()).unwrap();
            let [m, n, k] = [2048, 2048, 4096];
            let a = Stored::<T>::new([m, k], a_transposed, random_integers(1, m * k));
            let b = Stored::<T>::new([k, n], b_transposed, random_integers(2, n * k));
            let (on_a, on_b) = (a.on(&stream), b.on(&stream));
            let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
            matmul(&stream, a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap()).unwrap();
            let expected = c.to_host().unwrap();
            for tile in [[128, 256], [128, 128], [64, 128]] {
                for split_k in [1, 2] {
                    let schedule = Schedule { tile, cluster: 1, split_k };
                    c.copy_from_host(&vec![T::POISON; m * n]).unwrap();
                    let (a, b, to) = (a.view(&on_a), b.view(&on_b), c.as_2d_mut(m, n).unwrap());
                    matmul_mma(&stream, Some(schedule), &Epilogue::default(), a, b, to).unwrap();
                    let different =
                        c.to_host().unwrap().iter().zip(&expected).filter(|(x, y)| x != y).count();
                    let name = std::any::type_name::<T>();
                    assert_eq!(different, 0, "{name} {a_transposed} {b_transposed} {schedule:?}");
                }
            }
        }
        for layout in [[false, true], [false, false], [true, true], [true, false]] {
            check::<bf16>(layout);
        }
        check::<f32>([false, true]);
        check::<F8E4M3>([false, true]);
        check::<i8>([false, true]);
    }

    /// Sampled positions of the output.
    fn samples([m, n]: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
        let mut random = fastrand::Rng::with_seed(3);
        let corners = [(0, 0), (m - 1, n - 1), (0, n - 1), (m - 1, 0)];
        corners.into_iter().chain((0..1000).map(move |_| (random.usize(..m), random.usize(..n))))
    }

    /// Every schedule must compute correct sums in every repetition.
    #[test]
    #[ignore = "needs a GPU"]
    fn all_schedules_are_correct_and_repeatable() {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        let [m, n, k] = [500, 1032, 4104];
        let a = Stored::<bf16>::new([m, k], false, random(1, m * k));
        let b = Stored::<bf16>::new([k, n], true, random(2, n * k));
        let (on_a, on_b) = (a.on(&stream), b.on(&stream));
        let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
        for (tile, cluster, split_k) in [
            ([128, 256], 1, 1),
            ([128, 256], 2, 1),
            ([128, 256], 1, 4),
            ([128, 256], 1, 3),
            ([128, 256], 2, 4),
            ([64, 256], 1, 8),
            ([64, 256], 2, 2),
            ([128, 128], 1, 1),
            ([128, 128], 1, 8),
            ([128, 128], 1, 3),
            ([128, 128], 2, 4),
            ([64, 128], 1, 1),
            ([64, 128], 1, 8),
            ([64, 128], 2, 2),
            ([64, 128], 2, 3),
        ] {
            let schedule = Schedule { tile, cluster, split_k };
            let mut first: Option<Vec<bf16>> = None;
            for repetition in 0..20 {
                c.copy_from_host(&vec![bf16::NAN; m * n]).unwrap();
                let (epilogue, to) = (Epilogue::default(), c.as_2d_mut(m, n).unwrap());
                matmul_with(&stream, schedule, &epilogue, a.view(&on_a), b.view(&on_b), to).unwrap();
                let found = c.to_host().unwrap();
                if let Some(first) = &first {
                    assert!(*first == found, "{schedule:?}: repetition {repetition} differs");
                    continue;
                }
                for (row, column) in samples([m, n]) {
                    let (expected, value) = (a.dot(&b, row, column), f64::from(found[row * n + column]));
                    let allowed = expected.abs() / 256.0 + 1e-5 * k as f64;
                    assert!(
                        (value - expected).abs() <= allowed,
                        "{schedule:?}, {row}, {column}: {value}, {expected}"
                    );
                }
                first = Some(found);
            }
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn many_groups_of_rows_are_correct() {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        let ([n, k, count], mut rows) = ([520, 1032, 40], fastrand::Rng::with_seed(5));
        for most in [60, 400] {
            let mut offsets = vec![0u32];
            (0..count).for_each(|i| offsets.push(offsets[i] + rows.u32(..most)));
            let m = offsets[count] as usize;
            let a = Stored::<bf16>::new([m, k], false, random(1, m * k));
            let b: Vec<Stored<bf16>> =
                (0..count as u64).map(|i| Stored::new([k, n], true, random(2 + i, n * k))).collect();
            let all: Vec<bf16> = b.iter().flat_map(|matrix| matrix.elements.iter().copied()).collect();
            let (on_a, on_b) = (a.on(&stream), DeviceBuffer::from_host(&stream, &all).unwrap());
            let on_offsets = DeviceBuffer::from_host(&stream, &offsets).unwrap();
            let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
            let b_view = Matrix::from(on_b.as_3d(count, n, k).unwrap()).transposed();
            let (epilogue, to) = (Epilogue::default(), c.as_2d_mut(m, n).unwrap());
            matmul_grouped(&stream, &epilogue, a.view(&on_a), on_offsets.as_slice(), b_view, to).unwrap();
            let c = c.to_host().unwrap();
            for (row, column) in samples([m, n]) {
                let group = offsets.partition_point(|offset| *offset as usize <= row) - 1;
                let (expected, value) = (a.dot(&b[group], row, column), f64::from(c[row * n + column]));
                let allowed = expected.abs() / 256.0 + 1e-5 * k as f64;
                assert!((value - expected).abs() <= allowed, "{most}: {row}, {column}: {value}, {expected}");
            }
        }
    }

    /// The root mean square error must be at most twice the error of the GEMM without tensor cores.
    #[test]
    #[ignore = "needs a GPU"]
    fn three_products_of_tf32_are_nearly_as_exact_as_f32() {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        for [m, n, k] in [[1000, 777, 4096], [130, 200, 16384], [2048, 2048, 100]] {
            let mut random = fastrand::Rng::with_seed(9);
            let mut numbers =
                |len: usize| -> Vec<f32> { (0..len).map(|_| random.f32() * 2.0 - 1.0).collect() };
            let (a, b) = (numbers(m * k), numbers(n * k));
            let on = |numbers: &[f32]| DeviceBuffer::from_host(&stream, numbers).unwrap();
            let (on_a, on_b) = (on(&a), on(&b));
            let error = |is_by_three: bool| {
                let mut c = DeviceBuffer::from_host(&stream, &vec![f32::NAN; m * n]).unwrap();
                let b_view = Matrix::from(on_b.as_2d(n, k).unwrap()).transposed();
                let (a_view, epilogue) = (on_a.as_2d(m, k).unwrap(), Epilogue::default());
                let to = c.as_2d_mut(m, n).unwrap();
                if is_by_three {
                    matmul_tf32x3(&stream, &epilogue, a_view, b_view, to).unwrap();
                } else {
                    matmul_f32(&stream, &epilogue, a_view, b_view, to).unwrap();
                }
                let c = c.to_host().unwrap();
                let squares = samples([m, n]).map(|(row, column)| {
                    let products = a[row * k..][..k].iter().zip(&b[column * k..][..k]);
                    let exact: f64 = products.map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                    (f64::from(c[row * n + column]) - exact).powi(2)
                });
                squares.sum::<f64>().sqrt()
            };
            let (ours, plain) = (error(true), error(false));
            assert!(ours <= 2.0 * plain, "{m} x {n} x {k}: {ours} and {plain}");
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn large_scaled_products_are_correct() {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        for [m, n, k] in [[1000, 1160, 4112], [40, 300, 16384]] {
            let a = Stored::<F8E4M3>::new([m, k], false, random(1, m * k));
            let b = Stored::<F8E4M3>::new([k, n], true, random(2, n * k));
            let blocks = k.div_ceil(128);
            let mut numbers = fastrand::Rng::with_seed(9);
            let mut scales = |len: usize| -> Vec<f32> { (0..len).map(|_| 0.5 + numbers.f32()).collect() };
            let (of_a, of_b) = (scales(m * blocks), scales(n.div_ceil(128) * blocks));
            let on = |scales: &[f32]| DeviceBuffer::from_host(&stream, scales).unwrap();
            let (on_a, on_b, on_a_scales, on_b_scales) = (a.on(&stream), b.on(&stream), on(&of_a), on(&of_b));
            let scales = BlockScales { a: on_a_scales.as_slice(), b: on_b_scales.as_slice() };
            let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
            let (epilogue, to) = (Epilogue::default(), c.as_2d_mut(m, n).unwrap());
            matmul_scaled(&stream, &epilogue, a.view(&on_a), b.view(&on_b), scales, to).unwrap();
            let c = c.to_host().unwrap();
            for (row, column) in samples([m, n]) {
                let product = |l: usize| {
                    let scale = of_a[row * blocks + l / 128] * of_b[column / 128 * blocks + l / 128];
                    a.elements[row * k + l].value() * b.elements[column * k + l].value() * f64::from(scale)
                };
                let (expected, value) = ((0..k).map(product).sum::<f64>(), f64::from(c[row * n + column]));
                // The tensor cores add within a block with about 14 bits.
                let allowed = expected.abs() / 256.0 + 1e-3 * (k as f64).sqrt() * 8.0;
                assert!((value - expected).abs() <= allowed, "{row}, {column}: {value}, {expected}");
            }
        }
    }
}
