//! Tests of finding, opening and naming devices.

use crate::common::*;
use warpsmith_runtime::driver::cuda::CudaDriver;
use warpsmith_runtime::{Device, DeviceBuffer, DeviceId, Error, Graph, Launch, Result, Stream};

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
    assert_eq!(
        error.to_string(),
        "device cpu:3 does not exist; there are 3 emulated devices, cpu:0 to cpu:2"
    );
    let error = Device::open("cpu:4096").unwrap_err();
    assert!(matches!(error, Error::NoSuchDevice { device: DeviceId::Emulated(4096), .. }), "{error}");
}

#[test]
fn cuda_works_or_says_why_not() {
    // SAFETY: the driver is not used.
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

/// The error for objects that are used with another device must name both devices and the remedy.
#[test]
fn things_of_another_device_name_the_remedy() {
    let (_, [here, there]) = devices::<2>();
    let (stream, elsewhere) = (Stream::new(&here).unwrap(), Stream::new(&there).unwrap());
    let kernel = module(&here).kernel::<Axpy>().unwrap();
    let x = DeviceBuffer::<f32>::zeros(&stream, 4).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 4).unwrap();
    let mut theirs = DeviceBuffer::<f32>::zeros(&elsewhere, 4).unwrap();
    let other = Graph::new(&there).unwrap();
    let (mut graph, exec) = (Graph::new(&here).unwrap(), other.instantiate().unwrap());
    let their_kernel = module(&there).kernel::<Axpy>().unwrap();
    let launch = Launch::auto(4);
    let check = |found: Result<()>, expected: &str| assert_eq!(found.unwrap_err().to_string(), expected);
    check(
        kernel.launch(&elsewhere, launch, (1.0, &x, &mut y)),
        "launching kernel `axpy__f32`: the loaded kernel is on cpu:0, but the stream is on cpu:1; load it there",
    );
    check(
        kernel.launch(&stream, launch, (1.0, &theirs, &mut y)),
        "launching kernel `axpy__f32`: argument 2 is on cpu:1, but the stream is on cpu:0; copy it there first",
    );
    check(
        graph.add_kernel(&their_kernel, launch, (1.0, &x, &mut y), &[]).map(drop),
        "adding a kernel to a graph: kernel `axpy__f32` is on cpu:1, but the graph is on cpu:0; load it there",
    );
    check(
        exec.launch(&stream),
        "launching a graph: the graph is on cpu:1, but the stream is on cpu:0; launch it on a stream of its device",
    );
    check(
        exec.upload(&stream),
        "uploading a graph: the graph is on cpu:1, but the stream is on cpu:0; launch it on a stream of its device",
    );
    check(
        graph.add_child(&other, &[]).map(drop),
        "adding to a graph: the other graph is on cpu:1, but the graph is on cpu:0; capture it on a stream of that device",
    );
    check(
        graph.instantiate().unwrap().update(&other),
        "updating a graph: the other graph is on cpu:1, but the executable is on cpu:0; capture it on a stream of that device",
    );
    check(
        graph.add_memset(&mut theirs, 0, &[]).map(drop),
        "adding to a graph: the buffer is on cpu:1, but the graph is on cpu:0; copy it there first",
    );
    check(
        stream.memset(&mut theirs, 0),
        "setting bytes: the buffer is on cpu:1, but the stream is on cpu:0; copy it there first",
    );
    let (_, separate) = device();
    let error = stream.wait_stream(&Stream::new(&separate).unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("synchronize on the host"), "{error}");
}
