//! Buffers that all ranks reach.

use warpsmith_collective::Error;
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::driver::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::{Device, Stream};

use crate::support::{LONG, failure, on_ranks, on_streams, timeout};

/// Copies from device memory that another rank has.
fn read(stream: &warpsmith_runtime::Stream, from: DevicePtr, len: usize) -> Vec<u32> {
    // SAFETY: the rank has so many elements there, and the ranks have met after they were written.
    let theirs =
        unsafe { warpsmith_runtime::DeviceBuffer::<u32>::from_raw(stream, from, len, ()) }.expect("memory");
    theirs.to_host().expect("elements")
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
                // On an emulated device addresses of device memory are addresses of the process.
                // SAFETY: the other rank has written them before the barrier.
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
    let stream =
        |n| Stream::new(&Device::with_driver(driver.clone(), n).expect("a device")).expect("a stream");
    on_streams(&[0, 1, 2].map(stream), &timeout(60_000), |mut ranks| {
        if ranks.rank() == 0 {
            driver.fail_call(Call::PhysicalCreateShareable, 1);
        }
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let error = ranks.symmetric_buffer::<f32>(100).expect_err("a rank has no memory");
        let Error::Symmetric { rank, reason } = &error else { panic!("another error: {error}") };
        assert!(*rank < 3 && reason.contains("OUT_OF_MEMORY"), "{error}");
        // The communicator works on.
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        ranks.symmetric_buffer::<f32>(100).expect("memory in common");
        ranks.finish().expect("the end in common");
    });
    assert_eq!([0, 1, 2].map(|ordinal| driver.live_reservations(ordinal)), [0; 3]);
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
