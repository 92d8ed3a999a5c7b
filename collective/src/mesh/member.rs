//! [`Member`]: a rank's own endpoint of a mesh, to which the other ranks deliver frames.
//!
//! A member keeps delivered frames, in the order in which each sender sent them, until they are taken. For each sender
//! and lane, it keeps at most [`WINDOW`] parts. The first failure is final.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::frame::{Frame, Lane, Part};
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::recorder::{Progress, Recorder};

/// Maximum number of parts per lane that have been sent to a rank but not yet consumed.
pub(super) const WINDOW: usize = 4;
/// Maximum number of announcements from a rank that have not yet been taken. No rank is ever ahead by more than one
/// operation.
const MAX_ANNOUNCED: usize = 4;

/// Data received from one rank.
#[derive(Debug)]
pub(super) struct Peer {
    pub parts: [VecDeque<Part>; Lane::ALL.len()],
    /// Credits per lane: the number of parts that may be sent to the rank.
    pub credits: [usize; Lane::ALL.len()],
    pub announced: VecDeque<Fingerprint>,
    pub answer: Option<Box<Progress>>,
    pub left: bool,
}

#[derive(Debug)]
pub(super) struct State {
    pub peers: Vec<Peer>,
    pub failure: Option<Failure>,
    /// True if a thread is about to set the failure.
    is_failing: bool,
    /// Version number, incremented by every change.
    version: u64,
}

/// A rank's own endpoint of a mesh. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Member {
    pub rank: usize,
    pub recorder: Recorder,
    /// ID of this member, unique within the process.
    pub number: u64,
    state: Mutex<State>,
    changed: Condvar,
}

/// Members of this process, which ranks in other threads look up here.
static MEMBERS: Mutex<Option<HashMap<u64, Weak<Member>>>> = Mutex::new(None);

/// Reason why a wait ended without a result.
#[derive(Debug)]
pub(crate) enum Stop {
    Failed(Failure),
    Deadline,
}

impl Member {
    pub fn new(rank: usize, world: usize, recorder: Recorder) -> Arc<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let peer = || {
            let (parts, announced) = (Lane::ALL.map(|_| VecDeque::new()), VecDeque::new());
            Peer { parts, credits: Lane::ALL.map(|_| WINDOW), announced, answer: None, left: false }
        };
        let peers = std::iter::repeat_with(peer).take(world).collect();
        let state = Mutex::new(State { peers, failure: None, is_failing: false, version: 0 });
        let member = Arc::new(Self { rank, recorder, number, state, changed: Condvar::new() });
        let mut members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        members.get_or_insert_default().insert(number, Arc::downgrade(&member));
        member
    }

    /// Returns the member with this number, if it belongs to this process.
    pub fn find(number: u64) -> Option<Arc<Self>> {
        let members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        members.as_ref()?.get(&number)?.upgrade()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes all waiting threads.
    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let result = change(&mut state);
        state.version += 1;
        self.changed.notify_all();
        result
    }

    /// Returns true if the caller is the first to report a failure. The caller must then call [`Self::fail`].
    pub fn begins_to_fail(&self) -> bool {
        let mut state = self.state();
        let is_first = state.failure.is_none() && !state.is_failing;
        state.is_failing = true;
        is_first
    }

    /// Records a failure, unless one is already recorded.
    pub fn fail(&self, failure: Failure) {
        self.change(|state| {
            state.failure.get_or_insert(failure);
        });
    }

    pub fn failure(&self) -> Option<Failure> {
        self.state().failure.clone()
    }

    /// Accepts a frame of any kind except [`Frame::Ask`] from another rank. If the frame is invalid, fails with a
    /// description of the problem.
    pub fn deliver(&self, from: usize, frame: Frame) -> Result<(), &'static str> {
        self.change(|state| {
            let peer = &mut state.peers[from];
            match frame {
                Frame::Part(lane, part) => {
                    if peer.parts[lane as usize].len() == WINDOW {
                        return Err("it sent more than the receive window allows");
                    }
                    peer.parts[lane as usize].push_back(part);
                }
                Frame::Credit(lane) => {
                    if peer.credits[lane as usize] == WINDOW {
                        return Err("it acknowledges more than was sent");
                    }
                    peer.credits[lane as usize] += 1;
                }
                Frame::Announce(fingerprint) => {
                    if peer.announced.len() == MAX_ANNOUNCED {
                        return Err("it announces too many operations");
                    }
                    peer.announced.push_back(fingerprint);
                }
                Frame::Answer(progress) => peer.answer = Some(progress),
                Frame::Failed(failure) => {
                    state.failure.get_or_insert(failure);
                }
                Frame::Goodbye => peer.left = true,
                Frame::Ask => return Err("`Ask` frames must be answered, not delivered"),
            }
            Ok(())
        })
    }

    /// Waits until `ready` returns a result. A failure takes precedence.
    pub(super) fn wait<R>(
        &self,
        deadline: Instant,
        mut ready: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Stop> {
        let mut state = self.state();
        loop {
            if let Some(failure) = &state.failure {
                return Err(Stop::Failed(failure.clone()));
            }
            if let Some(result) = ready(&mut state) {
                return Ok(result);
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(Stop::Deadline);
            }
            let waited = self.changed.wait_timeout(state, deadline - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Wakes the threads that wait for a change.
    pub fn wake(&self) {
        self.change(|_| {});
    }

    /// Returns the current version of the state.
    pub fn version(&self) -> u64 {
        self.state().version
    }

    /// Waits until the version of the state is no longer `version`.
    pub fn wait_change(&self, version: u64, deadline: Instant) -> Result<(), Stop> {
        self.wait(deadline, |state| (state.version != version).then_some(()))
    }

    /// Takes the next part received from a rank, if one has arrived.
    pub fn take_part(&self, from: usize, lane: Lane) -> Option<Part> {
        self.state().peers[from].parts[lane as usize].pop_front()
    }

    /// Takes a credit for sending one part to a rank, if one is available.
    pub fn take_credit(&self, to: usize, lane: Lane) -> bool {
        let credits = &mut self.state().peers[to].credits[lane as usize];
        let taken = *credits > 0;
        *credits -= usize::from(taken);
        taken
    }

    /// Returns whether a rank has left and all parts received from it have been taken.
    pub fn has_left(&self, rank: usize, lane: Lane) -> bool {
        let state = self.state();
        state.peers[rank].left && state.peers[rank].parts[lane as usize].is_empty()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = MEMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(members) = members.as_mut() {
            members.remove(&self.number);
        }
    }
}
