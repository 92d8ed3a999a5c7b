//! [`exchange`]: concurrent messages to and from any ranks, in chunks.
//!
//! Messages to one rank and messages from one rank are transferred in list order. Messages to or from different ranks
//! do not wait for each other. The amount of data in flight to a rank is at most a few times [`CHUNK`], regardless of
//! the message lengths. An unexpected message causes an error that names both operations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::deadline;
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::mesh::{CHUNK, Frame, Lane, Mesh, Part, Stop};

/// Range of device or host memory that an operation uses exclusively.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes {
    address: usize,
    pub len: usize,
}

impl Bytes {
    /// # Safety
    /// The memory must be valid for reads until the last use of the value or of any part of it. If the value is passed
    /// as a target, the memory must also be valid for writes. During that time, no other thread may write to the
    /// memory.
    pub unsafe fn new(address: usize, len: usize) -> Self {
        Self { address, len }
    }

    /// Returns the memory of a byte slice. The slice must outlive the result and must be accessed only through the
    /// result.
    pub fn of(bytes: &mut [u8]) -> Self {
        Self { address: bytes.as_mut_ptr().expose_provenance(), len: bytes.len() }
    }

    pub fn ptr(self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Returns up to `len` bytes starting at `start`, clamped to the end.
    pub fn part(self, start: usize, len: usize) -> Self {
        let start = start.min(self.len);
        Self { address: self.address + start, len: len.min(self.len - start) }
    }

    /// Copies the bytes to `to`, which must have the same length. `to` may be the same memory.
    pub fn copy_to(self, to: Self) {
        assert_eq!(self.len, to.len, "lengths are checked before");
        // SAFETY: both ranges are valid, by the contract of `new`.
        unsafe { to.ptr().copy_from(self.ptr(), self.len) }
    }

    fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.copy_to(Self::of(&mut bytes));
        bytes
    }
}

/// Message to or from another rank.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub peer: usize,
    pub bytes: Bytes,
    pub operation: Arc<Fingerprint>,
    /// Number of bytes already transferred.
    passed: usize,
    has_begun: bool,
}

impl Message {
    pub fn new(peer: usize, bytes: Bytes, operation: &Arc<Fingerprint>) -> Self {
        Self { peer, bytes, operation: Arc::clone(operation), passed: 0, has_begun: false }
    }

    fn is_done(&self) -> bool {
        self.has_begun && self.passed == self.bytes.len
    }
}

/// Returns the first unfinished message of each peer, in list order.
fn first_of_each(messages: &mut [Message]) -> impl Iterator<Item = &mut Message> {
    let mut seen = Vec::new();
    messages.iter_mut().filter(move |message| {
        let is_first = !message.is_done() && !seen.contains(&message.peer);
        if is_first {
            seen.push(message.peer);
        }
        is_first
    })
}

/// Start and deadline of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    pub start: Instant,
    pub deadline: Instant,
}

impl Term {
    pub fn new(timeout: Duration) -> Self {
        let start = Instant::now();
        Self { start, deadline: deadline::after(start, timeout) }
    }
}

/// Sends and receives all of the given messages.
pub(crate) fn exchange(
    mesh: &Mesh,
    lane: Lane,
    mut sends: Vec<Message>,
    mut receives: Vec<Message>,
    term: Term,
) -> Result<(), Failure> {
    loop {
        let version = mesh.member.version();
        let mut has_progressed = false;
        for send in first_of_each(&mut sends) {
            while !send.is_done() && mesh.member.take_credit(send.peer, lane) {
                send_part(mesh, lane, send, term)?;
                has_progressed = true;
            }
        }
        for receive in first_of_each(&mut receives) {
            while !receive.is_done() {
                let Some(part) = mesh.member.take_part(receive.peer, lane) else { break };
                take_part(mesh, receive, part)?;
                let credited = mesh.send(receive.peer, Frame::Credit(lane), term.deadline);
                credited.map_err(|stop| stopped(mesh, stop, &receive.operation, term, &[receive.peer]))?;
                has_progressed = true;
            }
        }
        let silent = pending(&sends, &receives);
        let Some(operation) = silent.first().map(|first| Arc::clone(&first.operation)) else { return Ok(()) };
        if has_progressed {
            continue;
        }
        if let Some(failed) = silent.iter().find(|message| mesh.member.has_left(message.peer, lane)) {
            return Err(mesh.fail(Failure::Left { rank: failed.peer }));
        }
        if let Err(stop) = mesh.member.wait_change(version, term.deadline) {
            let mut peers: Vec<_> = silent.iter().map(|message| message.peer).collect();
            peers.sort_unstable();
            peers.dedup();
            return Err(stopped(mesh, stop, &operation, term, &peers));
        }
    }
}

/// Returns the unfinished messages.
fn pending<'m>(sends: &'m [Message], receives: &'m [Message]) -> Vec<&'m Message> {
    receives.iter().chain(sends).filter(|message| !message.is_done()).collect()
}

fn send_part(mesh: &Mesh, lane: Lane, send: &mut Message, term: Term) -> Result<(), Failure> {
    let part = send.bytes.part(send.passed, CHUNK);
    let begin = (!send.has_begun).then(|| (Arc::clone(&send.operation), send.bytes.len as u64));
    let frame = Frame::Part(lane, Part { begin, data: part.to_vec() });
    let sent = mesh.send(send.peer, frame, term.deadline);
    sent.map_err(|stop| stopped(mesh, stop, &send.operation, term, &[send.peer]))?;
    send.has_begun = true;
    send.passed += part.len;
    Ok(())
}

fn take_part(mesh: &Mesh, receive: &mut Message, mut part: Part) -> Result<(), Failure> {
    let garbage = |why: String| mesh.fail(Failure::Lost { rank: receive.peer, reason: why });
    match &part.begin {
        Some((theirs, total)) => {
            if !theirs.matches(&receive.operation) {
                return Err(mesh.mismatch(&receive.operation, receive.peer, (**theirs).clone()));
            }
            if receive.has_begun || *total != receive.bytes.len as u64 {
                return Err(garbage(format!(
                    "it sent {total} bytes instead of {} for {theirs}",
                    receive.bytes.len
                )));
            }
        }
        None if !receive.has_begun => {
            return Err(garbage("it sent data for an unknown operation".to_owned()));
        }
        None => {}
    }
    let target = receive.bytes.part(receive.passed, part.data.len());
    if target.len != part.data.len() {
        return Err(garbage(format!("it sent more than the announced {} bytes", receive.bytes.len)));
    }
    Bytes::of(&mut part.data).copy_to(target);
    receive.has_begun = true;
    receive.passed += target.len;
    Ok(())
}

/// Returns the failure of an operation that was stopped while it was waiting for these ranks.
pub(crate) fn stopped(
    mesh: &Mesh,
    stop: Stop,
    operation: &Fingerprint,
    term: Term,
    silent: &[usize],
) -> Failure {
    match stop {
        Stop::Failed(failure) => failure,
        Stop::Deadline => mesh.timed_out(operation, term.start.elapsed(), silent),
    }
}
