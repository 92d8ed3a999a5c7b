//! Tests of listeners, which receive events from macros, from torch's names, from threads and from `tracing`.

use std::sync::{Arc, Mutex};

use crate::alone::only_alone;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use warpsmith_runtime::ranges::{
    Event, Kind, Label, Listener, Listening, Misuse, Payload, RangeLayer, current, end, listen, mark, nvtx,
    range, start,
};

/// An event: its kind, ID, parent, thread and label.
type Seen = (Kind, u64, Option<u64>, u64, Label);

#[derive(Default, Clone)]
struct Recorder {
    seen: Arc<Mutex<Vec<Seen>>>,
    misuses: Arc<Mutex<Vec<Misuse>>>,
}

impl Listener for Recorder {
    fn event(&self, event: &Event<'_>) {
        let parent = event.parent.map(|parent| parent.get());
        let seen = (event.kind, event.id.get(), parent, event.thread, event.label.clone());
        self.seen.lock().unwrap().push(seen);
    }

    fn misuse(&self, misuse: &Misuse) {
        self.misuses.lock().unwrap().push(misuse.clone());
    }
}

impl Recorder {
    /// Returns the kinds and the names.
    fn names(&self) -> Vec<(Kind, String)> {
        self.seen.lock().unwrap().iter().map(|seen| (seen.0, seen.4.name.to_string())).collect()
    }

    fn misuses(&self) -> Vec<Misuse> {
        self.misuses.lock().unwrap().clone()
    }
}

fn recorder() -> (Recorder, Listening) {
    let recorder = Recorder::default();
    let listening = listen(recorder.clone());
    (recorder, listening)
}

/// Returns the `tracing` messages of this thread while `work` runs.
pub fn warnings(work: impl FnOnce()) -> String {
    struct Messages(Arc<Mutex<String>>);
    struct Text<'a>(&'a mut String);
    impl tracing::field::Visit for Text<'_> {
        fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            self.0.push_str(&format!("{value:?}\n"));
        }
    }
    impl<S: tracing::Subscriber> Layer<S> for Messages {
        fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
            event.record(&mut Text(&mut self.0.lock().unwrap()));
        }
    }
    let text = Arc::new(Mutex::new(String::new()));
    let subscriber = tracing_subscriber::registry().with(Messages(Arc::clone(&text)));
    tracing::subscriber::with_default(subscriber, work);
    std::mem::take(&mut *text.lock().unwrap())
}

#[test]
fn ranges_have_options_parents_and_lines() {
    only_alone!();
    let (recorder, _listening) = recorder();
    let (total, line) = (3, line!() + 1);
    let step = range!("step {} of {total}", 1, color = 0x0000ff, category = "training", payload = 7);
    assert_eq!(current(), step.id());
    mark!("loaded", payload = 0.5,);
    let inner = range!("inner");
    drop(inner);
    drop(step);
    assert_eq!(current(), None);
    let seen = recorder.seen.lock().unwrap().clone();
    let (kind, id, parent, _, label) = &seen[0];
    assert_eq!((*kind, *parent), (Kind::Push, None));
    let expected = Label::new("step 1 of 3").color(0xff00_00ff).category("training").payload(7);
    assert_eq!(*label, expected.at(file!(), line));
    assert_eq!(seen[1].0, Kind::Mark);
    assert_eq!((seen[1].2, seen[1].4.payload), (Some(*id), Payload::Float(0.5)));
    assert_eq!((seen[2].0, seen[2].2), (Kind::Push, Some(*id)));
    assert_eq!((seen[3].0, seen[3].1), (Kind::Pop, seen[2].1));
    assert_eq!((seen[4].0, seen[4].1, &seen[4].4), (Kind::Pop, *id, label));
}

#[test]
fn nothing_is_formatted_when_nothing_listens() {
    only_alone!();
    let evaluated = || -> i32 { panic!("it is evaluated") };
    drop(range!("step {}", evaluated(), payload = evaluated()));
    mark!("{}", evaluated());
    assert_eq!(start(|| panic!("it is evaluated")), None);
}

#[test]
fn wrong_order_is_reported_with_both_ranges() {
    only_alone!();
    let (recorder, _listening) = recorder();
    let outer = range!("outer");
    let inner = range!("inner");
    drop(outer);
    assert_eq!(current(), inner.id());
    drop(inner);
    let names = recorder.names();
    let ends: Vec<_> = names.iter().filter(|(kind, _)| *kind == Kind::Pop).map(|(_, name)| name).collect();
    assert_eq!(ends, ["outer", "inner"]);
    let misuses = recorder.misuses();
    assert!(matches!(misuses[..], [Misuse::OutOfOrder { .. }]), "{misuses:?}");
    let text = misuses[0].to_string();
    assert!(
        text.contains("`outer` (") && text.contains("`inner` (") && text.contains("listening.rs:"),
        "{text}"
    );
}

#[test]
fn pops_on_other_threads_are_reported() {
    only_alone!();
    let (recorder, _listening) = recorder();
    assert_eq!(nvtx::range_push("mine"), 0);
    std::thread::spawn(|| assert_eq!(nvtx::range_pop(), None)).join().unwrap();
    let text = recorder.misuses()[0].to_string();
    assert!(text.contains("has no pushed range"), "{text}");
    assert_eq!(nvtx::range_pop(), Some(0), "it is still open");
}

#[test]
fn depths_are_correct_whether_anything_listens() {
    only_alone!();
    assert_eq!((nvtx::range_push("a"), nvtx::range_push("b")), (0, 1));
    let (recorder, listening) = recorder();
    assert_eq!(nvtx::range_push("c"), 2);
    let guarded = range!("guarded");
    assert_eq!(nvtx::range_push("d"), 4);
    assert_eq!(nvtx::range_pop(), Some(4));
    drop(guarded);
    assert_eq!((nvtx::range_pop(), nvtx::range_pop()), (Some(2), Some(1)));
    drop(listening);
    assert_eq!((nvtx::range_pop(), nvtx::range_pop()), (Some(0), None));
    let pops = recorder.names().into_iter().filter(|(kind, _)| *kind == Kind::Pop);
    assert_eq!(pops.map(|(_, name)| name).collect::<Vec<_>>(), ["d", "guarded", "c"]);
}

#[test]
fn started_ranges_end_once_on_any_thread() {
    only_alone!();
    let (recorder, _listening) = recorder();
    let id = start(|| Label::new("upload"));
    std::thread::spawn(move || end(id)).join().unwrap();
    let seen = recorder.seen.lock().unwrap().clone();
    assert_eq!((seen[0].0, seen[1].0, seen[0].1), (Kind::Start, Kind::End, seen[1].1));
    assert_ne!(seen[0].3, seen[1].3, "the threads");
    end(id);
    assert!(matches!(recorder.misuses()[..], [Misuse::NotStarted { .. }]));
}

#[test]
fn listeners_get_only_ranges_that_they_saw_begin() {
    only_alone!();
    let (first, first_listens) = recorder();
    let before = range!("before");
    let (second, _second_listens) = recorder();
    let inside = range!("inside");
    drop(first_listens);
    drop(inside);
    drop(before);
    assert_eq!(second.names(), [(Kind::Push, "inside".into()), (Kind::Pop, "inside".into())]);
    assert_eq!(first.names(), [(Kind::Push, "before".into()), (Kind::Push, "inside".into())]);
}

#[test]
fn listeners_that_panic_are_removed() {
    struct Panics;
    impl Listener for Panics {
        fn event(&self, _: &Event<'_>) {
            drop(range!("in a listener"));
            panic!("a listener panics");
        }
    }
    only_alone!();
    let _panics = listen(Panics);
    let (recorder, _listening) = recorder();
    let text = warnings(|| drop(range!("range")));
    assert_eq!(text.matches("a listener of ranges panicked and was removed").count(), 1, "{text}");
    assert_eq!(recorder.names(), [(Kind::Push, "range".into()), (Kind::Pop, "range".into())]);
}

#[test]
#[cfg(unix)]
fn forked_processes_have_no_listeners() {
    only_alone!();
    let (recorder, _listening) = recorder();
    let open = range!("open");
    // SAFETY: the copy uses ranges, which hold no locks of the original process, and exits immediately.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(range!("unheard"));
        let unheard = recorder.seen.try_lock().is_ok_and(|seen| seen.len() == 1);
        drop(open);
        let (own, listening) = self::recorder();
        drop(range!("heard"));
        let heard = own.seen.try_lock().is_ok_and(|seen| seen.len() == 2);
        drop(listening);
        // SAFETY: the exit must not run code of the original process.
        unsafe { libc::_exit(i32::from(!(unheard && heard))) };
    }
    let mut status = -1;
    // SAFETY: the child belongs to this process, and the pointer is to a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the copy saw what it should");
    drop(open);
    assert_eq!(recorder.names().len(), 2);
}

#[test]
fn spans_are_ranges_and_events_marks() {
    only_alone!();
    let (recorder, _listening) = recorder();
    let subscriber = tracing_subscriber::registry().with(RangeLayer::new());
    tracing::subscriber::with_default(subscriber, || {
        let span = tracing::info_span!("epoch");
        let _entered = span.enter();
        tracing::info!("loss {}", 0.5);
    });
    let expected =
        [(Kind::Push, "epoch".into()), (Kind::Mark, "loss 0.5".into()), (Kind::Pop, "epoch".into())];
    assert_eq!(recorder.names(), expected);
    let seen = recorder.seen.lock().unwrap();
    assert_eq!((seen[0].4.category, seen[0].4.file), (module_path!(), file!()));
    assert_eq!(seen[1].2, Some(seen[0].1));
}

#[test]
fn spans_are_ranges_of_each_thread_they_enter() {
    only_alone!();
    let (recorder, _listening) = recorder();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(RangeLayer::new()));
    let span = tracing::dispatcher::with_default(&dispatch, || tracing::info_span!("task"));
    std::thread::scope(|scope| {
        let _here = span.enter();
        // The same span is entered on another thread, which also leaves it first.
        scope.spawn(|| drop(span.enter())).join().unwrap();
    });
    let seen = recorder.seen.lock().unwrap().clone();
    let of = |thread: u64| seen.iter().filter(|seen| seen.3 == thread).map(|seen| seen.0).collect::<Vec<_>>();
    assert_eq!(of(seen[0].3), [Kind::Push, Kind::Pop]);
    assert_eq!(of(seen[1].3), [Kind::Push, Kind::Pop]);
    assert_ne!(seen[0].3, seen[1].3);
    assert_eq!(recorder.misuses(), []);
}
