//! Symmetric buffers.

use std::time::Instant;

use gpu_std::atomic::{Atomic, Ordering, scope};
use gpu_std::prelude::*;
use warpsmith_collective::{CollectiveError, ipc_collect};
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{Device, DevicePtr, GpuImage, Launch, Stream};

use crate::support::{LONG, failure, on_ranks, on_streams, streams_of, timeout};

/// Copies device memory of another rank.
fn read(stream: &warpsmith_runtime::Stream, from: DevicePtr, len: usize) -> Vec<u32> {
    // SAFETY: the rank has `len` elements there, and a barrier followed the writes of the rank.
    let theirs =
        unsafe { warpsmith_runtime::DeviceBuffer::<u32>::from_raw(stream, from, len, ()) }.expect("memory");
    theirs.to_host().expect("elements")
}

/// Waits for a condition that becomes true in the background.
#[track_caller]
fn await_that(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "the memory stays");
        std::thread::yield_now();
    }
}

#[test]
fn each_rank_reads_the_others_elements() {
    on_ranks(3, &timeout(60_000), |mut ranks| {
        let (rank, stream) = (ranks.rank() as u32, ranks.stream().clone());
        let mut own = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
        assert_eq!(own.to_host().expect("zeros"), [0; 1000]);
        own.copy_from_host(&[rank + 1; 1000]).expect("copied");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let addresses = own.peers().to_host().expect("addresses");
        for other in 0..3u32 {
            let address = own.peer_ptr(other as usize);
            assert_eq!(addresses[other as usize], address.0);
            if other != rank {
                // On an emulated device, addresses of device memory are addresses of the process.
                // SAFETY: the other rank has written the elements before the barrier.
                let found = unsafe { std::slice::from_raw_parts(address.0 as *const u32, 1000) };
                assert_eq!(found, [other + 1; 1000]);
            }
        }
        assert_eq!(read(&stream, own.peer_ptr(rank as usize), 1000), [rank + 1; 1000]);
        ranks.finish().expect("the end in common");
    });
}

#[test]
fn different_lengths_name_both_ranks() {
    for text in on_ranks(2, &timeout(60_000), |mut ranks| {
        let len = 100 + ranks.rank();
        failure(ranks.symmetric_buffer::<f32>(len)).to_string()
    }) {
        let named = "rank 0 calls symmetric_buffer #0 (f32, 100 elements), rank 1 calls symmetric_buffer #0 (f32, 101 elements)";
        assert!(text.contains(named), "{text}");
    }
}

#[test]
fn a_rank_without_memory_is_named_on_all() {
    let driver = EmulatedDriver::builder().devices(3).build();
    on_streams(&streams_of(&driver, 3), &timeout(60_000), |mut ranks| {
        // The rank cannot allocate its memory, clear it, or copy the tables of addresses.
        let calls = [Call::PhysicalCreateShareable, Call::Memset, Call::CopyToDevice];
        for (call, expected) in calls.into_iter().zip(["OUT_OF_MEMORY", "memset", "copy_to_device"]) {
            if ranks.rank() == 0 {
                driver.fail_call(call, 1);
            }
            ranks.barrier().expect("enqueued").wait(LONG).expect("done");
            let error = ranks.symmetric_buffer::<f32>(100).expect_err("a rank has no memory");
            let Some(CollectiveError::Symmetric { rank, reason }) = error.downcast_ref() else {
                panic!("another error: {error}")
            };
            assert!(*rank < 3 && reason.contains(expected), "{error}");
        }
        // The communicator must remain usable.
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        ranks.symmetric_buffer::<f32>(100).expect("memory in common");
        ranks.finish().expect("the end in common");
    });
    await_that(|| [0, 1, 2].map(|ordinal| driver.live_reservations(ordinal)) == [0; 3]);
}

#[test]
fn an_abort_leaves_no_memory() {
    let driver = EmulatedDriver::builder().devices(2).build();
    on_streams(&streams_of(&driver, 2), &timeout(60_000), |mut ranks| {
        let kept = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        // The abort of the other rank arrives during this call or the next.
        drop(ranks.symmetric_buffer::<u32>(10));
        if ranks.rank() == 0 {
            ranks.abort();
        }
        ranks.symmetric_buffer::<u32>(10).expect_err("an abort");
        drop(kept);
    });
    await_that(|| [0, 1].map(|ordinal| driver.live_reservations(ordinal)) == [0; 2]);
}

#[test]
fn devices_of_two_drivers_have_memory_in_common() {
    let stream = |_| {
        let driver = EmulatedDriver::builder().build();
        Stream::new(&Device::with_driver(driver, 0).expect("a device")).expect("a stream")
    };
    on_streams(&[0, 1].map(stream), &timeout(60_000), |mut ranks| {
        let rank = ranks.rank() as u32;
        let mut own = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        own.copy_from_host(&[rank + 7; 10]).expect("copied");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let theirs = read(ranks.stream(), own.peer_ptr(1 - rank as usize), 10);
        assert_eq!(theirs, [8 - rank; 10]);
        ranks.finish().expect("the end in common");
    });
}

#[test]
fn buffers_of_no_elements_and_types_without_size() {
    on_ranks(2, &timeout(60_000), |mut ranks| {
        let empty = ranks.symmetric_buffer::<u64>(0).expect("memory in common");
        assert!(empty.is_empty() && empty.to_host().expect("nothing").is_empty());
        let error = ranks.symmetric_buffer::<u64>(usize::MAX).expect_err("too long").to_string();
        assert!(error.contains("elements"), "{error}");
        ranks.finish().expect("the end in common");
    });
}

#[test]
fn dropped_buffers_stay_until_their_work_is_done() {
    let driver = EmulatedDriver::builder().devices(2).build();
    let stream =
        |n| Stream::new(&Device::with_driver(driver.clone(), n).expect("a device")).expect("a stream");
    let streams = [0, 1].map(stream);
    on_streams(&streams, &timeout(60_000), |mut ranks| {
        let (rank, stream) = (ranks.rank() as u32, ranks.stream().clone());
        let before = driver.live_reservations(rank);
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let mut own = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
        own.copy_from_host(&[rank; 1000]).expect("copied");
        let mut copy = warpsmith_runtime::DeviceBuffer::<u32>::zeros(&stream, 1000).expect("a copy");
        stream.host_function(|| std::thread::sleep(std::time::Duration::from_millis(50))).expect("enqueued");
        stream.copy(&own, &mut copy).expect("enqueued");
        drop(own);
        assert_eq!(copy.to_host().expect("a copy"), [rank; 1000]);
        assert_eq!(ipc_collect(stream.device()).expect("no fault"), 0);
        // The other rank of this process maps it until it drops its own buffer.
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        await_that(|| driver.live_reservations(rank) <= before);
        ranks.finish().expect("the end in common");
    });
}

/// Writes `rank + 10`, signals the next rank, waits for the previous rank, and reads the value that the previous rank
/// has written.
///
/// # Safety
/// The tables must contain one address per rank, with at least one element and one signal each, which nothing else
/// uses.
#[kernel]
unsafe fn pass_on(rank: u32, peers: &[u64], signals: &[u64], mut out: DisjointMut<u32>) {
    let (rank, world) = (rank as usize, peers.len());
    // SAFETY: the caller's contract. The signal orders the write of the element before its read.
    unsafe {
        let signal = |of: usize| Atomic::<u32, scope::System>::from_ptr(signals[of] as *mut u32);
        (peers[rank] as *mut u32).write(rank as u32 + 10);
        signal((rank + 1) % world).store(1, Ordering::Release);
        while signal(rank).load(Ordering::Acquire) == 0 {
            thread::system_pause();
        }
        if let Some(out) = out.get_mut(thread::unique_index()) {
            *out = (peers[(rank + world - 1) % world] as *const u32).read();
        }
    }
}

#[test]
fn kernels_wait_for_each_others_signals() {
    static IMAGE: GpuImage = GpuImage::without_code(
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_VERSION"),
        "supports only emulated devices",
    );
    on_ranks(3, &timeout(60_000), |mut ranks| {
        let (rank, stream) = (ranks.rank() as u32, ranks.stream().clone());
        let own = ranks.symmetric_buffer::<u32>(1).expect("memory in common");
        let mut out = warpsmith_runtime::DeviceBuffer::<u32>::zeros(&stream, 1).expect("out");
        let kernel = stream.device().load(&IMAGE).expect("an image").kernel::<pass_on>().expect("a kernel");
        let arguments = (rank, own.peers(), own.signals(), &mut out);
        // SAFETY: all ranks launch it, and nothing else uses the buffer.
        unsafe { kernel.launch_unsafe(&stream, Launch::grid_block(1, 1), arguments) }.expect("launched");
        assert_eq!(out.to_host().expect("out"), [(rank + 2) % 3 + 10]);
        ranks.finish().expect("the end in common");
    });
}
