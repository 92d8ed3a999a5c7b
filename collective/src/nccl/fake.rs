//! Emulation of NCCL on emulated devices, for tests. It implements NCCL's protocol, injects scripted faults, and runs
//! the operations in host memory.
//!
//! The first operation of a rank blocks its caller until all ranks have called one. On the stream of a rank, an
//! operation waits until all ranks have enqueued the same operation. Both waits end when the rank's communicator or its
//! parent is aborted. Usage that NCCL does not allow is recorded as a violation, and [`Script::check`] reports it.

mod calls;
mod numbers;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use warpsmith_emulated::EmulatedDriver;
use warpsmith_runtime::Stream;
use warpsmith_runtime::driver::{DevicePtr, Fault, HostAccess, HostWork};

pub(super) use self::calls::{old_table, table};
use self::numbers::{element_bytes, reduced};
use super::sys::{self, Comm, Status, status};
use crate::element::ReduceOp;

/// Scripted behavior of all communicators with a given name, and a log of their calls.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub streams: Vec<Stream>,
    /// Number of status queries after initialization that return "in progress". If negative, all queries do.
    pub init_polls: i64,
    /// Like `init_polls`, but for the queries after a split.
    pub split_polls: i64,
    /// Rank that reports an error in the background, the number of operations that succeed before it, and the status of
    /// the error.
    pub background: Option<(usize, u64, Status)>,
    /// Name of the call that fails, and the status that it returns.
    pub refused: Option<(&'static str, Status)>,
    /// Emulated driver and the fault injected into its first device when the call in `refused` is made.
    pub stopped: Option<(Arc<EmulatedDriver>, Fault)>,
    /// Duration of an abort.
    pub abort_takes: Duration,
    /// True if `ncclCommDestroy` waits for an abort.
    pub destroy_hangs: bool,
    /// State-changing calls, each with its rank and formatted as text.
    pub log: Mutex<Vec<(usize, String)>>,
    pub violations: Mutex<Vec<String>>,
    pub exchanged: Mutex<HashMap<Key, Vec<Option<Said>>>>,
    /// Numbers of ranks that have created a communicator, and of those that have called its first operation.
    pub joined: Mutex<HashMap<[u8; 128], usize>>,
    pub connected: Mutex<HashMap<[u8; 128], usize>>,
    pub changed: Condvar,
}

/// Key of an operation: the communicator, the two ranks (`None` for a collective) and the sequence number.
pub(super) type Key = ([u8; 128], Option<(usize, usize)>, u64);

/// Lane of an operation: whether it receives, and the two ranks (`None` for a collective operation).
type Lane = (bool, Option<(usize, usize)>);

/// A rank's contribution to an operation: the call and its data.
#[derive(Debug, Clone)]
pub(super) struct Said {
    call: String,
    bytes: Vec<u8>,
}

struct FakeComm {
    script: Arc<Script>,
    id: [u8; 128],
    rank: usize,
    world: usize,
    /// True for the blocking child, which has been split from the parent.
    is_child: bool,
    /// ID of the communicator that is being created: the communicator itself, or its child.
    creating: Mutex<[u8; 128]>,
    polls_left: AtomicI64,
    is_joined: AtomicBool,
    has_connected: AtomicBool,
    /// Number of operations that have not returned.
    running: AtomicU64,
    issued: AtomicU64,
    /// Next sequence numbers of the collective operations and of the sends and receives between each pair of ranks.
    places: Mutex<HashMap<Lane, u64>>,
    /// Shared with the child.
    is_aborted: Arc<AtomicBool>,
    has_ended: AtomicBool,
    error: AtomicI32,
}

#[derive(Debug, Clone, Copy)]
struct Op {
    name: &'static str,
    x: usize,
    y: usize,
    count: usize,
    data_type: c_int,
    operator: c_int,
    /// Root rank or peer.
    root: c_int,
    comm: usize,
    stream: usize,
}

static SCRIPTS: Mutex<Option<HashMap<String, Arc<Script>>>> = Mutex::new(None);

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static PENDING: RefCell<Vec<Op>> = const { RefCell::new(Vec::new()) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    /// Registers the script for all communicators whose name starts with `name`.
    pub fn play(self, name: &str) -> Arc<Self> {
        let script = Arc::new(self);
        let mut scripts = locked(&SCRIPTS);
        let before = scripts.get_or_insert_default().insert(name.to_owned(), Arc::clone(&script));
        assert!(before.is_none(), "two tests have the name {name}");
        script
    }

    /// Returns the calls of a rank in call order.
    pub fn calls(&self, rank: usize) -> Vec<String> {
        let log = locked(&self.log);
        log.iter().filter(|(other, _)| *other == rank).map(|(_, call)| call.clone()).collect()
    }

    /// Fails if NCCL has been used in a way that it does not allow.
    #[track_caller]
    pub fn check(&self) {
        let violations = locked(&self.violations);
        assert!(violations.is_empty(), "{violations:?}");
    }

    fn violated(&self, what: String) {
        locked(&self.violations).push(what);
    }
}

impl FakeComm {
    /// Creates the communicator of a rank. A child is ready as soon as its parent is.
    fn new(
        script: Arc<Script>,
        id: [u8; 128],
        (rank, world): (usize, usize),
        parent: Option<&Self>,
    ) -> Box<Self> {
        *locked(&script.joined).entry(id).or_default() += 1;
        Box::new(Self {
            id,
            rank,
            world,
            is_child: parent.is_some(),
            creating: Mutex::new(id),
            polls_left: AtomicI64::new(if parent.is_some() { 0 } else { script.init_polls }),
            is_joined: AtomicBool::new(parent.is_some()),
            has_connected: AtomicBool::new(false),
            running: AtomicU64::new(0),
            issued: AtomicU64::new(0),
            places: Mutex::default(),
            is_aborted: parent.map_or_else(Arc::default, |parent| Arc::clone(&parent.is_aborted)),
            has_ended: AtomicBool::new(false),
            error: AtomicI32::new(status::SUCCESS),
            script,
        })
    }

    fn of<'a>(comm: Comm) -> &'a Self {
        // SAFETY: communicators are never freed, so that a use after destruction is detected.
        unsafe { &*comm.cast::<Self>() }
    }

    fn log(&self, call: String) {
        locked(&self.script.log).push((self.rank, call));
    }

    /// Logs a call. Returns the scripted status if the script makes the call fail.
    fn called(&self, name: &'static str) -> Option<Status> {
        if self.has_ended.load(Ordering::SeqCst) {
            self.script.violated(format!("{name} on rank {} after the end", self.rank));
        }
        let may_be_unready = ["ncclCommAbort", "ncclCommGetAsyncError"].contains(&name);
        if !self.is_child && !["ncclCommSplit", "ncclCommDestroy"].contains(&name) && !may_be_unready {
            self.script.violated(format!("{name} of rank {} on the parent", self.rank));
        }
        if !may_be_unready && self.is_busy() {
            self.script.violated(format!("{name} on rank {} while it is in progress", self.rank));
        }
        let (_, status) = self.script.refused.filter(|(refused, _)| *refused == name)?;
        if let Some((driver, fault)) = &self.script.stopped {
            driver.poison(0, fault.clone());
        }
        Some(status)
    }

    fn is_busy(&self) -> bool {
        self.polls_left.load(Ordering::SeqCst) != 0 || !self.is_joined.load(Ordering::SeqCst)
    }

    /// Returns the key of the next operation.
    fn place(&self, is_recv: bool, between: Option<(usize, usize)>) -> Key {
        let mut places = locked(&self.places);
        let place = places.entry((is_recv, between)).or_default();
        *place += 1;
        (self.id, between, *place)
    }

    fn say(&self, key: Key, index: usize, ranks: usize, said: Said) {
        let mut exchanged = locked(&self.script.exchanged);
        exchanged.entry(key).or_insert_with(|| vec![None; ranks])[index] = Some(said);
        self.script.changed.notify_all();
    }

    /// Waits until all ranks have called an operation. Returns false if the communicator has been aborted.
    fn connect(&self) -> bool {
        if !self.has_connected.swap(true, Ordering::SeqCst) {
            *locked(&self.script.connected).entry(self.id).or_default() += 1;
        }
        while locked(&self.script.connected).get(&self.id).is_none_or(|ranks| *ranks < self.world) {
            if self.is_aborted.load(Ordering::SeqCst) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Returns the contributions of all ranks once all ranks have made the same call. Returns `None` if the
    /// communicator has been aborted.
    fn hear(&self, key: Key, call: &str) -> Option<Vec<Said>> {
        let mut exchanged = locked(&self.script.exchanged);
        loop {
            if self.is_aborted.load(Ordering::SeqCst) {
                return None;
            }
            let all: Option<Vec<Said>> = exchanged.get(&key).and_then(|said| said.iter().cloned().collect());
            if let Some(all) = all.filter(|all| all.iter().all(|said| said.call == call)) {
                return Some(all);
            }
            let time = Duration::from_millis(20);
            exchanged =
                self.script.changed.wait_timeout(exchanged, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Op {
    /// Returns the number of bytes that `rank` of `world` ranks reads and writes.
    fn lengths(&self, rank: usize, world: usize) -> (usize, usize) {
        let one = self.count * element_bytes(self.data_type);
        let is_root = self.root == rank as c_int;
        match self.name {
            "ncclAllGather" => (one, one * world),
            "ncclReduceScatter" => (one * world, one),
            "ncclReduce" => (one, if is_root { one } else { 0 }),
            "ncclBroadcast" => (if is_root { one } else { 0 }, one),
            "ncclSend" => (one, 0),
            "ncclRecv" => (0, one),
            _ => (one, one),
        }
    }

    /// Returns the memory that the operation reads and the memory that it writes.
    fn uses(&self, comm: &FakeComm) -> Vec<HostAccess> {
        let (read, written) = self.lengths(comm.rank, comm.world);
        let at = |address: usize, bytes, write| HostAccess { ptr: DevicePtr(address as u64), bytes, write };
        let mut uses = vec![at(self.x, read, false), at(self.y, written, true)];
        uses.retain(|used| used.bytes > 0);
        uses
    }

    /// Returns the arguments that must be equal on all ranks.
    fn signature(&self) -> String {
        let Self { name, count, data_type, root, .. } = self;
        format!("{name}({count}, type {data_type}, root {root})")
    }

    /// Formats the call with the arguments that the tests check.
    fn text(&self) -> String {
        let in_place = if self.x == self.y && self.x != 0 { ", in place" } else { "" };
        let Self { name, count, data_type, operator, root, .. } = self;
        format!("{name}({count}, type {data_type}, op {operator}, root {root}{in_place})")
    }

    fn key(&self, comm: &FakeComm) -> Key {
        let peer = self.root as usize;
        let between = match self.name {
            "ncclSend" => Some((comm.rank, peer)),
            "ncclRecv" => Some((peer, comm.rank)),
            _ => None,
        };
        comm.place(self.name == "ncclRecv", between)
    }

    /// Publishes the data that the operation reads.
    fn begin(&self, comm: &FakeComm, key: Key) {
        let (read, _) = self.lengths(comm.rank, comm.world);
        let x = std::ptr::with_exposed_provenance::<u8>(self.x);
        let mut bytes = match read {
            0 => Vec::new(),
            // SAFETY: the memory is valid while the stream runs this operation, which real NCCL also requires.
            _ => unsafe { std::slice::from_raw_parts(x, read) }.to_vec(),
        };
        if sys::operator(ReduceOp::Avg) == self.operator && comm.world == 1 {
            // NCCL's kernel for one rank does not write the last elements if its blocks are unequal; the emulation
            // reproduces this bug.
            let element = element_bytes(self.data_type);
            let (elements, blocks) = (bytes.len() / element, bytes.len().div_ceil(16 << 10).clamp(1, 32));
            bytes.truncate(blocks * (elements / blocks).next_multiple_of(16 / element) * element);
        }
        match self.name {
            "ncclSend" => {
                let call = format!("{} bytes", bytes.len());
                comm.say(key, 0, 1, Said { call, bytes });
            }
            "ncclRecv" => {}
            _ => comm.say(key, comm.rank, comm.world, Said { call: self.signature(), bytes }),
        }
    }

    /// Waits for the other ranks and writes the result.
    fn end(&self, comm: &FakeComm, key: Key) {
        let (_, written) = self.lengths(comm.rank, comm.world);
        let call = match self.name {
            "ncclSend" => return,
            "ncclRecv" => format!("{written} bytes"),
            _ => self.signature(),
        };
        let Some(said) = comm.hear(key, &call) else { return };

        let result = self.result(comm, &said);
        if written > 0 {
            assert!(result.len() == written || comm.world == 1, "{}", self.text());
            let y = std::ptr::with_exposed_provenance_mut::<u8>(self.y);
            // SAFETY: as above.
            unsafe { y.copy_from(result.as_ptr(), result.len()) };
        }
    }

    fn result(&self, comm: &FakeComm, said: &[Said]) -> Vec<u8> {
        let one = self.count * element_bytes(self.data_type);
        let block = |said: &Said, index: usize| said.bytes[index * one..(index + 1) * one].to_vec();
        match self.name {
            "ncclRecv" => said[0].bytes.clone(),
            "ncclBroadcast" => said[self.root as usize].bytes.clone(),
            "ncclAllGather" => said.iter().flat_map(|said| said.bytes.clone()).collect(),
            "ncclReduceScatter" => {
                reduced(self.data_type, self.operator, said.iter().map(|said| block(said, comm.rank)))
            }
            _ => reduced(self.data_type, self.operator, said.iter().map(|said| said.bytes.clone())),
        }
    }
}

/// Enqueues one communicator's operations on its stream.
fn enqueue(ops: Vec<Op>) -> Status {
    let Some(first) = ops.first().copied() else { return status::SUCCESS };
    let comm = FakeComm::of(std::ptr::with_exposed_provenance_mut(first.comm));
    if ops.iter().any(|op| op.comm != first.comm || op.stream != first.stream) {
        comm.script.violated("a group of several communicators or streams".to_owned());
    }
    let Some(stream) = comm.script.streams.iter().find(|stream| stream.handle().0 == first.stream as u64)
    else {
        comm.script.violated(format!("{} is on a stream of no rank", first.name));
        return status::INVALID_ARGUMENT;
    };
    comm.running.fetch_add(1, Ordering::SeqCst);
    let is_connected = comm.connect();
    comm.running.fetch_sub(1, Ordering::SeqCst);
    if !is_connected {
        return status::INTERNAL;
    }
    let issued = comm.issued.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some((rank, after, error)) = comm.script.background
        && rank == comm.rank
        && issued >= after
    {
        comm.error.store(error, Ordering::SeqCst);
    }
    let uses = ops.iter().flat_map(|op| op.uses(comm)).collect();
    let work = move || {
        let keys: Vec<Key> = ops.iter().map(|op| op.key(comm)).collect();
        ops.iter().zip(&keys).for_each(|(op, key)| op.begin(comm, *key));
        ops.iter().zip(&keys).for_each(|(op, key)| op.end(comm, *key));
    };
    // SAFETY: the device lives as long as the script and owns the stream. The caller keeps the memory valid.
    let enqueued = unsafe {
        let (driver, context) = stream.device().driver();
        driver.host_work(context, stream.handle(), HostWork::new("nccl", uses, Box::new(work)))
    };
    if enqueued.is_err() {
        return status::CUDA;
    }
    status::SUCCESS
}

fn issue(op: Op) -> Status {
    let comm = FakeComm::of(std::ptr::with_exposed_provenance_mut(op.comm));
    comm.log(op.text());
    if let Some(refused) = comm.called(op.name) {
        return refused;
    }
    if DEPTH.get() > 0 {
        PENDING.with_borrow_mut(|pending| pending.push(op));
        return status::SUCCESS;
    }
    if ["ncclSend", "ncclRecv"].contains(&op.name) && op.root as usize == comm.rank {
        comm.script.violated("a message to oneself outside of a group".to_owned());
    }
    enqueue(vec![op])
}
