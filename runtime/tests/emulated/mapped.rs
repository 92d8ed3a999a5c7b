//! Tests of host memory that kernels access without a copy: page-locked buffers, and registered memory of the program.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::common::*;
use crate::support::pinned::panicked;
use warpsmith_runtime::emulated::{Call, EmulatedDriver, Schedule};
use warpsmith_runtime::{
    Device, DeviceBuffer, Error, Graph, GraphError, Launch, MappedBuffer, PinnedBuffer, Stream,
};

fn pinned(device: &Device, elements: &[u32]) -> PinnedBuffer<u32> {
    PinnedBuffer::from_slice(device, elements).unwrap()
}

#[test]
fn a_kernel_uses_the_memory_itself() {
    let (driver, device, stream) = fixture();
    let module = module(&device);
    let kernel = module.kernel::<Mix>().unwrap();
    for n in ODD_SIZES {
        let values: Vec<u32> = (0..n as u32).collect();
        let x = pinned(&device, &values).into_mapped(&stream).unwrap();
        let mut y = MappedBuffer::register(&stream, vec![1u32; n]).unwrap();
        driver.reset_calls();
        kernel.launch(&stream, Launch::auto(n), (2u32, &*x, y.as_mut_slice())).unwrap();
        assert_eq!((x.len(), x.device() == &device), (n, true));
        let expected: Vec<u32> = values.iter().map(|x| mixed(2, *x, 1)).collect();
        assert_eq!(y.lock().unwrap()[..], expected);
        for call in [Call::CopyToHost, Call::CopyToDevice, Call::CopyDevice, Call::MemoryAllocate] {
            assert_eq!(driver.calls(call), 0, "{} of {n}", call.name());
        }
        assert_eq!(x.to_host().unwrap(), values, "it is a buffer to copies too");
        assert_eq!(y.into_inner().unwrap(), expected);
        assert_eq!(x.into_inner().unwrap()[..], values);
    }
    assert_eq!(driver.live_registered(), 0);
}

#[test]
fn uses_on_several_streams_are_ordered() {
    for seed in 0..50 {
        let driver =
            EmulatedDriver::builder().memory(1 << 24).stepped(Schedule::Random(seed)).check_races().build();
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let streams = [(); 3].map(|()| Stream::new(&device).unwrap());
        let module = module(&device);
        let kernel = module.kernel::<Mix>().unwrap();
        let mut x = pinned(&device, &[3; 8]).into_mapped(&streams[0]).unwrap();
        let mut y = MappedBuffer::register(&streams[1], vec![5u32; 8]).unwrap();
        let mut own = DeviceBuffer::<u32>::zeros(&streams[2], 8).unwrap();
        let (mut a, mut b, mut c) = (3, 5, 0);
        for step in 0..9 {
            let of = |next: usize| &streams[(step + next) % 3];
            kernel.launch(of(0), Launch::auto(8), (1u32, &*y, x.as_mut_slice())).unwrap();
            a = mixed(1, b, a);
            kernel.launch(of(1), Launch::auto(8), (2u32, &*x, &mut own)).unwrap();
            c = mixed(2, a, c);
            kernel.launch(of(2), Launch::auto(8), (3u32, &own, y.as_mut_slice())).unwrap();
            b = mixed(3, c, b);
            if step == 4 {
                let mut host = x.lock().unwrap();
                assert_eq!(host[..], [a; 8]);
                host.fill(9);
                a = 9;
            }
        }
        assert_eq!(x.into_inner().unwrap()[..], [a; 8], "{seed}");
        assert_eq!(y.into_inner().unwrap(), [b; 8], "{seed}");
        assert_eq!(own.to_host().unwrap(), [c; 8], "{seed}");
        assert_eq!(driver.take_races(), Vec::<String>::new(), "{seed}");
    }
}

#[test]
fn the_host_waits_for_running_work() {
    let (driver, device, stream) = fixture();
    let module = module(&device);
    let kernel = module.kernel::<Iota>().unwrap();
    let mut mapped = pinned(&device, &[9; 100]).into_mapped(&stream).unwrap();
    driver.set_stream_delay(stream.handle(), Duration::from_millis(30));
    kernel.launch(&stream, Launch::auto(100), (mapped.as_mut_slice(),)).unwrap();
    assert_eq!(mapped.lock().unwrap()[..3], [0, 1, 2]);
    kernel.launch(&stream, Launch::auto(100), (mapped.as_mut_slice(),)).unwrap();
    assert_eq!(mapped.into_inner().unwrap()[97..], [97, 98, 99]);
}

#[test]
fn graphs_use_it_unless_the_host_does() {
    let (_, device, stream) = fixture();
    let module = module(&device);
    let kernel = module.kernel::<Mix>().unwrap();
    let mut input = pinned(&device, &[0; 10]).into_mapped(&stream).unwrap();
    let mut output = MappedBuffer::register(&stream, vec![0u32; 10]).unwrap();
    let launch = || kernel.launch(&stream, Launch::auto(10), (0u32, &*input, output.as_mut_slice()));
    let exec = Graph::capture(&stream, launch).unwrap().instantiate().unwrap();
    let mut expected = 0;
    for value in [1u32, 2, 3] {
        let mut host = input.lock().unwrap();
        host.fill(value);
        let error = exec.launch(&stream).unwrap_err();
        assert!(matches!(error, Error::Graph(GraphError::HostBufferInUse)), "{error}");
        drop(host);
        exec.launch(&stream).unwrap();
        expected = mixed(0, value, expected);
        assert_eq!(output.lock().unwrap()[..], [expected; 10]);
    }
    assert_eq!(output.into_inner().unwrap(), [expected; 10]);
    let error = exec.launch(&stream).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::BufferDropped { bytes: 40, .. })), "{error}");
    std::mem::forget(input.lock().unwrap());
    let error = input.lock().unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::HostBufferInUse)), "{error}");
}

#[test]
fn dropped_memory_is_freed_behind_its_uses() {
    struct Tells(Vec<u32>, Arc<EmulatedDriver>, std::sync::mpsc::Sender<usize>);
    impl Drop for Tells {
        fn drop(&mut self) {
            assert_eq!(self.0[99], 99, "the kernel has run");
            let _ = self.2.send(self.1.live_registered());
        }
    }

    let (driver, device, [stream, other]) = streams_fixture();
    let module = module(&device);
    let kernel = module.kernel::<Iota>().unwrap();
    let (sender, freed) = channel();
    let mut memory = vec![0u32; 100];
    let host = NonNull::new(memory.as_mut_ptr()).unwrap();
    let memory = Tells(memory, driver.clone(), sender);
    // SAFETY: the vector contains this number of elements, and is read when it is dropped.
    let mut mapped = unsafe { MappedBuffer::register_raw(&stream, host, 100, memory) }.unwrap();
    assert_eq!(driver.live_registered(), 1);
    let hold = driver.hold();
    kernel.launch(&other, Launch::auto(100), (mapped.as_mut_slice(),)).unwrap();
    drop(mapped);
    assert!(freed.try_recv().is_err());
    drop(hold);
    let registered = freed.recv_timeout(Duration::from_secs(60)).expect("dropped");
    assert_eq!(registered, 0, "unregistered before it is freed");
    assert!(device.take_drop_error().is_none());
}

#[test]
fn failures_leave_nothing_registered() {
    let (driver, device, stream) = fixture();
    for call in [Call::HostRegister, Call::HostAddress] {
        driver.fail_call(call, 0);
        MappedBuffer::register(&stream, vec![1u8; 100]).unwrap_err();
        assert_eq!(driver.live_registered(), 0, "{}", call.name());
    }
    driver.fail_call(Call::HostAddress, 0);
    pinned(&device, &[1]).into_mapped(&stream).unwrap_err();

    let mapped = MappedBuffer::register(&stream, vec![1u8; 100]).unwrap();
    driver.fail_call(Call::HostUnregister, 0);
    mapped.into_inner().unwrap_err();
    let mapped = MappedBuffer::register(&stream, vec![1u8; 100]).unwrap();
    driver.fail_call(Call::HostUnregister, 0);
    drop(mapped);
    assert!(device.take_drop_error().is_some());
    assert_eq!(driver.live_registered(), 2, "what stays registered is kept");

    let too_many = usize::MAX / 2;
    // SAFETY: the call fails without accessing the memory.
    let error = unsafe { MappedBuffer::register_raw(&stream, NonNull::<u32>::dangling(), too_many, ()) };
    assert!(matches!(error.unwrap_err(), Error::TooManyElements { .. }));
}

#[test]
fn any_device_of_the_driver_may_map() {
    let (_, devices) = devices::<2>();
    let stream = Stream::new(&devices[1]).unwrap();
    let mapped = pinned(&devices[0], &[7; 10]).into_mapped(&stream).unwrap();
    assert_eq!((mapped.device(), mapped.to_host().unwrap()), (&devices[1], vec![7; 10]));
    let (_, alien) = device();
    let error = pinned(&alien, &[7; 10]).into_mapped(&stream).unwrap_err();
    assert!(matches!(error, Error::DifferentDevices { .. }), "{error}");
}

#[test]
fn a_lost_device_gives_no_access() {
    let (driver, _, stream) = fixture();
    let mut mapped = MappedBuffer::register(&stream, vec![1u32; 100]).unwrap();
    stream.memset(mapped.as_mut_slice(), 0).unwrap();
    driver.poison(0, panicked());
    assert!(mapped.lock().unwrap_err().is_device_lost());
    assert!(mapped.into_inner().unwrap_err().is_device_lost());
}
