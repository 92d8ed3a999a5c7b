//! Finding, opening and naming devices.

use crate::common::*;
use warpsmith_runtime::driver::cuda::CudaDriver;
use warpsmith_runtime::{Device, DeviceId, Error};

#[test]
fn texts_name_devices() {
    for (text, id) in [
        ("cuda", DeviceId::Cuda(0)),
        ("cuda:0", DeviceId::Cuda(0)),
        ("cuda:17", DeviceId::Cuda(17)),
        ("cpu", DeviceId::Emulated(0)),
        ("cpu:3", DeviceId::Emulated(3)),
    ] {
        assert_eq!(text.parse::<DeviceId>().unwrap(), id);
        assert_eq!(id.to_string().parse::<DeviceId>().unwrap(), id);
    }
    for text in
        ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cpu:1.5", "CPU", "cpu:0:0", "cuda:99999999999", " cpu"]
    {
        let error = text.parse::<DeviceId>().unwrap_err();
        assert!(matches!(&error, Error::UnknownDevice(asked) if asked == text), "{error}");
        assert!(Device::open(text).is_err());
    }
}

#[test]
fn an_index_out_of_range_names_the_count() {
    let driver = driver(3);
    let error = Device::with_driver(driver, 3).unwrap_err();
    assert_eq!(error.to_string(), "there is no device cpu:3: there are 3 emulated devices, cpu:0 to cpu:2");
    let error = Device::open("cpu:4096").unwrap_err();
    assert!(matches!(error, Error::NoSuchDevice { device: DeviceId::Emulated(4096), .. }), "{error}");
}

#[test]
fn cuda_works_or_says_why_not() {
    // SAFETY: it is not used.
    match unsafe { CudaDriver::get() } {
        Ok(_) => {
            let count = Device::cuda_count().unwrap();
            let error = Device::cuda(count).unwrap_err();
            assert!(matches!(error, Error::NoSuchDevice { .. }), "{error}");
        }
        Err(error) => {
            assert_eq!(error.to_string(), Device::cuda(0).unwrap_err().to_string());
            if matches!(error, warpsmith_runtime::DriverError::NoLibrary) {
                let text = error.to_string();
                assert!(text.contains("NVIDIA driver") && text.contains("`cpu`"), "{text}");
                assert!(Device::best().unwrap().is_emulated());
            }
        }
    }
}

#[test]
fn opening_twice_gives_one_device() {
    let (first, second) = (Device::emulated(0).unwrap(), Device::open("cpu:0").unwrap());
    assert_eq!(first, second);
    let listed = Device::list().into_iter().find(|info| info.id == first.id()).unwrap();
    assert_eq!(&listed.properties, first.properties());
    assert!(first.name().starts_with("Emulated GPU ("));
    let properties = first.properties();
    assert_eq!((properties.max_threads_per_block, properties.warp_size), (1024, 32));
    assert_eq!((properties.capability, properties.shared_memory_per_block), ((0, 0), 48 << 10));
}
