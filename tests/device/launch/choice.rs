//! Block and grid selection for launches on the device under test: occupancy compared with the driver, and automatic
//! shapes.

use crate::common::{device, own_device};
use warpsmith::IMAGE;
use warpsmith::kernels::elementwise::axpy;
use warpsmith::launch::{Source, bytes_needed};
use warpsmith::prelude::*;
use warpsmith::store::LaunchStore;

/// Opens the device under test without stored tuning results.
fn fresh() -> Device {
    let device = own_device();
    LaunchStore::in_memory().install(&device);
    device
}

/// Kernels of the image that this device has.
fn functions(device: &Device) -> Vec<warpsmith::Function> {
    let module = device.load(&IMAGE).unwrap();
    let all = warpsmith::gpu_std::registry::kernels().filter(|spec| spec.package == "warpsmith-gpu-kernels");
    let unused: gpu_spec::HostEntry = |_| unreachable!("none is launched");
    let function = |info: &gpu_spec::KernelInfo| {
        module
            .function(Box::leak(Box::new(gpu_spec::KernelSpec {
                info: *info,
                entry: unused,
                bytes: None,
                lengths: None,
            })))
            .ok()
    };
    let found: Vec<_> = all.filter_map(function).collect();
    assert!(found.len() > 100, "only {} kernels", found.len());
    found
}

#[test]
fn theoretical_occupancy_is_the_drivers() {
    let device = device();
    let most = device.properties().shared_memory_per_block_optin;
    let shared = [0, 1, 1000, 4 << 10, 16 << 10, 48 << 10, most / 2, most - (8 << 10), most];
    let mut compared = 0;
    for function in functions(&device) {
        let attributes = *function.attributes();
        for block in (32..=attributes.max_threads_per_block).step_by(32) {
            let fits = |bytes: &&u32| **bytes + attributes.static_shared <= most;
            for &bytes in shared.iter().filter(fits) {
                let ours = function.theoretical_occupancy(block, bytes);
                let driver = function.occupancy(block, bytes).unwrap();
                let symbol = function.spec().symbol;
                // The driver does not report how many of an SM's 64 barriers a block uses, which may limit its result.
                let by_barriers = ours.blocks > driver && (2..=16).any(|barriers| 64 / barriers == driver);
                assert!(
                    ours.blocks == driver || by_barriers,
                    "{symbol}, blocks of {block}, {bytes} bytes: {driver} by the driver, {ours:?}, {attributes:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn the_potential_block_has_the_most_threads() {
    let device = device();
    // Only kernels that may have any block size.
    let free: Vec<_> =
        functions(&device).into_iter().filter(|function| function.spec().block.is_none()).collect();
    for function in free.iter().step_by(37) {
        for of_thread in [0, 4, 40] {
            let shared = |block: u32| block * of_thread;
            let best = function.potential_block(shared).unwrap();
            let threads = |block: u32| block * function.occupancy(block, shared(block)).unwrap();
            let limit = function.attributes().max_threads_per_block;
            let most =
                device.properties().shared_memory_per_block_optin - function.attributes().static_shared;
            let blocks = (32..=limit).step_by(32).filter(|block| shared(*block) <= most);
            assert_eq!(threads(best.block), blocks.map(threads).max().unwrap(), "{function:?}: {best:?}");
            let of_one = function.occupancy(best.block, best.shared_bytes).unwrap();
            assert_eq!(best.grid, of_one * device.properties().multiprocessors);
        }
    }
}

#[test]
fn chosen_shapes_work_and_explain_themselves() {
    let device = fresh();
    let stream = Stream::new(&device).unwrap();
    let kernel = device.load(&IMAGE).unwrap().kernel::<axpy<f32, 4, 16>>().unwrap();
    for n in [1, 1000, 1 << 16, (1 << 20) + 7] {
        let x = DeviceBuffer::from_host(&stream, &vec![2.0f32; n]).unwrap();
        let shapes = [
            Launch::auto(n),
            Launch::for_occupancy(n),
            Launch::for_bandwidth(n.div_ceil(4), 48),
            Launch::for_bandwidth(n.div_ceil(16), 192).in_flight(128),
            Launch::auto(n).waves(1).cooperative(),
        ];
        for launch in shapes {
            let mut y = DeviceBuffer::from_host(&stream, &vec![1.0f32; n]).unwrap();
            kernel.launch(&stream, launch, (3.0f32, &x, &mut y)).unwrap();
            kernel.prepare(launch).unwrap().launch(&stream, (3.0f32, &x, &mut y)).unwrap();
            assert!(y.to_host().unwrap().iter().all(|y| *y == 13.0), "n {n}, {launch:?}");
            let explanation = launch.explain(kernel.function()).unwrap();
            println!("{explanation}\n");
            assert_eq!(explanation.source, Source::Heuristic);
        }
    }
    println!("{} bytes in flight needed on an SM", bytes_needed(device.properties()));
}
