//! Observers see the name of a library's operation, on every device.

use std::sync::{Arc, Mutex, PoisonError};

use crate::numbers::{buffer, stream};
use warpsmith_libraries::blas::{self, Gemm};
use warpsmith_libraries::dnn::{self, Layout, Pooling, Tensor, TensorMut};
use warpsmith_libraries::fft::{self, Complex};
use warpsmith_libraries::sparse::{self, Csr, Product};
use warpsmith_runtime::extension::{Ended, Observed, Observer, Operation, observe};
use warpsmith_runtime::{DeviceBuffer, Result};

/// Names of operations, each with its stream.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<(u64, &'static str)>>>);

impl Observer for Names {
    fn end(&self, operation: &Observed<'_>, _: Ended) {
        if let (Some(stream), Operation::Extension { name }) = (operation.stream, &operation.operation) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((stream.id, name));
        }
    }
}

#[test]
fn observers_see_the_names_of_operations() -> Result<()> {
    let stream = stream();
    let (x, one) = (buffer(&stream, &[1f32, 2.0]), buffer(&stream, &[1f32]));
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 2)?;
    let mut z = DeviceBuffer::<Complex<f32>>::zeros(&stream, 2)?;
    let matrix = Csr::from_host(&stream, [2, 2], &[0i32, 1, 2], &[1, 0], &[1f32, 1.0])?;
    let names = Names::default();
    let observation = observe(names.clone());
    blas::gemm(&stream, Gemm::default(), x.as_2d(2, 1)?, one.as_2d(1, 1)?, y.as_2d_mut(2, 1)?)?;
    let (pooling, shape) = (Pooling { window: 1.into(), ..Pooling::default() }, [1, 1, 1, 2]);
    let tensor = Tensor::new(&x, &shape, Layout::Nchw)?;
    dnn::pooling(&stream, &pooling, &tensor, &mut TensorMut::new(&mut y, &shape, Layout::Nchw)?)?;
    fft::forward_in_place(&stream, 2, &mut z)?;
    sparse::spmv(&stream, Product::default(), &matrix, &x, &mut y)?;
    drop(observation);
    let seen = names.0.lock().unwrap_or_else(PoisonError::into_inner);
    let seen: Vec<&str> = seen.iter().filter(|(id, _)| *id == stream.id()).map(|(_, name)| *name).collect();
    assert_eq!(seen, ["blas::gemm", "dnn::pooling", "fft::forward_in_place", "sparse::spmv"]);
    Ok(())
}
