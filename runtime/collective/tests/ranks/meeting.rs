//! Ranks that meet, and those that cannot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_collective::store::MemoryStore;
use warpsmith_collective::{Communicator, CommunicatorOptions, Error, Launch, Result, Store};
use warpsmith_runtime::Stream;

use crate::support::streams;

fn launch(rank: usize, world_size: usize) -> Launch {
    let mut launch = Launch::single();
    (launch.rank, launch.world_size, launch.local_rank) = (rank, world_size, rank);
    launch
}

/// Lets ranks meet with these launches, in threads.
fn meet(
    streams: &[Stream],
    launches: &[Launch],
    store: &Arc<dyn Store>,
    options: &CommunicatorOptions,
) -> Vec<Result<Communicator>> {
    std::thread::scope(|scope| {
        let start = |(stream, launch)| {
            scope.spawn(move || Communicator::init(stream, launch, Arc::clone(store), options))
        };
        let threads: Vec<_> = streams.iter().zip(launches).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn short() -> CommunicatorOptions {
    CommunicatorOptions::new().name("short").init_timeout(Duration::from_millis(400))
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

/// The reason why a rank could not meet the others.
#[track_caller]
fn reason(met: &Result<Communicator>) -> &str {
    match met {
        Err(Error::Init { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranks_have_the_places_of_their_launches() {
    let store = memory();
    let met =
        meet(&streams(3), &[launch(2, 3), launch(0, 3), launch(1, 3)], &store, &CommunicatorOptions::new());
    let places: Vec<_> =
        met.iter().map(|met| met.as_ref().map(|met| (met.rank(), met.world_size())).ok()).collect();
    assert_eq!(places, [Some((2, 3)), Some((0, 3)), Some((1, 3))]);
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let start = Instant::now();
    let met = meet(&streams(2), &[launch(0, 4), launch(2, 4)], &memory(), &short());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    let texts = [reason(&met[0]), reason(&met[1])];
    let expected = "ranks 1, 3 did not come within 400ms; start all ranks with the same store and name";
    assert!(texts.contains(&expected), "{texts:?}");
    let told = |text: &&str| *text == expected || text.starts_with("another rank has given up: rank ");
    assert!(texts.iter().all(told), "{texts:?}");
}

#[test]
fn a_rank_that_is_there_twice_is_named() {
    let store = memory();
    let met = meet(&streams(2), &[launch(1, 3), launch(1, 3)], &store, &short());
    let texts = [reason(&met[0]), reason(&met[1])];
    let twice =
        texts.iter().filter(|text| text.contains("has rank 1 too; each rank is one process, or one thread"));
    assert_eq!(twice.count(), 1, "{texts:?}");
}

#[test]
fn another_world_size_is_named() {
    let met = meet(&streams(2), &[launch(0, 2), launch(1, 3)], &memory(), &short());
    let texts = [reason(&met[0]), reason(&met[1])].concat();
    assert!(
        texts.contains("the world size is 2 here and 3 on rank 1")
            || texts.contains("the world size is 3 here and 2 on rank 0"),
        "{texts}"
    );
}

#[test]
fn two_ranks_on_one_stream_are_refused() {
    let stream = &streams(1)[0];
    let error = Communicator::init_all(&[stream.clone(), stream.clone()], &CommunicatorOptions::new());
    let text = error.expect_err("they would wait for each other").to_string();
    assert!(
        text.contains("are on one stream, where each would wait for the other; make a stream for each"),
        "{text}"
    );
}

#[test]
fn impossible_ranks_are_refused() {
    let met = meet(&streams(2), &[launch(3, 3), launch(0, 0)], &memory(), &short());
    met.iter().for_each(|met| {
        assert_eq!(reason(met), "ranks are counted from 0, and each is less than the world size")
    });
    let none = Communicator::init_all(&[], &CommunicatorOptions::new()).expect_err("no streams");
    assert_eq!(none.to_string(), "Communicator::init_all: the list of streams is empty; pass at least one");
}

#[test]
fn garbage_in_the_store_is_named() {
    let store = memory();
    let soon = Instant::now() + Duration::from_secs(1);
    store.set("communicator/short#1/1", b"garbage", soon).expect("set");
    let met = meet(&streams(1), &[launch(0, 2)], &store, &short());
    assert!(reason(&met[0]).starts_with("what rank 1 has put into the store cannot be read: "), "{met:?}");
}

#[test]
fn another_version_is_named() {
    let store = memory();
    let soon = Instant::now() + Duration::from_secs(1);
    store.set("communicator/short#1/1", br#"{"protocol":7,"version":"9.9.9"}"#, soon).expect("set");
    let met = meet(&streams(1), &[launch(0, 2)], &store, &short());
    let text = reason(&met[0]);
    assert!(text.starts_with("rank 1 runs version 9.9.9 (protocol 7), this rank version "), "{text}");
    assert!(text.ends_with("start the same program everywhere"), "{text}");
}

#[test]
fn a_store_serves_one_communicator_after_another() {
    let (store, streams) = (memory(), streams(2));
    for _ in 0..3 {
        let met = meet(&streams, &[launch(0, 2), launch(1, 2)], &store, &CommunicatorOptions::new());
        let met: Vec<_> = met.into_iter().map(|met| met.expect("ranks meet")).collect();
        std::thread::scope(|scope| {
            met.into_iter().for_each(|rank| drop(scope.spawn(|| rank.finish().expect("the end in common"))));
        });
    }
}

#[test]
fn colors_and_keys_divide_ranks() {
    let store = memory();
    let launches: Vec<_> = (0..5).map(|rank| launch(rank, 5)).collect();
    let met = meet(&streams(5), &launches, &store, &CommunicatorOptions::new());
    let places: Vec<_> = std::thread::scope(|scope| {
        let split = |met: Result<Communicator>| {
            scope.spawn(move || {
                let mut world = met.expect("ranks meet");
                let color = [Some(0), Some(1), Some(0), None, Some(1)][world.rank()];
                let part = world.split(color, -(world.rank() as i64)).expect("divided");
                part.map(|part| (part.rank(), part.world_size()))
            })
        };
        let threads: Vec<_> = met.into_iter().map(split).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(places, [Some((1, 2)), Some((1, 2)), Some((0, 2)), None, Some((0, 2))]);
}
