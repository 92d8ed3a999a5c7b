//! Tests of failing kernels and failing drivers, and of the device's state after a failure.

use std::time::Duration;

use crate::common::*;
use warpsmith_runtime::driver::{Driver, Fault, FaultKind, HostWork, StreamDriver};
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Launch, LaunchConfig, Result, Stream};

#[test]
fn a_panic_loses_the_device_until_reopened() {
    let (driver, device, stream, kernel) = kernel_fixture::<PanicAt>();
    let buffer = DeviceBuffer::from_host(&stream, &[1u32; 9]).unwrap();
    kernel.launch(&stream, Launch::linear(100, 32), (70u32,)).unwrap();
    let error = stream.synchronize().unwrap_err();
    let Error::KernelPanic { message, kernel: names, location, block, thread, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(message, "thread 70 was told to panic");
    assert_eq!(names, &["panic_at"]);
    assert!(
        location.as_ref().is_some_and(|location| location.contains("common/kernels.rs:")),
        "{location:?}"
    );
    assert_eq!((block, thread), (&Some([2, 0, 0]), &Some([6, 0, 0])));
    let text = error.to_string();
    assert!(
        ["`panic_at`", "common/kernels.rs:", "thread 70", "[2, 0, 0]"].iter().all(|p| text.contains(p)),
        "{text}"
    );

    assert!(device.is_lost());
    let later = [
        stream.synchronize().unwrap_err(),
        stream.query().unwrap_err(),
        device.synchronize().unwrap_err(),
        device.memory_info().map(|_| ()).unwrap_err(),
        Stream::new(&device).map(|_| ()).unwrap_err(),
        buffer.to_host().map(|_| ()).unwrap_err(),
        DeviceBuffer::<u8>::uninit(&stream, 1).map(|_| ()).unwrap_err(),
        kernel.launch(&stream, Launch::auto(1), (9u32,)).unwrap_err(),
    ];
    for error in later {
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
        assert!(error.to_string().contains("`panic_at` panicked"), "{error}");
    }
    drop((buffer, stream, kernel));
    assert!(device.take_drop_error().is_none(), "the fault is no error of the drops");
    assert_eq!(device.memory().allocated(), 0);
    drop(device);

    let device = Device::with_driver(driver, 0).unwrap();
    let stream = Stream::new(&device).unwrap();
    assert_eq!(DeviceBuffer::<u8>::zeros(&stream, 3).unwrap().to_host().unwrap(), [0; 3]);
}

#[test]
fn a_deadlock_is_told_with_where_threads_wait() {
    let (_, device, stream, kernel) = kernel_fixture::<Deadlock>();
    kernel.launch(&stream, Launch::grid_block(1, 32), ()).unwrap();
    let error = device.synchronize().unwrap_err();
    assert!(matches!(&error, Error::Deadlock { kernel, .. } if kernel == &["deadlock"]), "{error}");
    let text = error.to_string();
    assert!(text.contains("common/kernels.rs:") && text.contains("shuffle"), "{text}");
    assert!(error.is_device_lost());
}

#[test]
fn an_unknown_kernels_fault_names_candidates() {
    let (driver, device, stream) = fixture();
    let module = module(&device);
    let (iota, shared) = (module.kernel::<Iota>().unwrap(), module.kernel::<SharedSum>().unwrap());
    let mut out = DeviceBuffer::uninit(&stream, 4).unwrap();
    iota.launch(&stream, Launch::grid_block(1, 1), (&mut out,)).unwrap();
    stream.synchronize().unwrap();
    let fault = |block| Fault {
        kind: FaultKind::Panic,
        message: "index out of bounds".to_owned(),
        location: None,
        kernel: None,
        block: Some(block),
        thread: Some([0; 3]),
    };
    // Of the launches that may still be running, only one has a third block.
    shared.launch(&stream, Launch::grid_block(3, 1).shared(4), (&mut out,)).unwrap();
    iota.launch(&stream, Launch::grid_block(1, 1), (&mut out,)).unwrap();
    driver.poison(0, fault([2, 0, 0]));
    let error = stream.synchronize().unwrap_err();
    let Error::KernelPanic { kernel, launches, .. } = &error else { panic!("{error}") };
    assert_eq!(kernel, &["shared_sum"]);
    let [launch] = &launches[..] else { panic!("{launches:?}") };
    assert_eq!((launch.stream, launch.config), (stream.id(), LaunchConfig::new([3, 1, 1], [1, 1, 1], 4)));
}

#[test]
fn a_fault_names_configuration_and_stream() {
    let (_, device, [quiet, stream]) = streams_fixture();
    let kernel = module(&device).kernel::<PanicAt>().unwrap();
    // These launches of the same kernel are too small to contain the failing block.
    kernel.launch(&quiet, Launch::grid_block(2, 32), (1000u32,)).unwrap();
    kernel.launch(&stream, Launch::grid_block((5, 1, 2), 32).shared(256), (100u32,)).unwrap();
    let error = stream.synchronize().unwrap_err();
    let text = error.to_string();
    let expected = format!(
        "launched on stream {}, grid [5, 1, 2], block [32, 1, 1], 256 bytes of shared memory",
        stream.id()
    );
    assert!(text.ends_with(&expected), "{text}");
    assert!(device.memory_info().unwrap_err().to_string().contains(&expected), "later calls say so too");
}

#[test]
fn a_fault_lists_unfinished_launches_of_all_streams() {
    let (driver, device, [done, first, second]) = streams_fixture();
    let kernel = module(&device).kernel::<Iota>().unwrap();
    let mut out = DeviceBuffer::uninit(&first, 64).unwrap();
    kernel.launch(&done, Launch::grid_block(9, 1), (&mut out,)).unwrap();
    done.synchronize().unwrap();
    for _ in 0..100 {
        kernel.launch(&first, Launch::grid_block(1, 32), (&mut out,)).unwrap();
    }
    for grid in 2..8 {
        kernel.launch(&second, Launch::grid_block(grid, 32), (&mut out,)).unwrap();
    }
    let fault = Fault {
        kind: FaultKind::Other,
        message: "an illegal address".to_owned(),
        location: None,
        kernel: None,
        block: None,
        thread: None,
    };
    driver.poison(0, fault);
    let error = second.synchronize().unwrap_err();
    let Error::KernelFault { kernel, launches, .. } = &error else { panic!("{error}") };
    assert_eq!(kernel, &["iota__u32"]);
    let of = |stream: &Stream| launches.iter().filter(|launch| launch.stream == stream.id()).count();
    assert_eq!((of(&done), of(&first), of(&second)), (0, 1, 6), "equal launches are one: {launches:?}");
    let text = error.to_string();
    assert!(text.contains("an illegal address") && text.contains("or one of 3 earlier launches"), "{text}");
}

#[test]
fn two_threads_both_learn_of_one_fault() {
    let (_, device) = device();
    let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
    let kernel = module(&device).kernel::<PanicAt>().unwrap();
    for stream in &streams {
        kernel
            .launch(stream, Launch::auto(1), (0u32,))
            .unwrap_or_else(|error| assert!(error.is_device_lost()));
    }
    let errors = std::thread::scope(|scope| {
        streams
            .each_ref()
            .map(|stream| scope.spawn(|| stream.synchronize().unwrap_err()))
            .map(|t| t.join().unwrap())
    });
    for error in errors {
        assert!(error.is_device_lost() && error.to_string().contains("`panic_at` panicked"), "{error}");
    }
}

/// Runs a small program that uses every part. It either fails with an error or produces the right result.
fn program(device: &Device) -> Result<()> {
    let [first, second] = [Stream::new(device)?, Stream::new(device)?];
    let kernel = device.load(&IMAGE)?.kernel::<Axpy>()?;
    let sum = device.load(&IMAGE)?.kernel::<SharedSum>()?;
    let x = DeviceBuffer::from_host(&first, &[2.0f32; 50])?;
    let mut y = DeviceBuffer::zeros(&second, 50)?;
    let start = first.record_timed_event()?;
    kernel.launch(&first, Launch::auto(50).waves(1), (1.0, &x, &mut y))?;
    kernel.launch(&second, Launch::auto(50), (1.0, &x, &mut y))?;
    let end = second.record_timed_event()?;
    first.wait_event(&end)?;
    end.synchronize()?;
    let z = y.clone_on(&second)?;
    let mut sums = DeviceBuffer::uninit(&first, 2)?;
    sum.launch(&first, Launch::grid_block(2, 8).shared(48 << 10), (&mut sums,))?;
    first.synchronize_timeout(Duration::from_secs(60))?;
    device.memory_info()?;
    device.synchronize()?;
    assert!(end.elapsed_us(&start)? >= 0.0);
    assert_eq!(z.to_host()?, [4.0; 50]);
    assert_eq!(sums.to_host()?, [28; 2]);
    drop((x, y, z, sums));
    device.memory().empty_cache()?;
    Ok(())
}

#[test]
fn any_call_may_fail_and_programs_go_on() {
    let mut failed = 0;
    for &call in Call::ALL {
        for after in 0..6 {
            let driver = driver(1);
            driver.fail_call(call, after);
            let device = match Device::with_driver(driver.clone(), 0) {
                Ok(device) => device,
                Err(error) => {
                    assert_eq!(driver.calls(Call::ContextRetain) - driver.calls(Call::ContextRelease), {
                        u64::from(call == Call::ContextRetain)
                    });
                    failed += usize::from(error.driver_code().is_some());
                    continue;
                }
            };
            // If the call is made, the injected failure occurs in one of the runs and affects no other run.
            let errors: Vec<Error> = (0..7).filter_map(|_| program(&device).err()).collect();
            assert!(errors.len() <= 1, "{}: {errors:?}", call.name());
            for error in &errors {
                let text = error.to_string();
                assert!(
                    text.contains(call.name()) || text.contains("out of memory"),
                    "{}: {text}",
                    call.name()
                );
            }
            failed += errors.len();
            let came = !driver.failed_calls().is_empty();
            assert!(!device.is_lost(), "{}", call.name());
            assert_eq!(device.memory().allocated(), 0, "{} after {after}", call.name());
            device.memory().empty_cache().unwrap();
            assert_eq!(driver.live_allocations(0), 0, "{} after {after}", call.name());
            let dropped = device.take_drop_error();
            let may_drop = [Call::MemoryFree, Call::StreamSynchronize].contains(&call);
            assert!(dropped.is_none() || may_drop, "{dropped:?}");
            drop(device);
            let pairs = [(Call::StreamCreate, Call::StreamDestroy), (Call::EventCreate, Call::EventDestroy)];
            for (create, destroy) in pairs {
                let failed_create = u64::from(call == create && driver.calls(create) > after);
                assert_eq!(driver.calls(create), driver.calls(destroy) + failed_create, "{}", call.name());
            }
            if !came {
                // The call is not made that often.
                break;
            }
        }
    }
    assert!(failed > 100, "only {failed} programs failed: the orders did not reach them");
}

#[test]
fn a_panic_of_host_work_stops_the_device() {
    let (driver, _, stream) = fixture();
    let context = driver.context_retain(0).unwrap();
    let work = HostWork::new("rows", Vec::new(), Box::new(|| panic!("a shape of {} rows", 3)));
    // SAFETY: the work does not access memory.
    unsafe { driver.host_work(context, stream.handle(), work) }.unwrap();
    driver.context_release(0);
    let error = stream.synchronize().unwrap_err();
    assert!(matches!(&error, Error::KernelPanic { .. }), "{error:?}");
    assert!(error.to_string().contains("panicked: a shape of 3 rows"), "{error}");
    assert!(matches!(stream.synchronize(), Err(Error::DeviceLost { .. })));
}
