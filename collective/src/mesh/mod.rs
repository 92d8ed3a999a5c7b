//! [`Mesh`]: the connections between all ranks of a communicator, in memory or over sockets, and their protocol.
//!
//! Every backend has a mesh. The ranks use it to notify each other of failures, aborts and shutdowns, and to compare
//! their calls. The Host backend also transfers data over the mesh.
//!
//! Frames from one rank arrive in order. The end of a process is detected immediately, because its connections close.
//! The first failure is sent to all ranks and is final. No call exceeds its deadline by more than one second.

mod connect;
mod frame;
mod hello;
mod member;
mod process;
mod wire;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(crate) use self::connect::{Bootstrap, DeviceFacts, connect};
pub(crate) use self::frame::{CHUNK, Frame, Lane, Part};
pub(crate) use self::member::{Member, Stop};
use self::wire::{Unsent, Wire};
use crate::failure::{CommunicatorError, Failure};
use crate::fingerprint::Fingerprint;
use crate::recorder::{FlightRecord, Progress};
use crate::store::Token;

/// Time limit within which a rank must report its progress.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// Time to wait for the cause of a failure after a connection has broken.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Connections among all ranks of a communicator. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct Mesh {
    pub name: String,
    /// Identifier of this communicator. Unlike the name, the ID is unique among all past and future communicators that
    /// use the store.
    pub id: String,
    pub member: Arc<Member>,
    /// Address at which the other ranks reach this rank; `None` for the loopback interface.
    pub address: Option<IpAddr>,
    /// Connections, one per rank.
    wires: Vec<Wire>,
    /// Process and host of each rank, for error messages.
    identities: Vec<String>,
    /// File to which the flight record is written at the first failure.
    dump_to: Mutex<Option<PathBuf>>,
    has_left: AtomicBool,
}

impl Mesh {
    pub fn rank(&self) -> usize {
        self.member.rank
    }

    pub fn world(&self) -> usize {
        self.wires.len()
    }

    /// Returns all ranks except this one.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank();
        (0..self.world()).filter(move |other| *other != rank)
    }

    /// Returns whether another rank runs in this process.
    pub fn shares_process(&self) -> bool {
        self.others().any(|other| self.is_of_process(other))
    }

    /// Returns whether the given rank runs in this process.
    pub fn is_of_process(&self, rank: usize) -> bool {
        matches!(self.wires[rank], Wire::Memory(_))
    }

    /// Returns the failure if one occurs within the given time.
    pub fn failure_within(&self, time: Duration) -> Option<Failure> {
        match self.member.wait(Instant::now() + time, |_| None::<()>) {
            Err(Stop::Failed(failure)) => Some(failure),
            _ => None,
        }
    }

    /// Creates the error that a call on this rank returns.
    pub fn error(&self, operation: Option<Fingerprint>, failure: Failure) -> Box<CommunicatorError> {
        Box::new(CommunicatorError { rank: self.rank(), communicator: self.name.clone(), operation, failure })
    }

    /// Returns the contents of the flight recorder.
    pub fn record(&self) -> FlightRecord {
        FlightRecord {
            communicator: self.name.clone(),
            rank: self.rank(),
            world_size: self.world(),
            failure: self.member.failure().map(|failure| failure.to_string()),
            operations: self.member.recorder.operations(),
        }
    }

    /// Writes the flight record. Only the first call has an effect.
    pub fn dump(&self) {
        let Some(file) = self.dump_to.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if let Err(error) = replace(&file, &self.record().to_json()) {
            tracing::warn!("cannot write the flight record to {}: {error}", file.display());
        }
    }

    /// Sends a frame of any kind except [`Frame::Ask`].
    pub fn send(&self, to: usize, frame: Frame, deadline: Instant) -> Result<(), Stop> {
        let refused = |why: &str| Stop::Failed(self.fail(Failure::Lost { rank: to, reason: why.to_owned() }));
        match &self.wires[to] {
            Wire::Memory(member) => member.deliver(self.rank(), frame).map_err(refused),
            Wire::Socket(connection) => {
                match connection.send(&frame, deadline, || self.member.failure().is_none()) {
                    Ok(()) => Ok(()),
                    Err(Unsent::Deadline) => Err(self.stop()),
                    Err(Unsent::Closed(why)) => self.closed(to, &frame, &why),
                }
            }
        }
    }

    /// Returns the communicator's failure, if any; otherwise reports that the deadline was missed.
    fn stop(&self) -> Stop {
        self.member.failure().map_or(Stop::Deadline, Stop::Failed)
    }

    /// Handles a frame that was not sent because the connection is closed. The other rank may have sent the cause
    /// before it closed the connection.
    fn closed(&self, to: usize, frame: &Frame, why: &str) -> Result<(), Stop> {
        let said = Instant::now() + LAST_WORDS;
        match self.member.wait(said, |state| state.peers[to].left.then_some(())) {
            Err(Stop::Failed(failure)) => Err(Stop::Failed(failure)),
            // A rank that has left needs no credits.
            Ok(()) if matches!(frame, Frame::Credit(_)) => Ok(()),
            Ok(()) => Err(Stop::Failed(self.fail(Failure::Left { rank: to }))),
            Err(Stop::Deadline) => Err(Stop::Failed(self.lost(to, why))),
        }
    }

    /// Fails the communicator because the connection to a rank is lost.
    fn lost(&self, rank: usize, why: &str) -> Failure {
        let reason = format!("{}: its connection is closed ({why})", self.identities[rank]);
        self.fail(Failure::Lost { rank, reason })
    }

    /// Fails the communicator, first on all reachable ranks and then on this one. This way, the other ranks have
    /// already been notified if the program exits when it receives the failure. Returns the first failure of the
    /// communicator, which is the one that all ranks report.
    pub fn fail(&self, failure: Failure) -> Failure {
        if self.member.begins_to_fail() {
            tracing::error!(communicator = self.name, rank = self.rank(), "{failure}");
            for (rank, wire) in self.wires.iter().enumerate() {
                match wire {
                    Wire::Memory(member) if rank != self.rank() => {
                        // Delivery cannot fail, because a member accepts every failure.
                        let _ = member.deliver(self.rank(), Frame::Failed(failure.clone()));
                    }
                    Wire::Memory(_) => {}
                    Wire::Socket(connection) => connection.send_last(&Frame::Failed(failure.clone())),
                }
            }
            self.member.fail(failure.clone());
        }
        // Another thread may be about to record its failure.
        self.failure_within(ANSWER_TIME).unwrap_or(failure)
    }

    /// Asks the given ranks concurrently for their progress. The entry of a rank that does not respond is `None`.
    pub fn ask(&self, ranks: &[usize]) -> Vec<Option<Progress>> {
        let deadline = Instant::now() + ANSWER_TIME;
        ranks.iter().for_each(|rank| self.member.state().peers[*rank].answer = None);
        let is_asked = |rank: &&usize| match &self.wires[**rank] {
            Wire::Memory(_) => false,
            Wire::Socket(connection) => connection.send_now(&Frame::Ask),
        };
        let asked: Vec<usize> = ranks.iter().filter(is_asked).copied().collect();
        // Responses that have arrived before a failure or the deadline are still used.
        let _ = self.member.wait(deadline, |state| {
            let is_heard = |rank: &usize| state.peers[*rank].answer.is_some() || state.peers[*rank].left;
            asked.iter().all(is_heard).then_some(())
        });
        let answer = |rank: &usize| match &self.wires[*rank] {
            Wire::Memory(member) => Some(member.recorder.progress()),
            Wire::Socket(_) => self.member.state().peers[*rank].answer.take().map(|progress| *progress),
        };
        ranks.iter().map(answer).collect()
    }

    /// Announces the operation that this rank will run next, and compares it with the announcements of all other ranks.
    pub fn compare(&self, operation: &Fingerprint, deadline: Instant) -> Result<(), Stop> {
        self.announce(operation, deadline)?;
        self.others().try_for_each(|rank| self.hear(rank, operation, deadline))
    }

    /// Announces the operation that this rank will run next.
    fn announce(&self, operation: &Fingerprint, deadline: Instant) -> Result<(), Stop> {
        self.others().try_for_each(|rank| self.send(rank, Frame::Announce(operation.clone()), deadline))
    }

    /// Compares the operation that this rank announced with the one that another rank announced.
    fn hear(&self, rank: usize, operation: &Fingerprint, deadline: Instant) -> Result<(), Stop> {
        let announced = self.member.wait(deadline, |state| {
            let peer = &mut state.peers[rank];
            peer.announced.pop_front().map(Some).or_else(|| peer.left.then_some(None))
        })?;
        match announced {
            None => Err(Stop::Failed(self.fail(Failure::Left { rank }))),
            Some(theirs) if !theirs.matches(operation) => {
                Err(Stop::Failed(self.mismatch(operation, rank, theirs)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Fails the communicator because this rank and another rank have called different operations.
    pub fn mismatch(&self, ours: &Fingerprint, rank: usize, theirs: Fingerprint) -> Failure {
        let (left, right) = ((self.rank(), ours.clone()), (rank, theirs));
        let (left, right) = if left.0 < right.0 { (left, right) } else { (right, left) };
        self.fail(Failure::Mismatch { left: Box::new(left), right: Box::new(right) })
    }

    /// Fails the communicator because this rank timed out while waiting for other ranks. First asks these ranks for
    /// their progress.
    pub fn timed_out(&self, operation: &Fingerprint, waited: Duration, silent: &[usize]) -> Failure {
        let mut peers = Vec::with_capacity(silent.len());
        let mut are_there = true;
        let rest: Vec<usize> = self.others().filter(|other| !silent.contains(other)).collect();
        for (ranks, is_rest) in [(silent, false), (&rest[..], true)] {
            // Silent ranks that are also running the operation are themselves waiting for a third rank.
            if is_rest && (!are_there || operation.is_point_to_point()) {
                break;
            }
            let answers = self.ask(ranks);
            if let Some(failure) = self.member.failure() {
                return failure;
            }
            for (&rank, progress) in ranks.iter().zip(answers) {
                let theirs = progress.iter().flat_map(|progress| &progress.running);
                let other = theirs.clone().find(|theirs| {
                    !operation.is_point_to_point()
                        && !theirs.is_point_to_point()
                        && !theirs.matches(operation)
                });
                if let Some(other) = other {
                    return self.mismatch(operation, rank, other.clone());
                }
                let is_there = theirs.clone().any(|theirs| theirs.matches(operation));
                are_there &= is_there;
                if is_there && is_rest {
                    continue;
                }
                let said = progress.map_or("does not answer".to_owned(), |progress| progress.to_string());
                peers.push((rank, format!("({}) {said}", self.identities[rank])));
            }
        }
        let (rank, operation) = (self.rank(), Box::new(operation.clone()));
        self.fail(Failure::Timeout { rank, operation, waited_ms: waited.as_millis() as u64, peers })
    }
}

impl Mesh {
    /// Leaves the mesh and notifies the other ranks; ranks that still need this one then fail. From now on, operations
    /// of this rank fail.
    pub fn leave(&self) {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return;
        }
        let has_failed = self.member.failure().is_some();
        // The failure is recorded before the connections close, so that the closing is not reported as a loss.
        self.member.fail(Failure::Left { rank: self.rank() });
        for (rank, wire) in self.wires.iter().enumerate() {
            match wire {
                Wire::Memory(member) if rank != self.member.rank => {
                    // Delivery cannot fail, because a member accepts every goodbye.
                    let _ = member.deliver(self.member.rank, Frame::Goodbye);
                }
                Wire::Memory(_) => {}
                Wire::Socket(connection) => {
                    if !has_failed {
                        connection.send_last(&Frame::Goodbye);
                    }
                    connection.close();
                }
            }
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Delivers frames from a rank of another process until the connection to it ends.
fn read(mesh: &Weak<Mesh>, member: &Member, from: usize, socket: TcpStream) {
    let mut socket = std::io::BufReader::with_capacity(64 << 10, socket);
    let ended = loop {
        match Frame::read(&mut socket) {
            Ok(Some(Frame::Ask)) => {
                let Some(mesh) = mesh.upgrade() else { return };
                let answer = Frame::Answer(Box::new(member.recorder.progress()));
                // The requesting rank waits only this long for the answer.
                let _ = mesh.send(from, answer, Instant::now() + ANSWER_TIME);
            }
            Ok(Some(frame)) => {
                if let Err(why) = member.deliver(from, frame) {
                    break why.to_owned();
                }
            }
            Ok(None) => break "its process ended or was killed".to_owned(),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                break format!("it sent garbage, {error}");
            }
            Err(error) => break error.to_string(),
        }
    };
    // The end of a connection is not an error if the rank has left or the communicator has already failed.
    let is_expected = member.failure().is_some() || member.state().peers[from].left;
    if !is_expected && let Some(mesh) = mesh.upgrade() {
        mesh.lost(from, &ended);
    }
}

/// Replaces or creates a file. If a symbolic link with this name exists, its target is not written, because other users
/// can create links in shared folders such as `/tmp`.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let random = Token::generate().map_err(io::Error::other)?;
    let new = file.with_extension(format!("{}.new", &random.secret()[..16]));
    let written = File::create_new(&new).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&new, file)).inspect_err(|_| drop(fs::remove_file(&new)))
}
