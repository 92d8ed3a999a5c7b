//! Tests that the handles of a lost device report the loss, and that the device can be opened again after they are
//! dropped.

use crate::alone::only_alone;
use crate::common::*;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Launch};

#[test]
fn a_lost_device_reopens_without_handles() {
    only_alone!();
    let device = Device::emulated(0).unwrap();
    let stream = device.default_stream();
    let kernel = module(&device).kernel::<PanicAt>().unwrap();
    kernel.launch(&stream, Launch::auto(1), (0u32,)).unwrap();
    assert!(matches!(stream.synchronize().unwrap_err(), Error::KernelPanic { .. }));
    drop((device, kernel));

    let still = Device::emulated(0).unwrap();
    assert!(still.is_lost(), "the stream still holds it");
    let error = still.synchronize().unwrap_err();
    assert!(error.to_string().contains("open it again"), "{error}");
    drop((still, stream));

    let fresh = Device::emulated(0).unwrap();
    assert!(!fresh.is_lost());
    let mut out = DeviceBuffer::uninit(&fresh.default_stream(), 5).unwrap();
    let kernel = module(&fresh).kernel::<Iota>().unwrap();
    kernel.launch(&fresh.default_stream(), Launch::auto(5), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), [0, 1, 2, 3, 4]);
}
