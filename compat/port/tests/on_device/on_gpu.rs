//! GPU-only features: the PTX compiler and global variables.

use cust::context::Context;
use cust::error::CudaError;
use cust::memory::DeviceBuffer;
use cust::prelude::*;
use rust_cuda_port::PTX;

use crate::under_test;

fn fixture() -> (Context, Module, Stream) {
    let context = Context::from_runtime(&under_test::gpu());
    let module = Module::from_ptx(PTX, &[]).unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    (context, module, stream)
}

#[test]
#[ignore = "needs a GPU"]
fn code_is_known_by_its_bytes() {
    let _fixture = fixture();
    let error = Module::from_ptx(".version 7.0\n.target sm_80\n.nonsense\n", &[]).unwrap_err();
    assert_eq!(error, CudaError::InvalidPtx, "{error}");
    assert!(Module::from_cubin(PTX, &[]).is_ok());
}

#[test]
#[ignore = "needs a GPU"]
fn globals_are_read_and_written() {
    let (_context, module, stream) = fixture();
    let mut scale = module.get_global::<[f32; 2]>(c"SCALE").unwrap();
    let mut found = [0.0; 2];
    scale.copy_to(&mut found).unwrap();
    assert_eq!(found, [2.0, 0.5]);
    scale.copy_from(&[10.0, 100.0]).unwrap();
    let x = [1.0f32, 2.0, 3.0, 4.0].as_dbuf().unwrap();
    // SAFETY: the kernels expect a pointer to a value for each thread.
    unsafe { launch!(module.scale<<<1, 4, 0, stream>>>(x.as_device_ptr())).unwrap() };
    stream.synchronize().unwrap();
    assert_eq!(x.as_host_vec().unwrap(), [10.0, 200.0, 30.0, 400.0]);

    let (weights, calls) = (DeviceBuffer::<f32>::zeroed(32), DeviceBuffer::<u32>::zeroed(32));
    let (weights, calls) = (weights.unwrap(), calls.unwrap());
    module.get_global::<u32>(c"CALLS").unwrap().copy_from(&1000).unwrap();
    // SAFETY: as above.
    unsafe {
        launch!(module.statics<<<1, 32, 0, stream>>>(weights.as_device_ptr(), calls.as_device_ptr()))
            .unwrap();
    }
    stream.synchronize().unwrap();
    let mut count = 0;
    module.get_global::<u32>(c"CALLS").unwrap().copy_to(&mut count).unwrap();
    assert_eq!((count, calls.as_host_vec().unwrap().into_iter().min()), (1064, Some(1000)));

    assert_eq!(module.get_global::<u32>(c"NONE").unwrap_err(), CudaError::NotFound);
    let error = module.get_global::<u64>(c"CALLS").unwrap_err();
    assert!(error.to_string().contains("has 4 bytes, but u64 has 8"), "{error}");
}
