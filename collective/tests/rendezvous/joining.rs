//! Rendezvous of ranks that are threads, both successful and failing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_collective::rendezvous::{Rendezvous, RendezvousError, join};
use warpsmith_collective::store::{MemoryStore, Store, TcpStore};
use warpsmith_collective::{CollectiveError, Launch};
use warpsmith_runtime::Result;

use crate::{client, server, soon, within};

/// Function that opens the store of a rank.
type OpenStore<'a> = dyn Fn() -> Arc<dyn Store> + Sync + 'a;

/// Runs the rendezvous of several ranks, on one thread each, and returns the results.
fn join_all(
    launches: Vec<Launch>,
    store: impl Fn() -> Arc<dyn Store> + Sync,
    deadline: Instant,
) -> Vec<Result<Rendezvous>> {
    std::thread::scope(|scope| {
        let store = &store;
        let meets = |launch: Launch| scope.spawn(move || join(&launch, store(), "main", None, deadline));
        let threads: Vec<_> = launches.into_iter().map(meets).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn in_memory() -> impl Fn() -> Arc<dyn Store> {
    let store = Arc::new(MemoryStore::new());
    move || store.clone()
}

/// Returns the error texts, in unspecified order.
fn errors(outcomes: Vec<Result<Rendezvous>>) -> Vec<String> {
    let mut errors: Vec<String> =
        outcomes.into_iter().map(|outcome| outcome.unwrap_err().to_string()).collect();
    errors.sort();
    errors
}

#[test]
fn all_ranks_join() {
    let server = server(None);
    let stores: [(&str, Box<OpenStore>); 2] =
        [("memory", Box::new(in_memory())), ("tcp", Box::new(|| Arc::new(client(&server))))];
    for (kind, store) in stores {
        let rendezvous_of_ranks = join_all(Launch::threads(5).collect(), &store, soon());
        for rendezvous in &rendezvous_of_ranks {
            let rendezvous = rendezvous.as_ref().unwrap_or_else(|error| panic!("{kind}: {error}"));
            let ranks: Vec<_> = rendezvous.members().iter().map(|member| member.place.rank).collect();
            assert_eq!(ranks, [0, 1, 2, 3, 4], "{kind}");
            assert!(rendezvous.members().iter().all(|member| member.place.process == std::process::id()));
            assert!(rendezvous.failed_ranks(soon()).unwrap().is_empty(), "{kind}");
        }
        let [first, .., last] = &rendezvous_of_ranks[..] else { panic!("five") };
        first.as_ref().unwrap().store().set("key", b"value", soon()).unwrap();
        assert_eq!(last.as_ref().unwrap().store().get("key", soon()).unwrap(), b"value", "{kind}");
        assert!(store().contains(&["warpsmith/threads/0/main/key"], soon()).unwrap(), "{kind}");
    }
}

/// Performance target of the rendezvous. Only the best of several runs counts, because other tests run at the same
/// time.
#[test]
fn four_ranks_join_within_300_ms() {
    let token = warpsmith_collective::store::Token::new("secret").unwrap();
    let times = (0..10).map(|_| {
        let server = server(Some("secret"));
        let address = server.address().to_string();
        let began = Instant::now();
        let connect =
            || Arc::new(TcpStore::connect(&address, Some(&token), soon()).unwrap()) as Arc<dyn Store>;
        let rendezvous_of_ranks = join_all(Launch::threads(4).collect(), connect, soon());
        let time = began.elapsed();
        assert!(rendezvous_of_ranks.iter().all(Result::is_ok));
        time
    });
    let best = times.min().unwrap();
    println!("four ranks met in {best:?}");
    assert!(best < Duration::from_millis(300), "{best:?}");
}

#[test]
fn many_ranks_join() {
    let server = server(None);
    let began = Instant::now();
    let rendezvous_of_ranks = join_all(Launch::threads(128).collect(), || Arc::new(client(&server)), soon());
    println!("128 ranks met in {:?}", began.elapsed());
    for rendezvous in rendezvous_of_ranks {
        let ranks: Vec<_> = rendezvous.unwrap().members().iter().map(|member| member.place.rank).collect();
        assert!(ranks.into_iter().eq(0..128));
    }
}

#[test]
fn another_number_of_ranks_is_named() {
    let mut launches: Vec<Launch> = Launch::threads(3).collect();
    launches[1].world_size = 4;
    let errors = errors(join_all(launches, in_memory(), soon()));
    // The rank that arrived first counts as the correct one. All ranks have arrived before they fail.
    for error in &errors {
        let sizes = [("has world size 4", "has 3:"), ("has world size 3", "has 4:")];
        assert!(sizes.iter().any(|(one, two)| error.contains(one) && error.contains(two)), "{error}");
        assert!(error.contains("rank 1 (process"), "{error}");
    }
    assert!(
        errors.iter().any(|error| error.starts_with("the rendezvous failed on another rank: ")),
        "{errors:?}"
    );
}

#[test]
fn a_rank_that_is_there_twice_is_named() {
    let mut launches: Vec<Launch> = Launch::threads(3).collect();
    launches[2].rank = 1;
    // Both ranks are in this process, so the first is changed to look like another process.
    let store = in_memory();
    let first = {
        let (store, launch) = (store(), launches[1].clone());
        std::thread::spawn(move || join(&launch, store, "main", None, soon()))
    };
    store().wait(&["warpsmith/threads/0/main/rank/1"], soon()).unwrap();
    let text = store().get("warpsmith/threads/0/main/rank/1", soon()).unwrap();
    let other = String::from_utf8(text).unwrap().replace("process=", "process=1");
    store().set("warpsmith/threads/0/main/rank/1", other.as_bytes(), soon()).unwrap();
    let second = join(&launches[2], store(), "main", None, soon()).unwrap_err();
    assert!(
        matches!(second.downcast_ref(), Some(RendezvousError::DuplicateRank { rank: 1, .. })),
        "{second}"
    );
    assert!(second.to_string().starts_with("two processes have rank 1: process 1"), "{second}");
    let first = first.join().unwrap().unwrap_err();
    assert!(matches!(first.downcast_ref(), Some(RendezvousError::Refused { .. })), "{first}");
    assert!(first.to_string().contains("two processes have rank 1"), "{first}");
}

#[test]
fn another_version_is_named() {
    let store = in_memory();
    let text =
        "version=0.0.1 (protocol 9)\nworld_size=2\nrank=0\nhost=gpu01\nhost_identity=\nprocess=7\ngpu=\n";
    store().set("warpsmith/threads/0/main/first", text.as_bytes(), soon()).unwrap();
    let launch = Launch::threads(2).last().unwrap();
    let error = join(&launch, store(), "main", None, soon()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(RendezvousError::Versions { .. })), "{error}");
    let error = error.to_string();
    assert!(error.contains("rank 0 (process 7 on gpu01) has 0.0.1 (protocol 9)"), "{error}");
}

#[test]
fn two_ranks_on_one_gpu_are_named() {
    let gpu = |last| Some(warpsmith_runtime::Uuid([9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, last]));
    let store = in_memory();
    let outcomes = std::thread::scope(|scope| {
        let gpus = [1, 2, 1];
        let meets = |(launch, last)| {
            let store = store();
            scope.spawn(move || join(&launch, store, "main", gpu(last), soon()))
        };
        let threads: Vec<_> = Launch::threads(3).zip(gpus).map(meets).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for error in errors(outcomes) {
        assert!(error.contains("have the same GPU, GPU-09080706-0504-0302-0100-010203040501"), "{error}");
        assert!(error.contains("rank 0 (process") && error.contains("rank 2 (process"), "{error}");
    }
    let store = in_memory();
    let outcomes = std::thread::scope(|scope| {
        let meets = |launch: Launch| {
            let store = store();
            scope.spawn(move || join(&launch, store, "main", gpu(launch.rank as u8), soon()))
        };
        let threads: Vec<_> = Launch::threads(2).map(meets).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect::<Vec<_>>()
    });
    let member = &outcomes[0].members()[1];
    assert_eq!(member.gpu.as_deref(), Some("GPU-09080706-0504-0302-0100-010203040501"));
}

#[test]
fn foreign_values_are_named() {
    for value in ["nonsense", "rank=x\n", "\u{0}\u{1}"] {
        let store = in_memory();
        store().set("warpsmith/threads/0/main/first", value.as_bytes(), soon()).unwrap();
        let launch = Launch::threads(2).last().unwrap();
        let error = join(&launch, store(), "main", None, soon()).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(CollectiveError::StrangeValue { .. })),
            "{value:?}: {error}"
        );
    }
}

#[test]
fn missing_ranks_are_named_at_the_deadline() {
    let launches: Vec<Launch> = Launch::threads(4).filter(|launch| launch.rank % 2 == 0).collect();
    let began = Instant::now();
    let errors = errors(join_all(launches, in_memory(), within(600)));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let process = std::process::id();
    for error in &errors {
        let error = error.strip_prefix("the rendezvous failed on another rank: ").unwrap_or(error);
        assert!(
            error.starts_with("ranks 1 and 3 of 4 did not arrive within 0.6 s; present: rank 0 "),
            "{error}"
        );
        assert!(error.contains(&format!("rank 2 (process {process} on ")), "{error}");
    }
    assert_eq!(errors.len(), 2);
}

#[test]
fn groups_of_a_run_join_apart() {
    let store = in_memory();
    for group in ["a", "b"] {
        std::thread::scope(|scope| {
            for launch in Launch::threads(2) {
                let store = store();
                scope.spawn(move || join(&launch, store, group, None, soon()).unwrap());
            }
        });
    }
}
