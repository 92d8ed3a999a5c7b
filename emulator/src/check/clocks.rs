//! What orders the accesses of a launch: a clock for each thread, and what each thread knows of the others' clocks.
//!
//! A thread's clock advances when it releases: at barriers, releasing atomics and fences. An access happens before another
//! if the thread of the second knows a clock of the first's thread that is not less than the one the first was made at.
//!
//! | ordered by | known as |
//! | --- | --- |
//! | the block's barriers | one number, `base`, for all threads of the block |
//! | `warp::sync` | a row of 32 clocks for each thread |
//! | atomics and fences, barriers of a cluster | prefixes of logs, see [`Log`] |
//!
//! The barrier of the grid orders everything; see [`super::shadow`].

use std::collections::HashMap;

/// Stands for all threads of a block.
const ALL: u16 = u16::MAX;

/// A thread of the grid: the linear index of its block, and its own.
type Id = (u32, u16);

/// Clocks that were released, in the order in which they were: to an address, or by the barrier of a cluster. A thread
/// that acquires knows the log as it is then, a prefix; so to acquire copies nothing.
#[derive(Default)]
struct Log {
    entries: Vec<(Id, u32)>,
    /// Positions in `entries`, ascending; clocks ascend with them.
    of: HashMap<Id, Vec<u32>>,
    /// Entries of other logs that this one contains.
    contains: HashMap<u32, u32>,
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

    /// The clock of `id` in the first `upto` entries, 0 for none.
    fn clock(&self, id: Id, upto: u32) -> u32 {
        let Some(positions) = self.of.get(&id) else { return 0 };
        let count = match positions.last() {
            Some(&last) if last < upto => positions.len(),
            _ => positions.partition_point(|&at| at < upto),
        };
        if count == 0 { 0 } else { self.entries[positions[count - 1] as usize].1 }
    }
}

/// The first entries of a log.
#[derive(Clone, Copy)]
struct Prefix {
    log: u32,
    upto: u32,
    /// Only what it says of the thread's own block: acquired in the scope of a block.
    own_block: bool,
}

/// Adds a prefix to those that a thread knows.
fn learn(known: &mut Vec<Prefix>, new: Prefix) {
    match known.iter_mut().find(|old| old.log == new.log && old.own_block == new.own_block) {
        Some(old) => old.upto = old.upto.max(new.upto),
        None => known.push(new),
    }
}

/// What a thread knows at a moment, itself included.
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
    /// What relaxed loads saw, which a later fence acquires, and the scope of the load.
    seen: Vec<(Prefix, Scope)>,
    /// What the last releasing fence released, and to whom.
    fenced: Option<(Snapshot, Scope)>,
}

/// The threads among which an atomic operation or a fence orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Those of the block.
    Block,
    /// Those of the launch, and more.
    Device,
}

/// Which side of an atomic operation orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ordering {
    /// Accesses before it come before it for those that acquire.
    pub release: bool,
    /// It sees what was released.
    pub acquire: bool,
}

/// What an atomic operation does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and writes.
    Update,
}

/// The clocks of a block that runs.
#[derive(Default)]
pub(super) struct Block {
    /// Its linear index in the grid.
    pub linear: u32,
    /// Its index in the grid.
    pub index: [u32; 3],
    threads: Vec<Thread>,
    /// By thread: its clock.
    clocks: Vec<u32>,
    /// The clock up to which every thread of the block knows the others.
    base: u32,
    /// The clock up to which every thread of the block had a releasing fence before the last barrier: a relaxed atomic of any
    /// of them releases that much.
    fenced: u32,
    /// What every thread of the block knows of other blocks.
    known: Vec<Prefix>,
    /// The warps that have synchronised, for which `lanes` is valid.
    synced: u32,
    /// By thread: the clocks that it knows of the lanes of its warp.
    lanes: Vec<[u32; 32]>,
}

impl Block {
    /// The thread's clock.
    #[inline(always)]
    pub fn clock(&self, thread: u32) -> u32 {
        self.clocks[thread as usize]
    }

    /// Whether a barrier of the block has come since an access by a thread of block `linear` at this clock.
    #[inline(always)]
    pub fn is_past(&self, linear: u32, clock: u32) -> bool {
        linear == self.linear && clock <= self.base
    }
}

/// The clocks of the blocks that run at once.
#[derive(Default)]
pub(super) struct Clocks {
    pub blocks: Vec<Block>,
    logs: Vec<Log>,
    /// The log that was released to an address, and the block if in its scope.
    released: HashMap<(usize, Option<u32>), u32>,
}

impl Clocks {
    /// Forgets everything, for the next launch.
    pub fn begin_launch(&mut self) {
        self.blocks.clear();
        self.logs.clear();
        self.released.clear();
    }

    /// Prepares for a block at place `number` of those that run at once.
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
        }
    }

    /// Every thread of the block has arrived at a barrier of the block.
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

    /// These lanes of a warp have synchronised.
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

    /// Every thread of the blocks of a cluster has arrived.
    pub fn cluster_barrier(&mut self, numbers: std::ops::Range<u32>) {
        let log = self.logs.len() as u32;
        self.logs.push(Log::default());
        for number in numbers.clone() {
            self.block_barrier(number);
            let Block { linear, base, ref mut known, .. } = self.blocks[number as usize];
            let known = std::mem::take(known);
            self.include(log, &known, linear);
            self.logs[log as usize].push((linear, ALL), base);
        }
        let upto = self.logs[log as usize].entries.len() as u32;
        for number in numbers {
            self.blocks[number as usize].known = vec![Prefix { log, upto, own_block: false }];
        }
    }

    /// Whether an access by a thread (of block `linear` of the grid) at this clock happens before what the thread `now` of
    /// this block does.
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

    /// Whether logs that a thread of this block knows say so.
    fn is_known(&self, block: &Block, own: &[Prefix], linear: u32, thread: u32, clock: u32) -> bool {
        let is_own = linear == block.linear;
        own.iter().chain(&block.known).filter(|prefix| is_own || !prefix.own_block).any(|prefix| {
            let log = &self.logs[prefix.log as usize];
            clock <= log.clock((linear, ALL), prefix.upto)
                || clock <= log.clock((linear, thread as u16), prefix.upto)
        })
    }

    /// Adds what prefixes say to a log; `linear` is the block of the thread that knows them.
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

    fn publish(&mut self, log: u32, snapshot: &Snapshot) {
        self.include(log, &snapshot.known, snapshot.block);
        let into = &mut self.logs[log as usize];
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

    /// An atomic operation, after it was checked as an access.
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
                    learn(&mut own.known, prefix);
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

    /// A store ends what was released to the address before, except to what the store itself releases.
    fn overwrite(&mut self, address: usize, linear: u32, given: Option<&Snapshot>) {
        for key in [None, Some(linear)] {
            let Some(&log) = self.released.get(&(address, key)) else { continue };
            let all = self.logs[log as usize].entries.len() as u32;
            // A thread that knows all of the log releases all of it: the log goes on, as in a lock.
            let knows = |snapshot: &Snapshot| snapshot.known.iter().any(|p| (p.log, p.upto) == (log, all));
            if !given.is_some_and(knows) {
                self.released.remove(&(address, key));
            }
        }
    }

    /// A fence.
    pub fn fence(&mut self, number: u32, thread: u32, order: Ordering, scope: Scope) {
        if order.acquire {
            let own = &mut self.blocks[number as usize].threads[thread as usize];
            for (prefix, of_load) in std::mem::take(&mut own.seen) {
                let own_block = prefix.own_block || scope.min(of_load) == Scope::Block;
                learn(&mut own.known, Prefix { own_block, ..prefix });
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
