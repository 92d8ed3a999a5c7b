//! Tests of typed and raw launches on the emulated device: shapes, arguments, and every error.

use std::ffi::c_void;
use std::time::Duration;

use crate::common::*;
use gpu_spec::Kernel;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::error::BlockLimit;
use warpsmith_runtime::{Device, DeviceBuffer, Error, Launch, LaunchConfig, LaunchError};

#[test]
fn axpy_is_correct_at_odd_sizes_and_shapes() {
    let (_, _, stream, kernel) = kernel_fixture::<Axpy>();
    let mut random = random();
    for n in ODD_SIZES {
        let shapes = [
            Launch::auto(n),
            Launch::auto(n).waves(1),
            Launch::for_occupancy(n),
            Launch::for_occupancy(n).waves(1).cooperative(),
            Launch::for_bandwidth(n, 12),
            Launch::for_bandwidth(n, 12).in_flight(64).waves(2),
            Launch::linear(n, 1 + random.usize(..300) as u32),
            Launch::grid_block(3, 33),
        ];
        for launch in shapes {
            let (x, y) = (floats(&mut random, n), floats(&mut random, n));
            let device_x = DeviceBuffer::from_host(&stream, &x).unwrap();
            let mut device_y = DeviceBuffer::from_host(&stream, &y).unwrap();
            kernel.launch(&stream, launch, (2.5f32, &device_x, &mut device_y)).unwrap();
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.5 * x + y).collect();
            assert_eq!(device_y.to_host().unwrap(), expected, "n {n}, {launch:?}");
        }
    }
}

#[test]
fn values_of_any_size_and_alignment_arrive() {
    let (_, _, stream, kernel) = kernel_fixture::<Values>();
    let mut random = random();
    let wide = Wide { bytes: std::array::from_fn(|_| random.u64(..) as u8) };
    let (a, b) = (random.u64(..) as u8, random.u64(..) as u16);
    let mut out = DeviceBuffer::uninit(&stream, 43).unwrap();
    kernel.launch(&stream, Launch::grid_block(1, 1), (a, wide, b, &mut out)).unwrap();
    let expected: Vec<u8> = [a].into_iter().chain(wide.bytes).chain(b.to_ne_bytes()).collect();
    assert_eq!(out.to_host().unwrap(), expected);
}

#[test]
fn unsafe_and_raw_launches_run() {
    let (_, _, stream, kernel) = kernel_fixture::<CopyRaw>();
    let data: Vec<u32> = (0..77).map(|i| i * i).collect();
    let from = DeviceBuffer::from_host(&stream, &data).unwrap();
    let mut to = DeviceBuffer::zeros(&stream, 77).unwrap();
    // SAFETY: both buffers contain 77 elements.
    unsafe { kernel.launch_unsafe(&stream, Launch::auto(77), (&from, &mut to, 77u64)) }.unwrap();
    assert_eq!(to.to_host().unwrap(), data);

    let to = DeviceBuffer::<u32>::zeros(&stream, 77).unwrap();
    let (from_ptr, to_ptr) = (from.as_device_ptr(), to.as_device_ptr());
    // SAFETY: both buffers contain at least 33 elements, and live until the stream has been waited for.
    unsafe { kernel.launch_unsafe(&stream, Launch::auto(77), (from_ptr, to_ptr, 33u64)) }.unwrap();
    let config = LaunchConfig::new([1, 1, 1], [77, 1, 1], 0);
    let (from_ptr, to_ptr, len) = (from_ptr.offset(33 * 4), to_ptr.offset(33 * 4), 44u64);
    let args = [&raw const from_ptr as *const c_void, (&raw const to_ptr).cast(), (&raw const len).cast()];
    let function = kernel.function();
    // SAFETY: the argument types match the kernel; 44 elements remain after the first 33.
    unsafe { function.launch_raw(&stream, config, &args) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(to.to_host().unwrap(), data);

    // SAFETY: the call fails without accessing the memory.
    let error = unsafe { function.launch_raw(&stream, config, &args[..2]) }.unwrap_err();
    assert!(
        matches!(error, Error::Launch(LaunchError::ArgumentCount { expected: 3, got: 2, .. })),
        "{error}"
    );
    let config = LaunchConfig { block: [1025, 1, 1], ..config };
    // SAFETY: the call fails without accessing the memory.
    let error = unsafe { function.launch_raw(&stream, config, &args) }.unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::BlockTooLarge { .. })), "{error}");
}

#[test]
fn dynamic_shared_memory_is_there() {
    let (_, _, stream, kernel) = kernel_fixture::<SharedSum>();
    for block in [1u32, 31, 32, 33, 1024] {
        let mut out = DeviceBuffer::uninit(&stream, 5).unwrap();
        kernel.launch(&stream, Launch::grid_block(5, block).shared(block * 4), (&mut out,)).unwrap();
        assert_eq!(out.to_host().unwrap(), [block * (block - 1) / 2; 5]);
    }
}

#[test]
fn limits_are_checked_before_the_driver_is_asked() {
    let (driver, device, stream, kernel) = kernel_fixture::<SharedSum>();
    let bounded = module(&device).kernel::<Bounded>().unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 8).unwrap();
    driver.reset_calls();
    let mut refused = |launch: Launch| kernel.launch(&stream, launch, (&mut out,)).unwrap_err();

    let error = refused(Launch::grid_block(1, 1025));
    assert!(matches!(
        error,
        Error::Launch(LaunchError::BlockTooLarge { threads: 1025, limit: 1024, by: BlockLimit::Device, .. })
    ));
    assert!(error.to_string().contains("`shared_sum`") && error.to_string().contains("1025"), "{error}");
    let error = refused(Launch::grid_block(1, (1024, 1024, 1024)));
    assert!(
        matches!(error, Error::Launch(LaunchError::BlockTooLarge { threads: 0x4000_0000, .. })),
        "{error}"
    );
    let error = refused(Launch::grid_block(1, (u32::MAX, u32::MAX, u32::MAX)));
    assert!(matches!(error, Error::Launch(LaunchError::BlockTooLarge { threads: u64::MAX, .. })), "{error}");
    let error = refused(Launch::grid_block(1, (1, 1, 65)));
    assert!(
        matches!(
            error,
            Error::Launch(LaunchError::BlockShape { block: [1, 1, 65], limit: [1024, 1024, 64], .. })
        ),
        "{error}"
    );
    for (grid, block, what) in [([0, 1, 1], [1, 1, 1], "grid"), ([1, 1, 1], [8, 0, 1], "block")] {
        let error = refused(Launch::grid_block(grid, block));
        assert!(
            error.to_string().contains(what)
                && matches!(error, Error::Launch(LaunchError::EmptyLaunch { .. })),
            "{error}"
        );
    }
    assert!(matches!(
        refused(Launch::linear(10, 0)),
        Error::Launch(LaunchError::EmptyLaunch { what: "block", .. })
    ));
    let error = refused(Launch::grid_block((1, 65536), 1));
    assert!(matches!(error, Error::Launch(LaunchError::GridTooLarge { grid: [1, 65536, 1], .. })), "{error}");
    let error = refused(Launch::linear(usize::MAX, 1));
    assert!(matches!(error, Error::Launch(LaunchError::GridTooLarge { .. })), "{error}");
    let error = refused(Launch::grid_block(1, 1).shared((227 << 10) + 1));
    assert!(
        matches!(
            error,
            Error::Launch(LaunchError::SharedMemoryTooLarge { dynamic_bytes: 232449, limit: 232448, .. })
        ),
        "{error}"
    );
    assert!(error.to_string().contains("232449") && error.to_string().contains("232448"), "{error}");

    let error = bounded.launch(&stream, Launch::linear(200, 101), (&mut out,)).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Launch(LaunchError::BlockTooLarge { limit: 100, by: BlockLimit::LaunchBounds, .. })
        ),
        "{error}"
    );

    assert_eq!(driver.calls(Call::Launch), 0, "no refused launch reached the driver");
    bounded.launch(&stream, Launch::auto(100_000), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), [96; 8], "whole warps within the bounds");
    bounded.launch(&stream, Launch::auto(8), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), [32; 8], "little work gets small blocks");
}

#[test]
fn launching_nothing_succeeds_and_asks_nothing() {
    let (driver, _, stream, kernel) = kernel_fixture::<Axpy>();
    driver.reset_calls();
    let x = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 0).unwrap();
    kernel.launch(&stream, Launch::auto(0), (1.0, &x, &mut y)).unwrap();
    kernel.launch(&stream, Launch::linear(0, 64), (1.0, &x, &mut y)).unwrap();
    assert_eq!(y.to_host().unwrap(), [0.0f32; 0]);
    assert_eq!(x.as_device_ptr().0, 0);
    drop((x, y));
    for &call in Call::ALL {
        assert_eq!(driver.calls(call), 0, "{}", call.name());
    }
}

#[test]
fn things_of_two_devices_do_not_mix() {
    let (_, [first, second]) = devices();
    let (here, there) = (first.default_stream(), second.default_stream());
    let kernel = module(&first).kernel::<Axpy>().unwrap();
    let x = DeviceBuffer::<f32>::zeros(&there, 4).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&here, 4).unwrap();

    let error = kernel.launch(&here, Launch::auto(4), (1.0, &x, &mut y)).unwrap_err();
    let text = error.to_string();
    assert!(["argument 2", "cpu:1", "cpu:0", "axpy__f32"].iter().all(|part| text.contains(part)), "{text}");
    let error = kernel.launch(&here, Launch::auto(0), (1.0, &x, &mut y)).unwrap_err();
    assert!(matches!(error, Error::DifferentDevices { .. }), "also when nothing is launched");
    let error = kernel.launch(&there, Launch::auto(4), (1.0, &x, &mut y)).unwrap_err();
    assert!(matches!(error, Error::DifferentDevices { .. }), "{error}");
    let event = there.record_timed_event().unwrap();
    here.wait_event(&event).unwrap();
    let elsewhere = Device::with_driver(self::driver(1), 0).unwrap().default_stream();
    assert!(matches!(elsewhere.wait_event(&event).unwrap_err(), Error::DifferentDevices { .. }));
    assert!(matches!(elsewhere.wait_stream(&here).unwrap_err(), Error::DifferentDevices { .. }));
    let other = here.record_timed_event().unwrap();
    assert!(matches!(event.elapsed_us(&other).unwrap_err(), Error::NoElapsedTime(_)));
    here.synchronize().unwrap();
}

#[test]
fn images_and_kernels_are_looked_up_once() {
    let (driver, device) = device();
    driver.reset_calls();
    for _ in 0..3 {
        let module = device.load(&IMAGE).unwrap();
        module.kernel::<Axpy>().unwrap();
        module.function(Axpy::spec()).unwrap();
    }
    assert_eq!((driver.calls(Call::ModuleLoad), driver.calls(Call::ModuleFunction)), (1, 1));
    drop(device);
    assert_eq!((driver.calls(Call::ModuleUnload), driver.calls(Call::ContextRelease)), (1, 1));
}

#[test]
fn a_kernel_that_the_image_lacks_is_named() {
    let (driver, device) = device();
    let module = module(&device);
    driver.fail_call_with(Call::ModuleFunction, 0, 500);
    let text = module.kernel::<Axpy>().unwrap_err().to_string();
    assert!(text.contains("`axpy__f32`") && text.contains("load the image of the package"), "{text}");
    driver.fail_call_with(Call::ModuleFunction, 0, 500);
    let text = module.kernel::<Bounded>().unwrap_err().to_string();
    assert!(text.contains("`bounded`") && text.contains("needs compute capability 9.0"), "{text}");
    module.kernel::<Bounded>().unwrap();
}

#[test]
fn a_wait_with_limit_names_running_work() {
    let (driver, _, stream, kernel) = kernel_fixture::<Iota>();
    let mut out = DeviceBuffer::uninit(&stream, 10).unwrap();
    let hold = driver.hold();
    kernel.launch(&stream, Launch::auto(10), (&mut out,)).unwrap();
    assert!(!stream.query().unwrap());
    let error = stream.synchronize_timeout(Duration::from_millis(5)).unwrap_err();
    let Error::Timeout { waited_ms, kernels, .. } = &error else { panic!("{error}") };
    assert!(*waited_ms >= 5);
    assert_eq!(kernels, &["iota__u32"]);
    drop(hold);
    stream.synchronize_timeout(Duration::from_secs(60)).unwrap();
    assert!(stream.query().unwrap());
}
