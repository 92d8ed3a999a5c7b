//! The store that an environment specifies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_collective::rendezvous::{RendezvousError, join};
use warpsmith_collective::{CollectiveError, Launch, Store};

use crate::{server, soon, within};

/// Returns the launch of one of two ranks, with the address of the store and further variables.
fn launch(rank: usize, address: &str, more: &[(&str, &str)]) -> Launch {
    let rank = rank.to_string();
    let own = [("RANK", rank.as_str()), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("STORE", address)];
    let variables: BTreeMap<String, String> = own
        .iter()
        .chain(more)
        .map(|(name, value)| (format!("WARPSMITH_{name}"), (*value).to_owned()))
        .collect();
    Launch::from_variables(&variables, None).unwrap()
}

/// Returns an address with a port that is currently free.
fn free() -> String {
    server(None).address().to_string()
}

#[test]
fn rank_0_serves_the_store() {
    for more in [&[][..], &[("TOKEN", "secret")]] {
        let address = free();
        std::thread::scope(|scope| {
            for rank in [1, 0] {
                let launch = launch(rank, &address, more);
                scope.spawn(move || {
                    let store = launch.store(soon()).unwrap();
                    let rendezvous = join(&launch, store.shared(), "main", None, soon()).unwrap();
                    assert_eq!(rendezvous.members().len(), 2);
                    if launch.rank == 1 {
                        std::thread::sleep(Duration::from_millis(100));
                        // Rank 0 has reached its end, but continues to serve the store.
                        rendezvous.store().set("late", b"", soon()).unwrap();
                    }
                    store.finish(soon()).unwrap();
                });
            }
        });
    }
}

/// Runs two threads that rendezvous through the store at this address, and finish their use of the store.
fn two_ranks_join(address: &str) {
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            let launch = launch(rank, address, &[]);
            scope.spawn(move || {
                let store = launch.store(soon()).unwrap();
                join(&launch, store.shared(), "main", None, soon()).unwrap();
                store.finish(soon()).unwrap();
            });
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn ranks_join_by_the_name_of_the_host() {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let port = free().rsplit_once(':').unwrap().1.to_owned();
    let address = format!("{}:{port}", name.trim());
    two_ranks_join(&address);
}

#[test]
fn a_process_alone_needs_no_store() {
    let launch = Launch::single();
    let store = launch.store(soon()).unwrap();
    assert_eq!(join(&launch, store.shared(), "main", None, soon()).unwrap().members().len(), 1);
    assert_eq!(store.add("n", 1, soon()).unwrap(), 1);
    store.finish(soon()).unwrap();
    let mut two = launch;
    two.world_size = 2;
    let error = two.store(soon()).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(CollectiveError::NoStore { rank: 0, world_size: 2 })),
        "{error}"
    );
}

#[test]
fn a_port_in_use_and_a_foreign_host_are_named() {
    let taken = server(None);
    let error = launch(0, &taken.address().to_string(), &[]).store(soon()).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(CollectiveError::Listen { .. }))
            && error.to_string().contains("in use"),
        "{error}"
    );
    let error = launch(0, "192.0.2.1:4711", &[]).store(soon()).unwrap_err().to_string();
    assert!(error.contains("192.0.2.1:4711 is not an address of this host"), "{error}");
    let error = launch(0, "no-such-host.invalid:4711", &[]).store(soon()).unwrap_err().to_string();
    assert!(error.contains("`no-such-host.invalid` has no address"), "{error}");
}

#[test]
fn another_runs_store_is_named() {
    let other = server(Some("of another run"));
    let own = [("TOKEN", "of this run"), ("STORE_SERVER", "launcher")];
    let error = launch(1, &other.address().to_string(), &own).store(soon()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(CollectiveError::WrongToken { .. })), "{error}");
}

#[test]
fn a_rank_that_leaves_without_finishing_has_failed() {
    let server = server(None);
    let address = server.address().to_string();
    let launches = [0, 1].map(|rank| launch(rank, &address, &[("STORE_SERVER", "launcher")]));
    let [first, second] = &launches;
    let stays = first.store(soon()).unwrap();
    let waits = std::thread::scope(|scope| {
        let waits = scope.spawn(|| join(first, stays.shared(), "main", None, soon()));
        let leaves = second.store(soon()).unwrap();
        let began = Instant::now();
        drop(leaves);
        let outcome = waits.join().unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        outcome
    });
    let error = waits.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(RendezvousError::RankFailed { rank: 1, .. })), "{error}");
    assert_eq!(error.to_string(), "rank 1 has ended");
}

#[test]
fn finishing_does_not_wait_for_ranks_that_ended() {
    let address = free();
    let launches = [0, 1].map(|rank| launch(rank, &address, &[]));
    let serves = launches[0].store(soon()).unwrap();
    drop(launches[1].store(soon()).unwrap());
    let began = Instant::now();
    serves.finish(soon()).unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // Rank 0 waits for a rank that never arrives.
    let serves = launches[0].store(soon()).unwrap();
    assert!(matches!(
        serves.finish(within(200)).unwrap_err().downcast_ref(),
        Some(CollectiveError::StoreTimeout { .. })
    ));
}

#[test]
fn the_store_outlives_a_lost_rank_for_others() {
    let address = free();
    let size = [("WORLD_SIZE", "3")];
    let [serves, survives, lost] = [0, 1, 2].map(|rank| launch(rank, &address, &size).store(soon()));
    let (serves, survives) = (serves.unwrap(), survives.unwrap());
    drop(lost.unwrap());
    std::thread::scope(|scope| {
        let finishes = scope.spawn(|| serves.finish(soon()));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!finishes.is_finished());
        survives.set("late", b"", soon()).unwrap();
        survives.finish(soon()).unwrap();
        finishes.join().unwrap().unwrap();
    });
}

#[test]
fn finishing_names_the_ranks_waited_for() {
    let address = free();
    let size = [("WORLD_SIZE", "4")];
    let [serves, stays, lost, finishes] =
        [0, 1, 2, 3].map(|rank| launch(rank, &address, &size).store(soon()).unwrap());
    drop(lost);
    finishes.finish(soon()).unwrap();
    let error = serves.finish(within(200)).unwrap_err();
    assert!(
        matches!(error.downcast_ref(), Some(CollectiveError::StoreTimeout { key }) if key == "finished/1"),
        "{error}"
    );
    drop(stays);
}

#[test]
fn a_store_that_is_shared_outlives_its_owner() {
    let launch = Launch::single();
    let shared: Arc<dyn Store> = launch.store(soon()).unwrap().shared();
    shared.set("key", b"value", soon()).unwrap();
    assert_eq!(shared.get("key", soon()).unwrap(), b"value");
}
