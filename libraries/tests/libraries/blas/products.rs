//! GEMM and batched GEMM of every type.

use super::*;

fn check_gemm<T: Plain>() {
    let stream = stream();
    let shapes = [[1, 1, 1], [3, 5, 7], [16, 32, 48], [33, 17, 65], [1, 40, 9], [40, 1, 9]];
    for (number, shape) in shapes.into_iter().enumerate() {
        for flags in 0..8 {
            let transposed = [0, 1, 2].map(|bit| flags >> bit & 1 == 1);
            let (alpha, beta) = [(1.0, 0.0), (-0.5, 2.0)][(number + flags) % 2];
            let mut product = Product::<T>::new(&stream, shape, [3, number, 2], transposed);
            let expected = product.expected((alpha, beta));
            let math = Some(reducing(transposed[0]));
            product.gemm_as(Gemm { alpha: T::scalar(alpha), beta: T::scalar(beta), math }).unwrap();
            product.check(&format!("{shape:?}, {flags:03b}"), &expected);
        }
    }
}

#[test]
fn products_of_every_shape_stride_and_transpose() {
    each!(check_gemm(): f32, f64, f16, bf16);
}

#[test]
fn half_precision_products_are_stored_in_single() {
    let mut product = Product::<f16, f16, f32>::new(&stream(), [8, 16, 24], [0; 3], [false; 3]);
    product.gemm();
    product.check("from f16", &product.expected((1.0, 0.0)));
}

#[test]
fn integers_are_multiplied_exactly() {
    let stream = stream();
    let (m, n, k) = (20, 24, 32);
    let number = |seed: usize, index: usize| ((index * 37 + seed * 11) % 256) as u8 as i8;
    let a: Vec<i8> = (0..m * k).map(|index| number(1, index)).collect();
    let b: Vec<i8> = (0..k * n).map(|index| number(2, index)).collect();
    let c: Vec<i32> = (0..m * n).map(|index| index as i32 * 1000).collect();
    let a_memory = buffer(&stream, &a);
    let b_memory = buffer(&stream, &b);
    let mut c_memory = buffer(&stream, &c);
    blas::gemm(
        &stream,
        Gemm { alpha: 3, beta: -1, math: None },
        a_memory.as_2d(m, k).unwrap(),
        b_memory.as_2d(k, n).unwrap(),
        c_memory.as_2d_mut(m, n).unwrap(),
    )
    .unwrap();
    let found = c_memory.to_host().unwrap();
    for row in 0..m {
        for col in 0..n {
            let sum: i32 = (0..k).map(|i| i32::from(a[row * k + i]) * i32::from(b[i * n + col])).sum();
            assert_eq!(found[row * n + col], 3 * sum - c[row * n + col]);
        }
    }
}

#[test]
fn outputs_are_not_read_without_beta() {
    let stream = stream();
    let a = buffer(&stream, &[1f32; 64]);
    let mut c = buffer(&stream, &[f32::NAN; 64]);
    let matrix = a.as_2d(8, 8).unwrap();
    blas::gemm(&stream, Gemm::default(), matrix, matrix, c.as_2d_mut(8, 8).unwrap()).unwrap();
    assert_eq!(c.to_host().unwrap(), [8.0; 64]);
    let mut c = buffer(&stream, &[f32::NAN; 64]);
    let options = Matmul::default();
    blas::matmul(&stream, &options, matrix, matrix, c.as_2d_mut(8, 8).unwrap()).unwrap();
    assert_eq!(c.to_host().unwrap(), [8.0; 64]);
    let mut y = buffer(&stream, &[f32::NAN; 8]);
    blas::gemv(&stream, Gemm::default(), matrix, a.slice(..8), &mut y).unwrap();
    assert_eq!(y.to_host().unwrap(), [8.0; 8]);
}

#[test]
fn inputs_are_not_read_with_alpha_zero() {
    fn check<T: Plain>() {
        let stream = stream();
        let nan = buffer(&stream, &[T::of(f64::NAN); 16 * 16]);
        let values: Vec<T> = (0..16 * 16).map(|i| T::of(f64::from(i % 13))).collect();
        let square = || Matrix::from(nan.as_2d(16, 16).unwrap());
        let (zero, two) = (T::scalar(0.0), T::scalar(2.0));
        for (beta, expected) in [(two, 2.0), (zero, 0.0)] {
            let mut c = buffer(&stream, &values);
            let output = c.as_2d_mut(16, 16).unwrap();
            let options = Gemm { alpha: zero, beta, math: None };
            blas::gemm(&stream, options, square(), square(), output).unwrap();
            let mut y = buffer(&stream, &values[..16]);
            blas::gemv(&stream, options, square(), nan.slice(..16), &mut y).unwrap();
            let mut by_lt = buffer(&stream, &values);
            let output = by_lt.as_2d_mut(16, 16).unwrap();
            let options = Matmul { alpha: zero, beta, ..Matmul::default() };
            blas::matmul(&stream, &options, square(), square(), output).unwrap();
            let all = [("gemm", c), ("gemv", y), ("matmul", by_lt)];
            for (what, found) in all.map(|(what, buffer)| (what, buffer.to_host().unwrap())) {
                let differs = |(found, value): (&T, &T)| found.value() != expected * value.value();
                let at = found.iter().zip(&values).position(differs);
                assert_eq!(at, None, "{what} of {}, beta {expected}", name::<T>());
            }
        }
    }
    each!(check(): f32, f64, f16, bf16);
}

/// Creates a batch of strided matrices, and its copy on the device.
fn batch<T: TestValue>(
    stream: &Stream,
    seed: u64,
    [count, rows, cols, apart]: [usize; 4],
) -> (Vec<HostMatrix>, DeviceBuffer<T>, Layout) {
    let matrices: Vec<HostMatrix> =
        (0..count).map(|index| HostMatrix::new::<T>(seed + index as u64, rows, cols)).collect();
    let mut memory = vec![T::of(0.0); apart * (count - 1) + rows * cols];
    for (index, matrix) in matrices.iter().enumerate() {
        let values = matrix.values.iter().map(|value| T::of(*value));
        memory[index * apart..].iter_mut().zip(values).for_each(|(to, from)| *to = from);
    }
    (matrices, buffer(stream, &memory), Layout::new(rows, cols).with_batch(count, apart))
}

/// Multiplies a batch by one matrix or a batch. The layout of the outputs starts each row at `at`.
fn check_batch<T: Plain>(
    (a, a_memory, a_layout): &(Vec<HostMatrix>, DeviceBuffer<T>, Layout),
    (b, b_memory, b_layout): &(Vec<HostMatrix>, DeviceBuffer<T>, Layout),
    layout: Layout,
    at: impl Fn(usize, usize) -> usize,
) {
    let stream = a_memory.stream();
    for with_plans in [false, true] {
        let mut c_memory = DeviceBuffer::<T>::zeros(stream, layout.extent().unwrap()).unwrap();
        let a_matrix = Matrix::with_layout(a_memory, *a_layout).unwrap();
        let b_matrix = Matrix::with_layout(b_memory, *b_layout).unwrap();
        let c_matrix = MatrixMut::with_layout(&mut c_memory, layout).unwrap();
        match with_plans {
            false => blas::gemm(stream, Gemm::default(), a_matrix, b_matrix, c_matrix).unwrap(),
            true => blas::matmul(stream, &Matmul::default(), a_matrix, b_matrix, c_matrix).unwrap(),
        }
        let found = c_memory.to_host().unwrap();
        for (index, (a, b)) in a.iter().zip(b.iter().cycle()).enumerate() {
            let rows = (0..a.rows).flat_map(|row| found[at(index, row)..][..b.cols].iter());
            let found: Vec<f64> = rows.map(|x| x.value()).collect();
            let expected = reference((1.0, 0.0), a, b, &HostMatrix::zeros(a.rows, b.cols));
            assert_near::<T>(&format!("{} {index} of a batch", name::<T>()), a.cols, &found, &expected);
        }
    }
}

#[test]
fn batches_lie_apart_or_side_by_side() {
    let stream = stream();
    let (m, n, k, count) = (5, 6, 7, 4);
    let a = batch::<f32>(&stream, 1, [count, m, k, m * k]);
    let b = batch::<f32>(&stream, 11, [1, k, n, k * n]);
    // The rows of the outputs are side by side, like the heads of attention.
    let side_by_side = Layout::new(m, n).with_row_stride(count * n).with_batch(count, n);
    check_batch(&a, &b, side_by_side, |batch, row| row * count * n + batch * n);
    let apart = Layout::new(m, n).with_batch(count, m * n + 3);
    check_batch(&a, &b, apart, |batch, row| batch * (m * n + 3) + row * n);
}

/// The first matrices of these batches are aligned for wide accesses, and the other matrices are not.
#[test]
fn matrices_of_a_batch_may_be_at_any_distance() {
    fn check<T: Plain>() {
        let stream = stream();
        let [a, b] = [1, 11].map(|seed| batch::<T>(&stream, seed, [3, 16, 16, 257]));
        check_batch(&a, &b, Layout::new(16, 16).with_batch(3, 257), |index, row| index * 257 + row * 16);
    }
    each!(check(): f16, bf16, f32, f64);
}

#[test]
fn without_an_inner_dimension_products_are_zero() {
    let stream = stream();
    let empty = DeviceBuffer::<f32>::uninit(&stream, 0).unwrap();
    let (a, b) = (empty.as_2d(4, 0).unwrap(), empty.as_2d(0, 6).unwrap());
    let bias = buffer(&stream, &[1f32, -2.0, 3.0, -4.0, 5.0, -6.0]);
    for (beta, expected) in [(0.0, 0.0), (1.0, 3.0), (-2.0, -6.0)] {
        let start = if beta == 0.0 { f32::NAN } else { 3.0 };
        let mut c = buffer(&stream, &[start; 4 * 8]);
        let c_matrix = c.as_2d_strided_mut(4, 6, 8).unwrap();
        blas::gemm(&stream, Gemm { beta, ..Gemm::default() }, a, b, c_matrix).unwrap();
        for row in c.to_host().unwrap().chunks(8) {
            assert_eq!(row[..6], [expected; 6], "beta {beta}");
            assert!(row[6..].iter().all(|gap| gap.to_bits() == start.to_bits()));
        }
        let mut c = buffer(&stream, &[start; 4 * 6]);
        let options = Matmul { beta, bias: Some(bias.as_slice()), ..Matmul::default() };
        blas::matmul(&stream, &options, a, b, c.as_2d_mut(4, 6).unwrap()).unwrap();
        let host = [1f32, -2.0, 3.0, -4.0, 5.0, -6.0].map(|bias| expected + bias);
        assert!(c.to_host().unwrap().chunks(6).all(|row| row == host));
        let mut y = buffer(&stream, &[start; 4]);
        blas::gemv(&stream, Gemm { beta, ..Gemm::default() }, a, &empty, &mut y).unwrap();
        assert_eq!(y.to_host().unwrap(), [expected; 4]);
    }
    let mut none = DeviceBuffer::<f32>::uninit(&stream, 0).unwrap();
    let one = buffer(&stream, &[1f32; 6]);
    let wide = one.as_2d(1, 6).unwrap();
    let nothing = none.as_2d_mut(0, 6).unwrap();
    blas::gemm(&stream, Gemm::default(), empty.as_2d(0, 1).unwrap(), wide, nothing).unwrap();
}

#[test]
fn narrow_products_without_inner_dimension_are_zero() {
    let stream = stream();
    let empty = DeviceBuffer::<i8>::uninit(&stream, 0).unwrap();
    let (a, b) = (Matrix::from(empty.as_2d(4, 0).unwrap()), Matrix::from(empty.as_2d(0, 4).unwrap()));
    let mut c = buffer(&stream, &[3i32; 16]);
    let output = c.as_2d_mut(4, 4).unwrap();
    blas::gemm(&stream, Gemm { beta: 2, ..Gemm::default() }, a, b, output).unwrap();
    assert_eq!(c.to_host().unwrap(), [6; 16]);

    let empty = DeviceBuffer::<F8E4M3>::uninit(&stream, 0).unwrap();
    let rows = Matrix::from(empty.as_2d(16, 0).unwrap());
    let (a, b) = (rows, rows.transposed());
    let mut c = buffer(&stream, &[bf16::from_f32(3.0); 256]);
    let options = Matmul { beta: 2.0, ..Matmul::default() };
    let done = blas::matmul(&stream, &options, a, b, c.as_2d_mut(16, 16).unwrap());
    let device = stream.device();
    if !device.is_emulated() && device.capability() < (8, 9) {
        assert!(is_unsupported(&done), "{done:?}");
    } else {
        done.unwrap();
        assert!(c.to_host().unwrap().iter().all(|value| value.to_f32() == 6.0));
    }
}

/// TF32 has the errors that `torch.backends.cuda.matmul.allow_tf32` documents: about 1e-3 of the result's magnitude.
#[test]
fn tf32_is_off_by_default_and_less_exact() {
    let stream = stream();
    let device = stream.device();
    let size = if device.is_emulated() { 32 } else { 1024 };
    let mut square = Product::square(&stream, 11, size);
    // These numbers have more bits than TF32.
    for (seed, buffer) in [(1, &mut square.a), (2, &mut square.b)] {
        let values: Vec<f32> =
            numbers(seed, size * size).into_iter().map(|x| (x * 1.234_567) as f32).collect();
        buffer.copy_from_host(&values).unwrap();
    }
    square.gemm();
    let exact = square.c.to_host().unwrap();
    blas::set_math(device, Math { allow_tf32: true, ..Math::default() });
    square.gemm();
    let rounded = square.c.to_host().unwrap();
    blas::set_math(device, Math::default());
    let largest = |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, |most, x| most.max(x.abs()));
    let size = largest(&mut exact.iter().copied());
    let difference = largest(&mut exact.iter().zip(&rounded).map(|(x, y)| x - y)) / size;
    match device.is_emulated() || device.capability() < (8, 0) {
        true => assert_eq!(difference, 0.0),
        false => assert!((1e-5..5e-3).contains(&difference), "{difference}"),
    }
    if device.is_emulated() {
        square.check_product("without TF32");
    }
}

#[test]
fn integers_need_strides_of_four() {
    let stream = stream();
    let x = buffer(&stream, &[1i8; 64]);
    let mut y = DeviceBuffer::<i32>::zeros(&stream, 9).unwrap();
    let matrix = Matrix::with_layout(&x, Layout::new(3, 3)).unwrap();
    let done = blas::gemm(
        &stream,
        Gemm::default(),
        matrix,
        matrix,
        MatrixMut::with_layout(&mut y, Layout::new(3, 3)).unwrap(),
    );
    assert!(is_unsupported(&done), "{done:?}");
    // The stride of a single row is irrelevant.
    let row = Matrix::with_layout(&x, Layout::new(1, 8).with_row_stride(9)).unwrap();
    let mut y = DeviceBuffer::<i32>::zeros(&stream, 4).unwrap();
    let columns = Matrix::with_layout(&x, Layout::new(8, 4)).unwrap();
    blas::gemm(
        &stream,
        Gemm::default(),
        row,
        columns,
        MatrixMut::with_layout(&mut y, Layout::new(1, 4)).unwrap(),
    )
    .unwrap();
    assert_eq!(y.to_host().unwrap(), [8; 4]);
}

#[test]
fn the_stride_of_a_single_row_does_not_matter() {
    let stream = stream();
    let x = buffer(&stream, &[2f32; 8]);
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 1).unwrap();
    let row = Matrix::with_layout(&x, Layout::new(1, 8).with_row_stride(usize::MAX)).unwrap();
    for _ in 0..2 {
        let output = MatrixMut::with_layout(&mut y, Layout::new(1, 1).with_row_stride(usize::MAX)).unwrap();
        blas::gemm(&stream, Gemm::default(), row, row.transposed(), output).unwrap();
        assert_eq!(y.to_host().unwrap(), [32.0]);
        let output = MatrixMut::with_layout(&mut y, Layout::new(1, 1).with_row_stride(usize::MAX)).unwrap();
        blas::matmul(&stream, &Matmul::default(), row, row.transposed(), output).unwrap();
        assert_eq!(y.to_host().unwrap(), [32.0]);
    }
}
