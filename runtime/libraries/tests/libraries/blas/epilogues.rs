//! Products with epilogues, 8-bit floating point, and the choice of algorithms.

use super::*;

fn check_epilogues<T: Plain>() {
    let stream = stream();
    let (m, n, k) = (24, 40, 16);
    let [a, b, c] = [(1, m, k), (2, k, n), (3, m, n)].map(|(seed, r, c)| HostMatrix::new::<T>(seed, r, c));
    let bias = HostMatrix::new::<T>(4, 1, n);
    let bias_memory =
        DeviceBuffer::from_host(&stream, &bias.at_place::<T>(Place::of(&bias, 0, false))).unwrap();
    let bias_slice = bias_memory.as_slice();
    for epilogue in [
        Epilogue::None,
        Epilogue::Relu,
        Epilogue::Gelu,
        Epilogue::Bias(bias_slice),
        Epilogue::ReluBias(bias_slice),
        Epilogue::GeluBias(bias_slice),
    ] {
        for (a_transposed, b_transposed, beta) in
            [(false, true, 0.0), (true, false, 0.5), (false, false, 0.0)]
        {
            let places =
                [Place::of(&a, 8, a_transposed), Place::of(&b, 0, b_transposed), Place::of(&c, 8, false)];
            let upload = |matrix: &HostMatrix, place: Place| {
                DeviceBuffer::from_host(&stream, &matrix.at_place::<T>(place)).unwrap()
            };
            let (a_memory, b_memory) = (upload(&a, places[0]), upload(&b, places[1]));
            let mut c_memory = upload(&c, places[2]);
            let math = Some(reducing(a_transposed));
            let options =
                Matmul { alpha: T::scalar(0.5), beta: T::scalar(beta), epilogue, math, ..Matmul::default() };
            blas::matmul(
                &stream,
                &options,
                Matrix::with_layout(&a_memory, places[0].layout()).unwrap(),
                Matrix::with_layout(&b_memory, places[1].layout()).unwrap(),
                MatrixMut::with_layout(&mut c_memory, places[2].layout()).unwrap(),
            )
            .unwrap();
            let (mut expected, mut sizes) = reference((0.5, beta), &a, &b, &c);
            for (at, (value, size)) in expected.iter_mut().zip(&mut sizes).enumerate() {
                if epilogue.bias().is_some() {
                    *value += bias.values[at % n];
                    *size += bias.values[at % n].abs();
                }
                let before = value.abs();
                *value = match epilogue.activation() {
                    blas::Activation::None => *value,
                    blas::Activation::Relu => value.max(0.0),
                    blas::Activation::Gelu => {
                        let inner = (2.0 / std::f64::consts::PI).sqrt() * (*value + 0.044715 * value.powi(3));
                        0.5 * *value * (1.0 + inner.tanh())
                    }
                };
                // The hardware's `tanh` has some 11 bits.
                if epilogue.activation() == blas::Activation::Gelu && T::STORED < 1e-3 {
                    *size += before * 5e-4 / T::STORED;
                }
            }
            let found = places[2].read(&c_memory.to_host().unwrap());
            let what = format!("{} with {epilogue:?}", std::any::type_name::<T>());
            assert_near::<T>(&what, k, &found, &(expected, sizes));
        }
    }
}

#[test]
fn epilogues_add_a_bias_for_each_column_and_activate() {
    check_epilogues::<f32>();
    check_epilogues::<f16>();
    check_epilogues::<bf16>();
}

/// Multiplies 8-bit floating point with scales at these places of a buffer, and without.
fn check_eight_bits<A: Number + blas::Multiply<B, bf16, Sum = f32>, B: Number + blas::Element<Sum = f32>>(
    scale_places: Option<[usize; 2]>,
) {
    let stream = stream();
    let (m, n, k) = (32, 48, 64);
    let (a, b) = (HostMatrix::new::<A>(1, m, k), HostMatrix::new::<B>(2, k, n));
    let (a_place, b_place) = (Place::of(&a, 0, false), Place::of(&b, 0, true));
    let a_memory = DeviceBuffer::from_host(&stream, &a.at_place::<A>(a_place)).unwrap();
    let b_memory = DeviceBuffer::from_host(&stream, &b.at_place::<B>(b_place)).unwrap();
    let mut scales = [0f32; 64];
    let (mut scale_a, mut scale_b) = (1.0, 1.0);
    if let Some([a, b]) = scale_places {
        (scale_a, scale_b) = (2.0, 0.25);
        (scales[a], scales[b]) = (scale_a, scale_b);
    }
    let scales = DeviceBuffer::from_host(&stream, &scales).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, m * n).unwrap();
    let at = |place: usize| scales.slice(place..place + 1);
    let options = Matmul {
        scale_a: scale_places.map(|places| at(places[0])),
        scale_b: scale_places.map(|places| at(places[1])),
        ..Matmul::default()
    };
    let a_matrix = Matrix::with_layout(&a_memory, a_place.layout()).unwrap();
    let b_matrix = Matrix::with_layout(&b_memory, b_place.layout()).unwrap();
    let c_matrix = MatrixMut::new(&mut c, m, n).unwrap();
    let done = match scale_places {
        Some(_) => blas::matmul(&stream, &options, a_matrix, b_matrix, c_matrix),
        None => blas::gemm(&stream, Gemm::default(), a_matrix, b_matrix, c_matrix),
    };
    let device = stream.device();
    if !device.is_emulated() && device.capability() < (8, 9) {
        assert!(is_unsupported(&done), "{done:?}");
        return;
    }
    done.unwrap();
    let zero = HostMatrix { rows: m, cols: n, values: vec![0.0; m * n] };
    let found: Vec<f64> = c.to_host().unwrap().into_iter().map(bf16::to_f64).collect();
    let (expected, sizes) = reference((f64::from(scale_a * scale_b), 0.0), &a, &b, &zero);
    // The tensor cores of Hopper sum with some 14 bits.
    let sizes = sizes.into_iter().map(|size| size * (1.0 + 2f64.powi(-13) / bf16::STORED)).collect();
    assert_near::<bf16>("8-bit", k, &found, &(expected, sizes));
}

#[test]
fn a_bias_may_be_at_any_address() {
    fn check<T: Plain>() {
        let stream = stream();
        let (m, n, k) = (64, 256, 128);
        let [a, b] = [(1, m, k), (2, k, n)].map(|(seed, r, c)| HostMatrix::new::<T>(seed, r, c));
        let bias = HostMatrix::new::<T>(4, 1, n);
        let upload = |matrix: &HostMatrix| {
            DeviceBuffer::from_host(&stream, &matrix.at_place::<T>(Place::of(matrix, 0, false))).unwrap()
        };
        let (a_memory, b_memory, bias_memory) = (upload(&a), upload(&b), upload(&bias));
        let mut with_gap = DeviceBuffer::<T>::uninit(&stream, n + 8).unwrap();
        let zero = HostMatrix { rows: m, cols: n, values: vec![0.0; m * n] };
        let (mut expected, mut sizes) = reference((1.0, 0.0), &a, &b, &zero);
        for (at, (value, size)) in expected.iter_mut().zip(&mut sizes).enumerate() {
            *value = (*value + bias.values[at % n]).max(0.0);
            *size += bias.values[at % n].abs();
        }
        for start in [1, 2, 3, 4, 7, 8] {
            stream.copy(&bias_memory, with_gap.slice_mut(start..start + n)).unwrap();
            let epilogue = Epilogue::ReluBias(with_gap.slice(start..start + n));
            let mut c = DeviceBuffer::<T>::uninit(&stream, m * n).unwrap();
            blas::matmul(
                &stream,
                &Matmul { epilogue, ..Matmul::default() },
                Matrix::new(&a_memory, m, k).unwrap(),
                Matrix::new(&b_memory, k, n).unwrap(),
                MatrixMut::new(&mut c, m, n).unwrap(),
            )
            .unwrap();
            let found: Vec<f64> = c.to_host().unwrap().into_iter().map(T::value).collect();
            let what = format!("{} from {start}", std::any::type_name::<T>());
            assert_near::<T>(&what, k, &found, &(expected.clone(), sizes.clone()));
        }
    }
    check::<f16>();
    check::<bf16>();
    check::<f32>();
}

#[test]
fn activations_keep_nan() {
    let stream = stream();
    let one = DeviceBuffer::from_host(&stream, &[1f32; 32 * 32]).unwrap();
    let mut bias = [1f32; 32];
    bias[5] = f32::NAN;
    let bias = DeviceBuffer::from_host(&stream, &bias).unwrap();
    for epilogue in [Epilogue::ReluBias(bias.as_slice()), Epilogue::GeluBias(bias.as_slice())] {
        let mut c = DeviceBuffer::zeros(&stream, 32 * 32).unwrap();
        let matrix = Matrix::new(&one, 32, 32).unwrap();
        let options = Matmul { epilogue, ..Matmul::default() };
        blas::matmul(&stream, &options, matrix, matrix, MatrixMut::new(&mut c, 32, 32).unwrap()).unwrap();
        for (at, value) in c.to_host().unwrap().into_iter().enumerate() {
            assert_eq!(value.is_nan(), at % 32 == 5, "{value} in column {} with {epilogue:?}", at % 32);
        }
    }
}

#[test]
fn a_transposed_output_has_no_bias() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1f32; 16]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 16).unwrap();
    let options = Matmul { epilogue: Epilogue::Bias(x.slice(..4)), ..Matmul::default() };
    let matrix = Matrix::new(&x, 4, 4).unwrap();
    let output = MatrixMut::new(&mut y, 4, 4).unwrap().transposed();
    let done = blas::matmul(&stream, &options, matrix, matrix, output);
    assert!(is_unsupported(&done), "{done:?}");
    assert_eq!(y.to_host().unwrap(), [0.0; 16]);
}

#[test]
fn eight_bit_floats_are_refused_alike_on_all_devices() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[F8E4M3::from_f32(1.0); 64 * 64]).unwrap();
    let mut y = DeviceBuffer::<bf16>::zeros(&stream, 64 * 64).unwrap();
    let matrix = |layout: Layout| Matrix::with_layout(&x, layout).unwrap();
    let fit = |rows, cols| matrix(Layout::new(rows, cols));
    let refused = |a: Matrix<'_, F8E4M3>, b: Matrix<'_, F8E4M3>, c: MatrixMut<'_, bf16>| {
        let done = blas::gemm(&stream, Gemm::default(), a, b, c);
        assert!(is_unsupported(&done), "{done:?}");
    };
    refused(fit(3, 16), fit(5, 16).transposed(), MatrixMut::new(&mut y, 3, 5).unwrap());
    refused(fit(16, 16), fit(16, 16), MatrixMut::new(&mut y, 16, 16).unwrap());
    let wide = Layout::new(32, 48).with_stride(50);
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
fn eight_bit_integers_are_multiplied_without_an_epilogue() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[3i8; 16 * 16]).unwrap();
    let bias = DeviceBuffer::from_host(&stream, &[1i32; 16]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &[7i32; 16 * 16]).unwrap();
    let matrix = Matrix::new(&x, 16, 16).unwrap();
    for epilogue in [Epilogue::Bias(bias.as_slice()), Epilogue::Relu] {
        let options = Matmul { epilogue, ..Matmul::default() };
        let c = MatrixMut::new(&mut y, 16, 16).unwrap();
        let done = blas::matmul(&stream, &options, matrix, matrix, c);
        assert!(is_unsupported(&done), "{done:?}");
    }
    let c = MatrixMut::new(&mut y, 16, 16).unwrap();
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
fn plans_are_kept_and_results_do_not_depend_on_it() {
    let stream = stream();
    let device = stream.device();
    let cache = blas::plan_cache(device);
    let run = || {
        let mut square = Square::new(&stream, 3, 48);
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
    let mut square = Square::new(&stream, 1, size);
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
fn without_a_workspace_the_result_is_right_too() {
    let stream = stream();
    let mut square = Square::new(&stream, 1, 64);
    square.matmul(&Matmul { workspace_limit: Some(0), ..Matmul::default() });
    square.check("no workspace");
}
