//! Products of large matrices.

mod on_gpu {
    use half::{bf16, f16};
    use warpsmith_core::{DeviceBuffer, Stream};
    use warpsmith_tensor::{F8E4M3, matmul};

    use crate::number::{Number, Stored, random};
    use crate::under_test;

    /// Samples of a product of random numbers are within rounding, and each repetition gives the same bits.
    fn is_right<T: Number>(
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
            matmul(&stream, a.view(&on_a), b.view(&on_b), c.as_2d_mut(n, m).unwrap()).unwrap();
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
    fn large_products_are_right_and_repeatable() {
        for (shape, repetitions) in [
            ([2048; 3], 30),
            ([8192, 8192, 1024], 2),
            ([1000, 1200, 776], 5),
            ([128, 4096, 4096], 5),
            ([4096, 128, 8192], 5),
        ] {
            is_right::<bf16>(shape, [false, true], 1.0 / 256.0, repetitions);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn large_products_of_all_layouts_are_right() {
        for shape in [[1024; 3], [1000, 1200, 776], [136, 2056, 1032]] {
            for layout in [[false, false], [true, true], [true, false]] {
                is_right::<bf16>(shape, layout, 1.0 / 256.0, 3);
                is_right::<f16>(shape, layout, 1.0 / 2048.0, 3);
            }
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn large_products_of_all_types_are_right() {
        for shape in [[1024; 3], [1000, 1200, 784], [136, 2064, 4096]] {
            is_right::<f16>(shape, [false, true], 1.0 / 2048.0, 3);
            is_right::<f32>(shape, [false, true], 1e-6, 3);
            is_right::<F8E4M3>(shape, [false, true], 1.0 / 256.0, 3);
            is_right::<i8>(shape, [false, true], 0.0, 3);
        }
    }
}
