//! Happens-before order of a launch's accesses, represented by a clock for each thread and by each thread's knowledge
//! of the other threads' clocks.
//!
//! A thread's clock advances at each release: at barriers, releasing atomics and fences. Access A happens before access
//! B if B's thread knows a clock value of A's thread that is at least the value at access A.
//!
//! | source of order | representation |
//! | --- | --- |
//! | the block's barriers | one number (`base`) for all threads of the block |
//! | `warp::sync` | a row of 32 clocks for each thread |
//! | atomics and fences, barriers of a cluster | prefixes of logs ([`Log`]) |
//!
//! The grid barrier orders all accesses, as described in [`super::shadow`].

use std::collections::HashMap;

/// Thread index value that represents all threads of a block.
const ALL: u16 = u16::MAX;

/// Identifies a thread of the grid by the linear index of its block and its linear index in the block.
type Id = (u32, u16);

/// Clock values in release order, released either to one address or by a cluster barrier. A thread that acquires knows
/// the current prefix of the log from then on, so acquiring copies no data.
#[derive(Default)]
struct Log {
    entries: Vec<(Id, u32)>,
    /// Positions in `entries` for each thread, in ascending order. The clock values at these positions are also in
    /// ascending order.
    of: HashMap<Id, Vec<u32>>,
    /// For each other log, the number of its entries that this log includes.
    contains: HashMap<u32, u32>,
    /// For each block, the prefixes of other blocks' logs that its threads knew when they released.
    known_by: HashMap<u32, Vec<Prefix>>,
}

impl Log {
    fn push(&mut self, id: Id, clock: u32) {
        let positions = self.of.entry(id).or_default();
        let last = positions.last().map_or(0, |&at| self.entries[at as usize].1);
        if clock > last {
            positions.push(self.entries.len() as u32);
            self.entries.push((id, clock));
        }
    }

    /// Returns the last clock value of `id` in the first `upto` entries; 0 if these entries contain no value of `id`.
    fn clock(&self, id: Id, upto: u32) -> u32 {
        let Some(positions) = self.of.get(&id) else { return 0 };
        let count = match positions.last() {
            Some(&last) if last < upto => positions.len(),
            _ => positions.partition_point(|&at| at < upto),
        };
        if count == 0 { 0 } else { self.entries[positions[count - 1] as usize].1 }
    }
}

/// A prefix of a log.
#[derive(Clone, Copy)]
struct Prefix {
    log: u32,
    upto: u32,
    /// True if the prefix was acquired at block scope, so that only entries of the thread's own block count.
    own_block: bool,
}

/// Adds a prefix to a thread's known prefixes.
fn learn(known: &mut Vec<Prefix>, new: Prefix) {
    match known.iter_mut().find(|old| old.log == new.log && old.own_block == new.own_block) {
        Some(old) => old.upto = old.upto.max(new.upto),
        None => known.push(new),
    }
}

/// Snapshot of a thread's knowledge at one point in time, including its own clock.
#[derive(Clone)]
struct Snapshot {
    block: u32,
    base: u32,
    thread: u16,
    clock: u32,
    lanes: Option<Box<[u32; 32]>>,
    known: Vec<Prefix>,
}

#[derive(Default)]
struct Thread {
    known: Vec<Prefix>,
    /// Prefixes of logs that relaxed loads have observed and that a later fence acquires, each with the scope of the
    /// load.
    seen: Vec<(Prefix, Scope)>,
    /// Snapshot that the last releasing fence released, and the scope of that fence.
    fenced: Option<(Snapshot, Scope)>,
    /// Clock value at which the thread arrived at the incomplete cluster barrier, and true if the thread waits at the
    /// barrier.
    arrived: Option<(u32, bool)>,
}

/// Barrier of a cluster.
#[derive(Default)]
struct ClusterBarrier {
    /// Log to which a thread releases if it has arrived and performs other work before it waits.
    arriving: Option<u32>,
    /// If threads arrived at the last phase without waiting, the log prefix that each thread acquires when it waits for
    /// that phase.
    released: Option<Prefix>,
}

/// Scope of an atomic operation or a fence, which determines the threads that it orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Threads of the block.
    Block,
    /// Threads of the launch. This value also represents wider scopes.
    Device,
}

/// Memory ordering of an atomic operation or a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ordering {
    /// True for release semantics, with which earlier accesses become visible to acquiring threads.
    pub release: bool,
    /// True for acquire semantics, with which released accesses become visible to this thread.
    pub acquire: bool,
}

/// Effect of an atomic operation on memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes.
    Update,
}

/// Thread clocks of a running block.
#[derive(Default)]
pub(super) struct Block {
    /// Linear index of the block in the grid.
    pub linear: u32,
    /// Index of the block in the grid.
    pub index: [u32; 3],
    threads: Vec<Thread>,
    /// Clock of each thread.
    clocks: Vec<u32>,
    /// Clock value up to which every thread of the block knows all other threads of the block.
    base: u32,
    /// Clock value up to which accesses precede a releasing fence that every thread of the block executed before the
    /// last barrier. A relaxed atomic operation of any of these threads releases accesses up to this clock.
    fenced: u32,
    /// Log prefixes of other blocks that every thread of the block knows.
    known: Vec<Prefix>,
    /// Mask of the synchronized warps, for which `lanes` is valid.
    synced: u32,
    /// For each thread, the clock values that it knows for the lanes of its warp.
    lanes: Vec<[u32; 32]>,
}

impl Block {
    /// Returns the clock of a thread.
    #[inline(always)]
    pub fn clock(&self, thread: u32) -> u32 {
        self.clocks[thread as usize]
    }

    /// Returns true if `linear` is this block and the block has completed a barrier since an access at this clock.
    #[inline(always)]
    pub fn is_past(&self, linear: u32, clock: u32) -> bool {
        linear == self.linear && clock <= self.base
    }
}

/// Clocks of the blocks that run concurrently.
#[derive(Default)]
pub(super) struct Clocks {
    pub blocks: Vec<Block>,
    logs: Vec<Log>,
    /// Logs that were released to addresses, identified by address and, for releases at block scope, by block.
    released: HashMap<(usize, Option<u32>), u32>,
    /// Cluster barriers, keyed by the index of the cluster's first block.
    clusters: HashMap<u32, ClusterBarrier>,
}

impl Clocks {
    /// Resets all state for the next launch.
    pub fn begin_launch(&mut self) {
        self.blocks.clear();
        self.logs.clear();
        self.released.clear();
        self.clusters.clear();
    }

    /// Prepares the clocks for a block that starts with index `number` among the running blocks.
    pub fn begin_block(&mut self, number: u32, linear: u32, index: [u32; 3], threads: u32) {
        let at = number as usize;
        if self.blocks.len() <= at {
            self.blocks.resize_with(at + 1, Block::default);
        }
        let block = &mut self.blocks[at];
        (block.linear, block.index, block.base, block.fenced, block.synced) = (linear, index, 0, 0, 0);
        block.known.clear();
        block.threads.resize_with(threads as usize, Thread::default);
        block.clocks.clear();
        block.clocks.resize(threads as usize, 1);
        for thread in &mut block.threads {
            thread.known.clear();
            thread.seen.clear();
            thread.fenced = None;
            thread.arrived = None;
        }
    }

    /// Updates the clocks after a block barrier was completed.
    pub fn block_barrier(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        let fenced = |thread: &Thread| match &thread.fenced {
            Some((snapshot, Scope::Device)) => snapshot.clock,
            _ => 0,
        };
        block.fenced = block.fenced.max(block.threads.iter().map(fenced).min().unwrap_or(0));
        block.base = block.clocks.iter().copied().max().unwrap_or(0);
        block.clocks.fill(block.base + 1);
        for thread in &mut block.threads {
            for prefix in thread.known.drain(..) {
                learn(&mut block.known, prefix);
            }
        }
    }

    /// Updates the clocks after the lanes `lanes` of a warp have synchronized.
    pub fn warp_barrier(&mut self, number: u32, warp: u32, lanes: u32) {
        let block = &mut self.blocks[number as usize];
        let first = warp as usize * 32;
        if block.synced & (1 << warp) == 0 {
            block.synced |= 1 << warp;
            block.lanes.resize(block.lanes.len().max(first + 32), [0; 32]);
            block.lanes[first..first + 32].fill([0; 32]);
        }
        let mut row = [0; 32];
        let mut known = Vec::new();
        for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
            for (joined, clock) in row.iter_mut().zip(&block.lanes[first + lane]) {
                *joined = (*joined).max(*clock);
            }
            row[lane] = row[lane].max(block.clocks[first + lane]);
            block.clocks[first + lane] += 1;
            block.threads[first + lane].known.iter().for_each(|prefix| learn(&mut known, *prefix));
        }
        for lane in (0..32).filter(|lane| lanes >> lane & 1 == 1) {
            block.lanes[first + lane] = row;
            block.threads[first + lane].known.clone_from(&known);
        }
    }

    /// Updates the clocks when a thread arrives at the barrier of its cluster, whose first block has index `first`.
    /// Accesses that the thread makes between its arrival and its wait are not ordered by the barrier.
    pub fn cluster_arrive(&mut self, first: u32, number: u32, thread: u32, waits: bool) {
        let block = &mut self.blocks[number as usize];
        let own = &mut block.threads[thread as usize];
        let clock = &mut block.clocks[thread as usize];
        own.arrived = Some((*clock, waits));
        *clock += 1;
        if waits {
            return;
        }
        let (linear, known) = (block.linear, [&own.known[..], &block.known[..]].concat());
        let log = match self.clusters.entry(first).or_default().arriving {
            Some(log) => log,
            None => self.new_log(),
        };
        self.clusters.entry(first).or_default().arriving = Some(log);
        self.include(log, &known, linear);
    }

    /// Updates the clocks after a thread has waited for its cluster barrier.
    pub fn cluster_wait(&mut self, first: u32, number: u32, thread: u32) {
        let Some(released) = self.clusters.get(&first).and_then(|barrier| barrier.released) else { return };
        let contains = &self.logs[released.log as usize].contains;
        let own = &mut self.blocks[number as usize].threads[thread as usize].known;
        let is_in = |old: &Prefix| contains.get(&(old.log << 1)).is_some_and(|upto| *upto >= old.upto);
        own.retain(|old| old.own_block || !is_in(old));
        learn(own, released);
    }

    fn new_log(&mut self) -> u32 {
        self.logs.push(Log::default());
        self.logs.len() as u32 - 1
    }

    /// Updates the clocks when a cluster barrier is complete, that is, after every thread of the cluster's blocks has
    /// arrived or exited.
    pub fn cluster_barrier(&mut self, numbers: std::ops::Range<u32>) {
        let barrier = self.clusters.entry(numbers.start).or_default();
        barrier.released = None;
        if let Some(log) = barrier.arriving.take() {
            return self.cluster_barrier_in_halves(numbers, log);
        }
        let log = self.new_log();
        for number in numbers.clone() {
            self.block_barrier(number);
            let Block { linear, base, ref mut known, ref mut threads, .. } = self.blocks[number as usize];
            threads.iter_mut().for_each(|thread| thread.arrived = None);
            let known = std::mem::take(known);
            self.include(log, &known, linear);
            self.logs[log as usize].push((linear, ALL), base);
        }
        let upto = self.logs[log as usize].entries.len() as u32;
        for number in numbers {
            self.blocks[number as usize].known = vec![Prefix { log, upto, own_block: false }];
        }
    }

    /// Updates the clocks when a cluster barrier at which some threads arrived without waiting is complete. When a
    /// thread waits, it learns about the accesses that each of the other threads made before its arrival.
    fn cluster_barrier_in_halves(&mut self, numbers: std::ops::Range<u32>, log: u32) {
        for number in numbers.clone() {
            let block = &mut self.blocks[number as usize];
            let (linear, mut known) = (block.linear, Vec::new());
            let mut clocks = Vec::with_capacity(block.threads.len());
            for (thread, clock) in block.threads.iter_mut().zip(&block.clocks) {
                // An exited thread counts as arrived.
                let (clock, waits) = thread.arrived.take().unwrap_or((*clock, true));
                if waits {
                    thread.known.iter().chain(&block.known).for_each(|prefix| learn(&mut known, *prefix));
                }
                clocks.push(clock);
            }
            let all = clocks.iter().copied().min().unwrap_or(0);
            self.include(log, &known, linear);
            self.logs[log as usize].push((linear, ALL), all);
            for (thread, clock) in clocks.into_iter().enumerate().filter(|(_, clock)| *clock > all) {
                self.logs[log as usize].push((linear, thread as u16), clock);
            }
        }
        let upto = self.logs[log as usize].entries.len() as u32;
        self.clusters.entry(numbers.start).or_default().released =
            Some(Prefix { log, upto, own_block: false });
    }

    /// Returns true if an earlier access happens before the current access by thread `now` of this block. A thread in
    /// the grid's block `linear` made the earlier access, at this clock value.
    #[inline(always)]
    pub fn is_ordered(&self, block: &Block, now: u32, linear: u32, thread: u32, clock: u32) -> bool {
        if block.is_past(linear, clock) {
            return true;
        }
        if linear == block.linear {
            if thread == now {
                return true;
            }
            if thread / 32 == now / 32
                && block.synced >> (now / 32) & 1 == 1
                && clock <= block.lanes[now as usize][thread as usize % 32]
            {
                return true;
            }
        }
        let own = &block.threads[now as usize].known;
        (!own.is_empty() || !block.known.is_empty()) && self.is_known(block, own, linear, thread, clock)
    }

    /// Returns true if log prefixes that a thread of this block knows establish this order.
    fn is_known(&self, block: &Block, own: &[Prefix], linear: u32, thread: u32, clock: u32) -> bool {
        let is_own = linear == block.linear;
        own.iter().chain(&block.known).filter(|prefix| is_own || !prefix.own_block).any(|prefix| {
            let log = &self.logs[prefix.log as usize];
            clock <= log.clock((linear, ALL), prefix.upto)
                || clock <= log.clock((linear, thread as u16), prefix.upto)
        })
    }

    /// Adds the entries of log prefixes to a log; `linear` is the block of the thread that knows the prefixes.
    fn include(&mut self, log: u32, known: &[Prefix], linear: u32) {
        for prefix in known {
            if prefix.log == log {
                continue;
            }
            let key = prefix.log << 1 | u32::from(prefix.own_block);
            let from = self.logs[log as usize].contains.insert(key, prefix.upto).unwrap_or(0);
            let (mut into, other) =
                (std::mem::take(&mut self.logs[log as usize]), &self.logs[prefix.log as usize]);
            for &(id, clock) in other.entries.get(from as usize..prefix.upto as usize).unwrap_or_default() {
                if !prefix.own_block || id.0 == linear {
                    into.push(id, clock);
                }
            }
            self.logs[log as usize] = into;
        }
    }

    fn snapshot(&self, number: u32, thread: u32) -> Snapshot {
        let block = &self.blocks[number as usize];
        let own = &block.threads[thread as usize];
        let lanes = (block.synced >> (thread / 32) & 1 == 1).then(|| Box::new(block.lanes[thread as usize]));
        let mut known = block.known.clone();
        own.known.iter().for_each(|prefix| learn(&mut known, *prefix));
        Snapshot {
            block: block.linear,
            base: block.base,
            thread: thread as u16,
            clock: block.clock(thread),
            lanes,
            known,
        }
    }

    /// Makes a thread acquire a log prefix.
    fn acquire(&mut self, number: u32, thread: u32, prefix: Prefix) {
        let block = &mut self.blocks[number as usize];
        let known = &mut block.threads[thread as usize].known;
        learn(known, prefix);
        // The thread also learns the prefixes of other blocks' logs that the threads of its own block knew when they
        // released.
        if prefix.own_block
            && let Some(of_block) = self.logs[prefix.log as usize].known_by.get(&block.linear)
        {
            of_block.iter().for_each(|prefix| learn(known, *prefix));
        }
    }

    fn publish(&mut self, log: u32, snapshot: &Snapshot) {
        self.include(log, &snapshot.known, snapshot.block);
        let into = &mut self.logs[log as usize];
        if !snapshot.known.is_empty() {
            let known = into.known_by.entry(snapshot.block).or_default();
            snapshot.known.iter().for_each(|prefix| learn(known, *prefix));
        }
        if snapshot.base != 0 {
            into.push((snapshot.block, ALL), snapshot.base);
        }
        if let Some(lanes) = &snapshot.lanes {
            let first = snapshot.thread / 32 * 32;
            for (lane, clock) in lanes.iter().enumerate().filter(|(_, clock)| **clock > snapshot.base) {
                into.push((snapshot.block, first + lane as u16), *clock);
            }
        }
        into.push((snapshot.block, snapshot.thread), snapshot.clock);
    }

    /// Updates the clocks for an atomic operation, which was already checked as an access.
    pub fn atomic(
        &mut self,
        number: u32,
        thread: u32,
        address: usize,
        operation: Operation,
        order: Ordering,
        scope: Scope,
    ) {
        let block = &self.blocks[number as usize];
        let is_relaxed =
            !order.release && block.fenced == 0 && block.threads[thread as usize].fenced.is_none();
        if is_relaxed && self.released.is_empty() {
            return;
        }
        let linear = block.linear;
        if operation != Operation::Store {
            for key in [None, Some(linear)] {
                let Some(&log) = self.released.get(&(address, key)) else { continue };
                let upto = self.logs[log as usize].entries.len() as u32;
                let own_block = scope == Scope::Block || key.is_some();
                let prefix = Prefix { log, upto, own_block };
                let own = &mut self.blocks[number as usize].threads[thread as usize];
                if order.acquire {
                    self.acquire(number, thread, prefix);
                } else if !own.seen.iter().any(|(seen, _)| (seen.log, seen.upto) == (log, upto)) {
                    own.seen.push((prefix, scope));
                }
            }
        }
        if operation == Operation::Load {
            return;
        }
        let fenced = self.blocks[number as usize].threads[thread as usize].fenced.clone();
        let (given, to) = match order.release {
            true => (Some(self.snapshot(number, thread)), scope),
            false => match fenced {
                Some((snapshot, of_fence)) => (Some(snapshot), scope.min(of_fence)),
                None => (None, scope),
            },
        };
        let fenced = self.blocks[number as usize].fenced;
        if operation == Operation::Store {
            self.overwrite(address, linear, given.as_ref());
        }
        if given.is_some() || fenced != 0 {
            let key = (to == Scope::Block).then_some(linear);
            let log = *self.released.entry((address, key)).or_insert_with(|| {
                self.logs.push(Log::default());
                self.logs.len() as u32 - 1
            });
            if fenced != 0 {
                self.logs[log as usize].push((linear, ALL), fenced);
            }
            if let Some(snapshot) = given {
                self.publish(log, &snapshot);
            }
        }
        if order.release {
            self.blocks[number as usize].clocks[thread as usize] += 1;
        }
    }

    /// Ends the release sequences of an address at a store, except for the log that the store itself releases.
    fn overwrite(&mut self, address: usize, linear: u32, given: Option<&Snapshot>) {
        for key in [None, Some(linear)] {
            let Some(&log) = self.released.get(&(address, key)) else { continue };
            let all = self.logs[log as usize].entries.len() as u32;
            // If the thread knows the entire log, its store releases all of it, so the log is continued, as for a lock.
            let knows = |snapshot: &Snapshot| snapshot.known.iter().any(|p| (p.log, p.upto) == (log, all));
            if !given.is_some_and(knows) {
                self.released.remove(&(address, key));
            }
        }
    }

    /// Updates the clocks for a fence.
    pub fn fence(&mut self, number: u32, thread: u32, order: Ordering, scope: Scope) {
        if order.acquire {
            let own = &mut self.blocks[number as usize].threads[thread as usize];
            for (prefix, of_load) in std::mem::take(&mut own.seen) {
                let own_block = prefix.own_block || scope.min(of_load) == Scope::Block;
                self.acquire(number, thread, Prefix { own_block, ..prefix });
            }
        }
        if order.release {
            let snapshot = self.snapshot(number, thread);
            let block = &mut self.blocks[number as usize];
            block.threads[thread as usize].fenced = Some((snapshot, scope));
            block.clocks[thread as usize] += 1;
        }
    }
}
