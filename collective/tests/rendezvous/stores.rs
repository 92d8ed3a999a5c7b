//! All stores must behave identically.

use std::sync::Arc;
use std::time::Instant;

use warpsmith_collective::CollectiveError;
use warpsmith_collective::store::{LONGEST_KEY, LONGEST_VALUE, MemoryStore, PrefixStore, Store};

use crate::{client, server, soon, within};

/// Runs a test with each kind of store.
fn with_each(test: impl Fn(&str, Arc<dyn Store>)) {
    test("memory", Arc::new(MemoryStore::new()));
    let server = server(None);
    test("tcp", Arc::new(client(&server)));
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    memory.set("key", b"outside", soon()).unwrap();
    test("prefix", Arc::new(PrefixStore::new("of/a run", memory.clone())));
    assert_eq!(memory.get("key", soon()).unwrap(), b"outside");
}

#[test]
fn values_are_set_and_got() {
    with_each(|kind, store| {
        store.set("key", b"one", soon()).unwrap();
        store.set("key", b"\0two\xff", soon()).unwrap();
        store.set("empty", b"", soon()).unwrap();
        assert_eq!(store.get("key", soon()).unwrap(), b"\0two\xff", "{kind}");
        assert_eq!(store.get("empty", soon()).unwrap(), b"", "{kind}");
        assert!(store.contains(&["key", "empty"], soon()).unwrap(), "{kind}");
        assert!(!store.contains(&["key", "other"], soon()).unwrap(), "{kind}");
        assert!(store.delete("key", soon()).unwrap() && !store.delete("key", soon()).unwrap(), "{kind}");
        assert!(!store.contains(&["key"], soon()).unwrap(), "{kind}");
    });
}

#[test]
fn a_get_waits_for_the_value() {
    with_each(|kind, store| {
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| store.get("late", soon()).unwrap());
            let waits_for_all = scope.spawn(|| store.wait(&["late", "later"], soon()).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(50));
            store.set("late", b"here", soon()).unwrap();
            assert_eq!(waits.join().unwrap(), b"here", "{kind}");
            assert!(!waits_for_all.is_finished(), "{kind}");
            assert_eq!(store.add("later", 1, soon()).unwrap(), 1, "{kind}");
            waits_for_all.join().unwrap();
        });
    });
}

#[test]
fn a_missing_key_is_named_at_the_deadline() {
    with_each(|kind, store| {
        let began = Instant::now();
        let error = store.get("missing", within(120)).unwrap_err();
        let took = began.elapsed().as_millis();
        assert!(
            matches!(error.downcast_ref(), Some(CollectiveError::StoreTimeout { key }) if key.ends_with("missing")),
            "{kind}: {error}"
        );
        assert!((120..2000).contains(&took), "{kind}: {took} ms");
        assert!(
            matches!(
                store.wait(&["a", "b"], within(20)).unwrap_err().downcast_ref(),
                Some(CollectiveError::StoreTimeout { .. })
            ),
            "{kind}"
        );
        // A wait that fails must not affect later operations.
        store.set("missing", b"now", soon()).unwrap();
        assert_eq!(store.get("missing", soon()).unwrap(), b"now", "{kind}");
        assert!(!store.contains(&["a"], soon()).unwrap(), "{kind}");
    });
}

#[test]
fn numbers_are_added() {
    with_each(|kind, store| {
        assert_eq!(store.add("n", 5, soon()).unwrap(), 5, "{kind}");
        assert_eq!(store.add("n", -7, soon()).unwrap(), -2, "{kind}");
        assert_eq!(store.get("n", soon()).unwrap(), b"-2", "{kind}");
        store.set("n", b"x", soon()).unwrap();
        let error = store.add("n", 1, soon()).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CollectiveError::NotANumber { .. })), "{kind}: {error}");
        assert_eq!(store.get("n", soon()).unwrap(), b"x", "{kind}");
    });
}

#[test]
fn values_are_compared_and_set() {
    with_each(|kind, store| {
        let swap =
            |expected: &[u8], desired: &[u8]| store.compare_set("k", expected, desired, soon()).unwrap();
        assert_eq!(swap(b"a", b"b"), b"", "{kind}: it is not set");
        assert_eq!(swap(b"a", b"a"), b"", "{kind}: it is not set");
        assert_eq!(swap(b"", b"a"), b"a", "{kind}");
        assert_eq!(swap(b"", b"b"), b"a", "{kind}");
        assert_eq!(swap(b"b", b"c"), b"a", "{kind}");
        assert_eq!(swap(b"a", b"a"), b"a", "{kind}");
        assert_eq!(swap(b"a", b"c"), b"c", "{kind}");
        store.set("k", b"", soon()).unwrap();
        assert_eq!(swap(b"", b"d"), b"d", "{kind}: its value is what was expected");
    });
}

#[test]
fn only_one_of_several_claims_a_key() {
    with_each(|kind, store| {
        let claims = || (0..4).map(|rank: usize| rank.to_string());
        std::thread::scope(|scope| {
            let store = &store;
            let claimed: Vec<_> = claims()
                .map(|own| {
                    scope.spawn(move || store.compare_set("claim", b"", own.as_bytes(), soon()).unwrap())
                })
                .collect();
            let sums: Vec<_> =
                claims().map(|_| scope.spawn(|| store.add("sum", 1, soon()).unwrap())).collect();
            let claimed: Vec<_> = claimed.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(claimed.iter().all(|winner| winner == &claimed[0]), "{kind}: {claimed:?}");
            let mut sums: Vec<_> = sums.into_iter().map(|thread| thread.join().unwrap()).collect();
            sums.sort_unstable();
            assert_eq!(sums, [1, 2, 3, 4], "{kind}");
        });
    });
}

#[test]
fn too_long_keys_and_values_are_refused() {
    with_each(|kind, store| {
        let value = vec![7; LONGEST_VALUE];
        store.set("long", &value, soon()).unwrap();
        assert_eq!(store.get("long", soon()).unwrap(), value, "{kind}");
        let error = store.set("long", &vec![7; LONGEST_VALUE + 1], soon()).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(CollectiveError::TooLong { what: "value", .. })),
            "{kind}: {error}"
        );
        let error = store.compare_set("k", b"", &vec![7; LONGEST_VALUE + 1], soon()).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(CollectiveError::TooLong { .. })), "{kind}: {error}");
        let key = "k".repeat(LONGEST_KEY + 1);
        let error = store.set(&key, b"", soon()).unwrap_err();
        assert!(
            matches!(error.downcast_ref(), Some(CollectiveError::TooLong { what: "key", .. })),
            "{kind}: {error}"
        );
        if kind != "prefix" {
            store.set(&key[1..], b"v", soon()).unwrap();
            assert_eq!(store.get(&key[1..], soon()).unwrap(), b"v", "{kind}");
        }
    });
}
