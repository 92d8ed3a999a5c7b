//! Operations that are enqueued together.

use warpsmith_collective::{CollectiveError, CommunicatorOptions, Failure, ReduceOp};
use warpsmith_runtime::DeviceBuffer;

use crate::support::{LONG, failure, on_ranks};

#[test]
fn long_messages_cross() {
    // This is many times the data that can be in flight, in both directions.
    let len = 5 << 20;
    on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        let (rank, stream) = (ranks.rank(), ranks.stream().clone());
        let values: Vec<u8> = (0..len).map(|index| (index % 251) as u8 ^ rank as u8).collect();
        let x = DeviceBuffer::from_host(&stream, &values).expect("x");
        let mut y = DeviceBuffer::<u8>::uninit(&stream, len).expect("y");
        let work = ranks.group(|group| {
            group.send(&x, 1 - rank)?;
            group.recv(1 - rank, &mut y)
        });
        work.expect("enqueued").wait(LONG).expect("done");
        let y = y.to_host().expect("y");
        assert!(y.iter().zip(&values).all(|(y, x)| *y == x ^ 1));
    });
}

#[test]
fn several_messages_to_one_rank_keep_their_order() {
    on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        let (rank, stream) = (ranks.rank(), ranks.stream().clone());
        let numbers = [1u32, 2, 3].map(|number| DeviceBuffer::from_host(&stream, &[number]).expect("x"));
        let mut received = [(); 3].map(|()| DeviceBuffer::from_host(&stream, &[0u32]).expect("y"));
        let work = ranks.group(|group| match rank {
            0 => numbers.iter().try_for_each(|number| group.send(number, 1)),
            _ => received.iter_mut().try_for_each(|y| group.recv(0, y)),
        });
        work.expect("enqueued").wait(LONG).expect("done");
        if rank == 1 {
            assert_eq!(received.map(|y| y.to_host().expect("y")[0]), [1, 2, 3]);
        }
    });
}

#[test]
fn a_rank_sends_to_itself() {
    on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        let (rank, stream) = (ranks.rank(), ranks.stream().clone());
        let x = DeviceBuffer::from_host(&stream, &vec![rank as u64; 300_000]).expect("x");
        let mut y = DeviceBuffer::<u64>::zeros(&stream, 300_000).expect("y");
        let work = ranks.group(|group| {
            group.recv(rank, &mut y)?;
            group.send(&x, rank)
        });
        drop(work.expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), vec![rank as u64; 300_000]);
        ranks.finish().expect("the end in common");
    });
}

#[test]
fn messages_and_collectives_mix_in_any_order() {
    on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        let (rank, stream) = (ranks.rank(), ranks.stream().clone());
        let mut sum = DeviceBuffer::from_host(&stream, &[1i32]).expect("sum");
        let mut long = DeviceBuffer::from_host(&stream, &vec![rank as u8; 3 << 20]).expect("long");
        let work = ranks.group(|group| match rank {
            0 => {
                group.send(&long, 1)?;
                group.all_reduce_in_place(ReduceOp::Sum, &mut sum)
            }
            _ => {
                group.all_reduce_in_place(ReduceOp::Sum, &mut sum)?;
                group.recv(0, &mut long)
            }
        });
        work.expect("enqueued").wait(LONG).expect("done");
        assert_eq!(sum.to_host().expect("sum"), [2]);
        assert_eq!(long.to_host().expect("long"), vec![0; 3 << 20]);
    });
}

#[test]
fn an_empty_group_is_done_at_once() {
    on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        assert!(ranks.group(|_| Ok(())).expect("a group").query().expect("done"));
    });
}

#[test]
fn a_panic_in_a_group_aborts_all_ranks() {
    let failures = on_ranks(3, &CommunicatorOptions::new(), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32]).expect("x");
        if ranks.rank() == 1 {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                ranks.group(|group| {
                    group.all_reduce_in_place(ReduceOp::Sum, &mut x)?;
                    panic!("in the closure")
                })
            }));
            assert!(panicked.is_err());
            return failure(ranks.barrier());
        }
        let work = ranks.group(|group| group.all_reduce_in_place(ReduceOp::Sum, &mut x));
        match work {
            Ok(work) => failure(work.wait(LONG)),
            // The abort has arrived before the call.
            refused => failure(refused),
        }
    });
    let reason = "the closure of a group panicked".to_owned();
    failures
        .into_iter()
        .for_each(|failure| assert_eq!(failure, Failure::Aborted { rank: 1, reason: reason.clone() }));
}

#[test]
fn an_error_in_a_group_aborts_all_ranks() {
    on_ranks(2, &CommunicatorOptions::new(), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32]).expect("x");
        if ranks.rank() == 1 {
            let error = ranks.group(|group| group.recv(7, &mut x)).expect_err("no such rank");
            assert!(matches!(error.downcast_ref(), Some(CollectiveError::Group(_))), "{error}");
            let text = "the closure of a group failed, which aborted the communicator: recv on rank 1: the sender is rank 7, \
                        but the ranks are 0 to 1";
            assert_eq!(error.to_string(), text);
            return;
        }
        let waited = ranks.barrier().and_then(|work| work.wait(LONG));
        assert!(matches!(failure(waited), Failure::Aborted { rank: 1, .. }));
    });
}
