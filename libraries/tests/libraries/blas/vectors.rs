//! GEMV.

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
