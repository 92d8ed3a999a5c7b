//! Tests of the emulated driver's race check: true races, and ordered programs without findings.

use std::collections::HashSet;
use std::ffi::c_void;

use crate::machine::*;
use warpsmith_runtime::driver::Result;
use warpsmith_runtime::driver::{
    CaptureMode, DevicePtr, Driver, GraphDriver, HostAccess, HostWork, MemoryDriver, StreamDriver,
};
use warpsmith_runtime::emulated::{EmulatedDriver, Schedule};

fn machine(streams: usize) -> Machine {
    Machine::new(stepped(Schedule::Oldest), streams)
}

/// Returns the only race found.
fn race(m: &Machine) -> String {
    let mut races = m.races();
    assert_eq!(races.len(), 1, "{races:#?}");
    assert!(m.races().is_empty(), "they are given once");
    races.remove(0)
}

fn none(m: &Machine) {
    let races = m.races();
    assert!(races.is_empty(), "{races:#?}");
}

#[test]
fn an_unordered_read_is_found() {
    let m = machine(2);
    let [x, y] = [(); 2].map(|()| m.memory(256));
    m.set(0, x, 1, 256);
    m.copy(1, y, x.offset(16), 100);
    let (text, [first, second]) = (race(&m), [m.streams[0].0, m.streams[1].0]);
    let expected = format!(
        "memset on stream {first} (writes {:#x}..{:#x}) and copy_device on stream {second} (reads {:#x}..{:#x}) \
         access the same bytes, starting at {:#x}, but are not ordered",
        x.0,
        x.0 + 256,
        x.0 + 16,
        x.0 + 116,
        x.0 + 16
    );
    assert_eq!(text, expected);
}

#[test]
fn a_host_wait_orders_later_work() {
    type Wait = fn(&Machine) -> Result<()>;
    let waits: [(Wait, bool); 8] = [
        (|m| m.driver.stream_synchronize(m.context, m.streams[0]), true),
        (|m| m.driver.context_synchronize(m.context), true),
        (|m| m.driver.event_synchronize(m.context, m.record(0)), true),
        // Another stream waits for the first.
        (
            |m| {
                m.order(0, 2);
                m.driver.stream_synchronize(m.context, m.streams[2])
            },
            true,
        ),
        (|m| m.driver.stream_synchronize(m.context, m.streams[2]), false),
        (|m| m.driver.event_synchronize(m.context, m.record(2)), false),
        (|m| m.driver.stream_query(m.context, m.streams[0]).map(|done| assert!(!done)), false),
        (|m| m.driver.event_query(m.context, m.record(0)).map(|done| assert!(!done)), false),
    ];
    for (index, (wait, orders)) in waits.into_iter().enumerate() {
        let m = machine(3);
        let x = m.memory(64);
        m.set(0, x, 1, 64);
        wait(&m).unwrap();
        m.set(1, x, 1, 64);
        assert_eq!(m.races().len(), usize::from(!orders), "{index}");
    }
}

#[test]
fn a_free_without_a_host_wait_races() {
    let m = machine(2);
    let [used, waited, unused] = [(); 3].map(|()| m.memory(64));
    m.set(0, used, 1, 64);
    assert!(m.free(used).is_err(), "the driver refuses what has not run");
    assert!(race(&m).contains("memory_free of"));
    m.set(1, waited, 1, 64);
    m.sync(1);
    m.free(used).unwrap();
    let text = race(&m);
    assert!(text.contains("memset on stream") && text.contains("the host did not wait"), "{text}");
    m.free(waited).unwrap();
    m.free(unused).unwrap();
    none(&m);
}

#[test]
fn mapped_memory_in_use_is_not_unmapped() {
    let m = machine(2);
    let bytes = m.driver.virtual_granularity(m.context).unwrap().unwrap();
    let ptr = m.driver.virtual_reserve(m.context, bytes).unwrap();
    for waits in [false, true] {
        let handle = m.driver.physical_create(m.context, bytes).unwrap();
        // SAFETY: the range is reserved, and the work that uses it has run before the range is unmapped.
        unsafe {
            m.driver.virtual_map(m.context, ptr, bytes, handle).unwrap();
            m.driver.virtual_set_access(m.context, ptr, bytes, &[0]).unwrap();
        }
        m.set(0, ptr, 1, 64);
        m.set(1, m.memory(1), 1, 1);
        m.sync(1);
        if waits {
            m.sync(0);
        }
        // SAFETY: the memset is the oldest task, so it has run.
        unsafe { m.driver.virtual_unmap(m.context, ptr, bytes) }.unwrap();
        let races = m.races();
        assert_eq!(races.len(), usize::from(!waits), "{races:?}");
        assert!(races.iter().all(|race| race.contains("virtual_unmap of")));
    }
}

#[test]
fn a_pinned_free_needs_finished_copies() {
    for waits in [false, true] {
        let m = machine(2);
        let (x, pinned) = (m.memory(64), m.pinned(64));
        m.to_host(0, pinned, x, 64);
        m.set(1, m.memory(1), 1, 1);
        m.sync(1);
        if waits {
            m.sync(0);
        }
        // SAFETY: the copy is the oldest task, so it has run.
        unsafe { m.driver.pinned_free(m.context, pinned) }.unwrap();
        assert_eq!(m.races().len(), usize::from(!waits));
    }
}

#[test]
fn copies_race_for_memory_of_the_host() {
    let m = machine(2);
    let (x, pinned) = (m.memory(64), m.pinned(64));
    m.to_host(0, pinned, x, 64);
    m.to_device(1, m.memory(64), pinned.cast_const(), 64);
    assert!(race(&m).contains("copy_to_device on stream"));
    let [mut first, mut second] = [[0u8; 8]; 2];
    m.to_host(0, first.as_mut_ptr().cast::<c_void>(), x, 8);
    m.to_host(1, second.as_mut_ptr().cast::<c_void>(), x, 8);
    m.driver.context_synchronize(m.context).unwrap();
    none(&m);
    assert_eq!([first, second], [[0xFF; 8]; 2]);
}

#[test]
fn stream_ordered_memory_belongs_to_its_stream() {
    let m = machine(2);
    let allocate = || m.driver.stream_allocate(m.context, 64, m.streams[0]).unwrap();
    // SAFETY: the driver detects unordered uses, and does not release such memory.
    let free = |ptr: DevicePtr, stream: usize| unsafe {
        m.driver.stream_free(m.context, ptr, m.streams[stream]).unwrap();
    };
    let x = allocate();
    m.set(1, x, 1, 64);
    assert!(race(&m).starts_with("stream_allocate on stream"));
    m.order(1, 0);
    free(x, 0);
    none(&m);
    let x = allocate();
    m.set(0, x, 1, 64);
    free(x, 0);
    let x = allocate();
    m.order(0, 1);
    m.set(1, x, 1, 64);
    none(&m);
    m.sync(1);
    m.set(1, x, 1, 64);
    m.driver.set_schedule(Schedule::Starve(m.streams[0]));
    free(x, 0);
    assert!(race(&m).contains("stream_free on stream"));
    m.driver.context_synchronize(m.context).unwrap();
}

#[test]
fn kernels_read_slices_and_write_views_and_atomics() {
    let m = machine(2);
    let [x, counts] = [(); 2].map(|()| m.memory(64));
    m.look(0, (x, 16), (counts, 8));
    m.look(1, (x, 16), (counts.offset(32), 8));
    none(&m);
    m.look(1, (x, 16), (counts, 1));
    assert!(race(&m).contains(&format!("look on stream {} (writes", m.streams[1].0)));
    m.set(1, x.offset(60), 1, 4);
    assert!(race(&m).contains(&format!("look on stream {} (reads", m.streams[0].0)));
    let log = m.log();
    m.append(0, log, 1);
    m.append(1, log, 2);
    assert!(race(&m).contains("append on stream"));
}

#[test]
fn memory_of_two_devices_is_checked_alike() {
    for ordered in [false, true] {
        let driver = stepped(Schedule::Oldest).devices(2).build();
        let [first, second] = [0, 1].map(|ordinal| Machine::on(driver.clone(), ordinal, 1));
        driver.peer_enable(second.context, first.context).unwrap();
        let [x, y] = [first.memory(8), second.memory(8)];
        first.set(0, x, 3, 8);
        if ordered {
            second.wait(0, first.record(0));
        }
        second.copy(0, y, x, 8);
        assert_eq!(driver.take_races().len(), usize::from(!ordered));
    }
}

/// A program as a graph, which stores the direct and indirect predecessors of each task and each host observation.
#[derive(Default)]
struct Graph {
    before: Vec<HashSet<usize>>,
    /// Accesses of each task: start, end, and whether it writes.
    uses: Vec<Vec<(usize, usize, bool)>>,
    newest: [Option<usize>; 4],
    host: Option<usize>,
}

impl Graph {
    fn add(&mut self, after: &[Option<usize>], uses: Vec<(usize, usize, bool)>) -> usize {
        let mut before = HashSet::new();
        for &node in after.iter().flatten() {
            before.insert(node);
            before.extend(&self.before[node]);
        }
        self.before.push(before);
        self.uses.push(uses);
        self.before.len() - 1
    }

    fn enqueue(&mut self, stream: usize, after: Option<usize>, uses: Vec<(usize, usize, bool)>) -> usize {
        let node = self.add(&[self.newest[stream], self.host, after], uses);
        self.newest[stream] = Some(node);
        node
    }

    fn seen(&mut self, node: Option<usize>) {
        self.host = Some(self.add(&[self.host, node], Vec::new()));
    }

    /// Returns true if the newest task races, because an earlier, unordered task uses the same memory and one of the
    /// two writes.
    fn newest_races(&self) -> bool {
        let newest = self.uses.len() - 1;
        let clash =
            |a: &(usize, usize, bool), b: &(usize, usize, bool)| a.0 < b.1 && b.0 < a.1 && (a.2 || b.2);
        let clashes =
            |other: &usize| self.uses[*other].iter().any(|a| self.uses[newest].iter().any(|b| clash(a, b)));
        (0..newest).filter(|other| !self.before[newest].contains(other)).any(|other| clashes(&other))
    }
}

/// Random programs with too few waits. The check must report a task exactly if a search of the whole program finds an
/// earlier conflicting task that is not ordered before it.
#[test]
fn what_is_found_is_what_a_search_finds() {
    let (mut tasks, mut races) = (0, 0);
    for program in 0..300 {
        let mut random = fastrand::Rng::with_seed(program);
        let m = Machine::new(stepped(Schedule::Random(program)), 4);
        let memory = m.memory(64);
        let events: Vec<_> = (0..3).map(|_| m.driver.event_create(m.context, false).unwrap()).collect();
        let mut recorded = [None; 3];
        let mut graph = Graph::default();
        for step in 0..80 {
            let (stream, event) = (random.usize(..4), random.usize(..3));
            match random.usize(..16) {
                0..5 => {
                    m.driver.event_record(m.context, events[event], m.streams[stream]).unwrap();
                    recorded[event] = Some(graph.enqueue(stream, None, Vec::new()));
                }
                5..10 => {
                    m.wait(stream, events[event]);
                    graph.enqueue(stream, recorded[event], Vec::new());
                }
                10 if step % 4 == 0 => {
                    m.sync(stream);
                    graph.seen(graph.newest[stream]);
                }
                10 => {
                    if m.driver.event_query(m.context, events[event]).unwrap() {
                        graph.seen(recorded[event]);
                    }
                    if m.query(stream) {
                        graph.seen(graph.newest[stream]);
                    }
                }
                kind => {
                    let bytes = 1 + random.usize(..12);
                    let (src, dst) = (random.usize(..64 - bytes), random.usize(..64 - bytes));
                    let mut uses = vec![(dst, dst + bytes, true)];
                    if kind < 14 && src.abs_diff(dst) >= bytes {
                        m.copy(stream, memory.offset(dst), memory.offset(src), bytes);
                        uses.push((src, src + bytes, false));
                    } else {
                        m.set(stream, memory.offset(dst), 1, bytes);
                    }
                    graph.enqueue(stream, None, uses);
                    let found = m.races();
                    assert_eq!(!found.is_empty(), graph.newest_races(), "{program}, step {step}: {found:#?}");
                    tasks += 1;
                    races += u32::from(!found.is_empty());
                }
            }
        }
    }
    println!("{tasks} tasks, {races} in a race");
    assert!(races > tasks / 10 && races < tasks * 9 / 10);
}

/// Worker threads run the same program. The same calls must produce the same races, regardless of the timing.
#[test]
fn the_check_works_with_worker_threads() {
    for _ in 0..20 {
        let m = Machine::new(EmulatedDriver::builder().memory(1 << 20).check_races(), 2);
        let x = m.memory(64);
        m.set(0, x, 1, 64);
        m.order(0, 1);
        m.set(1, x, 2, 64);
        m.sync(1);
        m.set(0, x, 3, 64);
        none(&m);
        m.set(1, x.offset(63), 4, 1);
        race(&m);
        m.driver.context_synchronize(m.context).unwrap();
        m.free(x).unwrap();
        none(&m);
    }
}

fn host_work(m: &Machine, stream: usize, ptr: DevicePtr, write: bool) -> Result<()> {
    let work = HostWork::new("work", vec![HostAccess { ptr, bytes: 64, write }], Box::new(|| ()));
    // SAFETY: the work does not access memory.
    unsafe { m.driver.host_work(m.context, m.streams[stream], work) }
}

#[test]
fn host_work_races_by_the_ranges_it_names() {
    let m = machine(2);
    let x = m.memory(128);
    m.set(0, x, 1, 64);
    host_work(&m, 1, x.offset(64), true).unwrap();
    none(&m);
    host_work(&m, 1, x, false).unwrap();
    assert!(race(&m).contains("host_work on stream"));
    m.order(1, 0);
    host_work(&m, 0, x, true).unwrap();
    none(&m);
    // The same in a graph, whose launch is a task of its stream.
    m.driver.capture_begin(m.context, m.streams[0], CaptureMode::Relaxed).unwrap();
    host_work(&m, 0, x, true).unwrap();
    let graph = m.driver.capture_end(m.context, m.streams[0]).unwrap();
    let exec = m.driver.graph_instantiate(m.context, graph).unwrap();
    // SAFETY: the graph's work does not access memory.
    unsafe { m.driver.graph_launch(m.context, exec, m.streams[0]) }.unwrap();
    none(&m);
    m.set(1, x, 2, 1);
    assert!(race(&m).contains("graph_launch on stream"));
}

#[test]
fn host_work_on_freed_memory_is_refused() {
    let m = machine(1);
    let x = m.memory(64);
    host_work(&m, 0, x.offset(1), true).unwrap_err();
    m.free(x).unwrap();
    host_work(&m, 0, x, false).unwrap_err();
}
