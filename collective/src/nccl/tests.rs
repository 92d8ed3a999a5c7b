//! Tests of the backend with the [`fake`](super::fake) NCCL in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_emulated::EmulatedDriver;
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{DeviceBuffer, Stream};

use super::fake::{Script, old_table, table};
use super::support::{failure, fault, on_streams, streams_of};
use super::sys::{Nccl, status};
use crate::element::{F8E4M3, ReduceOp};
use crate::store::MemoryStore;
use crate::{Communicator, CommunicatorOptions, Failure, Launch, Store};

const LONG: Duration = Duration::from_secs(60);

fn driver(world: usize) -> Arc<EmulatedDriver> {
    EmulatedDriver::builder().devices(world as u32).build()
}

fn options(name: &str, nccl: Nccl) -> CommunicatorOptions {
    let mut options = CommunicatorOptions::new().name(name).timeout(LONG).init_timeout(LONG);
    options.nccl = Some(Box::leak(Box::new(nccl)));
    options
}

/// Registers a script under a name and creates one stream per rank.
fn play(name: &str, world: usize, script: Script) -> (Arc<Script>, Vec<Stream>) {
    let streams = streams_of(&driver(world), world);
    (Script { streams: streams.clone(), ..script }.play(name), streams)
}

/// Runs all operations once and returns the results of this rank.
fn all_operations(ranks: &mut Communicator) -> Vec<Vec<f32>> {
    let (rank, world, stream) = (ranks.rank(), ranks.world_size(), ranks.stream().clone());
    let of = |values: &[f32]| DeviceBuffer::from_host(&stream, values).expect("x");
    let zeros = |len: usize| DeviceBuffer::<f32>::zeros(&stream, len).expect("y");
    let own = [rank as f32 + 1.0, 10.0];
    let blocks: Vec<f32> = (0..world).map(|to| (10 * rank + to) as f32).collect();
    let mut results = Vec::new();
    for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg] {
        let mut x = of(&own);
        ranks.all_reduce_in_place(op, &mut x).expect("enqueued").wait(LONG).expect("done");
        results.push(x.to_host().expect("x"));
    }
    let (x, mut y) = (of(&blocks), zeros(1));
    drop(ranks.reduce_scatter(&x, ReduceOp::Sum, &mut y).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let mut x = of(&blocks);
    drop(ranks.reduce_scatter_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
    results.push(x.to_host().expect("x")[rank..rank + 1].to_vec());
    let (x, mut y) = (of(&own), zeros(2));
    drop(ranks.reduce(&x, ReduceOp::Sum, 1, Some(y.as_mut_slice())).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let mut y = of(&own);
    drop(ranks.broadcast(1, &mut y).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let (x, mut y) = (of(&own), zeros(2 * world));
    drop(ranks.all_gather(&x, &mut y).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let mut y = zeros(2 * world);
    ranks.stream().copy(&x, y.slice_mut(2 * rank..2 * rank + 2)).expect("the own block");
    drop(ranks.all_gather_in_place(&mut y).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let (x, mut y) = (of(&blocks), zeros(world));
    drop(ranks.all_to_all(&x, &mut y).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let (x, mut y) = (of(&own), zeros(2 * world));
    drop(ranks.gather(&x, 2, Some(y.as_mut_slice())).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let (x, mut y) = (of(&blocks), zeros(1));
    drop(ranks.scatter(Some(x.as_slice()), 1, &mut y).expect("enqueued"));
    results.push(y.to_host().expect("y"));
    let (x, mut y) = (of(&own), zeros(2));
    let ring = ranks.group(|group| {
        group.send(&x, (rank + 1) % world)?;
        group.recv((rank + world - 1) % world, &mut y)
    });
    ring.expect("enqueued").wait(LONG).expect("done");
    results.push(y.to_host().expect("y"));
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    results
}

/// Returns the expected results of [`all_operations`].
fn expected(rank: usize) -> Vec<Vec<f32>> {
    let r = rank as f32;
    let at = |there: usize, values: Vec<f32>| if rank == there { values } else { vec![0.0; values.len()] };
    let previous = ((rank + 2) % 3) as f32 + 1.0;
    vec![
        vec![6.0, 30.0],
        vec![6.0, 1000.0],
        vec![1.0, 10.0],
        vec![3.0, 10.0],
        vec![2.0, 10.0],
        vec![30.0 + 3.0 * r],
        vec![30.0 + 3.0 * r],
        at(1, vec![6.0, 30.0]),
        vec![2.0, 10.0],
        vec![1.0, 10.0, 2.0, 10.0, 3.0, 10.0],
        vec![1.0, 10.0, 2.0, 10.0, 3.0, 10.0],
        vec![r, 10.0 + r, 20.0 + r],
        at(2, vec![1.0, 10.0, 2.0, 10.0, 3.0, 10.0]),
        vec![10.0 + r],
        vec![previous, 10.0],
    ]
}

#[test]
fn all_operations_give_their_results() {
    let name = "operations";
    let (script, streams) = play(name, 3, Script { init_polls: 30, split_polls: 20, ..Script::default() });
    let results = on_streams(&streams, &options(name, table()), |mut ranks| {
        let results = all_operations(&mut ranks);
        ranks.finish().expect("the end in common");
        results
    });
    script.check();
    for (rank, results) in results.iter().enumerate() {
        assert_eq!(*results, expected(rank), "rank {rank}");
        let calls = script.calls(rank);
        assert_eq!(calls[calls.len() - 2..], ["ncclCommDestroy"; 2]);
        assert!(!calls.contains(&"ncclCommAbort".to_owned()));
    }
}

#[test]
fn f8_is_reduced_by_new_libraries_alone() {
    let x = [1.5, 300.0].map(F8E4M3::from_f32);
    let (script, streams) = play("f8", 2, Script::default());
    on_streams(&streams, &options("f8", table()), |mut ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &x).expect("x");
        ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued").wait(LONG).expect("done");
    });
    assert_eq!(script.calls(0)[2], "ncclAllReduce(2, type 10, op 0, root -1, in place)");
    let (_script, streams) = play("f8-old", 2, Script::default());
    on_streams(&streams, &options("f8-old", old_table()), |mut ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &x).expect("x");
        let error = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect_err("the library is too old");
        let (said, rank) = (error.to_string(), ranks.rank());
        let begin = format!("all_reduce on rank {rank}: NCCL 2.18.5 cannot reduce F8E4M3; install");
        assert!(said.starts_with(&begin), "{said}");
        // NCCL can still copy elements of this type.
        ranks.broadcast(0, &mut x).expect("enqueued").wait(LONG).expect("done");
    });
}

#[test]
fn arguments_are_those_of_nccl() {
    let name = "arguments";
    let (script, streams) = play(name, 2, Script::default());
    on_streams(&streams, &options(name, table()), |mut ranks| {
        let stream = ranks.stream().clone();
        let x = DeviceBuffer::from_host(&stream, &[1u16; 6]).expect("x");
        let mut y = DeviceBuffer::<u16>::zeros(&stream, 12).expect("y");
        drop(ranks.all_gather(&x, &mut y).expect("enqueued"));
        let mut z = DeviceBuffer::from_host(&stream, &[half::bf16::ONE; 5]).expect("z");
        drop(ranks.all_reduce_in_place(ReduceOp::Max, &mut z).expect("enqueued"));
        drop(ranks.broadcast(1, &mut z).expect("enqueued"));
        ranks.finish().expect("the end in common");
    });
    script.check();
    let calls = script.calls(0);
    let wanted = [
        "ncclAllGather(12, type 1, op 0, root -1)",
        "ncclAllReduce(5, type 9, op 2, root -1, in place)",
        "ncclBroadcast(10, type 1, op 0, root 1, in place)",
    ];
    assert_eq!(calls[2..5], wanted);
}

#[test]
fn an_init_that_does_not_end_names_itself() {
    for (name, init_polls, split_polls) in [("init-never", -1, 0), ("split-never", 0, -1)] {
        let (script, streams) = play(name, 2, Script { init_polls, split_polls, ..Script::default() });
        let begun = Instant::now();
        let options = options(name, table()).init_timeout(Duration::from_millis(400));
        let text = Communicator::init_all(&streams, &options).expect_err("no end").to_string();
        assert!(text.contains("NCCL has not connected the ranks within 400ms"), "{text}");
        assert!(text.contains("NCCL_DEBUG=INFO"), "{text}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        script.check();
        for rank in 0..2 {
            let calls = script.calls(rank);
            let aborts = calls.iter().filter(|call| *call == "ncclCommAbort").count();
            assert_eq!(aborts, if split_polls < 0 { 2 } else { 1 }, "{calls:?}");
        }
    }
}

#[test]
fn a_first_operation_names_who_is_missing() {
    let name = "connect";
    let (script, streams) = play(name, 2, Script::default());
    let options = options(name, table()).timeout(Duration::from_millis(500));
    on_streams(&streams, &options, |mut ranks| {
        let end = Instant::now() + LONG;
        if ranks.rank() == 1 {
            while ranks.dump().failure.is_none() {
                assert!(Instant::now() < end, "the other does not fail");
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
        // The call blocks until the owner thread aborts the parent.
        let text = failure(ranks.barrier()).to_string();
        assert!(text.contains("rank 0 waited") && text.contains("has not called the operation"), "{text}");
        assert!(text.contains("rank 1 (process"), "{text}");
        ranks.backend.settle();
    });
    script.check();
    assert_eq!(script.calls(0)[2..].len(), 3, "{:?}", script.calls(0));
}

#[test]
fn a_finish_that_hangs_fails() {
    let name = "finish";
    let (script, streams) = play(name, 2, Script { destroy_hangs: true, ..Script::default() });
    let options = options(name, table()).init_timeout(Duration::from_millis(400));
    on_streams(&streams, &options, |mut ranks| {
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let text = ranks.finish().expect_err("no end").to_string();
        assert!(text.contains("ncclCommDestroy did not return within 400ms"), "{text}");
    });
    script.check();
}

#[test]
fn calls_that_do_not_block_are_refused() {
    let name = "non-blocking";
    let refused = Some(("ncclAllReduce", status::IN_PROGRESS));
    let (script, streams) = play(name, 1, Script { refused, ..Script::default() });
    let mut ranks = Communicator::init_all(&streams, &options(name, table())).expect("one rank").remove(0);
    let text = failure(ranks.barrier()).to_string();
    assert!(text.contains("unset NCCL_COMM_BLOCKING"), "{text}");
    script.check();
}

#[test]
fn a_refused_init_has_nccls_text() {
    let name = "init-refused";
    let refused = Some(("ncclCommInitRankConfig", status::SYSTEM));
    let (script, streams) = play(name, 2, Script { refused, ..Script::default() });
    let text = Communicator::init_all(&streams, &options(name, table())).expect_err("refused").to_string();
    assert!(text.contains("ncclCommInitRankConfig failed with 2") && text.contains("/dev/shm"), "{text}");
    script.check();
}

/// Creates the communicators on one thread per rank, with separate options for each rank.
fn connect(
    streams: &[Stream],
    options: &[CommunicatorOptions],
) -> Vec<warpsmith_runtime::Result<Communicator>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = streams
            .iter()
            .zip(options)
            .enumerate()
            .map(|(rank, (stream, options))| {
                let store = Arc::clone(&store);
                let mut launch = Launch::single();
                (launch.rank, launch.world_size) = (rank, streams.len());
                scope.spawn(move || Communicator::init(stream, &launch, store, options))
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

#[test]
fn different_versions_are_named() {
    let name = "versions";
    let (_, streams) = play(name, 2, Script::default());
    let newer = Nccl { version: 22_907, ..table() };
    for result in connect(&streams, &[options(name, table()), options(name, newer)]) {
        let text = result.expect_err("two versions").to_string();
        assert!(text.contains("rank 0 has NCCL 2.28.9, but rank 1 has NCCL 2.29.7"), "{text}");
    }
}

#[test]
fn emulated_devices_are_refused() {
    let streams = streams_of(&driver(2), 2);
    let mut options = CommunicatorOptions::new();
    options.backend = crate::BackendChoice::Nccl;
    let text = Communicator::init_all(&streams, &options).expect_err("no GPU").to_string();
    assert!(text.contains("NCCL supports only GPUs, but rank 0 uses cpu:0"), "{text}");
}

#[test]
fn auto_does_not_share_a_gpu() {
    let (_script, streams) = play("shared", 2, Script::default());
    let result = Communicator::init_all(&streams, &options("shared", table()).shared_gpu(true));
    let text = result.expect_err("shared").to_string();
    assert!(text.contains("`Auto` does not let ranks share a GPU: remove `shared_gpu`"), "{text}");
}

#[test]
fn an_error_in_the_background_ends_all_ranks() {
    let name = "background";
    let background = Some((1, 2, status::INTERNAL));
    let (script, streams) = play(name, 2, Script { background, ..Script::default() });
    let failures = on_streams(&streams, &options(name, table()), |mut ranks| {
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        // Rank 0 waits for a rank that never calls the operation, and receives the error of rank 1.
        let mut y = DeviceBuffer::<f32>::zeros(ranks.stream(), 4).expect("y");
        let work = match ranks.rank() {
            0 => ranks.recv(1, &mut y),
            _ => ranks.barrier(),
        };
        failure(work.and_then(|work| work.wait(LONG)))
    });
    assert_eq!(failures[0], failures[1]);
    let text = failures[0].to_string();
    assert!(matches!(failures[0], Failure::Library { rank: 1, .. }), "{text}");
    assert!(text.contains("failed with 3") && text.contains("the fake's last error"), "{text}");
    drop(streams);
    script.check();
}

#[test]
fn a_refused_call_in_a_group_ends_all_ranks() {
    let name = "group";
    let refused = Some(("ncclSend", status::INVALID_USAGE));
    let (script, streams) = play(name, 2, Script { refused, ..Script::default() });
    let failures = on_streams(&streams, &options(name, table()), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut y = DeviceBuffer::<f32>::zeros(&stream, 4).expect("y");
        let x = DeviceBuffer::<f32>::zeros(&stream, 4).expect("x");
        let work = match ranks.rank() {
            0 => ranks.group(|group| {
                group.send(&x, 1)?;
                group.recv(1, &mut y)
            }),
            _ => ranks.recv(0, &mut y),
        };
        failure(work.and_then(|work| work.wait(LONG)))
    });
    assert_eq!(failures[0], failures[1]);
    let text = failures[0].to_string();
    assert!(text.contains("rank 0: ncclSend failed with 5"), "{text}");
    script.check();
}

#[test]
fn a_timeout_names_who_is_missing_and_aborts() {
    let name = "timeout";
    let (script, streams) = play(name, 3, Script::default());
    let options = options(name, table()).timeout(Duration::from_millis(500));
    let sums = on_streams(&streams, &options, |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 8]).expect("x");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if ranks.rank() == 2 {
            // This rank is busy until the other ranks have failed.
            let end = Instant::now() + LONG;
            while ranks.dump().failure.is_none() {
                assert!(Instant::now() < end, "the others do not fail");
                std::thread::sleep(Duration::from_millis(5));
            }
            return None;
        }
        let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued");
        let text = failure(work.wait(LONG)).to_string();
        assert!(text.contains("all_reduce #1 (sum, f32, 8 elements)"), "{text}");
        assert!(text.contains("rank 2 (process") && text.contains("has not called the operation"), "{text}");
        // The surviving ranks continue.
        let mut fewer = ranks.shrink(&[2]).expect("a communicator of two");
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32 + ranks.rank() as f32; 8]).expect("x");
        fewer.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued").wait(LONG).expect("done");
        fewer.finish().expect("the end in common");
        Some(x.to_host().expect("x"))
    });
    assert_eq!(sums, [Some(vec![3.0; 8]), Some(vec![3.0; 8]), None]);
    script.check();
}

#[test]
fn different_operations_are_named_at_the_deadline() {
    let name = "mismatch";
    let (script, streams) = play(name, 2, Script::default());
    let options = options(name, table()).timeout(Duration::from_millis(500));
    let failures = on_streams(&streams, &options, |mut ranks| {
        let mut x = DeviceBuffer::<f32>::zeros(ranks.stream(), 8 + ranks.rank()).expect("x");
        let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued");
        failure(work.wait(LONG))
    });
    assert_eq!(failures[0], failures[1]);
    let text = failures[0].to_string();
    assert!(text.contains("8 elements") && text.contains("9 elements"), "{text}");
    script.check();
}

#[test]
fn checked_mode_names_them_before_the_call() {
    let name = "checked";
    let (script, streams) = play(name, 2, Script::default());
    on_streams(&streams, &options(name, table()).checked(true), |mut ranks| {
        let root = ranks.rank();
        let mut x = DeviceBuffer::<f32>::zeros(ranks.stream(), 8).expect("x");
        let failure = failure(ranks.broadcast(root, &mut x));
        assert!(matches!(failure, Failure::Mismatch { .. }), "{failure}");
    });
    script.check();
    for rank in 0..2 {
        let calls = script.calls(rank);
        assert!(!calls.iter().any(|call| call.starts_with("ncclBroadcast")), "{calls:?}");
    }
}

#[test]
fn an_abort_that_hangs_is_not_waited_for() {
    let name = "abort";
    let (script, streams) =
        play(name, 2, Script { abort_takes: Duration::from_secs(3), ..Script::default() });
    let begun = Instant::now();
    on_streams(&streams, &options(name, table()), |mut ranks| {
        let mut y = DeviceBuffer::<f32>::zeros(ranks.stream(), 4).expect("y");
        let work = ranks.recv(1 - ranks.rank(), &mut y);
        ranks.abort();
        assert!(matches!(failure(work.and_then(|work| work.wait(LONG))), Failure::Aborted { .. }));
        ranks.backend.settle();
    });
    let taken = begun.elapsed();
    assert!(taken >= super::comm::END_TIME && taken < Duration::from_secs(3), "{taken:?}");
    script.check();
}

#[test]
fn a_fault_of_the_device_comes_first() {
    let name = "fault";
    let driver = driver(2);
    let streams = streams_of(&driver, 2);
    let background = Some((0, 2, status::CUDA));
    let script = Script { streams: streams.clone(), background, ..Script::default() }.play(name);
    let failures = on_streams(&streams, &options(name, table()), |mut ranks| {
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let mut y = DeviceBuffer::<f32>::zeros(ranks.stream(), 4).expect("y");
        let work = ranks.recv(1 - ranks.rank(), &mut y);
        if ranks.rank() == 0 {
            driver.poison(0, fault());
        }
        failure(work.and_then(|work| work.wait(LONG)))
    });
    assert_eq!(failures[0], failures[1]);
    assert!(matches!(failures[0], Failure::NotRun { rank: 0, .. }), "{}", failures[0]);
    script.check();
}

#[test]
fn a_refused_call_on_a_stopped_device_names_the_fault() {
    let name = "stopped";
    let driver = driver(1);
    let streams = streams_of(&driver, 1);
    let (refused, stopped) = (Some(("ncclAllReduce", status::CUDA)), Some((driver, fault())));
    let script = Script { streams: streams.clone(), refused, stopped, ..Script::default() }.play(name);
    let mut ranks = Communicator::init_all(&streams, &options(name, table()))
        .expect("a communicator of one rank")
        .remove(0);
    let mut x = DeviceBuffer::<f32>::zeros(&streams[0], 4).expect("x");
    let failure = failure(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x));
    assert!(matches!(failure, Failure::NotRun { rank: 0, .. }), "{failure}");
    assert!(failure.to_string().contains("seeded"), "{failure}");
    script.check();
}

#[test]
fn a_dropped_communicator_lets_its_operations_end() {
    let name = "dropped";
    let (script, streams) = play(name, 2, Script::default());
    let sums = on_streams(&streams, &options(name, table()), |mut ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &[2.0f32; 3]).expect("x");
        let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued");
        if ranks.rank() == 0 {
            drop(ranks);
            work.wait(LONG).expect("done");
            return x.to_host().expect("x");
        }
        work.wait(LONG).expect("done");
        let next = ranks.barrier().expect("enqueued");
        assert_eq!(failure(next.wait(LONG)), Failure::Left { rank: 0 });
        x.to_host().expect("x")
    });
    assert_eq!(sums, [[4.0; 3], [4.0; 3]]);
    script.check();
}

#[test]
fn captures_need_a_process_for_each_device() {
    let name = "captured";
    let (script, streams) = play(name, 2, Script::default());
    let mut ranks = Communicator::init_all(&streams, &options(name, table())).expect("ranks connect");
    let mut x = DeviceBuffer::<f32>::zeros(&streams[0], 4).expect("x");
    let capture = Capture::begin(&streams[0], CaptureMode::ThreadLocal).expect("a capture");
    let refused = ranks[0].all_reduce_in_place(ReduceOp::Sum, &mut x).expect_err("refused").to_string();
    assert!(
        refused.contains("all_reduce on rank 0") && refused.contains("one process per device"),
        "{refused}"
    );
    drop(capture.end());
    script.check();
}

#[test]
fn one_rank_averages_all_elements() {
    let name = "averaged";
    let (script, streams) = play(name, 1, Script::default());
    let options = options(name, table());
    let mut ranks = Communicator::init_all(&streams, &options).expect("a communicator of one rank").remove(0);
    for len in [1usize, 4096, 4097, 20_001] {
        let x = DeviceBuffer::from_host(&streams[0], &vec![1.5f32; len]).expect("x");
        let mut y = DeviceBuffer::zeros(&streams[0], len).expect("y");
        drop(ranks.all_reduce(&x, ReduceOp::Avg, &mut y).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), vec![1.5; len]);
    }
    ranks.finish().expect("the end");
    script.check();
}

#[test]
fn a_communicator_outlives_its_graphs() {
    let name = "graph";
    let (script, streams) = play(name, 1, Script::default());
    let options = options(name, table());
    let mut ranks = Communicator::init_all(&streams, &options).expect("a communicator of one rank").remove(0);
    let stream = streams[0].clone();
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 4).expect("x");
    let mut y = DeviceBuffer::<f32>::zeros(&stream, 4).expect("y");
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
    let work = ranks.all_reduce(&x, ReduceOp::Sum, &mut y).expect("captured");
    let graph = capture.end().expect("a graph").instantiate().expect("an executable");
    assert!(work.query().expect("captured"));
    let mut replay = |value: f32| {
        x.copy_from_host(&[value; 4]).expect("copied");
        graph.launch(&stream).expect("launched");
        assert_eq!(y.to_host().expect("y"), [value; 4]);
    };
    replay(1.5);
    replay(3.0);
    let refused = ranks.finish().expect_err("the graph needs it").to_string();
    assert!(refused.contains("drop these graphs first"), "{refused}");
    replay(12.0);
    assert!(!script.calls(0).contains(&"ncclCommAbort".to_owned()));
    drop(graph);
    let end = Instant::now() + LONG;
    while !script.calls(0).contains(&"ncclCommAbort".to_owned()) {
        assert!(Instant::now() < end, "it is never freed");
        std::thread::sleep(Duration::from_millis(5));
    }
    script.check();
}
