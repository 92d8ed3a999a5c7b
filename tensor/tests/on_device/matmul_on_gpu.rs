//! Products of large matrices.

mod on_gpu {
    use half::bf16;
    use warpsmith_core::{DeviceBuffer, Stream};
    use warpsmith_tensor::{Matrix, matmul};

    use crate::under_test;

    /// Samples of a product of random numbers are within rounding, and each repetition gives the same bits.
    fn is_right([m, n, k]: [usize; 3], repetitions: usize) {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        let numbers = |seed, len| -> Vec<bf16> {
            let mut random = fastrand::Rng::with_seed(seed);
            (0..len).map(|_| bf16::from_f32(random.f32() * 2.0 - 1.0)).collect()
        };
        let (a, b) = (numbers(1, m * k), numbers(2, n * k));
        let (on_a, on_b) =
            (DeviceBuffer::from_host(&stream, &a).unwrap(), DeviceBuffer::from_host(&stream, &b).unwrap());
        let poison = vec![bf16::NAN; m * n];
        let mut c = DeviceBuffer::from_host(&stream, &poison).unwrap();
        let mut first: Option<Vec<bf16>> = None;
        for repetition in 0..repetitions {
            c.copy_from_host(&poison).unwrap();
            let b_view = Matrix::from(on_b.as_2d(k, n).unwrap()).transposed();
            matmul(&stream, on_a.as_2d(k, m).unwrap(), b_view, c.as_2d_mut(n, m).unwrap()).unwrap();
            let c = c.to_host().unwrap();
            if let Some(first) = &first {
                let same = first.iter().zip(&c).all(|(x, y)| x.to_bits() == y.to_bits());
                assert!(same, "{m} x {n} x {k}: repetition {repetition} differs");
                continue;
            }
            let mut random = fastrand::Rng::with_seed(3);
            let corners = [(0, 0), (m - 1, n - 1), (0, n - 1), (m - 1, 0)];
            let samples = (0..5000).map(|_| (random.usize(..m), random.usize(..n)));
            for (row, column) in corners.into_iter().chain(samples) {
                let pairs = a[row * k..][..k].iter().zip(&b[column * k..][..k]);
                let expected: f64 = pairs.map(|(x, y)| x.to_f64() * y.to_f64()).sum();
                let value = c[row * n + column].to_f64();
                let allowed = expected.abs() / 256.0 + 1e-5 * k as f64;
                assert!(
                    (value - expected).abs() <= allowed,
                    "{row}, {column}: {value} instead of {expected}"
                );
            }
            first = Some(c);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn large_products_are_right_and_repeatable() {
        for (shape, repetitions) in [
            ([2048; 3], 50),
            ([8192, 8192, 1024], 5),
            ([1000, 1200, 776], 5),
            ([128, 4096, 4096], 5),
            ([4096, 128, 8192], 5),
        ] {
            is_right(shape, repetitions);
        }
    }
}
