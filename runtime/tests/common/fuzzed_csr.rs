//! Code under test for a fuzzer of sparse matrices. No input may cause a panic or a hang.

use warpsmith_libraries::sparse::{self, Csr, Product};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, DeviceBuffer};

/// Reads the offsets and columns of a sparse matrix. A valid matrix is multiplied on the emulated device.
pub fn csr(bytes: &[u8]) {
    thread_local! {
        static DEVICE: Device =
            Device::with_driver(EmulatedDriver::builder().memory(64 << 20).build(), 0).expect("a device");
    }
    let [rows, columns, offsets, rest @ ..] = bytes else { return };
    let shape = [rows, columns].map(|size| usize::from(size % 64));
    let numbers: Vec<i32> = rest.iter().map(|byte| i32::from(byte.cast_signed())).collect();
    let (offsets, indices) = numbers.split_at(usize::from(*offsets).min(numbers.len()));
    DEVICE.with(|device| {
        let stream = device.default_stream();
        let values = vec![1f32; indices.len()];
        let Ok(matrix) = Csr::from_host(&stream, shape, offsets, indices, &values) else { return };
        let x = DeviceBuffer::from_host(&stream, &vec![1f32; shape[1]]).unwrap();
        let mut y = DeviceBuffer::<f32>::zeros(&stream, shape[0]).unwrap();
        sparse::spmv(&stream, Product::default(), &matrix, &x, &mut y).unwrap();
        let sum: f32 = y.to_host().unwrap().iter().sum();
        assert_eq!(sum, indices.len() as f32, "each element counts once");
    });
}
