//! Rendezvous of ranks, both successful and with every kind of mismatch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_collective::rendezvous::{self, RendezvousError};
use warpsmith_collective::store::{MemoryStore, ServerOptions, StoreServer, TcpStore};
use warpsmith_collective::{CollectiveError, Communicator, CommunicatorOptions, Launch, Store};
use warpsmith_runtime::{Result, Stream};

use crate::support::{streams, timeout};

fn launch(rank: usize, world_size: usize) -> Launch {
    let mut launch = Launch::single();
    (launch.rank, launch.world_size, launch.local_rank) = (rank, world_size, rank);
    launch
}

/// Creates communicators from these launches, on threads.
fn connect(
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

/// Returns a server and a store. Unlike with a memory store, requests can time out at the server.
fn tcp() -> (StoreServer, Arc<dyn Store>) {
    let address = "127.0.0.1:0".parse().expect("an address");
    let server = StoreServer::start(address, ServerOptions::default()).expect("a server");
    let soon = Instant::now() + Duration::from_secs(20);
    let store = TcpStore::connect(&server.address().to_string(), None, soon).expect("a store");
    (server, Arc::new(store))
}

/// Returns the error text of a rank whose rendezvous failed.
#[track_caller]
fn text(met: &Result<Communicator>) -> String {
    match met {
        Err(error)
            if error.downcast_ref::<RendezvousError>().is_some()
                || matches!(
                    error.downcast_ref(),
                    Some(CollectiveError::Init { .. } | CollectiveError::StrangeValue { .. })
                ) =>
        {
            error.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranks_have_the_places_of_their_launches() {
    let store = memory();
    let met = connect(
        &streams(3),
        &[launch(2, 3), launch(0, 3), launch(1, 3)],
        &store,
        &CommunicatorOptions::new(),
    );
    let places: Vec<_> =
        met.iter().map(|met| met.as_ref().map(|met| (met.rank(), met.world_size())).ok()).collect();
    assert_eq!(places, [Some((2, 3)), Some((0, 3)), Some((1, 3))]);
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let start = Instant::now();
    let met = connect(&streams(2), &[launch(0, 4), launch(2, 4)], &memory(), &short());
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    for text in met.iter().map(text) {
        assert!(
            text.contains("ranks 1 and 3 of 4 did not arrive within 0.4 s; present: rank 0 (process "),
            "{text}"
        );
    }
}

#[test]
fn a_rank_that_is_there_twice_is_named() {
    let (store, streams) = (memory(), streams(3));
    let options = CommunicatorOptions::new().init_timeout(Duration::from_secs(5));
    let init = &|index: usize, rank| {
        Communicator::init(&streams[index], &launch(rank, 2), Arc::clone(&store), &options)
    };
    let met: Vec<_> = std::thread::scope(|scope| {
        let mut threads: Vec<_> = [1, 2].map(|index| scope.spawn(move || init(index, 1))).into();
        // Both ranks have arrived before the rank that they wait for.
        std::thread::sleep(Duration::from_millis(500));
        threads.push(scope.spawn(move || init(0, 0)));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let texts: Vec<_> = met.iter().filter(|met| met.is_err()).map(text).collect();
    let twice = "two threads of this process have rank 1";
    assert!(texts.iter().any(|text| text.ends_with(twice)), "{texts:?}");
}

#[test]
fn another_world_size_is_named() {
    let store = memory();
    let met = connect(&streams(2), &[launch(0, 2), launch(1, 3)], &store, &short());
    for text in met.iter().map(text) {
        let is_named = |first, second| {
            text.contains(&format!(" has world size {first}")) && text.contains(&format!(" has {second}:"))
        };
        assert!(is_named(3, 2) || is_named(2, 3), "{text}");
    }
    // A rank that arrives later must also receive the error, immediately.
    let start = Instant::now();
    let later = connect(&streams(1), &[launch(2, 3)], &store, &CommunicatorOptions::new().name("short"));
    assert!(text(&later[0]).contains(" has world size "), "{later:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn two_ranks_on_one_stream_are_refused() {
    let stream = &streams(1)[0];
    let error = Communicator::init_all(&[stream.clone(), stream.clone()], &CommunicatorOptions::new());
    let text = error.expect_err("they would wait for each other").to_string();
    assert!(
        text.contains(
            "use the same stream and would wait for each other; create a separate stream for each rank"
        ),
        "{text}"
    );
}

#[test]
fn impossible_ranks_are_refused() {
    let met = connect(&streams(2), &[launch(3, 3), launch(0, 0)], &memory(), &short());
    let counted = "the rank must be at least 0 and less than the world size";
    met.iter().map(text).for_each(|text| assert!(text.ends_with(counted), "{text}"));
    let none = Communicator::init_all(&[], &CommunicatorOptions::new()).expect_err("no streams");
    assert_eq!(
        none.to_string(),
        "Communicator::init_all: the list of streams is empty; pass at least one element"
    );
}

#[test]
fn garbage_in_the_store_is_named() {
    let launches = [launch(0, 2), launch(1, 2)];
    let garbage = |key: &str, launches: &[Launch]| {
        let store = memory();
        let soon = Instant::now() + Duration::from_secs(1);
        store.set(&format!("warpsmith/alone/0/communicator/short#0/{key}"), b"garbage", soon).expect("set");
        text(&connect(&streams(2), launches, &store, &short())[0])
    };
    let rank = garbage("rank/1", &launches[..1]);
    assert!(rank.contains("has a value that was not written by a Warpsmith rank"), "{rank}");
    let card = garbage("card/1", &launches);
    // Rank 1 also detects the problem.
    let is_named = ["the value that rank 1 wrote into the store is invalid", "have rank 1"];
    assert!(is_named.iter().any(|text| card.contains(text)), "{card}");
}

#[test]
fn a_rank_that_does_not_go_on_is_named() {
    let (_server, store) = tcp();
    let soon = Instant::now() + Duration::from_secs(20);
    let met = std::thread::scope(|scope| {
        // This rank takes part in the rendezvous, but does nothing afterwards.
        let place = "communicator/short#0";
        scope.spawn(|| rendezvous::join(&launch(1, 2), Arc::clone(&store), place, None, soon).expect("met"));
        connect(&streams(1), &[launch(0, 2)], &store, &short())
    });
    let text = text(&met[0]);
    assert!(text.ends_with("rank 1 did not continue the setup within 400ms"), "{text}");
}

#[test]
fn a_rank_that_does_not_split_is_named() {
    let (_server, store) = tcp();
    let options = short().init_timeout(Duration::from_secs(2));
    let mut met = connect(&streams(2), &[launch(0, 2), launch(1, 2)], &store, &options);
    let stays = met.pop();
    let error = met.remove(0).expect("ranks connect").split(Some(0), 0).expect_err("rank 1 does not split");
    let said = "split: rank 1 did not call `split` within 2s";
    assert!(error.to_string().ends_with(said), "{error}");
    drop(stays);
}

#[test]
fn the_longest_timeout_is_no_timeout() {
    let options = timeout(0).timeout(Duration::MAX).init_timeout(Duration::MAX);
    let (_server, tcp) = tcp();
    for store in [memory(), tcp] {
        let met = connect(&streams(2), &[launch(0, 2), launch(1, 2)], &store, &options);
        std::thread::scope(|scope| {
            for rank in met {
                scope.spawn(|| {
                    let mut world = rank.expect("ranks connect");
                    let mut part = world.split(Some(0), 0).expect("divided").expect("a part");
                    part.barrier().expect("enqueued").wait(Duration::MAX).expect("done");
                    part.finish().expect("the end in common");
                    world.finish().expect("the end in common");
                });
            }
        });
    }
}

#[test]
fn a_store_serves_one_communicator_after_another() {
    let (store, streams) = (memory(), streams(2));
    for _ in 0..3 {
        let met = connect(&streams, &[launch(0, 2), launch(1, 2)], &store, &CommunicatorOptions::new());
        let met: Vec<_> = met.into_iter().map(|met| met.expect("ranks connect")).collect();
        std::thread::scope(|scope| {
            met.into_iter().for_each(|rank| drop(scope.spawn(|| rank.finish().expect("the end in common"))));
        });
    }
}

#[test]
fn colors_and_keys_divide_ranks() {
    let store = memory();
    let launches: Vec<_> = (0..5).map(|rank| launch(rank, 5)).collect();
    let met = connect(&streams(5), &launches, &store, &CommunicatorOptions::new());
    let places: Vec<_> = std::thread::scope(|scope| {
        let split = |met: Result<Communicator>| {
            scope.spawn(move || {
                let mut world = met.expect("ranks connect");
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
