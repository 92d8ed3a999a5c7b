//! Tests of automatically chosen shapes, prepared launches, and launch options beyond the grid and block.

use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::launch::{Limiter, Source};
use warpsmith_runtime::{Device, DeviceBuffer, Error, Launch, LaunchConfig, LaunchError};

/// Returns the number of SMs of the emulated device, which supports 2048 threads on each.
fn multiprocessors(device: &Device) -> u64 {
    u64::from(device.properties().multiprocessors)
}

#[test]
fn shapes_of_at_least_n_threads_have_them() {
    let (_, device) = device();
    let function = module(&device).kernel::<Iota>().unwrap().function().clone();
    let mut random = random();
    for n in ODD_SIZES.into_iter().skip(1).chain((0..100).map(|i| random.usize(..1 << (i % 30 + 1)) + 1)) {
        for launch in [Launch::auto(n), Launch::for_occupancy(n), Launch::linear(n, 96)] {
            let config = function.configure(launch).unwrap().unwrap();
            let threads = u64::from(config.grid[0]) * u64::from(config.block[0]);
            assert!(threads >= n as u64 && threads < n as u64 + u64::from(config.block[0]), "{n}: {config}");
        }
        let config = function.configure(Launch::for_bandwidth(n, 8)).unwrap().unwrap();
        assert!(u64::from(config.grid[0]) * u64::from(config.block[0]) < n as u64 + 1024, "{n}: {config}");
    }
}

#[test]
fn a_chosen_shape_is_computed_once() {
    let (driver, _, stream, kernel) = kernel_fixture::<Axpy>();
    let x = DeviceBuffer::<f32>::zeros(&stream, 1000).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 1000).unwrap();
    driver.reset_calls();
    for _ in 0..10 {
        kernel.launch(&stream, Launch::auto(1000).waves(2), (1.0, &x, &mut y)).unwrap();
        kernel.launch(&stream, Launch::auto(1000), (1.0, &x, &mut y)).unwrap();
    }
    assert_eq!((driver.calls(Call::FunctionOccupancy), driver.calls(Call::Launch)), (1, 20));
}

#[test]
fn a_prepared_launch_runs_as_often_as_asked() {
    let (driver, device, stream) = fixture();
    let module = module(&device);
    let kernel = module.kernel::<Axpy>().unwrap();
    let prepared = kernel.prepare(Launch::for_bandwidth(1000, 12)).unwrap();
    assert_eq!(prepared.config(), kernel.function().configure(Launch::for_bandwidth(1000, 12)).unwrap());
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 1000).unwrap();
    driver.reset_calls();
    for _ in 0..5 {
        prepared.clone().launch(&stream, (2.0, &x, &mut y)).unwrap();
    }
    assert_eq!(driver.calls(Call::Launch), 5);
    assert_eq!(y.to_host().unwrap(), [10.0; 1000]);
    let nothing = kernel.prepare(Launch::auto(0)).unwrap();
    assert_eq!(nothing.config(), None);
    nothing.launch(&stream, (2.0, &x, &mut y)).unwrap();
    assert_eq!(driver.calls(Call::Launch), 5);

    let error = kernel.prepare(Launch::grid_block(1, 1025)).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::BlockTooLarge { .. })), "{error}");
    let elsewhere = Device::with_driver(self::driver(1), 0).unwrap().default_stream();
    let error = prepared.launch(&elsewhere, (2.0, &x, &mut y)).unwrap_err();
    assert!(matches!(error, Error::DifferentDevices { .. }), "{error}");
    prepared.launch(&stream, (0.0, &x, &mut y)).unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn prepared_unsafe_launches_run() {
    let (_, _, stream, kernel) = kernel_fixture::<CopyRaw>();
    let prepared = kernel.prepare(Launch::auto(50)).unwrap();
    let from = DeviceBuffer::from_host(&stream, &[7u32; 50]).unwrap();
    let mut to = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    // SAFETY: both buffers contain at least 20 elements.
    unsafe { prepared.launch_unsafe(&stream, (&from, &mut to, 20u64)) }.unwrap();
    let result = to.to_host().unwrap();
    assert!((0..50).all(|i| result[i] == if i < 20 { 7 } else { 0 }), "{result:?}");
}

#[test]
fn a_cooperative_grid_too_large_names_the_maximum() {
    let (_, device, stream, kernel) = kernel_fixture::<Iota>();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 8).unwrap();
    let most = kernel.function().max_blocks(256, 0).unwrap();
    assert_eq!(most, 8 * multiprocessors(&device));
    let launch = |blocks: u64| Launch::grid_block(blocks as u32, 256).cooperative();
    let error = kernel.launch(&stream, launch(most + 1), (&mut out,)).unwrap_err();
    let Error::Launch(LaunchError::CooperativeGridTooLarge { blocks, limit, .. }) = &error else {
        panic!("{error}")
    };
    assert_eq!((*blocks, *limit), (most + 1, most));
    let text = error.to_string();
    assert!(text.contains("`iota__u32`") && text.contains("waves(1)"), "{text}");
    let error = kernel.launch(&stream, Launch::linear(1 << 30, 256).cooperative(), (&mut out,)).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::CooperativeGridTooLarge { .. })), "{error}");
    let raw = LaunchConfig { cooperative: true, ..LaunchConfig::new([u32::MAX >> 1, 1, 1], [256, 1, 1], 0) };
    // SAFETY: the call fails without accessing the memory.
    let error = unsafe { kernel.function().launch_raw(&stream, raw, &[]) }.unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::CooperativeGridTooLarge { .. })), "{error}");

    let largest = kernel.function().configure(Launch::linear(1 << 30, 256).waves(1).cooperative()).unwrap();
    let largest = largest.unwrap();
    assert!(largest.cooperative && u64::from(largest.grid[0]) == most, "{largest}");
    kernel.launch(&stream, launch(1), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7], "the stream still works");
}

#[test]
fn a_dependent_launch_needs_a_waiting_kernel() {
    let (_, _, stream, kernel) = kernel_fixture::<Iota>();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 3).unwrap();
    let error = kernel.launch(&stream, Launch::auto(3).dependent(), (&mut out,)).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::NotDependent { .. })), "{error}");
    assert!(error.to_string().contains("`iota__u32`"), "{error}");
    let error = kernel.prepare(Launch::grid_block(1, 3).dependent()).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::NotDependent { .. })), "{error}");
    kernel.launch(&stream, Launch::auto(3), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), [0, 1, 2]);
}

#[test]
fn a_grid_clusters_do_not_divide_is_refused() {
    let (driver, _, stream, kernel) = kernel_fixture::<Iota>();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 3).unwrap();
    driver.reset_calls();
    for (grid, cluster) in [([3, 1, 1], [2, 1, 1]), ([4, 3, 1], [2, 2, 1]), ([4, 1, 1], [4, 1, 2])] {
        let launch = Launch::grid_block(grid, 32).cluster(cluster);
        let error = kernel.launch(&stream, launch, (&mut out,)).unwrap_err();
        assert!(matches!(error, Error::Launch(LaunchError::ClusterGrid { .. })), "{error}");
        assert!(error.to_string().contains("round every dimension"), "{error}");
    }
    let error = kernel.launch(&stream, Launch::grid_block(4, 32).cluster((2, 0)), (&mut out,)).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::EmptyLaunch { what: "cluster", .. })), "{error}");
    assert_eq!(driver.calls(Call::Launch), 0);
    kernel.launch(&stream, Launch::grid_block(1, 3).cluster(1), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), [0, 1, 2]);
}

#[test]
fn occupancy_of_function_and_driver_agree() {
    let (_, device) = device();
    let module = module(&device);
    for function in [module.kernel::<Iota>().unwrap().function(), module.kernel::<Axpy>().unwrap().function()]
    {
        for block in (32..=1024).step_by(32) {
            for shared in [0, 1, 100, 1 << 10, 5000, 16 << 10, 48 << 10] {
                let driver = function.occupancy(block, shared).unwrap();
                let ours = function.theoretical_occupancy(block, shared);
                assert_eq!(ours.blocks, driver, "blocks of {block}, {shared} bytes: {ours:?}");
            }
        }
    }
}

#[test]
fn the_potential_block_fills_the_device() {
    let (_, device) = device();
    let function = module(&device).kernel::<Iota>().unwrap().function().clone();
    let best = function.potential_block(|_| 0).unwrap();
    assert_eq!((best.block, u64::from(best.grid)), (1024, 2 * multiprocessors(&device)));
    // With 227 KiB per SM, blocks of up to 384 threads fit at 604 bytes per thread.
    let best = function.potential_block(|block| block * 604).unwrap();
    assert_eq!((best.block, best.shared_bytes), (384, 384 * 604));
    let error = function.potential_block(|_| 1 << 20).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::SharedMemoryTooLarge { .. })), "{error}");
    let bounded = module(&device).kernel::<Bounded>().unwrap();
    assert!(bounded.function().potential_block(|_| 0).unwrap().block <= 96);
}

#[test]
fn an_explanation_says_what_was_chosen_and_why() {
    let (_, device) = device();
    let function = module(&device).kernel::<Axpy>().unwrap().function().clone();
    let found = Launch::auto(1 << 20).explain(&function).unwrap();
    assert_eq!((found.source, found.occupancy.fraction), (Source::Heuristic, 1.0));
    assert_eq!(found.config, function.configure(Launch::auto(1 << 20)).unwrap());
    let capacity = (8 * multiprocessors(&device)) as f64;
    assert!((found.waves - 4096.0 / capacity).abs() < 1e-9, "{found:?}");
    assert!((found.tail - (found.waves.ceil() - found.waves)).abs() < 1e-9, "{found:?}");
    let text = found.to_string();
    for part in ["`axpy__f32`", "block [256, 1, 1]", "100.0 %", "limited by threads", "waves: ", "properties"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let given = function.explain(Launch::grid_block(3, 64).shared(100 << 10)).unwrap();
    assert_eq!((given.source, given.occupancy.blocks), (Source::Given, 2));
    assert_eq!(given.occupancy.limiter, Limiter::SharedMemory);
    assert!(given.to_string().contains("102400 bytes of shared memory"), "{given}");
    let nothing = Launch::auto(0).explain(&function).unwrap();
    assert!(nothing.config.is_none() && nothing.to_string().contains("nothing to launch"), "{nothing}");
    assert!(Launch::linear(10, 0).explain(&function).is_err());
}
