//! GEMM with epilogues, 8-bit floating point, and the choice of algorithms.

use super::*;

/// Applies bias and activation to the expected product.
fn with_epilogue<T: TestValue>(
    (values, sizes): &mut (Vec<f64>, Vec<f64>),
    bias: Option<&[f64]>,
    activation: Activation,
) {
    for (at, (value, size)) in values.iter_mut().zip(sizes).enumerate() {
        if let Some(bias) = bias {
            *value += bias[at % bias.len()];
            *size += bias[at % bias.len()].abs();
        }
        // The hardware's `tanh` has about 11 bits.
        if activation == Activation::Gelu && T::UNIT < 1e-3 {
            *size += value.abs() * 5e-4 / T::UNIT;
        }
        *value = match activation {
            Activation::None => *value,
            Activation::Relu => value.max(0.0),
            Activation::Gelu => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (*value + 0.044715 * value.powi(3));
                0.5 * *value * (1.0 + inner.tanh())
            }
        };
    }
}

fn check_epilogues<T: Plain>() {
    let stream = stream();
    let bias = HostMatrix::new::<T>(4, 1, 40).values;
    let bias_memory = buffer(&stream, &bias.iter().map(|value| T::of(*value)).collect::<Vec<_>>());
    let activations = [Activation::None, Activation::Relu, Activation::Gelu];
    for (activation, has_bias) in activations.into_iter().flat_map(|one| [(one, false), (one, true)]) {
        for (a, b, beta) in [(false, true, 0.0), (true, false, 0.5), (false, false, 0.0)] {
            let mut product = Product::<T>::new(&stream, [24, 40, 16], [8, 0, 8], [a, b, false]);
            let mut expected = product.expected((0.5, beta));
            with_epilogue::<T>(&mut expected, has_bias.then_some(&bias), activation);
            product.matmul(&Matmul {
                alpha: T::scalar(0.5),
                beta: T::scalar(beta),
                bias: has_bias.then_some(bias_memory.as_slice()),
                activation,
                math: Some(reducing(a)),
                ..Matmul::default()
            });
            product.check(&format!("{activation:?}, bias: {has_bias}"), &expected);
        }
    }
}

#[test]
fn epilogues_add_a_bias_and_activate() {
    each!(check_epilogues(): f32, f16, bf16);
}

/// Checks 8-bit floating-point GEMM, with scales at these positions of a buffer or without scales.
fn check_eight_bits<A: TestValue + Multiply<B, bf16, Sum = f32>, B: TestValue + GemmType<Sum = f32>>(
    scale_places: Option<[usize; 2]>,
) {
    let stream = stream();
    let mut product = Product::<A, B, bf16>::new(&stream, [32, 48, 64], [0; 3], [false, true, false]);
    let mut scales = [0f32; 64];
    let (mut scale_a, mut scale_b) = (1.0, 1.0);
    if let Some([a, b]) = scale_places {
        (scale_a, scale_b) = (2.0, 0.25);
        (scales[a], scales[b]) = (scale_a, scale_b);
    }
    let scales = buffer(&stream, &scales);
    let at = |place: usize| scales.slice(place..place + 1);
    let done = match scale_places {
        Some([a, b]) => {
            let (scale_a, scale_b) = (Some(at(a)), Some(at(b)));
            product.matmul_as(&Matmul { scale_a, scale_b, ..Matmul::default() })
        }
        None => product.gemm_as(Gemm::default()),
    };
    let device = stream.device();
    if !device.is_emulated() && device.capability() < (8, 9) {
        assert!(is_unsupported(&done), "{done:?}");
        return;
    }
    done.unwrap();
    let (expected, sizes) = product.expected((f64::from(scale_a * scale_b), 0.0));
    // Hopper's tensor cores accumulate with about 14 bits.
    let sizes = sizes.into_iter().map(|size| size * (1.0 + 2f64.powi(-13) / bf16::UNIT)).collect();
    product.check("8-bit", &(expected, sizes));
}

#[test]
fn a_bias_may_be_at_any_address() {
    fn check<T: Plain>() {
        let stream = stream();
        let n = 256;
        let bias = HostMatrix::new::<T>(4, 1, n).values;
        let mut product = Product::<T>::new(&stream, [64, n, 128], [0; 3], [false; 3]);
        let mut expected = product.expected((1.0, 0.0));
        with_epilogue::<T>(&mut expected, Some(&bias), Activation::Relu);
        for start in [1, 2, 3, 4, 7, 8] {
            let mut padded = vec![T::of(0.0); n + 8];
            padded[start..].iter_mut().zip(&bias).for_each(|(to, from)| *to = T::of(*from));
            let padded = buffer(&stream, &padded);
            let bias = Some(padded.slice(start..start + n));
            product.matmul(&Matmul { bias, activation: Activation::Relu, ..Matmul::default() });
            product.check(&format!("from {start}"), &expected);
        }
    }
    each!(check(): f16, bf16, f32);
}

#[test]
fn activations_keep_nan() {
    let stream = stream();
    let one = buffer(&stream, &[1f32; 32 * 32]);
    let mut bias = [1f32; 32];
    bias[5] = f32::NAN;
    let bias = buffer(&stream, &bias);
    for activation in [Activation::Relu, Activation::Gelu] {
        let mut c = DeviceBuffer::zeros(&stream, 32 * 32).unwrap();
        let matrix = Matrix::with_layout(&one, Layout::new(32, 32)).unwrap();
        let options = Matmul { bias: Some(bias.as_slice()), activation, ..Matmul::default() };
        blas::matmul(&stream, &options, matrix, matrix, c.as_2d_mut(32, 32).unwrap()).unwrap();
        for (at, value) in c.to_host().unwrap().into_iter().enumerate() {
            assert_eq!(value.is_nan(), at % 32 == 5, "{value} in column {} with {activation:?}", at % 32);
        }
    }
}

#[test]
fn a_transposed_output_has_no_bias() {
    let stream = stream();
    let x = buffer(&stream, &[1f32; 16]);
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 16).unwrap();
    let options = Matmul { bias: Some(x.slice(..4)), ..Matmul::default() };
    let matrix = Matrix::with_layout(&x, Layout::new(4, 4)).unwrap();
    let output = MatrixMut::with_layout(&mut y, Layout::new(4, 4)).unwrap().transposed();
    let done = blas::matmul(&stream, &options, matrix, matrix, output);
    assert!(is_unsupported(&done), "{done:?}");
    assert_eq!(y.to_host().unwrap(), [0.0; 16]);
}

#[test]
fn odd_eight_bit_products_are_refused() {
    let stream = stream();
    let x = buffer(&stream, &[F8E4M3::from_f32(1.0); 64 * 64]);
    let mut y = DeviceBuffer::<bf16>::zeros(&stream, 64 * 64).unwrap();
    let matrix = |layout: Layout| Matrix::with_layout(&x, layout).unwrap();
    let fit = |rows, cols| matrix(Layout::new(rows, cols));
    let refused = |a: Matrix<'_, F8E4M3>, b: Matrix<'_, F8E4M3>, c: MatrixMut<'_, bf16>| {
        let done = blas::gemm(&stream, Gemm::default(), a, b, c);
        assert!(is_unsupported(&done), "{done:?}");
    };
    refused(fit(3, 16), fit(5, 16).transposed(), MatrixMut::with_layout(&mut y, Layout::new(3, 5)).unwrap());
    refused(fit(16, 16), fit(16, 16), MatrixMut::with_layout(&mut y, Layout::new(16, 16)).unwrap());
    let wide = Layout::new(32, 48).with_row_stride(50);
    refused(fit(32, 16), fit(48, 16).transposed(), MatrixMut::with_layout(&mut y, wide).unwrap());
    let batch = Layout::new(16, 16).with_batch(2, 260);
    let inputs = matrix(Layout::new(16, 16).with_batch(2, 256));
    refused(inputs, fit(16, 16).transposed(), MatrixMut::with_layout(&mut y, batch).unwrap());
    let apart = matrix(Layout::new(16, 16).with_batch(2, 264));
    let outputs = Layout::new(16, 16).with_batch(2, 256);
    refused(apart, fit(16, 16).transposed(), MatrixMut::with_layout(&mut y, outputs).unwrap());
    assert!(y.to_host().unwrap().iter().all(|value| value.to_f32() == 0.0), "nothing was written");
}

#[test]
fn eight_bit_integers_have_no_epilogue() {
    let stream = stream();
    let x = buffer(&stream, &[3i8; 16 * 16]);
    let bias = buffer(&stream, &[1i32; 16]);
    let mut y = buffer(&stream, &[7i32; 16 * 16]);
    let matrix = x.as_2d(16, 16).unwrap();
    for (bias, activation) in [(Some(bias.as_slice()), Activation::None), (None, Activation::Relu)] {
        let options = Matmul { bias, activation, ..Matmul::default() };
        let c = y.as_2d_mut(16, 16).unwrap();
        let done = blas::matmul(&stream, &options, matrix, matrix, c);
        assert!(is_unsupported(&done), "{done:?}");
    }
    let c = y.as_2d_mut(16, 16).unwrap();
    blas::matmul(&stream, &Matmul { beta: 1, ..Matmul::default() }, matrix, matrix, c).unwrap();
    assert_eq!(y.to_host().unwrap(), [7 + 9 * 16; 16 * 16]);
}

#[test]
fn eight_bit_floats_are_multiplied() {
    check_eight_bits::<F8E4M3, F8E4M3>(None);
    check_eight_bits::<F8E4M3, F8E5M2>(None);
    check_eight_bits::<F8E5M2, F8E4M3>(None);
}

#[test]
fn eight_bit_floats_are_multiplied_with_their_scales() {
    check_eight_bits::<F8E4M3, F8E4M3>(Some([0, 32]));
    check_eight_bits::<F8E4M3, F8E5M2>(Some([0, 32]));
}

#[test]
fn scales_may_be_at_any_address() {
    check_eight_bits::<F8E4M3, F8E4M3>(Some([0, 4]));
    check_eight_bits::<F8E4M3, F8E4M3>(Some([1, 2]));
}

#[test]
fn kept_plans_change_no_result() {
    let stream = stream();
    let device = stream.device();
    let cache = blas::plan_cache(device);
    let run = || {
        let mut square = Product::square(&stream, 3, 48);
        square.matmul(&Matmul::default());
        square.c.to_host().unwrap()
    };
    let first = run();
    let kept = run();
    if !device.is_emulated() {
        assert_eq!((cache.size(), cache.hits_and_misses()), (1, (1, 1)));
    }
    cache.set_max_size(0);
    assert_eq!((cache.size(), cache.max_size()), (0, 0));
    let without = run();
    assert_eq!(cache.size(), 0);
    assert!(first == kept && kept == without, "the same bits");
    cache.set_max_size(8);
    run();
    assert_eq!(cache.size(), usize::from(!device.is_emulated()));
    cache.clear();
    assert_eq!(cache.size(), 0);
}

#[test]
fn a_timed_search_writes_the_output_once() {
    let stream = stream();
    let size = 64;
    let mut square = Product::square(&stream, 1, size);
    square.matmul(&Matmul::default());
    let once = square.c.to_host().unwrap();
    let search = Search::Timed { candidates: 6, repeats: 3 };
    for _ in 0..2 {
        square.matmul(&Matmul { beta: 1.0, search, ..Matmul::default() });
    }
    for (found, once) in square.c.to_host().unwrap().iter().zip(once) {
        assert!((found - 3.0 * once).abs() < 1e-3, "{found} instead of 3 x {once}");
    }
}

#[test]
fn without_a_workspace_the_result_is_correct_too() {
    let stream = stream();
    let mut square = Product::square(&stream, 1, 64);
    square.matmul(&Matmul { workspace_limit: Some(0), ..Matmul::default() });
    square.check_product("no workspace");
}
