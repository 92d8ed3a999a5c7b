//! Tests of the allocators on the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated device if it is not set.
//! A missing device fails the tests.
//!
//! Every test uses a separate allocator on the device's context. The environment has no effect on it, except for the
//! variable that disables caching. With this variable, the same tests run without a cache, so that tools which monitor
//! memory observe every buffer separately.

use std::sync::Arc;

use crate::turn;
use crate::under_test::device;
use warpsmith_runtime::memory::options::AllocatorOptions;
use warpsmith_runtime::{Device, DeviceBuffer, DevicePtr, Error, MemoryPool, PinnedBuffer, Stream};

const MIB: usize = 1 << 20;

fn caching_off() -> bool {
    std::env::var_os("WARPSMITH_NO_MEMORY_CACHING").is_some()
}

/// Returns the device under test with a separate allocator.
pub fn device_with(options: &str) -> Device {
    let device = device();
    let options: AllocatorOptions = options.parse().unwrap();
    let caching = options.caching && !caching_off();
    device.memory().set_options(AllocatorOptions { caching, ..options }).unwrap();
    device
}

/// Copies buffers of several streams into each other, drops them while in use and recreates them, in parallel with a
/// model on the host.
fn random_program(device: &Device, steps: usize) {
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}");
    let mut random = fastrand::Rng::with_seed(seed);
    let streams = [(); 4].map(|()| Stream::new(device).unwrap());
    let lengths = [1000, 40_000, 300_000, 1_500_000];
    // A buffer, and the value of all its elements.
    let mut buffers: Vec<(DeviceBuffer<u32>, u32)> = Vec::new();
    for step in 0..steps {
        match random.usize(..10) {
            0..4 if buffers.len() < 24 => {
                let (stream, length) = (&streams[random.usize(..4)], lengths[random.usize(..4)]);
                let value = step as u32 + 1;
                buffers.push((DeviceBuffer::from_host(stream, &vec![value; length]).unwrap(), value));
            }
            4..6 if !buffers.is_empty() => {
                // Work that uses the buffer may still be running.
                drop(buffers.swap_remove(random.usize(..buffers.len())));
            }
            6 if !buffers.is_empty() => {
                let at = random.usize(..buffers.len());
                let whole = buffers[at].0.as_mut_slice();
                whole.stream().memset(whole, 0).unwrap();
                buffers[at].1 = 0;
            }
            7 if !buffers.is_empty() => {
                let (buffer, value) = &buffers[random.usize(..buffers.len())];
                assert!(buffer.to_host().unwrap().iter().all(|element| element == value), "step {step}");
            }
            _ if buffers.len() > 1 => {
                // Copies into a new buffer on some stream. Its memory is often memory that another stream has just
                // freed.
                let (source, value) = &buffers[random.usize(..buffers.len())];
                let stream = &streams[random.usize(..4)];
                let (copy, value) = (source.clone_on(stream).unwrap(), *value);
                buffers.push((copy, value));
            }
            _ => {}
        }
    }
    for (buffer, value) in &buffers {
        assert!(buffer.to_host().unwrap().iter().all(|element| element == value));
    }
    drop(buffers);
    device.synchronize().unwrap();
    assert_eq!(device.memory().allocated(), 0);
    drop(streams);
    device.memory().empty_cache().unwrap();
    assert_eq!(device.memory().reserved(), 0);
    assert!(device.take_drop_error().is_none());
}

macro_rules! random_programs {
    ($($name:ident: $options:expr;)*) => {$(
        #[test]
        fn $name() {
            let _turn = turn();
            let device = device_with($options);
            random_program(&device, if device.is_emulated() { 200 } else { 3000 });
        }
    )*};
}

random_programs! {
    no_buffer_is_overwritten_with_native_segments: "";
    no_buffer_is_overwritten_with_expandable_segments: "expandable_segments:True";
    no_buffer_is_overwritten_with_the_drivers_pool: "backend:cudaMallocAsync";
    no_buffer_is_overwritten_without_a_cache: "caching:False";
    no_buffer_is_overwritten_with_oversize_blocks: "max_split_size_mb:20,roundup_power2_divisions:8";
}

#[test]
fn expandable_segments_shrink_and_grow_again() {
    let _turn = turn();
    let device = device_with("expandable_segments:True");
    let stream = Stream::new(&device).unwrap();
    for _ in 0..if device.is_emulated() { 1 } else { 3 } {
        let mut buffers: Vec<_> = (1..12)
            .map(|n| DeviceBuffer::from_host(&stream, &vec![n as u8; n * 3 * MIB + 1]).unwrap())
            .collect();
        for n in [8, 5, 2] {
            buffers.remove(n);
        }
        let large = DeviceBuffer::from_host(&stream, &vec![99u8; 40 * MIB]).unwrap();
        for (n, buffer) in [1u8, 2, 4, 5, 7, 8, 10, 11].into_iter().zip(&buffers) {
            assert!(buffer.to_host().unwrap().iter().all(|byte| *byte == n));
        }
        assert!(large.to_host().unwrap().iter().all(|byte| *byte == 99));
        drop((buffers, large));
        if !caching_off() {
            assert!(device.memory().reserved() > 0);
        }
        device.memory().empty_cache().unwrap();
        assert_eq!(device.memory().reserved(), 0);
    }
}

#[test]
fn more_than_the_device_has_is_refused() {
    let _turn = turn();
    for options in ["", "expandable_segments:True", "backend:cudaMallocAsync"] {
        let device = device_with(options);
        let stream = Stream::new(&device).unwrap();
        let held = DeviceBuffer::from_host(&stream, &[7u8; 1000]).unwrap();
        let total = device.properties().total_memory;
        let error = DeviceBuffer::<u8>::uninit(&stream, total as usize + 1).unwrap_err();
        let Error::OutOfMemory(report) = &error else { panic!("{options}: {error}") };
        assert_eq!(report.asked, total + 1);
        assert!(report.free <= report.total && report.total > 0, "{error}");
        assert!(report.allocated >= 1000, "{error}");
        assert_eq!(held.to_host().unwrap(), [7; 1000]);
        assert_eq!(DeviceBuffer::from_host(&stream, &[1u8, 2, 3]).unwrap().to_host().unwrap(), [1, 2, 3]);
        assert_eq!(device.memory().statistics().num_ooms, 1);
    }
}

#[test]
fn emptying_the_cache_frees_device_memory() {
    let _turn = turn();
    for options in ["", "expandable_segments:True"] {
        let device = device_with(options);
        let stream = Stream::new(&device).unwrap();
        drop(DeviceBuffer::<u8>::zeros(&stream, MIB).unwrap());
        stream.synchronize().unwrap();
        device.memory().empty_cache().unwrap();
        let before = device.memory_info().unwrap().free;
        let buffers: Vec<_> = (0..8).map(|_| DeviceBuffer::<u8>::zeros(&stream, 32 * MIB).unwrap()).collect();
        let during = device.memory_info().unwrap().free;
        assert!(before - during >= 256 << 20, "{options}: {before} {during}");
        drop(buffers);
        device.memory().empty_cache().unwrap();
        let after = device.memory_info().unwrap().free;
        assert!(after + (4 << 20) >= before, "{options}: {before} {after}");
    }
}

#[test]
fn pinned_memory_is_not_reused_during_copies() {
    let _turn = turn();
    let device = device_with("");
    let stream = Stream::new(&device).unwrap();
    // SAFETY: its methods receive only live handles and memory of this device.
    let (driver, context) = unsafe { device.driver() };
    let length = 8 * MIB;
    let target = DeviceBuffer::<u8>::uninit(&stream, length * 4).unwrap();
    for round in 0..if device.is_emulated() { 4u8 } else { 20 } {
        for part in 0..4 {
            let value = round * 4 + part;
            let pinned = PinnedBuffer::from_slice(&device, &vec![value; length]).unwrap();
            let address = DevicePtr(target.as_device_ptr().0 + u64::from(part) * length as u64);
            // SAFETY: both ranges are valid. `target` lives until the stream has been waited for, and `record_use`
            // keeps the pinned memory until the copy has run.
            unsafe {
                driver
                    .copy_to_device(context, address, pinned.as_ptr().cast(), length, stream.handle())
                    .unwrap();
            }
            pinned.record_use(&stream).unwrap();
            // The memory is dropped while the copy may still be running, so the next round must not overwrite it.
        }
        stream.synchronize().unwrap();
        let host = target.to_host().unwrap();
        for (part, bytes) in host.chunks(length).enumerate() {
            assert!(bytes.iter().all(|byte| *byte == round * 4 + part as u8), "round {round}, part {part}");
        }
    }
    let statistics = device.pinned_memory().statistics();
    assert!(statistics.num_host_alloc <= 8, "{} came from the system", statistics.num_host_alloc);
    device.pinned_memory().empty_cache().unwrap();
}

#[test]
fn private_pools_hold_their_own_memory() {
    let _turn = turn();
    let device = device_with("");
    let stream = Stream::new(&device).unwrap();
    let outside = DeviceBuffer::from_host(&stream, &[1u8; 100]).unwrap();
    let pool = MemoryPool::new(&device).unwrap();
    let inside = {
        let _guard = pool.enter().unwrap();
        DeviceBuffer::from_host(&stream, &vec![2u8; 3 * MIB]).unwrap()
    };
    assert!(pool.allocated() >= 3 * MIB as u64);
    assert_eq!(inside.to_host().unwrap(), vec![2; 3 * MIB]);
    drop(pool);
    assert_eq!(inside.to_host().unwrap(), vec![2; 3 * MIB], "memory in use stays");
    drop(inside);
    device.memory().empty_cache().unwrap();
    assert_eq!(outside.to_host().unwrap(), [1; 100]);
}

/// With only one device, that device is also the peer, because it can always use its own memory.
#[test]
fn a_peer_uses_old_and_new_memory() {
    let _turn = turn();
    for options in ["", "expandable_segments:True"] {
        let device = device_with(options);
        // SAFETY: its methods receive only live handles and memory of this device.
        let (driver, context) = unsafe { device.driver() };
        let other = (device.id().ordinal() + 1) % driver.device_count().unwrap();
        let peer = Device::with_driver(Arc::clone(driver), other).unwrap();
        let stream = Stream::new(&device).unwrap();
        let before = DeviceBuffer::from_host(&stream, &vec![1u8; 3 * MIB]).unwrap();
        device.memory().allow_peer(&peer).unwrap();
        let after = DeviceBuffer::from_host(&stream, &vec![2u8; 50 * MIB]).unwrap();
        stream.synchronize().unwrap();
        let on_peer = Stream::new(&peer).unwrap();
        // SAFETY: its methods receive only live handles and memory of this device.
        let (_, peer_context) = unsafe { peer.driver() };
        assert!(other != device.id().ordinal() || context == peer_context);
        let copy = DeviceBuffer::<u8>::uninit(&on_peer, 3 * MIB).unwrap();
        let (from, middle, to) = (before.as_device_ptr(), copy.as_device_ptr(), after.as_device_ptr());
        // SAFETY: the ranges are valid until the stream has been waited for, and the peer can access the device's
        // memory.
        unsafe {
            driver.copy_device(peer_context, middle, from, 3 * MIB, on_peer.handle()).unwrap();
            driver.copy_device(peer_context, to, middle, 3 * MIB, on_peer.handle()).unwrap();
        }
        on_peer.synchronize().unwrap();
        let after = after.to_host().unwrap();
        assert!(
            after[..3 * MIB].iter().all(|byte| *byte == 1) && after[3 * MIB..].iter().all(|byte| *byte == 2)
        );
    }
}

#[test]
fn other_threads_allocate_while_one_captures() {
    let _turn = turn();
    let device = device_with("");
    if device.is_emulated() {
        // The emulated driver captures nothing here. Its errors in captures are tested in `allocator_bad_input`.
        let stream = Stream::new(&device).unwrap();
        let pool = MemoryPool::for_graph(&device).unwrap();
        let _capture = pool.capture(&stream).unwrap();
        let other = Stream::new(&device).unwrap();
        DeviceBuffer::<u8>::zeros(&other, 30 * MIB).unwrap();
        return;
    }
    use cudarc::driver::sys;
    let stream = Stream::new(&device).unwrap();
    let other = Stream::new(&device).unwrap();
    let raw = stream.handle().0 as sys::CUstream;
    stream.synchronize().unwrap();
    // SAFETY: the stream is alive, its context is current since the wait, and the capture is ended below.
    let begun =
        unsafe { sys::cuStreamBeginCapture_v2(raw, sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL) };
    assert_eq!(begun, sys::CUresult::CUDA_SUCCESS);
    let allocated = std::thread::scope(|scope| {
        scope.spawn(|| DeviceBuffer::<u8>::uninit(&other, 30 * MIB)).join().unwrap()
    });
    let mut graph = std::ptr::null_mut();
    // SAFETY: this thread began the capture; an empty graph is destroyed immediately.
    unsafe {
        assert_eq!(sys::cuStreamEndCapture(raw, &mut graph), sys::CUresult::CUDA_SUCCESS);
        if !graph.is_null() {
            sys::cuGraphDestroy(graph);
        }
    }
    assert_eq!(allocated.unwrap().len(), 30 * MIB);
}
