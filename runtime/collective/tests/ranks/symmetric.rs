//! Buffers that all ranks reach.

use warpsmith_runtime::driver::DevicePtr;

use crate::support::{LONG, on_ranks, timeout};

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
