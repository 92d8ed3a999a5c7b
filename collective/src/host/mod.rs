//! Host backend: collective operations without a GPU, executed by the threads of emulated streams.
//!
//! One rank computes each reduction in rank order and sends the result to the other ranks, so the results are
//! bit-identical on all ranks and in every run. In addition to the buffers, each rank uses a few times [`CHUNK`] of
//! memory. The timeout of an operation starts when its stream reaches the operation. Each operation completes or fails
//! before its deadline, even if other ranks do not respond.

mod arithmetic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use warpsmith_runtime::Stream;
use warpsmith_runtime::extension::BufferUse;

use crate::backend::{Backend, Batch, Call, Kind, Places};
use crate::element::Reduction;
use crate::error::Result;
use crate::exchange::{Bytes, Message, Term, exchange, stopped};
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::mesh::{CHUNK, Lane, Mesh};

/// Host backend. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct HostBackend(Arc<Ranks>);

impl HostBackend {
    /// Creates the backend. In checked mode, the ranks compare each operation before its data moves.
    pub fn new(mesh: Arc<Mesh>, is_checked: bool) -> Self {
        let places = Mutex::new(Places::new(mesh.world()));
        Self(Arc::new(Ranks { mesh, is_checked, places }))
    }
}

impl Backend for HostBackend {
    unsafe fn enqueue(&self, stream: &Stream, uses: &[BufferUse<'_>], batch: Batch) -> Result<()> {
        let numbers: Vec<u64> = match batch.is_captured {
            true => Vec::new(),
            false => batch
                .calls
                .iter()
                .map(|call| self.0.mesh.member.recorder.enqueued(&call.fingerprint))
                .collect(),
        };
        let flags = Arc::new(Flags::default());
        let task = Task {
            ranks: Arc::clone(&self.0),
            device: stream.device().id().to_string(),
            batch,
            numbers,
            flags: Arc::clone(&flags),
        };
        let (ranks, operation) = (Arc::clone(&self.0), task.batch.calls[0].fingerprint.clone());
        let name = task.batch.name();
        // SAFETY: the caller guarantees the uses, and the calls access only memory that the uses cover.
        let enqueued = unsafe { stream.enqueue_host_named(name, uses, move || task.run()) };
        match enqueued {
            Ok(()) => {
                flags.is_enqueued.store(true, Ordering::SeqCst);
                if flags.was_skipped.load(Ordering::SeqCst) {
                    ranks.not_run(operation, "its device was stopped by a fault");
                }
                Ok(())
            }
            Err(error) => {
                ranks.not_run(operation, &error.to_string());
                Err(error)
            }
        }
    }
}

/// State that all operations of a communicator share.
#[derive(Debug)]
struct Ranks {
    mesh: Arc<Mesh>,
    is_checked: bool,
    /// Sequence numbers. The mutex stays locked while a batch runs, so two launches of a graph on different streams are
    /// serialized.
    places: Mutex<Places>,
}

/// Progress of a task.
#[derive(Debug, Default)]
struct Flags {
    is_enqueued: AtomicBool,
    has_run: AtomicBool,
    was_skipped: AtomicBool,
}

/// Batch enqueued on the stream.
#[derive(Debug)]
struct Task {
    ranks: Arc<Ranks>,
    device: String,
    batch: Batch,
    /// Sequence numbers of the calls in the flight recorder; empty in a graph.
    numbers: Vec<u64>,
    flags: Arc<Flags>,
}

impl Task {
    fn run(&self) {
        self.flags.has_run.store(true, Ordering::SeqCst);
        let mesh = &self.ranks.mesh;
        let recorder = &mesh.member.recorder;
        let own: Vec<u64>;
        let numbers = match self.batch.is_captured {
            true => {
                own = self.batch.calls.iter().map(|call| recorder.enqueued(&call.fingerprint)).collect();
                &own
            }
            false => &self.numbers,
        };
        let ended = self.ranks.run(&self.batch, numbers);
        if ended.is_err() {
            mesh.dump();
        }
        self.batch.work.end(ended.map_err(|error| mesh.error(Some(error.0), error.1)));
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.flags.has_run.load(Ordering::SeqCst) || self.batch.is_captured {
            return;
        }
        self.flags.was_skipped.store(true, Ordering::SeqCst);
        let (mesh, operation) = (&self.ranks.mesh, self.batch.calls[0].fingerprint.clone());
        if self.flags.is_enqueued.load(Ordering::SeqCst) {
            self.ranks
                .not_run(operation.clone(), &format!("its device {} was stopped by a fault", self.device));
        }
        let unknown = || Failure::NotRun {
            rank: mesh.rank(),
            operation: Box::new(operation.clone()),
            reason: format!("its device {} rejected it", self.device),
        };
        let failure = mesh.member.failure().unwrap_or_else(unknown);
        let text = failure.to_string();
        for (number, call) in self.numbers.iter().zip(&self.batch.calls) {
            mesh.member.recorder.ended(*number, &call.fingerprint, Some(text.clone()));
        }
        mesh.dump();
        self.batch.work.end(Err(mesh.error(Some(operation), failure)));
    }
}

impl Ranks {
    /// Fails the communicator, because other ranks wait for an operation that this rank cannot run.
    fn not_run(&self, operation: Fingerprint, reason: &str) {
        let (rank, operation) = (self.mesh.rank(), Box::new(operation));
        self.mesh.fail(Failure::NotRun { rank, operation, reason: reason.to_owned() });
    }

    /// Runs the calls of a batch: first all point-to-point calls concurrently, then the other calls in order.
    fn run(&self, batch: &Batch, numbers: &[u64]) -> Result<(), Box<(Fingerprint, Failure)>> {
        let recorder = &self.mesh.member.recorder;
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut between, mut together) = (Vec::new(), Vec::new());
        for (call, number) in batch.calls.iter().zip(numbers) {
            let sequence = places.next(call.kind);
            let operation = Arc::new(Fingerprint { sequence, ..call.fingerprint.clone() });
            match operation.is_point_to_point() {
                true => between.push((call, *number, operation)),
                false => together.push((call, *number, operation)),
            }
        }
        let mut result = Ok(());
        for run in [&between[..]].into_iter().filter(|run| !run.is_empty()).chain(together.chunks(1)) {
            run.iter().for_each(|(_, number, operation)| recorder.started(*number, operation));
            let term = Term::new(batch.timeout);
            // A failed operation has already ended the communicator.
            let ran = match self.mesh.member.failure() {
                Some(failure) => Err(failure),
                None => self.run_one(run, term),
            };
            let text = ran.as_ref().err().map(Failure::to_string);
            run.iter().for_each(|(_, number, operation)| recorder.ended(*number, operation, text.clone()));
            if let (Err(failure), Ok(())) = (ran, &result) {
                result = Err(Box::new(((*run[0].2).clone(), failure)));
            }
        }
        result
    }

    /// Runs one collective operation, or all point-to-point messages of a batch.
    fn run_one(&self, run: &[(&Call, u64, Arc<Fingerprint>)], term: Term) -> Result<(), Failure> {
        let (first, _, operation) = &run[0];
        if operation.is_point_to_point() {
            let (mut sends, mut receives) = (Vec::new(), Vec::new());
            for (call, _, operation) in run {
                match call.kind {
                    Kind::Send { to } => sends.push(Message::new(to, from(call), operation)),
                    Kind::Receive { from } => receives.push(Message::new(from, to(call), operation)),
                    _ => {}
                }
            }
            return exchange(&self.mesh, Lane::PointToPoint, sends, receives, term);
        }
        if self.is_checked {
            let others: Vec<_> = self.mesh.others().collect();
            let compared = self.mesh.compare(operation, term.deadline);
            compared.map_err(|stop| stopped(&self.mesh, stop, operation, term, &others))?;
        }
        Collective { mesh: &self.mesh, call: first, operation, term }.run()
    }
}

/// Returns the memory that a call reads.
fn from(call: &Call) -> Bytes {
    // SAFETY: the contract of `Backend::enqueue` reserves the memory for the call while the call runs.
    unsafe { Bytes::new(call.from.address as usize, call.from.bytes) }
}

/// Returns the memory that a call writes.
fn to(call: &Call) -> Bytes {
    // SAFETY: as above.
    unsafe { Bytes::new(call.to.address as usize, call.to.bytes) }
}

/// Collective operation that is running.
struct Collective<'a> {
    mesh: &'a Mesh,
    call: &'a Call,
    operation: &'a Arc<Fingerprint>,
    term: Term,
}

impl Collective<'_> {
    fn run(&self) -> Result<(), Failure> {
        let (x, y, rank, world) = (from(self.call), to(self.call), self.mesh.rank(), self.mesh.world());
        let everyone = |bytes: Bytes| self.mesh.others().map(move |other| (other, bytes)).collect::<Vec<_>>();
        // The buffer consists of one block per rank.
        let block = |bytes: Bytes, index: usize| bytes.part(index * (bytes.len / world), bytes.len / world);
        let blocks =
            |bytes: Bytes| self.mesh.others().map(|other| (other, block(bytes, other))).collect::<Vec<_>>();
        match self.call.kind {
            Kind::Barrier => {
                let (mut said, mut heard) = ([0; 1], vec![0; world]);
                let heard = Bytes::of(&mut heard);
                self.exchange(everyone(Bytes::of(&mut said)), blocks(heard))
            }
            Kind::Broadcast { root } if root == rank => self.exchange(everyone(y), Vec::new()),
            Kind::Broadcast { root } => self.exchange(Vec::new(), vec![(root, y)]),
            Kind::AllGather => {
                x.copy_to(block(y, rank));
                self.exchange(everyone(x), blocks(y))
            }
            Kind::AllToAll => {
                block(x, rank).copy_to(block(y, rank));
                self.exchange(blocks(x), blocks(y))
            }
            Kind::Gather { root } if root == rank => {
                x.copy_to(block(y, rank));
                self.exchange(Vec::new(), blocks(y))
            }
            Kind::Gather { root } => self.exchange(vec![(root, x)], Vec::new()),
            Kind::Scatter { root } if root == rank => {
                block(x, rank).copy_to(y);
                self.exchange(blocks(x), Vec::new())
            }
            Kind::Scatter { root } => self.exchange(Vec::new(), vec![(root, y)]),
            Kind::AllReduce => self.all_reduce(x, y),
            Kind::ReduceScatter => self.reduce_to(&|owner, bytes| block(bytes, owner), 0..world, x, y),
            Kind::Reduce { root } => self.reduce_to(&|_, bytes| bytes, root..root + 1, x, y),
            Kind::Send { .. } | Kind::Receive { .. } => Ok(()),
        }
    }

    fn exchange(&self, sends: Vec<(usize, Bytes)>, receives: Vec<(usize, Bytes)>) -> Result<(), Failure> {
        let messages = |of: Vec<(usize, Bytes)>| {
            of.into_iter().map(|(peer, bytes)| Message::new(peer, bytes, self.operation)).collect()
        };
        exchange(self.mesh, Lane::Collective, messages(sends), messages(receives), self.term)
    }

    /// Reduces the elements of all ranks in rounds. In each round, every rank reduces one piece and sends the result to
    /// the other ranks.
    fn all_reduce(&self, x: Bytes, y: Bytes) -> Result<(), Failure> {
        let (rank, world) = (self.mesh.rank(), self.mesh.world());
        let piece = piece_bytes(self.call.reduction, x.len.div_ceil(world));
        let mut start = 0;
        loop {
            let of = |bytes: Bytes, owner: usize| bytes.part(start + owner * piece, piece);
            self.reduce_pieces(&|owner| of(x, owner), 0..world, of(y, rank))?;
            let sends = self.mesh.others().map(|other| (other, of(y, rank))).collect();
            let receives = self.mesh.others().map(|other| (other, of(y, other))).collect();
            self.exchange(sends, receives)?;
            start += world * piece;
            if start >= x.len {
                return Ok(());
            }
        }
    }

    /// Reduces, in rounds, each owner's part of `x` into that owner's `y`.
    fn reduce_to(
        &self,
        part_of: &dyn Fn(usize, Bytes) -> Bytes,
        owners: std::ops::Range<usize>,
        x: Bytes,
        y: Bytes,
    ) -> Result<(), Failure> {
        let all = part_of(owners.start, x).len;
        let piece = piece_bytes(self.call.reduction, all);
        let mut start = 0;
        loop {
            let of_owner = |owner: usize| part_of(owner, x).part(start, piece);
            self.reduce_pieces(&of_owner, owners.clone(), y.part(start, piece))?;
            start += piece;
            if start >= all {
                return Ok(());
            }
        }
    }

    /// Sends each owner its pieces from all ranks, at most [`CHUNK`] bytes each; the owner reduces them into its
    /// `result`. On ranks that are not owners, `result` is not written.
    fn reduce_pieces(
        &self,
        piece_of: &dyn Fn(usize) -> Bytes,
        owners: std::ops::Range<usize>,
        result: Bytes,
    ) -> Result<(), Failure> {
        let (rank, world) = (self.mesh.rank(), self.mesh.world());
        let Some(reduction) = self.call.reduction else { return Ok(()) };
        let others = owners.clone().filter(|owner| *owner != rank);
        let sends = others.map(|owner| (owner, piece_of(owner))).collect();
        if !owners.contains(&rank) {
            return self.exchange(sends, Vec::new());
        }
        let mut received = vec![0; world * result.len];
        let received = Bytes::of(&mut received);
        let from = |other: usize| received.part(other * result.len, result.len);
        self.exchange(sends, self.mesh.others().map(|other| (other, from(other))).collect())?;
        let of_ranks: Vec<Bytes> =
            (0..world).map(|other| if other == rank { piece_of(rank) } else { from(other) }).collect();
        arithmetic::reduce(reduction, &of_ranks, result);
        Ok(())
    }
}

/// Returns the size, in bytes, of the piece that one rank reduces per round: the smaller of `at_most` and [`CHUNK`],
/// rounded up to a whole number of elements, and at least one element.
fn piece_bytes(reduction: Option<Reduction>, at_most: usize) -> usize {
    let element = reduction.map_or(1, |reduction| reduction.element.bytes());
    at_most.min(CHUNK).next_multiple_of(element).max(element)
}
