//! The Peer backend and symmetric buffers, with ranks as processes.

use crate::alone::this_test;
use crate::peer::{LENGTHS, peer, reduced};
use crate::processes::{Rank, digest, processes};
use crate::support::{LONG, on_ranks, timeout};

fn bits_of(bits: Vec<u64>) -> Vec<u32> {
    bits.into_iter().flat_map(|bits| [bits as u32, (bits >> 32) as u32]).collect()
}

#[test]
fn processes_have_the_bits_of_threads_by_host() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&peer()).expect("ranks meet");
        println!("{}", digest(&bits_of(reduced::<f32>(&mut ranks, &LENGTHS))));
        return ranks.finish().expect("the end in common");
    }
    let by_host =
        on_ranks(3, &timeout(60_000), |mut ranks| digest(&bits_of(reduced::<f32>(&mut ranks, &LENGTHS))));
    for text in processes(this_test!(), 3, None) {
        assert!(text.contains(&by_host[0]), "{} is not in\n{text}", by_host[0]);
    }
}

#[test]
fn processes_read_each_others_elements() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&timeout(60_000)).expect("ranks meet");
        let mut own = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
        own.copy_from_host(&[this.rank as u32 + 1; 1000]).expect("copied");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        for other in 0..2 {
            // SAFETY: the other rank has written them before the barrier; addresses are of this process.
            let found = unsafe { std::slice::from_raw_parts(own.peer_ptr(other).0 as *const u32, 1000) };
            assert_eq!(found, [other as u32 + 1; 1000]);
        }
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), 2, None);
}
