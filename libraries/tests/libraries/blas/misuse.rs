//! Mismatched arguments are rejected, and nothing is enqueued.

use warpsmith_runtime::emulated::EmulatedDriver;

use super::*;

#[track_caller]
fn assert_shape(done: warpsmith_runtime::Result<()>, text: &str) {
    assert!(is_refused!(done, LibraryError::Shape { .. }), "{done:?}");
    assert_refused(done, text);
}

fn two(y: &mut DeviceBuffer<f32>) -> MatrixMut<'_, f32> {
    MatrixMut::with_layout(y, Layout::new(2, 2)).unwrap()
}

#[test]
fn what_does_not_fit_is_refused() {
    let stream = stream();
    let x = buffer(&stream, &[1f32; 12]);
    let mut y = buffer(&stream, &[5f32; 12]);
    let matrix = |rows, cols| Matrix::with_layout(&x, Layout::new(rows, cols));
    assert_shape(matrix(4, 4).map(drop), "needs 16 elements, but the slice has 12");
    assert_shape(
        Matrix::with_layout(&x, Layout::new(2, 3).with_row_stride(2)).map(drop),
        "smaller than a row of 3",
    );
    assert_shape(Matrix::with_layout(&x, Layout::new(3, 3).with_row_stride(5)).map(drop), "needs 13");
    assert_shape(Matrix::with_layout(&x, Layout::new(usize::MAX, 2)).map(drop), "needs too many elements");
    let overlapping = Layout::new(2, 2).with_batch(3, 3);
    assert_shape(MatrixMut::with_layout(&mut y, overlapping).map(drop), "overlap");
    assert_shape(MatrixMut::with_layout(&mut y, Layout::new(2, 2).with_batch(2, 0)).map(drop), "overlap");
    assert_shape(Vector::new(&x).with_stride(0).map(drop), "stride is 0, but");

    let options = Gemm::default();
    let (wide, tall) = (matrix(2, 3).unwrap(), matrix(3, 2).unwrap());
    assert_shape(blas::gemm(&stream, options, wide, wide, two(&mut y)), "a (2 x 3) times b (2 x 3)");
    assert_shape(blas::gemm(&stream, options, tall, wide, two(&mut y)), "c (2 x 2)");
    let batch = Matrix::with_layout(&x, Layout::new(2, 3).with_batch(2, 6)).unwrap();
    assert_shape(blas::gemm(&stream, options, batch, tall, two(&mut y)), "2 of 2 x 3");
    assert_shape(blas::gemv(&stream, options, wide, x.slice(..2), y.slice_mut(..2)), "x has 2");
    let options = Matmul { bias: Some(x.slice(..3)), ..Matmul::default() };
    assert_shape(
        blas::matmul(&stream, &options, wide, tall, two(&mut y)),
        "the bias has 3 elements, but the output has 2",
    );
    let options = Matmul { scale_a: Some(x.slice(..1)), ..Matmul::default() };
    let refused = blas::matmul(&stream, &options, wide, tall, two(&mut y));
    assert!(is_unsupported(&refused), "{refused:?}");
    let elsewhere = Stream::new(&device()).unwrap();
    let refused = blas::gemm(&elsewhere, Gemm::default(), wide, tall, two(&mut y));
    assert!(matches!(refused, Err(Error::DifferentDevices { .. })), "{refused:?}");
    assert_eq!(y.to_host().unwrap(), [5.0; 12], "nothing was written");
    // The stream still works.
    blas::gemm(&stream, Gemm::default(), wide, tall, two(&mut y)).unwrap();
    assert_eq!(y.to_host().unwrap()[..4], [3.0; 4]);
}

#[test]
fn a_device_without_memory_refuses_products() {
    let driver = EmulatedDriver::builder().unbacked().build();
    let stream = Device::with_driver(driver, 0).unwrap().default_stream();
    let a = DeviceBuffer::<f32>::uninit(&stream, 16).unwrap();
    let mut c = DeviceBuffer::<f32>::uninit(&stream, 16).unwrap();
    let matrix = a.as_2d(4, 4).unwrap();
    let output = c.as_2d_mut(4, 4).unwrap();
    let refused = blas::gemm(&stream, Gemm::default(), matrix, matrix, output);
    assert_refused(refused, "built without backing memory");
    stream.synchronize().unwrap();
}
