//! Who gets the findings of a launch: the host thread that enqueued it, or a [`Scope`] of that thread's work.
//!
//! A stream runs a launch later and on another host thread. So [`enqueued`] keeps what belongs to the moment at which work
//! is enqueued: who gets the findings, and which buffers there are.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_spec::finding::{Finding, Findings};

use super::memory::Buffers;
use super::{is_on, memory, settings};

/// The findings of launches of one host thread, or of a scope.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// What holds the scope; `None` for that of a thread.
    outer: Option<Arc<Collector>>,
    state: Mutex<Collected>,
}

#[derive(Debug, Default)]
struct Collected {
    found: Findings,
    /// The scope has ended: what comes late is for the outer one.
    has_ended: bool,
}

thread_local! {
    /// Gets the findings of what this thread enqueues.
    static OWN: RefCell<Arc<Collector>> = RefCell::default();
    /// Of the work that this thread runs.
    static RUNNING: RefCell<Option<Enqueued>> = const { RefCell::new(None) };
}

impl Collector {
    fn state(&self) -> MutexGuard<'_, Collected> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a scope decides what becomes of findings, so that they are not reported before it ends.
    pub fn is_scope(&self) -> bool {
        match &self.outer {
            Some(outer) => !self.state().has_ended || outer.is_scope(),
            None => false,
        }
    }

    /// Adds findings, and reports them unless they are `reported` or a scope decides.
    pub fn add(&self, found: Findings, reported: bool) {
        if found.is_empty() {
            return;
        }
        let mut state = self.state();
        match &self.outer {
            Some(outer) if state.has_ended => {
                drop(state);
                outer.add(found, reported);
            }
            outer => {
                if outer.is_none() && !reported {
                    found.findings.iter().for_each(report);
                }
                state.found.add(found);
            }
        }
    }
}

/// Appends a finding to the file that the settings name, if they do.
pub(super) fn report(finding: &Finding) {
    if let Ok(Some(settings)) = settings()
        && let Some(path) = &settings.report
    {
        // The launch has the finding, whether the file can be written or not.
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("{}\n", finding.json()).as_bytes()));
    }
}

/// Adds findings that are of no launch alone to those of the thread whose work the calling thread runs, or of the calling one.
pub fn found(findings: Findings) {
    match running() {
        Some(enqueued) => enqueued.collector.add(findings, false),
        None => OWN.with_borrow(|own| own.add(findings, false)),
    }
}

/// Takes the findings in launches that the calling thread has enqueued and that have run, but those of a scope that has not
/// ended.
pub fn take_findings() -> Findings {
    if !is_on() {
        return Findings::default();
    }
    OWN.try_with(|own| {
        let own = own.borrow();
        if own.outer.is_some() { Findings::default() } else { std::mem::take(&mut own.state().found) }
    })
    .unwrap_or_default()
}

/// What belongs to the moment at which work is enqueued.
#[derive(Debug, Clone)]
pub struct Enqueued {
    pub(super) collector: Arc<Collector>,
    pub(super) buffers: Arc<Buffers>,
}

/// The state of the calling thread, for work that it enqueues now; `None` when launches are not checked.
pub fn enqueued() -> Option<Enqueued> {
    is_on().then(|| Enqueued { collector: OWN.with_borrow(Arc::clone), buffers: memory::buffers_now() })
}

impl Enqueued {
    /// Runs the work.
    pub fn run<R>(self, work: impl FnOnce() -> R) -> R {
        struct Restore(Option<Enqueued>);
        impl Drop for Restore {
            fn drop(&mut self) {
                RUNNING.set(self.0.take());
            }
        }
        let _restore = Restore(RUNNING.replace(Some(self)));
        work()
    }
}

/// What belongs to the work that this thread runs, if it was enqueued.
pub(super) fn running() -> Option<Enqueued> {
    RUNNING.with_borrow(Clone::clone)
}

/// While it lives, it has the findings in launches that its thread enqueues: they are no errors, and are not reported. What
/// was not taken when it is dropped is an error and reported, as without it.
#[derive(Debug)]
#[must_use]
pub struct Scope {
    own: Arc<Collector>,
    /// It is dropped on its thread.
    _of_thread: PhantomData<Cell<*const ()>>,
}

impl Scope {
    /// Begins a scope; `None` when launches are not checked.
    pub fn begin() -> Option<Self> {
        is_on().then(|| {
            let own = OWN.with_borrow_mut(|current| {
                let own = Collector { outer: Some(Arc::clone(current)), ..Collector::default() };
                *current = Arc::new(own);
                Arc::clone(current)
            });
            Self { own, _of_thread: PhantomData }
        })
    }

    /// Takes the findings in the launches that have run.
    pub fn take(&self) -> Findings {
        std::mem::take(&mut self.own.state().found)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let found = {
            let mut state = self.own.state();
            state.has_ended = true;
            std::mem::take(&mut state.found)
        };
        let Some(outer) = &self.own.outer else { return };
        outer.add(found, false);
        // Scopes that began later and are still there are ended by their own drop.
        let _ = OWN.try_with(|current| {
            let mut current = current.borrow_mut();
            if Arc::ptr_eq(&current, &self.own) {
                *current = Arc::clone(outer);
            }
        });
    }
}
