//! Tests of the shared parts of the stream pools under every interleaving (`loom`). Handles must be counted correctly,
//! the owner must live exactly as long as it or its handles exist, and each slot must be created only once.
//!
//! The modules are compiled against loom's atomics and locks instead of those of the standard library.

mod sync {
    pub(crate) use loom::sync::Mutex;
    pub(crate) use loom::sync::atomic::{AtomicUsize, Ordering};
}

#[path = "../../src/stream/handles.rs"]
mod handles;
#[path = "../../src/stream/round_robin.rs"]
mod slots;

use std::convert::Infallible;

use handles::HandleCount;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use slots::RoundRobin;

/// A device, which owns a kept stream. The holders of handles to either own the device.
struct Owner {
    count: HandleCount,
    /// Set to false when the owner is dropped. No thread may access it at that time.
    alive: UnsafeCell<bool>,
}

impl Owner {
    fn new() -> Arc<Self> {
        Arc::new(Self { count: HandleCount::new(0), alive: UnsafeCell::new(true) })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: loom checks that no other thread reads the value concurrently or afterwards.
        self.alive.with_mut(|alive| unsafe { *alive = false });
    }
}

/// A handle to the kept stream.
struct Handle(*const Owner);

// SAFETY: the handle is a counted pointer.
unsafe impl Send for Handle {}

impl Handle {
    fn first(owner: &Arc<Owner>) -> Self {
        if owner.count.add_first() {
            std::mem::forget(Arc::clone(owner));
        }
        Self(Arc::as_ptr(owner))
    }

    fn use_it(&self) {
        // SAFETY: the handles together own one count of the owner.
        let alive = unsafe { &(*self.0).alive };
        // SAFETY: loom checks that no thread writes the value concurrently.
        assert!(alive.with(|alive| unsafe { *alive }));
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        // SAFETY: this handle keeps the owner alive.
        unsafe { (*self.0).count.add() };
        Self(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this handle keeps the owner alive until its count is returned.
        if unsafe { (*self.0).count.remove() } {
            // SAFETY: the count belongs to the handles, and was acquired with the first one.
            drop(unsafe { Arc::from_raw(self.0) });
        }
    }
}

#[test]
fn an_owner_lives_while_handles_come_and_go() {
    loom::model(|| {
        let owner = Owner::new();
        let other = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || {
                let handle = Handle::first(&owner);
                drop(owner);
                handle.use_it();
                drop(handle.clone());
                handle.use_it();
            })
        };
        let handle = Handle::first(&owner);
        drop(owner);
        handle.use_it();
        drop(handle);
        other.join().unwrap();
    });
}

#[test]
fn a_moved_handle_keeps_the_owner() {
    loom::model(|| {
        let owner = Owner::new();
        let handle = Handle::first(&owner);
        let moved = handle.clone();
        let other = thread::spawn(move || moved.use_it());
        drop(handle);
        // The owner is dropped while the other thread may still use it.
        drop(owner);
        other.join().unwrap();
    });
}

#[test]
fn an_adopted_stream_is_found_while_it_lives() {
    loom::model(|| {
        let count = Arc::new(HandleCount::new(1));
        let ended = Arc::new(AtomicUsize::new(0));
        let dropper = {
            let (count, ended) = (Arc::clone(&count), Arc::clone(&ended));
            thread::spawn(move || {
                if count.remove() {
                    ended.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        if count.add_unless_none() {
            assert_eq!(ended.load(Ordering::SeqCst), 0, "it does not end while there is a handle");
            if count.remove() {
                ended.fetch_add(1, Ordering::SeqCst);
            }
        }
        dropper.join().unwrap();
        assert_eq!(ended.load(Ordering::SeqCst), 1, "it ends once");
        assert!(!count.add_unless_none());
    });
}

#[test]
fn slots_are_made_once_and_used_in_turn() {
    loom::model(|| {
        let slots = Arc::new(RoundRobin::<usize, 2>::new());
        let made = Arc::new(AtomicUsize::new(0));
        let take = |slots: &RoundRobin<usize, 2>, made: &AtomicUsize| {
            *slots.next(|| Ok::<_, Infallible>(made.fetch_add(1, Ordering::Relaxed))).unwrap()
        };
        let other = {
            let (slots, made) = (Arc::clone(&slots), Arc::clone(&made));
            thread::spawn(move || (take(&slots, &made), take(&slots, &made)))
        };
        let own = take(&slots, &made);
        let (first, second) = other.join().unwrap();
        assert_eq!(made.load(Ordering::Relaxed), 2, "three turns, two slots");
        assert!(own < 2 && first < 2 && second < 2);
        let mut all = [own, first, second];
        all.sort_unstable();
        assert!(all == [0, 0, 1] || all == [0, 1, 1], "each slot had its turn: {all:?}");
    });
}

#[test]
fn a_failed_slot_is_tried_next_turn() {
    loom::model(|| {
        let mut slots = RoundRobin::<usize, 1>::new();
        assert_eq!(slots.next(|| Err("no")).unwrap_err(), "no");
        assert_eq!(slots.next(|| Ok::<_, &str>(7)), Ok(&7));
        assert_eq!(slots.take().collect::<Vec<_>>(), [7]);
        assert_eq!(slots.take().count(), 0);
    });
}
