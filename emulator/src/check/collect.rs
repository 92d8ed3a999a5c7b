//! Recipients of a launch's findings: the host thread that enqueued it, or a [`Scope`] of that thread's work.
//!
//! A stream runs a launch later and on another host thread. [`enqueued`] therefore captures the relevant state at
//! enqueue time, namely the recipient of findings and the existing buffers.

use std::cell::{Cell, RefCell};
use std::fs::OpenOptions;
use std::io::Write;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpu_spec::finding::{Finding, Findings};

use super::memory::Buffers;
use super::{is_on, memory, settings};

/// Collector for findings in launches that one host thread or one scope enqueued.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// Enclosing collector of a scope; `None` for a thread's own collector.
    outer: Option<Arc<Collector>>,
    state: Mutex<Collected>,
}

#[derive(Debug, Default)]
struct Collected {
    found: Findings,
    /// True after the scope has ended. Later findings are then added to the outer collector.
    has_ended: bool,
}

thread_local! {
    /// Collector for the work that this thread enqueues.
    static OWN: RefCell<Arc<Collector>> = RefCell::default();
    /// State that was captured when the work that this thread runs was enqueued.
    static RUNNING: RefCell<Option<Enqueued>> = const { RefCell::new(None) };
}

impl Collector {
    fn state(&self) -> MutexGuard<'_, Collected> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a scope handles the findings, so that they are not reported before the scope ends.
    pub fn is_scope(&self) -> bool {
        match &self.outer {
            Some(outer) => !self.state().has_ended || outer.is_scope(),
            None => false,
        }
    }

    /// Adds findings. Reports the findings unless they were already `reported` or a scope handles them.
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

/// Appends a finding to the report file, if the settings specify such a file.
pub(super) fn report(finding: &Finding) {
    if let Ok(Some(settings)) = settings()
        && let Some(path) = &settings.report
    {
        // The launch keeps the finding even if the file cannot be written.
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(format!("{}\n", finding.json()).as_bytes()));
    }
}

/// Adds findings that do not belong to a single launch. If the calling thread runs work that another thread has
/// enqueued, the findings are assigned to that thread, otherwise to the calling thread.
pub fn found(findings: Findings) {
    match running() {
        Some(enqueued) => enqueued.collector.add(findings, false),
        None => OWN.with_borrow(|own| own.add(findings, false)),
    }
}

/// Takes the findings of completed launches that the calling thread enqueued, except findings of a scope that has not
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

/// State captured when work is enqueued.
#[derive(Debug, Clone)]
pub struct Enqueued {
    pub(super) collector: Arc<Collector>,
    pub(super) buffers: Arc<Buffers>,
}

/// Captures the calling thread's state for work that the thread enqueues now; `None` if launches are not checked.
pub fn enqueued() -> Option<Enqueued> {
    is_on().then(|| Enqueued { collector: OWN.with_borrow(Arc::clone), buffers: memory::buffers_now() })
}

impl Enqueued {
    /// Runs the work with the captured state.
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

/// Returns the captured state of the work that this thread runs, if it was enqueued.
pub(super) fn running() -> Option<Enqueued> {
    RUNNING.with_borrow(Clone::clone)
}

/// Scope that collects the findings of launches that its thread enqueues during its lifetime. Collected findings are
/// not errors and are not reported. Findings that were not taken before the scope is dropped become errors and are
/// reported, as they would be without a scope.
#[derive(Debug)]
#[must_use]
pub struct Scope {
    own: Arc<Collector>,
    /// Keeps the scope on the thread that created it.
    _of_thread: PhantomData<Cell<*const ()>>,
}

impl Scope {
    /// Starts a scope; returns `None` if launches are not checked.
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

    /// Takes the findings of the launches that have run.
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
        // Scopes that were started later and still exist end when they are dropped themselves.
        let _ = OWN.try_with(|current| {
            let mut current = current.borrow_mut();
            if Arc::ptr_eq(&current, &self.own) {
                *current = Arc::clone(outer);
            }
        });
    }
}
