//! GEMV and triangular systems.

use super::*;

fn check_gemv<T: Plain>() {
    let stream = stream();
    for (m, n) in [(1, 1), (5, 9), (64, 33)] {
        for flags in 0..4 {
            let (transposed, stride) = (flags & 1 == 1, 1 + (flags >> 1) * 2);
            let a = HostMatrix::new::<T>(1, m, n);
            let [x, y] = [(2, n), (3, m)].map(|(seed, len)| HostMatrix::new::<T>(seed, len, 1));
            let place = Place::of(&a, 2, transposed);
            let spread = |vector: &HostMatrix| vector.at_place::<T>(Place::of(vector, stride - 1, false));
            let a_memory = buffer(&stream, &a.at_place::<T>(place));
            let x_memory = buffer(&stream, &spread(&x));
            let mut y_memory = buffer(&stream, &spread(&y));
            let options = Gemm { alpha: T::scalar(2.0), beta: T::scalar(-1.0), ..Gemm::default() };
            blas::gemv(
                &stream,
                options,
                Matrix::with_layout(&a_memory, place.layout()).unwrap(),
                Vector::new(&x_memory).with_stride(stride).unwrap(),
                VectorMut::new(&mut y_memory).with_stride(stride).unwrap(),
            )
            .unwrap();
            let found = Place::of(&y, stride - 1, false).read(&y_memory.to_host().unwrap());
            let what = format!("{} of {m} x {n}, {flags:02b}", name::<T>());
            assert_near::<T>(&what, n, &found, &reference((2.0, -1.0), &a, &x, &y));
        }
    }
}

#[test]
fn products_of_matrix_and_vector() {
    each!(check_gemv(): f32, f64, f16, bf16);
}

/// The solution multiplied by the matrix must equal the right-hand side.
#[test]
fn triangular_systems_of_every_kind() {
    let stream = stream();
    let (rows, cols) = (7, 5);
    for flags in 0..32u32 {
        let flag = |bit: u32| flags >> bit & 1 == 1;
        let side = if flag(0) { Side::Left } else { Side::Right };
        let triangle = if flag(1) { Triangle::Lower } else { Triangle::Upper };
        let unit_diagonal = flag(2);
        let order = if side == Side::Left { rows } else { cols };
        let mut a = HostMatrix::new::<f64>(u64::from(flags), order, order);
        (0..order).for_each(|at| a.values[at * order + at] += 3.0);
        let b = HostMatrix::new::<f64>(50, rows, cols);
        let (a_place, b_place) = (Place::of(&a, 2, flag(3)), Place::of(&b, 1, flag(4)));
        let a_memory = buffer(&stream, &a.at_place::<f64>(a_place));
        let mut b_memory = buffer(&stream, &b.at_place::<f64>(b_place));
        blas::trsm(
            &stream,
            Trsm { alpha: 2.0, side, triangle, unit_diagonal },
            Matrix::with_layout(&a_memory, a_place.layout()).unwrap(),
            MatrixMut::with_layout(&mut b_memory, b_place.layout()).unwrap(),
        )
        .unwrap();
        let values = b_place.read(&b_memory.to_host().unwrap());
        let x = HostMatrix { rows, cols, values };
        for row in 0..order {
            for col in 0..order {
                let kept = if triangle == Triangle::Lower { col <= row } else { col >= row };
                let value = &mut a.values[row * order + col];
                *value = match row == col {
                    true if unit_diagonal => 1.0,
                    _ if kept => *value,
                    _ => 0.0,
                };
            }
        }
        let zero = HostMatrix::zeros(rows, cols);
        let (again, _) = match side {
            Side::Left => reference((1.0, 0.0), &a, &x, &zero),
            Side::Right => reference((1.0, 0.0), &x, &a, &zero),
        };
        for (again, b) in again.iter().zip(&b.values) {
            assert!((again - 2.0 * b).abs() < 1e-10, "{flags:05b}: {again} instead of {}", 2.0 * b);
        }
    }
}

#[test]
fn triangular_batches_share_a_matrix_or_not() {
    fn check<T: blas::Solve + Plain>() {
        let stream = stream();
        // The triangles are lower triangles of 2 x 2, five elements apart, and the right-hand sides are 2 x 1, three
        // apart.
        let values = |values: &[f64]| values.iter().map(|value| T::of(*value)).collect::<Vec<T>>();
        let a = values(&[2., 99., 1., 4., 0., 1., 99., 3., 2.]);
        let b = values(&[2., 9., 0., 4., 22.]);
        let a = buffer(&stream, &a);
        let layout = Layout::new(2, 1).with_batch(2, 3);
        let solve = |count: usize, alpha: f64, b: &[T]| {
            let mut x = buffer(&stream, b);
            let a = Matrix::with_layout(&a, Layout::new(2, 2).with_batch(count, 5)).unwrap();
            let options = Trsm { alpha: T::scalar(alpha), ..Trsm::default() };
            blas::trsm(&stream, options, a, MatrixMut::with_layout(&mut x, layout).unwrap()).unwrap();
            x.to_host().unwrap().into_iter().map(T::value).collect::<Vec<f64>>()
        };
        assert_eq!(solve(2, 1.0, &b), [1.0, 2.0, 0.0, 4.0, 5.0]);
        assert_eq!(solve(1, 2.0, &b), [2.0, 4.0, 0.0, 4.0, 10.0]);
        // Neither matrix is read.
        let mut b = b;
        b[0] = T::of(f64::NAN);
        assert_eq!(solve(2, 0.0, &b), [0.0; 5]);
    }
    each!(check(): f32, f64);
}
