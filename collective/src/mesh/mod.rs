//! The mesh: a way from each rank of a communicator to each other, in memory or over sockets, and what they say there.
//!
//! Every backend has one: over it ranks learn that another failed, aborted or left, and compare what they call. The Host
//! backend also moves its data over it.
//!
//! Guarantees: frames from one rank arrive in order. A process that ends is noticed at once, by the end of its connection.
//! The first failure is sent to all ranks, and stays. No call takes longer than its deadline by more than a second.

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

pub(crate) use self::connect::{DeviceFacts, Meeting, connect};
pub(crate) use self::frame::{CHUNK, Frame, Lane, Part};
pub(crate) use self::member::{Member, Stop};
use self::wire::{Unsent, Wire};
use crate::failure::{CommunicatorError, Failure};
use crate::fingerprint::Fingerprint;
use crate::recorder::{FlightRecord, Progress};
use crate::store::Token;

/// How long a rank has to answer how far it has come.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// How long a broken connection may take to say why.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// See the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct Mesh {
    pub name: String,
    /// Unlike the name, no other communicator of the store has it, before or after this one.
    pub id: String,
    pub member: Arc<Member>,
    /// The address of this host by which the others reach this rank; the loopback interface's if `None`.
    pub address: Option<IpAddr>,
    /// One for each rank.
    wires: Vec<Wire>,
    /// Each rank's process and host, for errors.
    identities: Vec<String>,
    /// The file for the flight record at the first failure.
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

    /// The ranks but this one.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank();
        (0..self.world()).filter(move |other| *other != rank)
    }

    /// Whether another rank is of this process.
    pub fn shares_process(&self) -> bool {
        self.others().any(|other| self.is_of_process(other))
    }

    /// Whether a rank is of this process.
    pub fn is_of_process(&self, rank: usize) -> bool {
        matches!(self.wires[rank], Wire::Memory(_))
    }

    /// The failure, if there is one within this time.
    pub fn failure_within(&self, time: Duration) -> Option<Failure> {
        match self.member.wait(Instant::now() + time, |_| None::<()>) {
            Err(Stop::Failed(failure)) => Some(failure),
            _ => None,
        }
    }

    /// The error of a call on this rank.
    pub fn error(&self, operation: Option<Fingerprint>, failure: Failure) -> Box<CommunicatorError> {
        Box::new(CommunicatorError { rank: self.rank(), communicator: self.name.clone(), operation, failure })
    }

    /// The flight recorder's content.
    pub fn record(&self) -> FlightRecord {
        FlightRecord {
            communicator: self.name.clone(),
            rank: self.rank(),
            world_size: self.world(),
            failure: self.member.failure().map(|failure| failure.to_string()),
            operations: self.member.recorder.operations(),
        }
    }

    /// Writes the flight record, the first time.
    pub fn dump(&self) {
        let Some(file) = self.dump_to.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if let Err(error) = replace(&file, &self.record().to_json()) {
            tracing::warn!("cannot write the flight record to {}: {error}", file.display());
        }
    }

    /// Sends a frame, which is no question.
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

    /// The failure, or else the deadline.
    fn stop(&self) -> Stop {
        self.member.failure().map_or(Stop::Deadline, Stop::Failed)
    }

    /// A frame was not sent because the connection is closed: the other side may have said why.
    fn closed(&self, to: usize, frame: &Frame, why: &str) -> Result<(), Stop> {
        let said = Instant::now() + LAST_WORDS;
        match self.member.wait(said, |state| state.peers[to].left.then_some(())) {
            Err(Stop::Failed(failure)) => Err(Stop::Failed(failure)),
            // It needs no credit any more.
            Ok(()) if matches!(frame, Frame::Credit(_)) => Ok(()),
            Ok(()) => Err(Stop::Failed(self.fail(Failure::Left { rank: to }))),
            Err(Stop::Deadline) => Err(Stop::Failed(self.lost(to, why))),
        }
    }

    /// The connection to a rank is gone.
    fn lost(&self, rank: usize, why: &str) -> Failure {
        let reason = format!("{}: its connection is closed ({why})", self.identities[rank]);
        self.fail(Failure::Lost { rank, reason })
    }

    /// Ends the communicator on all ranks that can be reached, and then here: when a program learns of it and ends, the others
    /// know why. Returns the failure that counts: the first.
    pub fn fail(&self, failure: Failure) -> Failure {
        if self.member.begins_to_fail() {
            tracing::error!(communicator = self.name, rank = self.rank(), "{failure}");
            for (rank, wire) in self.wires.iter().enumerate() {
                match wire {
                    Wire::Memory(member) if rank != self.rank() => {
                        // It refuses no failure.
                        let _ = member.deliver(self.rank(), Frame::Failed(failure.clone()));
                    }
                    Wire::Memory(_) => {}
                    Wire::Socket(connection) => connection.send_last(&Frame::Failed(failure.clone())),
                }
            }
            self.member.fail(failure.clone());
        }
        // Another thread may be about to set it.
        self.failure_within(ANSWER_TIME).unwrap_or(failure)
    }

    /// How far these ranks have come, which are asked at the same time; `None` for one that does not answer.
    pub fn ask(&self, ranks: &[usize]) -> Vec<Option<Progress>> {
        let deadline = Instant::now() + ANSWER_TIME;
        ranks.iter().for_each(|rank| self.member.state().peers[*rank].answer = None);
        let is_asked = |rank: &&usize| match &self.wires[**rank] {
            Wire::Memory(_) => false,
            Wire::Socket(connection) => connection.send_now(&Frame::Ask),
        };
        let asked: Vec<usize> = ranks.iter().filter(is_asked).copied().collect();
        // What has come by a failure or the deadline counts too.
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

    /// Sends what this rank is about to run, and compares it with what all others are.
    pub fn compare(&self, operation: &Fingerprint, deadline: Instant) -> Result<(), Stop> {
        self.announce(operation, deadline)?;
        self.others().try_for_each(|rank| self.hear(rank, operation, deadline))
    }

    /// Sends what this rank is about to run.
    fn announce(&self, operation: &Fingerprint, deadline: Instant) -> Result<(), Stop> {
        self.others().try_for_each(|rank| self.send(rank, Frame::Announce(operation.clone()), deadline))
    }

    /// Compares what this rank has announced with what another does.
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

    /// This rank and another call different operations.
    pub fn mismatch(&self, ours: &Fingerprint, rank: usize, theirs: Fingerprint) -> Failure {
        let (left, right) = ((self.rank(), ours.clone()), (rank, theirs));
        let (left, right) = if left.0 < right.0 { (left, right) } else { (right, left) };
        self.fail(Failure::Mismatch { left: Box::new(left), right: Box::new(right) })
    }

    /// This rank has waited for these others in vain: asks them why.
    pub fn timed_out(&self, operation: &Fingerprint, waited: Duration, silent: &[usize]) -> Failure {
        let mut peers = Vec::with_capacity(silent.len());
        let mut are_there = true;
        let rest: Vec<usize> = self.others().filter(|other| !silent.contains(other)).collect();
        for (ranks, is_rest) in [(silent, false), (&rest[..], true)] {
            // Silent ranks that run the operation too wait for another.
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
    /// Leaves: others that still need this rank learn that it will not come. Operations of this rank fail from now on.
    pub fn leave(&self) {
        if self.has_left.swap(true, Ordering::Relaxed) {
            return;
        }
        let has_failed = self.member.failure().is_some();
        // Before the connections end, which is no failure then.
        self.member.fail(Failure::Left { rank: self.rank() });
        for (rank, wire) in self.wires.iter().enumerate() {
            match wire {
                Wire::Memory(member) if rank != self.member.rank => {
                    // It refuses no goodbye.
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

/// Delivers what another process sends until its connection ends.
fn read(mesh: &Weak<Mesh>, member: &Member, from: usize, socket: TcpStream) {
    let mut socket = std::io::BufReader::with_capacity(64 << 10, socket);
    let ended = loop {
        match Frame::read(&mut socket) {
            Ok(Some(Frame::Ask)) => {
                let Some(mesh) = mesh.upgrade() else { return };
                let answer = Frame::Answer(Box::new(member.recorder.progress()));
                // Who asks does not wait for long.
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
    // The end that was to be expected, or which follows from a failure, is none.
    let is_expected = member.failure().is_some() || member.state().peers[from].left;
    if !is_expected && let Some(mesh) = mesh.upgrade() {
        mesh.lost(from, &ended);
    }
}

/// Writes a file, in place of one that is there. What a link of its name leads to stays as it is, since other users may have
/// made that link in a folder of all, such as `/tmp`.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let random = Token::generate().map_err(io::Error::other)?;
    let new = file.with_extension(format!("{}.new", &random.secret()[..16]));
    let written = File::create_new(&new).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&new, file)).inspect_err(|_| drop(fs::remove_file(&new)))
}
