//! Counter sessions of the process, identified by their contexts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::Session;
use crate::Context;

type Sessions = HashMap<u64, Arc<Mutex<Session>>>;

static SESSIONS: Mutex<Option<Sessions>> = Mutex::new(None);

fn sessions() -> MutexGuard<'static, Option<Sessions>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a context has a session.
pub(in crate::cuda) fn is_open() -> bool {
    sessions().as_ref().is_some_and(|sessions| !sessions.is_empty())
}

/// Returns the session of a context.
pub(super) fn of(context: Context) -> Option<Arc<Mutex<Session>>> {
    sessions().as_ref()?.get(&context.0).cloned()
}

pub(super) fn add(context: Context, session: Session) {
    sessions().get_or_insert_default().insert(context.0, Arc::new(Mutex::new(session)));
}

pub(super) fn remove(context: Context) -> Option<Arc<Mutex<Session>>> {
    sessions().as_mut()?.remove(&context.0)
}
