//! Failures of ranks that are threads, and the errors that each rank reports.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use warpsmith_collective::{
    CollectiveError, Communicator, CommunicatorError, CommunicatorOptions, Failure, FlightRecord,
    OperationState, ReduceOp, Work,
};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{DeviceBuffer, Result};

use crate::peer::peer;
use crate::support::{LONG, failure, fault, on_ranks, streams, streams_of, timeout};

/// Returns the error of an operation that was enqueued or rejected.
#[track_caller]
fn text(enqueued: Result<Work>) -> String {
    let ended = enqueued.and_then(|work| work.wait(LONG));
    match ended {
        Err(error) if error.downcast_ref::<CommunicatorError>().is_some() => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_timeout_names_the_ranks_that_did_not_come() {
    let options = timeout(500);
    let done = Barrier::new(3);
    let texts = on_ranks(3, &options, |mut ranks| {
        let start = Instant::now();
        let mut x = DeviceBuffer::from_host(ranks.stream(), &[1.0f32; 8]).expect("x");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let text = if ranks.rank() == 1 {
            String::new()
        } else {
            text(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x))
        };
        let waited = start.elapsed();
        assert!(waited < Duration::from_millis(2500), "{waited:?}");
        done.wait();
        text
    });
    for (rank, text) in texts.iter().enumerate().filter(|(rank, _)| *rank != 1) {
        let begin =
            format!("all_reduce #1 (sum, f32, 8 elements) on rank {rank} of communicator `world`: rank ");
        assert!(text.starts_with(&begin), "{text}");
        assert!(text.contains(" ms for all_reduce #1 (sum, f32, 8 elements): "), "{text}");
        assert!(text.contains("rank 1 (process "), "{text}");
        assert!(text.contains(") has not called the operation, last completed barrier #0"), "{text}");
    }
}

/// Runs different operations on two ranks of each backend; for Host, with and without checked mode. The errors of both
/// ranks must name both calls.
fn mismatch(calls: [&str; 2], call: impl Fn(&mut Communicator) -> Result<Work> + Sync) {
    for options in [timeout(400).checked(true), timeout(400), peer()] {
        let texts = on_ranks(2, &options, |mut ranks| {
            let first = call(&mut ranks).and_then(|work| work.wait(LONG));
            // A root that has sent its data is done, so it receives the mismatch only in a later call.
            text(first.and_then(|()| ranks.barrier()))
        });
        for text in texts {
            let named = format!("rank 0 calls {}, rank 1 calls {}; all ranks must call", calls[0], calls[1]);
            assert!(text.contains(&named), "{options:?}\n{text}\n{named}");
        }
    }
}

#[test]
fn different_calls_are_named() {
    mismatch(["all_reduce #0 (sum, f32, 4 elements)", "broadcast #0 (f32, 4 elements, root 0)"], |ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &[1.0f32; 4]).expect("x");
        match ranks.rank() {
            0 => ranks.all_reduce_in_place(ReduceOp::Sum, &mut x),
            _ => ranks.broadcast(0, &mut x),
        }
    });
    mismatch(["all_gather #0 (f32, 50 elements)", "reduce_scatter #0 (sum, f32, 50 elements)"], |ranks| {
        let mut x = DeviceBuffer::<f32>::zeros(ranks.stream(), 100)?;
        match ranks.rank() {
            0 => ranks.all_gather_in_place(&mut x),
            _ => ranks.reduce_scatter_in_place(ReduceOp::Sum, &mut x),
        }
    });
    mismatch(["all_reduce #0 (sum, f32, 4 elements)", "all_reduce #0 (sum, f32, 5 elements)"], |ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &vec![1.0f32; 4 + ranks.rank()]).expect("x");
        ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)
    });
    mismatch(["all_gather #0 (u16, 100 elements)", "all_gather #0 (u16, 101 elements)"], |ranks| {
        let mut y = DeviceBuffer::<u16>::zeros(ranks.stream(), 200 + 2 * ranks.rank())?;
        ranks.all_gather_in_place(&mut y)
    });
    mismatch(["all_gather #0 (f32, 4 elements)", "all_gather #0 (i32, 4 elements)"], |ranks| {
        let stream = ranks.stream().clone();
        match ranks.rank() {
            0 => ranks.all_gather(
                &DeviceBuffer::from_host(&stream, &[1.0f32; 4]).expect("x"),
                &mut DeviceBuffer::zeros(&stream, 8).expect("y"),
            ),
            _ => ranks.all_gather(
                &DeviceBuffer::from_host(&stream, &[1i32; 4]).expect("x"),
                &mut DeviceBuffer::zeros(&stream, 8).expect("y"),
            ),
        }
    });
    mismatch(["all_to_all #0 (u32, 100 elements)", "all_to_all #0 (f32, 100 elements)"], |ranks| {
        if ranks.rank() == 0 {
            let x = DeviceBuffer::<u32>::zeros(ranks.stream(), 200)?;
            return ranks.all_to_all(&x, &mut DeviceBuffer::<u32>::zeros(ranks.stream(), 200)?);
        }
        let x = DeviceBuffer::<f32>::zeros(ranks.stream(), 200)?;
        ranks.all_to_all(&x, &mut DeviceBuffer::<f32>::zeros(ranks.stream(), 200)?)
    });
    mismatch(["all_reduce #0 (min, u8, 4 elements)", "all_reduce #0 (max, u8, 4 elements)"], |ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &[1u8; 4]).expect("x");
        ranks.all_reduce_in_place(if ranks.rank() == 0 { ReduceOp::Min } else { ReduceOp::Max }, &mut x)
    });
    // Each rank names the other one as the root.
    mismatch(["broadcast #0 (u8, 4 elements, root 1)", "broadcast #0 (u8, 4 elements, root 0)"], |ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &[1u8; 4]).expect("x");
        ranks.broadcast(1 - ranks.rank(), &mut x)
    });
    mismatch(
        ["reduce #0 (sum, f32, 100 elements, root 0)", "reduce #0 (sum, f32, 100 elements, root 1)"],
        |ranks| {
            let x = DeviceBuffer::<f32>::zeros(ranks.stream(), 100)?;
            let mut y = DeviceBuffer::<f32>::zeros(ranks.stream(), 100)?;
            ranks.reduce(&x, ReduceOp::Sum, ranks.rank(), Some(y.as_mut_slice()))
        },
    );
    mismatch(["barrier #0", "all_reduce #0 (sum, u32, 1 element)"], |ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &[1u32]).expect("x");
        match ranks.rank() {
            0 => {
                drop(ranks.barrier()?);
                ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)
            }
            _ => {
                drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)?);
                ranks.barrier()
            }
        }
    });
}

#[test]
fn a_message_of_another_length_is_named() {
    let texts = on_ranks(2, &timeout(400), |mut ranks| {
        let mut x = DeviceBuffer::from_host(ranks.stream(), &vec![1u8; 4 - ranks.rank()]).expect("x");
        match ranks.rank() {
            0 => {
                ranks.send(&x, 1).expect("enqueued").wait(LONG).expect("it was sent");
                text(ranks.barrier())
            }
            _ => text(ranks.recv(0, &mut x)),
        }
    });
    let named = "rank 0 calls send #0 to rank 1 (u8, 4 elements), rank 1 calls recv #0 from rank 0 (u8, 3 elements); all";
    texts.iter().for_each(|text| assert!(text.contains(named), "{text}"));
}

#[test]
fn crossed_communicators_time_out_by_name() {
    let streams = streams(2);
    let of = |name, time| Communicator::init_all(&streams, &timeout(time).name(name)).expect("ranks connect");
    let pairs: Vec<_> = of("a", 300).into_iter().zip(of("b", 60_000)).collect();
    let texts: Vec<_> = std::thread::scope(|scope| {
        let cross = |(mut a, mut b): (Communicator, Communicator)| {
            scope.spawn(move || {
                // Each stream must reach its second operation after the first has ended.
                let (of_a, of_b) = if a.rank() == 0 {
                    let of_a = a.barrier();
                    (of_a, b.barrier())
                } else {
                    let of_b = b.barrier();
                    (a.barrier(), of_b)
                };
                let text = text(of_a);
                of_b.expect("enqueued").wait(LONG).expect("when `a` has ended, `b` goes on");
                text
            })
        };
        let threads: Vec<_> = pairs.into_iter().map(cross).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let said = "has not started its next operation, barrier: its stream still runs earlier work";
    for (rank, text) in texts.iter().enumerate() {
        assert!(text.contains(said), "{text}");
        assert!(
            text.starts_with(&format!("barrier #0 on rank {rank} of communicator `a`: rank 0 waited 3")),
            "{text}"
        );
    }
}

#[test]
fn an_abort_wakes_all_and_survivors_go_on() {
    on_ranks(4, &CommunicatorOptions::new(), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &[ranks.rank() as u32 + 1]).expect("x");
        let start = Instant::now();
        if ranks.rank() == 3 {
            std::thread::sleep(Duration::from_millis(200));
            ranks.abort();
            ranks.abort();
            return;
        }
        let waited = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).and_then(|work| work.wait(LONG));
        let reason = "the program called `abort`".to_owned();
        assert_eq!(failure(waited), Failure::Aborted { rank: 3, reason });
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
        // Later calls must be rejected with the same failure.
        let text = text(ranks.barrier());
        let rank = ranks.rank();
        let expected =
            format!("barrier #0 on rank {rank} of communicator `world`: rank 3 aborted the communicator: ");
        assert!(text.starts_with(&expected), "{text}");

        let mut rest = ranks.shrink(&[3]).expect("the others connect");
        assert_eq!((rest.rank(), rest.world_size()), (rank, 3));
        let mut x = DeviceBuffer::from_host(&stream, &[rank as u32 + 1]).expect("x");
        drop(rest.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
        assert_eq!(x.to_host().expect("x"), [6]);
        rest.finish().expect("the end in common");
    });
}

#[test]
fn shrink_refuses_lists_that_cannot_be() {
    on_ranks(2, &CommunicatorOptions::new(), |ranks| {
        let reason = |excluded: &[usize]| {
            let error = ranks.shrink(excluded).expect_err("a list that cannot be");
            match error.downcast_ref() {
                Some(CollectiveError::Argument { operation: "shrink", reason, .. }) => reason.clone(),
                _ => panic!("another error: {error}"),
            }
        };
        assert_eq!(reason(&[5]), "rank 5 cannot be excluded: the ranks are 0 to 1");
        assert_eq!(
            reason(&[ranks.rank()]),
            "the list of excluded ranks contains this rank; only the remaining ranks may call it"
        );
    });
}

#[test]
fn a_rank_whose_device_is_lost_says_so_to_all() {
    // The device is lost before the call, or while the operation waits on its stream.
    for is_enqueued in [false, true] {
        let driver = EmulatedDriver::builder().devices(3).build();
        let ranks = Communicator::init_all(&streams_of(&driver, 3), &CommunicatorOptions::new());
        let mut ranks = ranks.expect("ranks connect");
        let mut buffers: Vec<_> = ranks
            .iter()
            .map(|rank| DeviceBuffer::from_host(rank.stream(), &[1.0f32; 4]).expect("x"))
            .collect();
        let hold = is_enqueued.then(|| driver.hold());
        if !is_enqueued {
            driver.poison(1, fault());
        }
        let works: Vec<_> = ranks
            .iter_mut()
            .zip(&mut buffers)
            .map(|(rank, x)| rank.all_reduce_in_place(ReduceOp::Sum, x))
            .collect();
        if is_enqueued {
            driver.poison(1, fault());
        }
        drop(hold);
        for (rank, work) in works.into_iter().enumerate() {
            if rank == 1 && !is_enqueued {
                let error = work.expect_err("its device is lost");
                assert!(error.is_device_lost(), "{error}");
                continue;
            }
            let failure = failure(work.and_then(|work| work.wait(LONG)));
            assert!(matches!(&failure, Failure::NotRun { rank: 1, .. }), "{failure}");
            assert!(
                failure.to_string().starts_with("rank 1 did not run all_reduce #0 (sum, f32, 4 elements): ")
            );
        }
    }
}

#[test]
fn a_rank_that_leaves_too_early_is_named() {
    let failures = on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        let work = ranks.barrier().expect("enqueued");
        if ranks.rank() == 1 {
            drop(ranks);
            work.wait(LONG).expect("what was enqueued goes on");
            return None;
        }
        work.wait(LONG).expect("done");
        Some(failure(ranks.barrier().and_then(|work| work.wait(LONG))))
    });
    assert_eq!(failures, [Some(Failure::Left { rank: 1 }), None]);
}

#[test]
fn dropping_with_work_pending_does_not_wait() {
    let mut ranks = Communicator::init_all(&streams(2), &timeout(60_000)).expect("ranks connect");
    let mut x = DeviceBuffer::from_host(ranks[0].stream(), &[1u8; 9]).expect("x");
    let work = ranks[0].all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued");
    let start = Instant::now();
    let (first, second) = (ranks.remove(0), ranks.remove(0));
    drop(first);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(!work.query().expect("it waits for rank 1"));
    drop(second);
    assert_eq!(failure(work.wait(LONG)), Failure::Left { rank: 1 });
}

#[test]
fn waiting_ends_without_the_work() {
    let mut ranks = Communicator::init_all(&streams(2), &CommunicatorOptions::new()).expect("ranks connect");
    let work = ranks[0].barrier().expect("enqueued");
    let error = work.wait(Duration::from_millis(20)).expect_err("rank 1 has not called it");
    assert_eq!(error.to_string(), "barrier had not finished after 20ms; it continues until its own deadline");
    drop(ranks[1].barrier().expect("enqueued"));
    work.wait(LONG).expect("done");
}

#[test]
fn the_flight_record_shows_what_failed() {
    let folder = std::env::temp_dir().join(format!("warpsmith-flight-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let options = timeout(300).name("model/0").dump_to(&folder);
    // In a shared folder, another user could have created a link with the name of the record.
    let (record_file, victim) = (folder.join("model-0-rank0.json"), folder.join("a file of this user"));
    std::fs::write(&victim, "as it was").expect("written");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&victim, &record_file).expect("a link");
    on_ranks(2, &options, |mut ranks| {
        for _ in 0..3 {
            drop(ranks.barrier().expect("enqueued"));
        }
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if ranks.rank() == 0 {
            let mut x = DeviceBuffer::from_host(ranks.stream(), &[1.0f64; 2]).expect("x");
            let text = text(ranks.all_reduce_in_place(ReduceOp::Prod, &mut x));
            let record = ranks.dump();
            assert_eq!(
                record.failure.as_ref().map(|failure| text.ends_with(failure)),
                Some(true),
                "{record}"
            );
            let states: Vec<_> = record.operations.iter().map(|recorded| recorded.state.clone()).collect();
            assert!(states[..4].iter().all(|state| *state == OperationState::Done));
            assert!(matches!(&states[4], OperationState::Failed(_)));
            assert!(
                record.to_string().contains("failed    all_reduce #4 (prod, f64, 2 elements), started after"),
                "{record}"
            );
            let json = std::fs::read_to_string(&record_file).expect("the dump");
            assert_eq!(json, FlightRecord::to_json(&record));
        } else {
            std::thread::sleep(Duration::from_millis(1000));
        }
    });
    assert_eq!(std::fs::read_to_string(&victim).expect("a file"), "as it was");
    let names = std::fs::read_dir(&folder).expect("a folder").map(|file| file.expect("a file").file_name());
    let new: Vec<_> = names.filter(|name| name.to_string_lossy().ends_with(".new")).collect();
    assert!(new.is_empty(), "{new:?}");
    std::fs::remove_dir_all(&folder).expect("removed");
}
