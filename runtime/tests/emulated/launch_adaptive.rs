//! Tests of the adaptive launcher on the emulated device: its handling of a program's launches, and its limits.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::launch::Source;
use warpsmith_runtime::launch::policy::{GridChoice, LaunchPolicy, OpenLaunch, Winner};
use warpsmith_runtime::{Device, DeviceBuffer, Launch, Result, Stream};

const N: usize = 5000;

/// A program that launches the same kernel many times.
struct Program {
    stream: Stream,
    x: DeviceBuffer<f32>,
    y: DeviceBuffer<f32>,
    launches: usize,
}

impl Program {
    fn new(device: &Device) -> Self {
        let stream = Stream::new(device).unwrap();
        let x = DeviceBuffer::from_host(&stream, &[1.0f32; N]).unwrap();
        let y = DeviceBuffer::zeros(&stream, N).unwrap();
        Self { stream, x, y, launches: 0 }
    }

    fn launch(&mut self, launch: Launch) -> Result<()> {
        let kernel = module(self.stream.device()).kernel::<Axpy>()?;
        kernel.launch(&self.stream, launch, (1.0, &self.x, &mut self.y))?;
        self.launches += 1;
        Ok(())
    }

    fn source(&self, launch: Launch) -> Source {
        let kernel = module(self.stream.device()).kernel::<Axpy>().unwrap();
        kernel.function().explain(launch).unwrap().source
    }

    /// Launches until the launcher has selected a shape. The waits in between belong to the program, as in any program.
    fn settle(&mut self, launch: Launch) -> usize {
        for launches in 1..=200 {
            self.launch(launch).unwrap();
            self.stream.synchronize().unwrap();
            if self.source(launch) == Source::Measured {
                return launches;
            }
        }
        panic!("not settled after 200 launches")
    }

    fn check(&self) {
        assert!(
            self.y.to_host().unwrap().iter().all(|y| *y == self.launches as f32),
            "every launch did its work"
        );
    }
}

#[test]
fn it_is_off_until_it_is_turned_on() {
    let (driver, device) = device();
    assert!(!device.is_adaptive_launch());
    let mut program = Program::new(&device);
    (0..100).for_each(|_| program.launch(Launch::auto(N)).unwrap());
    assert_eq!((driver.calls(Call::EventCreate), driver.calls(Call::EventRecord)), (0, 0));
    assert_eq!(program.source(Launch::auto(N)), Source::Heuristic);
    program.check();
}

#[test]
fn it_settles_and_then_measures_nothing() {
    let (driver, device) = device();
    device.set_adaptive_launch(true);
    for launch in [Launch::auto(N), Launch::for_bandwidth(N, 12)] {
        let mut program = Program::new(&device);
        let launches = program.settle(launch);
        assert!(launches <= 40, "{launches} launches");
        driver.reset_calls();
        (0..50).for_each(|_| program.launch(launch).unwrap());
        assert_eq!((driver.calls(Call::EventRecord), driver.calls(Call::EventQuery)), (0, 0));
        program.check();
    }
    let text =
        Launch::auto(N).explain(module(&device).kernel::<Axpy>().unwrap().function()).unwrap().to_string();
    assert!(text.contains("adaptive"), "{text}");
}

#[test]
fn it_needs_no_wait_and_few_events() {
    let (driver, device) = device();
    device.set_adaptive_launch(true);
    let mut program = Program::new(&device);
    program.stream.synchronize().unwrap();
    let hold = driver.hold();
    driver.reset_calls();
    // If a launch waited for an event, this would never end.
    (0..200).for_each(|_| program.launch(Launch::auto(N)).unwrap());
    let waits = [Call::EventSynchronize, Call::StreamSynchronize, Call::ContextSynchronize];
    assert!(waits.iter().all(|&call| driver.calls(call) == 0));
    assert!(driver.calls(Call::EventCreate) <= 8, "{}", driver.calls(Call::EventCreate));
    assert_eq!(program.source(Launch::auto(N)), Source::Heuristic);
    drop(hold);
    program.settle(Launch::auto(N));
    program.check();
}

#[test]
fn events_are_destroyed_with_the_device() {
    let (driver, device) = device();
    device.set_adaptive_launch(true);
    let mut program = Program::new(&device);
    let hold = driver.hold();
    (0..10).for_each(|_| program.launch(Launch::auto(N)).unwrap());
    drop(hold);
    drop((program, device));
    assert!(driver.calls(Call::EventCreate) > 0);
    assert_eq!(driver.calls(Call::EventCreate), driver.calls(Call::EventDestroy));
}

#[test]
fn launches_that_leave_nothing_open_are_left_alone() {
    let (driver, device) = device();
    device.set_adaptive_launch(true);
    let mut program = Program::new(&device);
    let shapes = [
        Launch::linear(N, 128),
        Launch::grid_block(40, 128),
        Launch::auto(N).waves(2),
        Launch::auto(N).shared(64),
        Launch::for_bandwidth(N, 12).waves(1).cooperative(),
    ];
    for launch in shapes {
        (0..10).for_each(|_| program.launch(launch).unwrap());
    }
    assert_eq!(driver.calls(Call::EventRecord), 0);
    program.check();
}

/// A policy with a known winner for each kernel.
struct Fixed([(&'static str, u32); 2]);

impl LaunchPolicy for Fixed {
    fn find(&self, launch: &OpenLaunch<'_>) -> Option<(Winner, Source)> {
        let (_, block) = self.0.iter().find(|(symbol, _)| *symbol == launch.symbol)?;
        Some((Winner { block: *block, grid: GridChoice::All }, Source::Tuned))
    }

    fn learn(&self, _: &OpenLaunch<'_>, _: Winner, _: Option<f64>) {}

    fn is_full(&self) -> bool {
        false
    }

    fn watch(&self, _: &Arc<AtomicU64>) {}
}

#[test]
fn an_impossible_winner_is_ignored() {
    let (_, device) = device();
    let explain = |function: &warpsmith_runtime::Function| Launch::auto(N).explain(function).unwrap();
    let [iota, axpy] = [
        module(&device).kernel::<Iota>().unwrap().function().clone(),
        module(&device).kernel::<Axpy>().unwrap().function().clone(),
    ];
    assert_eq!(explain(&iota).source, Source::Heuristic);
    device.set_launch_policy(Arc::new(Fixed([("axpy__f32", 4096), ("iota__u32", 64)])));
    let good = explain(&iota);
    assert_eq!((good.source, good.config.unwrap().block), (Source::Tuned, [64, 1, 1]));
    assert_eq!(explain(&axpy).source, Source::Heuristic);
}

#[test]
fn failing_events_do_not_fail_launches() {
    for call in [Call::EventCreate, Call::EventRecord, Call::EventQuery, Call::EventElapsed] {
        for after in 0..4 {
            let (driver, device) = device();
            device.set_adaptive_launch(true);
            driver.fail_call(call, after);
            let mut program = Program::new(&device);
            program.settle(Launch::auto(N));
            program.check();
            drop((program, device));
            let failed = u64::from(call == Call::EventCreate && driver.calls(call) > after);
            assert_eq!(
                driver.calls(Call::EventCreate),
                driver.calls(Call::EventDestroy) + failed,
                "{}",
                call.name()
            );
        }
    }
}

#[test]
fn threads_may_launch_while_it_measures() {
    let (_, device) = device();
    device.set_adaptive_launch(true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut program = Program::new(&device);
                for _ in 0..60 {
                    program.launch(Launch::auto(N)).unwrap();
                    program.launch(Launch::for_bandwidth(N, 12)).unwrap();
                    program.stream.synchronize().unwrap();
                }
                program.check();
            });
        }
    });
    let program = Program::new(&device);
    let settled = [Launch::auto(N), Launch::for_bandwidth(N, 12)].map(|launch| program.source(launch));
    assert_eq!(settled, [Source::Measured; 2]);
}
