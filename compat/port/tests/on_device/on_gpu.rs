//! What only a GPU has: a PTX compiler, and address spaces.

use cust::context::Context;
use cust::error::CudaError;
use cust::memory::DeviceBuffer;
use cust::prelude::*;
use rust_cuda_port::PTX;

use crate::under_test;

fn rig() -> (Context, Module, Stream) {
    let context = Context::from_runtime(&under_test::gpu());
    let module = Module::from_ptx(PTX, &[]).unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    (context, module, stream)
}

#[test]
#[ignore = "needs a GPU"]
fn pointers_have_address_spaces() {
    let (_context, module, stream) = rig();
    let places = DeviceBuffer::<u32>::zeroed(6).unwrap();
    // SAFETY: the kernel takes a pointer to 6 numbers.
    unsafe { launch!(module.places<<<1, 1, 0, stream>>>(places.as_device_ptr())).unwrap() };
    stream.synchronize().unwrap();
    let places = places.as_host_vec().unwrap();
    assert_eq!(places[..5], [1, 1, 1, 0, 1]);
    assert!(places[5] < 200 << 10, "a shared address is an offset: {}", places[5]);
}

#[test]
#[ignore = "needs a GPU"]
fn code_is_known_by_its_bytes() {
    let _rig = rig();
    let error = Module::from_ptx(".version 7.0\n.target sm_80\n.nonsense\n", &[]).unwrap_err();
    assert_eq!(error, CudaError::InvalidPtx, "{error}");
    assert!(Module::from_cubin(PTX, &[]).is_ok());
}
