//! Tests of the emulated driver without worker threads: when and in which order tasks run.

use std::collections::HashSet;
use std::sync::Barrier;

use crate::machine::*;
use warpsmith_runtime::driver::{DevicePtr, Driver, StreamDriver};
use warpsmith_runtime::emulated::{Call, Schedule};

/// Returns the order in which five tasks on each of four streams run, by stream.
fn order_of_twenty(schedule: Schedule) -> Vec<u32> {
    let m = Machine::new(stepped(Schedule::Oldest), 4);
    let log = m.log();
    m.driver.set_schedule(schedule);
    for round in 0..5 {
        for stream in 0..4 {
            m.append(stream, log, 10 * stream as u32 + round);
        }
    }
    m.driver.context_synchronize(m.context).unwrap();
    m.ids(log)
}

#[test]
fn nothing_runs_before_a_wait() {
    let m = Machine::new(stepped(Schedule::Random(1)), 2);
    let memory = m.memory(8);
    m.set(0, memory, 1, 8);
    let event = m.record(0);
    for _ in 0..100 {
        assert!(!m.query(0));
        assert!(!m.driver.event_query(m.context, event).unwrap());
    }
    assert!(m.query(1), "nothing is enqueued there");
    assert_eq!(m.bytes(memory, 8), [0xFF; 8]);
    m.driver.event_synchronize(m.context, event).unwrap();
    assert!(m.query(0) && m.driver.event_query(m.context, event).unwrap());
    assert_eq!(m.bytes(memory, 8), [1; 8]);
}

#[test]
fn dropping_the_driver_runs_enqueued_work() {
    let m = Machine::new(stepped(Schedule::Newest), 2);
    let memory = m.memory(8);
    m.set(0, memory, 1, 4);
    m.order(0, 1);
    m.copy(1, memory.offset(4), memory, 4);
    // SAFETY: the handle is not used afterwards.
    unsafe { m.driver.stream_destroy(m.context, m.streams[1]) };
    assert_eq!(m.bytes(memory, 8), [1; 8]);
    let pinned = m.pinned(8);
    m.to_host(0, pinned, memory, 8);
    drop(m);
}

#[test]
fn a_seed_determines_the_order() {
    let orders: HashSet<Vec<u32>> = (0..50)
        .map(|seed| {
            let order = order_of_twenty(Schedule::Random(seed));
            assert_eq!(order, order_of_twenty(Schedule::Random(seed)));
            for stream in 0..4 {
                let own = order.iter().copied().filter(|id| id / 10 == stream);
                assert!(own.eq(10 * stream..10 * stream + 5), "{order:?}");
            }
            order
        })
        .collect();
    assert_eq!(orders.len(), 50);
}

#[test]
fn schedules_choose_among_ready_streams() {
    let by_round = |round| [0u32, 10, 20, 30].map(|stream| stream + round);
    let by_stream = |stream: u32| [0, 1, 2, 3, 4].map(|round| 10 * stream + round);
    assert_eq!(order_of_twenty(Schedule::Oldest), [0, 1, 2, 3, 4].map(by_round).concat());
    // All streams end with a task of the last round, so the last stream comes first, followed by the one before it.
    let m = Machine::new(stepped(Schedule::Oldest), 4);
    let log = m.log();
    m.driver.set_schedule(Schedule::Newest);
    for stream in 0..4 {
        for id in by_stream(stream) {
            m.append(stream as usize, log, id);
        }
    }
    m.driver.context_synchronize(m.context).unwrap();
    let all = m.ids(log);
    // Although the first stream is waited for, the newest tasks run first.
    assert_eq!(all, [3, 2, 1, 0].map(by_stream).concat());
}

#[test]
fn a_starved_stream_runs_when_nothing_else_can() {
    let m = Machine::new(stepped(Schedule::Oldest), 3);
    let log = m.log();
    m.driver.set_schedule(Schedule::Starve(m.streams[0]));
    for id in [0, 1] {
        m.append(0, log, id);
    }
    let starved = m.record(0);
    m.append(0, log, 2);
    m.append(1, log, 10);
    m.wait(1, starved);
    m.append(1, log, 11);
    for id in [20, 21] {
        m.append(2, log, id);
    }
    m.sync(2);
    assert_eq!(m.ids(log), [10, 20, 21], "the other stream waits for the starved one");
    m.append(2, log, 22);
    m.sync(0);
    assert_eq!(m.ids(log), [10, 20, 21, 22, 0, 1, 11, 2], "only as far as another stream needs it");
}

#[test]
fn host_threads_take_turns() {
    for seed in 0..100 {
        let m = Machine::new(stepped(Schedule::Random(seed)), 4);
        let [x, y] = [(); 2].map(|()| m.memory(64));
        let meet = Barrier::new(2);
        std::thread::scope(|scope| {
            for (own, other, memory) in [(0, 2, x), (1, 3, y)] {
                let (m, meet) = (&m, &meet);
                scope.spawn(move || {
                    meet.wait();
                    for round in 0..20 {
                        m.set(own, memory, round, 32);
                        m.order(own, other);
                        m.copy(other, memory.offset(32), memory, 32);
                        m.order(other, own);
                        m.sync(if round % 2 == 0 { own } else { other });
                        // The other thread runs only tasks of its own memory.
                        assert_eq!(m.bytes(memory, 64), [round; 64]);
                    }
                });
            }
        });
        assert!(m.races().is_empty());
    }
}

/// Enqueues a random program of 20 tasks on 4 streams and 6 pieces of memory, with the events that it requires. Returns
/// the final values of the pieces after execution in program order.
fn random_program(m: &Machine, memory: DevicePtr, random: &mut fastrand::Rng) -> [u8; 6] {
    let mut last = [0; 6];
    let mut model = [0xFF; 6];
    let piece = |index: usize| memory.offset(16 * index);
    for value in 0..20 {
        let (stream, dst, src) = (random.usize(..4), random.usize(..6), random.usize(..6));
        let mut used = vec![dst];
        if value % 3 != 0 && src != dst {
            used.push(src);
        }
        for index in &used {
            if last[*index] != stream {
                m.order(last[*index], stream);
            }
            last[*index] = stream;
        }
        if let [_, src] = used[..] {
            m.copy(stream, piece(dst), piece(src), 16);
            model[dst] = model[src];
        } else {
            m.set(stream, piece(dst), value, 16);
            model[dst] = value;
        }
    }
    model
}

#[test]
fn correct_programs_are_correct_under_every_schedule() {
    for program in 0..300 {
        let m = Machine::new(stepped(Schedule::Oldest), 4);
        let schedule = match program % 10 {
            0 => Schedule::Oldest,
            1 => Schedule::Newest,
            index @ 2..6 => Schedule::Starve(m.streams[index - 2]),
            _ => Schedule::Random(program as u64),
        };
        m.driver.set_schedule(schedule);
        let memory = m.memory(96);
        let model = random_program(&m, memory, &mut fastrand::Rng::with_seed(program as u64));
        m.driver.context_synchronize(m.context).unwrap();
        let expected: Vec<u8> = model.iter().flat_map(|value| [*value; 16]).collect();
        assert_eq!(m.bytes(memory, 96), expected, "program {program}, {schedule:?}");
        assert!(m.races().is_empty());
        m.free(memory).unwrap();
        assert!(m.races().is_empty());
    }
}

/// Omits each wait of many programs once. Other waits may order the same work, but the race check must report a race
/// whenever the bytes are wrong.
#[test]
fn a_wait_left_out_is_found() {
    let (mut skipped, mut racy, mut wrong) = (0, 0, 0);
    for program in 0..40 {
        let mut wait = 0;
        loop {
            let m = Machine::new(stepped(Schedule::Newest), 4);
            let memory = m.memory(96);
            // SAFETY: the driver is stepped, and the memory outlives the enqueued work.
            unsafe { m.driver.skip_wait(wait) };
            let model = random_program(&m, memory, &mut fastrand::Rng::with_seed(program));
            m.driver.context_synchronize(m.context).unwrap();
            let expected: Vec<u8> = model.iter().flat_map(|value| [*value; 16]).collect();
            let (races, right) = (m.races(), m.bytes(memory, 96) == expected);
            if m.driver.calls(Call::StreamWaitEvent) <= wait {
                assert!(races.is_empty() && right);
                break;
            }
            assert!(right || !races.is_empty(), "program {program}, wait {wait}");
            skipped += 1;
            racy += u32::from(!races.is_empty());
            wrong += u32::from(!right);
            wait += 1;
        }
    }
    println!("{skipped} waits left out: {racy} programs raced, {wrong} gave incorrect bytes");
    assert!(skipped > 400 && racy > 100 && wrong > 50, "{skipped}, {racy}, {wrong}");
}
