//! Tests of the stream protocol on a GPU.

use crate::under_test;
use warpsmith_interop::cuda_array::CudaArrayInterface;
use warpsmith_interop::dlpack::{DLDevice, DlpackError, Export, Imported, stream_argument};
use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::{DeviceBuffer, Stream};

#[test]
#[ignore = "is not supported on the emulated device"]
fn each_stream_argument_waits_for_the_producer() {
    const LEN: usize = 64 << 20;
    let device = under_test::gpu();
    let [home, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    // SAFETY: the legacy default stream is never destroyed.
    let legacy = unsafe { Stream::adopt(&device, StreamHandle(1), ()) }.unwrap();
    assert_eq!(stream_argument(&legacy), Some(1));
    for (argument, consumer) in
        [(None, &legacy), (Some(1), &legacy), (Some(2), &legacy), (stream_argument(&other), &other)]
    {
        let mut buffer = DeviceBuffer::<u32>::zeros(&home, LEN).unwrap();
        home.memset(&mut buffer, 0x11).unwrap();
        let mut export = Export::new(buffer).with_shape(&[LEN / 2, 2]).unwrap();
        // SAFETY: the stream lives until the end of the test.
        unsafe { export.ready_for(argument) }.unwrap();
        // SAFETY: the tensor was just exported, and is ready on `consumer`.
        let imported = unsafe { Imported::from_raw(export.into_raw().as_ptr()) }.unwrap();
        assert_eq!(imported.device().device_type, DLDevice::CUDA);
        // Imported like a tensor of another library, by its address.
        let tensor = imported.into_tensor(consumer).unwrap();
        let copy = tensor.as_slice::<u32>().unwrap().clone_on(consumer).unwrap();
        drop(tensor);
        assert!(copy.slice(LEN - 1000..).to_host().unwrap().iter().all(|word| *word == 0x11111111));
    }
    let mut export = Export::new(DeviceBuffer::<u32>::zeros(&home, 4).unwrap());
    // SAFETY: these values are not handles.
    unsafe {
        export.ready_for(Some(-1)).unwrap();
        for stream in [0, -2] {
            let error = export.ready_for(Some(stream)).unwrap_err();
            assert_eq!(error.downcast_ref(), Some(&DlpackError::Stream { stream }));
        }
    }
    export.ready_on(&other).unwrap();
    let array = CudaArrayInterface::of(&mut export).unwrap();
    assert_eq!(array.stream, stream_argument(&other));
    // SAFETY: the export outlives the tensor, and the stream is alive.
    let imported = unsafe { array.import(&home, ()) }.unwrap();
    assert_eq!(imported.into_buffer::<u32>(&home).unwrap().to_host().unwrap(), [0; 4]);
    assert!(device.take_drop_error().is_none());
}
