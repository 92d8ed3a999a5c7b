//! Ranges and marks in traces, and schedules of loops.

use std::cell::RefCell;
use std::rc::Rc;

use warpsmith_profiler::trace::Trace;
use warpsmith_profiler::{ProfilerError, ProfilerOptions, Schedule};
use warpsmith_runtime::DeviceBuffer;
use warpsmith_runtime::ranges::{end, mark, range, start as start_range};

use crate::alone::only_alone;
use crate::common::*;
use crate::fixture::*;

#[test]
fn work_belongs_to_the_innermost_range() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    let profiler = start();
    {
        let _outer = range!("outer", color = 0x102030);
        {
            let _inner = range!("inner", category = "layer", payload = 3);
            stream.memset(&mut x, 1).unwrap();
        }
        stream.memset(&mut x, 2).unwrap();
        mark!("between");
    }
    stream.memset(&mut x, 3).unwrap();
    let trace = profiler.stop().unwrap();
    check(&trace);
    let named = |name: &str| *trace.ranges.iter().find(|range| trace.text(range.name) == name).unwrap();
    let (outer, inner) = (named("outer"), named("inner"));
    let of_work: Vec<u64> = trace.transfers.iter().map(|transfer| transfer.range).collect();
    assert_eq!(of_work, [inner.id, outer.id, 0]);
    assert_eq!((inner.parent, outer.parent), (outer.id, 0));
    assert!(outer.start <= inner.start && inner.end <= outer.end);
    assert_eq!((outer.color, text(&trace, inner.category)), (0xff10_2030, "layer".to_owned()));
    assert!(text(&trace, inner.line).starts_with(file!()));
    assert_eq!(text(&trace, trace.marks[0].name), "between");
}

#[test]
fn a_range_may_end_on_another_thread() {
    only_alone!();
    let profiler = start();
    let id = start_range(|| warpsmith_runtime::ranges::Label::new("request"));
    std::thread::spawn(move || end(id)).join().unwrap();
    let _open = range!("open at the end");
    let trace = profiler.stop().unwrap();
    let mut names: Vec<String> = trace.ranges.iter().map(|range| text(&trace, range.name)).collect();
    names.sort();
    assert_eq!(names, ["open at the end", "request"]);
    assert!(trace.ranges.iter().all(|range| range.start < range.end));
}

fn steps(trace: &Trace) -> Vec<String> {
    trace.ranges.iter().map(|range| text(trace, range.name)).collect()
}

#[test]
fn a_schedule_keeps_the_recorded_steps() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u8>::uninit(&stream, 100).unwrap();
    let cycles = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&cycles);
    let handler = move |trace: Trace, cycle| {
        check(&trace);
        seen.borrow_mut().push((cycle, trace.transfers.len(), steps(&trace)));
    };
    let schedule = Schedule { skip: 1, wait: 1, warm_up: 1, record: 2, repeat: 2 };
    let mut steps = schedule.start(ProfilerOptions::default(), handler).unwrap();
    for _ in 0..20 {
        stream.memset(&mut x, 1).unwrap();
        steps.step().unwrap();
    }
    let names = |first: u32| (first..first + 2).map(|step| format!("ProfilerStep#{step}")).collect();
    assert_eq!(*cycles.borrow(), [(0, 2, names(3)), (1, 2, names(7))]);
}

#[test]
fn a_loop_that_ends_early_keeps_its_steps() {
    only_alone!();
    let cycles = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&cycles);
    let schedule = Schedule { skip: 0, wait: 0, warm_up: 0, record: 10, repeat: 0 };
    let mut scheduled = schedule
        .start(ProfilerOptions::default(), move |trace, cycle| seen.borrow_mut().push((cycle, steps(&trace))))
        .unwrap();
    scheduled.step().unwrap();
    drop(scheduled);
    let names = ["ProfilerStep#0", "ProfilerStep#1"].map(str::to_owned).to_vec();
    assert_eq!(*cycles.borrow(), [(0, names)]);
    let empty = Schedule { record: 0, ..schedule };
    let error = empty.start(ProfilerOptions::default(), |_, _| ()).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&ProfilerError::EmptySchedule));
}
