//! The Peer backend and symmetric buffers, with ranks as processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use warpsmith_collective::{Communicator, Failure, ReduceOp};
use warpsmith_runtime::event::SharedEvent;
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use crate::alone::this_test;
use crate::lives::{entries, settle};
use crate::peer::{LENGTHS, peer, reduced};
use crate::peer_exchange::exchanged;
use crate::processes::{Rank, digest, processes};
use crate::support::{LONG, failure, on_ranks, streams, timeout};

/// Compares the results of ranks as processes with those of the Host backend in threads.
#[track_caller]
pub fn compare_processes(
    test: &str,
    world: usize,
    init: impl Fn(&Rank) -> Communicator,
    results: impl Fn(&mut Communicator) -> Vec<u64> + Sync,
) {
    let digest_of = |ranks: &mut Communicator| {
        let halves = |bits: u64| [bits as u32, (bits >> 32) as u32];
        digest(&results(ranks).into_iter().flat_map(halves).collect::<Vec<_>>())
    };
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this);
        println!("{}", digest_of(&mut ranks));
        return ranks.finish().expect("the end in common");
    }
    let by_host = on_ranks(world, &timeout(60_000), |mut ranks| digest_of(&mut ranks));
    for (text, expected) in processes(test, world, None).iter().zip(&by_host) {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

fn init(this: &Rank) -> Communicator {
    this.init(&peer()).expect("ranks connect")
}

#[test]
fn processes_have_the_bits_of_threads_by_host() {
    compare_processes(this_test!(), 3, init, |ranks| reduced::<f32>(ranks, &LENGTHS));
}

#[test]
fn all_operations_of_processes_have_the_bits_of_host() {
    compare_processes(this_test!(), 3, init, |ranks| exchanged(ranks, &[3, 1024, 9001]));
}

#[test]
fn processes_read_each_others_elements() {
    if let Some(this) = Rank::this() {
        let mut ranks = this.init(&timeout(60_000)).expect("ranks connect");
        let mut own = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
        own.copy_from_host(&[this.rank as u32 + 1; 1000]).expect("copied");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        for other in 0..2 {
            // SAFETY: the other rank has written the elements before the barrier; the addresses are valid in this
            // process.
            let found = unsafe { std::slice::from_raw_parts(own.peer_ptr(other).0 as *const u32, 1000) };
            assert_eq!(found, [other as u32 + 1; 1000]);
        }
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), 2, None);
}

#[test]
fn a_killed_rank_is_named_and_the_others_go_on() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this);
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 20_000]).expect("x");
        let own = ranks.symmetric_buffer::<f32>(1000).expect("memory in common");
        for round in 0.. {
            if this.rank == 1 && round == 20 {
                this.die();
            }
            // The operations alternate between low-latency and two-shot. The rank dies before a low-latency one.
            let part = x.slice_mut(..if round % 2 == 0 { 100 } else { 20_000 });
            let work = ranks.all_reduce_in_place(ReduceOp::Avg, part);
            let Err(error) = work.and_then(|work| work.wait(LONG)) else { continue };
            this.assert_in_time();
            let failure = failure::<()>(Err(error));
            assert!(matches!(failure, Failure::Lost { rank: 1, .. }), "{failure}");
            break;
        }
        stream.synchronize().expect("no fault");
        // Dropping the buffer must not wait for any rank.
        drop(own);
        let mut fewer = ranks.shrink(&[1]).expect("a communicator of the others");
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).expect("x");
        fewer.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued").wait(LONG).expect("done");
        assert_eq!(x.to_host().expect("x"), [2.0; 1000]);
        return fewer.finish().expect("the end in common");
    }
    processes(this_test!(), 3, Some(1));
}

#[test]
fn a_rank_killed_during_replays_ends_the_graphs() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this);
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).expect("x");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
        drop(ranks.all_reduce_in_place(ReduceOp::Avg, x.slice_mut(..100)).expect("captured"));
        drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut x).expect("captured"));
        let graph = capture.end().expect("a graph").instantiate().expect("an executable");
        for round in 0.. {
            if this.rank == 1 && round == 20 {
                this.die();
            }
            graph.launch(&stream).expect("launched");
            stream.synchronize().expect("no fault");
            if ranks.dump().failure.is_some() {
                this.assert_in_time();
                break;
            }
        }
        let failure = failure(ranks.barrier());
        return assert!(matches!(failure, Failure::Lost { rank: 1, .. }), "{failure}");
    }
    processes(this_test!(), 2, Some(1));
}

#[test]
fn communicators_of_processes_leave_no_files() {
    if let Some(this) = Rank::this() {
        let live = || {
            let mut ranks = init(&this);
            let own = ranks.symmetric_buffer::<f32>(1000).expect("memory in common");
            ranks.barrier().expect("enqueued").wait(LONG).expect("done");
            drop(own);
            ranks.finish().expect("the end in common");
        };
        (0..3).for_each(|_| live());
        settle(entries("/proc/self/task"), entries("/proc/self/fd"));
        std::thread::sleep(Duration::from_millis(100));
        let (threads, files) = (entries("/proc/self/task"), entries("/proc/self/fd"));
        (0..20).for_each(|_| live());
        return settle(threads, files);
    }
    processes(this_test!(), 2, None);
}

/// One process records an event late. The other process waits for the event on a stream and on the host.
pub fn events_pass(this: &Rank, device: &Device) {
    let (store, deadline) = (this.store(), std::time::Instant::now() + LONG);
    let stream = Stream::new(device).expect("a stream");
    if this.rank == 0 {
        let event = SharedEvent::new(device).expect("an event");
        assert!(event.query().expect("it was not recorded"));
        let late = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&late);
        let slept = stream.host_function(move || {
            std::thread::sleep(Duration::from_millis(300));
            seen.store(true, Ordering::SeqCst);
        });
        slept.expect("enqueued");
        event.record(&stream).expect("recorded");
        store.set("event", &event.ipc_handle().expect("a handle"), deadline).expect("set");
        store.get("waited", deadline).expect("the other has waited");
        assert!(late.load(Ordering::SeqCst), "it has not waited for the stream");
        return stream.synchronize().expect("no fault");
    }
    let handle = store.get("event", deadline).expect("a handle");
    let handle: [u8; 64] = handle.try_into().expect("64 bytes");
    let event = SharedEvent::from_ipc_handle(device, &handle).expect("the event");
    event.wait_on(&stream).expect("enqueued");
    stream.synchronize().expect("no fault");
    assert!(event.query().expect("no fault"));
    store.set("waited", b"", deadline).expect("set");
    event.synchronize().expect("no fault");
    let unknown = [b'x'; 64];
    SharedEvent::from_ipc_handle(device, &unknown).expect_err("no event");
}

#[test]
fn events_pass_between_processes() {
    if let Some(this) = Rank::this() {
        return events_pass(&this, streams(1)[0].device());
    }
    processes(this_test!(), 2, None);
}

#[test]
fn an_event_of_a_killed_process_holds_no_one() {
    if let Some(this) = Rank::this() {
        let (store, deadline) = (this.store(), std::time::Instant::now() + LONG);
        let stream = streams(1).remove(0);
        if this.rank == 1 {
            let event = SharedEvent::new(stream.device()).expect("an event");
            stream.host_function(|| std::thread::sleep(LONG)).expect("enqueued");
            event.record(&stream).expect("recorded");
            store.set("event", &event.ipc_handle().expect("a handle"), deadline).expect("set");
            store.get("opened", deadline).expect("the other has it");
            this.die();
        }
        let handle = store.get("event", deadline).expect("a handle");
        let handle: [u8; 64] = handle.try_into().expect("64 bytes");
        let event = SharedEvent::from_ipc_handle(stream.device(), &handle).expect("the event");
        event.wait_on(&stream).expect("enqueued");
        assert!(!event.query().expect("no fault"));
        store.set("opened", b"", deadline).expect("set");
        return stream.synchronize().expect("no fault");
    }
    processes(this_test!(), 2, Some(1));
}
