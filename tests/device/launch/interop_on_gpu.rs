//! Memory, a library and this crate's kernels on one stream: cudarc allocates, our runtime adopts the memory and
//! launches, and cudarc's cuBLAS multiplies. cudarc does not support emulated devices.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cudarc::cublas::{result as cublas, sys};
use cudarc::driver::{CudaContext, CudaSlice, DevicePtr as _};
use warpsmith::IMAGE;
use warpsmith::extension::Access;
use warpsmith::kernels::elementwise::axpy;
use warpsmith::prelude::*;
use warpsmith::{DevicePtr, Error};

use crate::common::{Random, gpu};

/// Adopts a matrix of cudarc as a buffer. The weak pointer shows whether cudarc's value is still alive.
fn adopted(stream: &Stream, values: &[f32]) -> (DeviceBuffer<f32>, Weak<CudaSlice<f32>>) {
    let context = CudaContext::new(stream.device().id().ordinal() as usize).expect("cudarc's context");
    let theirs = context.default_stream();
    let slice = theirs.clone_htod(values).expect("cudarc's memory");
    theirs.synchronize().expect("cudarc's copy");
    let (address, recorded) = slice.device_ptr(&theirs);
    drop(recorded);
    let owner = Arc::new(slice);
    let weak = Arc::downgrade(&owner);
    // SAFETY: the owner frees the memory, cudarc's copy into it has completed, and nothing else uses it.
    let buffer = unsafe { DeviceBuffer::from_raw(stream, DevicePtr(address), values.len(), owner) };
    (buffer.expect("memory of the same device"), weak)
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn cublas_shares_cudarcs_memory() {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let kernel = device.load(&IMAGE).unwrap().kernel::<axpy<f32, 4, 16>>().unwrap();
    let mut random = Random::new();
    let n = 67;
    let [a_host, b_host, x_host]: [Vec<f32>; 3] = [(); 3].map(|()| random.values(n * n, 1.0));
    let ((mut a, a_theirs), (b, b_theirs)) = (adopted(&stream, &a_host), adopted(&stream, &b_host));
    let x = DeviceBuffer::from_host(&stream, &x_host).unwrap();
    let mut c = DeviceBuffer::<f32>::uninit(&stream, n * n).unwrap();

    kernel.launch(&stream, Launch::auto(n * n), (2.0f32, &x, &mut a)).unwrap();
    let handle = device.with_context(|| cublas::create_handle().map_err(Error::extension)).unwrap();
    let [from_a, from_b, to_c] = [a.as_device_ptr(), b.as_device_ptr(), c.as_device_ptr()].map(|ptr| ptr.0);
    let uses = [a.as_slice().used(Access::Read), b.as_slice().used(Access::Read), c.as_mut_slice().used()];
    let (size, one, zero, plain) = (n as i32, 1.0f32, 0.0f32, sys::cublasOperation_t::CUBLAS_OP_N);
    // SAFETY: the product reads `a` and `b` and writes `c`, each of n × n elements, only on this stream.
    unsafe {
        stream
            .enqueue(&uses, |stream| {
                cublas::set_stream(handle, stream.0 as *mut _).map_err(Error::extension)?;
                cublas::sgemm(
                    handle,
                    plain,
                    plain,
                    size,
                    size,
                    size,
                    &one,
                    from_a as *const f32,
                    size,
                    from_b as *const f32,
                    size,
                    &zero,
                    to_c as *mut f32,
                    size,
                )
                .map_err(Error::extension)
            })
            .unwrap();
    }
    // The product may still be running.
    drop((a, b));
    let found = c.to_host().unwrap();
    // SAFETY: all work enqueued with the handle has completed.
    device.with_context(|| unsafe { cublas::destroy_handle(handle) }.map_err(Error::extension)).unwrap();
    for (index, found) in found.iter().enumerate() {
        let (row, column) = (index % n, index / n);
        let terms = (0..n).map(|k| {
            let a = 2.0f32.mul_add(x_host[k * n + row], a_host[k * n + row]);
            f64::from(a) * f64::from(b_host[column * n + k])
        });
        let expected: f64 = terms.sum();
        assert!(
            (f64::from(*found) - expected).abs() < 1e-4,
            "{found} is not {expected}, seed {}",
            random.seed
        );
    }
    let end = Instant::now() + Duration::from_secs(60);
    for theirs in [a_theirs, b_theirs] {
        while theirs.strong_count() > 0 {
            assert!(Instant::now() < end, "cudarc's value is dropped behind the last use");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(device.take_drop_error().is_none());
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn cudarc_sees_kernel_writes() {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let kernel = device.load(&IMAGE).unwrap().kernel::<axpy<f32, 4, 16>>().unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &[3.0f32; 1000]).unwrap();
    kernel.launch(&stream, Launch::auto(1000), (2.0f32, &x, &mut y)).unwrap();
    stream.synchronize().unwrap();
    let (ptr, len, owner) = y.into_raw();
    let context = CudaContext::new(device.id().ordinal() as usize).unwrap();
    // SAFETY: the memory has `len` elements, our code does not use it, and cudarc leaks it instead of freeing it.
    let theirs = unsafe { context.default_stream().upgrade_device_ptr::<f32>(ptr.0, len) };
    let found = context.default_stream().clone_dtoh(&theirs).unwrap();
    assert_eq!((theirs.leak(), found), (ptr.0, vec![5.0; 1000]));
    assert_eq!(owner.cast::<f32>().unwrap().to_host().unwrap(), [5.0; 1000]);
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn unknown_addresses_are_refused() {
    let device = gpu();
    let stream = Stream::new(&device).unwrap();
    let host = [0.0f32; 4];
    let address = DevicePtr(host.as_ptr().addr() as u64);
    // SAFETY: the call is rejected.
    let error = unsafe { DeviceBuffer::<f32>::from_raw(&stream, address, 4, ()) }.unwrap_err();
    assert!(matches!(error, Error::BadAddress { bytes: 16, .. }), "{error}");
}
