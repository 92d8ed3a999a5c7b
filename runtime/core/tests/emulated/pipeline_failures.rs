//! Pipelines whose closures fail or panic, whose driver fails, whose kernels stop the device; and what is left then.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::common::*;
use crate::support::pipeline::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::transfer::pipeline::{Failure, Pipeline, PipelineError, Stage};
use warpsmith_runtime::{Device, DeviceSlice, DeviceSliceMut, Launch, PinnedBuffer, Stream};

/// Where the closures of a run are to fail.
#[derive(Debug, Clone, Copy)]
struct Fault {
    item: usize,
    stage: Stage,
    panics: bool,
}

impl Fault {
    fn at(self, item: usize, stage: Stage) -> Result<(), Failure> {
        if (item, stage) != (self.item, self.stage) {
            return Ok(());
        }
        assert!(!self.panics, "panic as told");
        Err("failure as told".into())
    }

    /// Runs eight items; gives what came of it and how many results were taken.
    fn run(self, pipeline: &mut Pipeline) -> (Result<(), PipelineError>, usize) {
        let device = pipeline.device().clone();
        let inputs = (0..8).map(|item| {
            self.at(item, Stage::Input)?;
            pinned(&device, item, LEN)
        });
        let computed = Cell::new(0);
        let compute = |stream: &Stream, input: DeviceSlice<'_, f32>, output: DeviceSliceMut<'_, f32>| {
            self.at(computed.replace(computed.get() + 1), Stage::Compute)?;
            double(stream, input, output)
        };
        let taken = Cell::new(0);
        let take = |item, _, output: &mut PinnedBuffer<f32>| {
            assert_eq!(item, taken.get());
            assert_eq!(output[0], (2 * item * 1000) as f32);
            self.at(item, Stage::Take)?;
            taken.set(item + 1);
            Ok(())
        };
        let run = AssertUnwindSafe(|| pipeline.run(inputs, |len| len, compute, take));
        let result = match self.panics {
            false => run.0(),
            true => {
                let panic = catch_unwind(run).unwrap_err();
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"panic as told"));
                Ok(())
            }
        };
        (result, taken.get())
    }
}

/// After a failed run: nothing is left, and the pipeline works.
fn check_afterwards(driver: &EmulatedDriver, mut pipeline: Pipeline) {
    let device = pipeline.device().clone();
    assert_eq!(device.memory().allocated(), 0, "a buffer was left behind");
    run_and_check(&mut pipeline, 5).unwrap();
    drop(pipeline);
    device.synchronize().unwrap();
    device.memory().empty_cache().unwrap();
    device.pinned_memory().empty_cache().unwrap();
    assert_eq!((driver.live_allocations(0), driver.live_pinned()), (0, 0));
}

#[test]
fn a_closures_failure_names_item_and_stage() {
    for item in [0, 1, 4, 7] {
        for stage in [Stage::Input, Stage::Compute, Stage::Take] {
            each_pipeline(&[1, 2, 3], |driver, mut pipeline| {
                driver.set_delay(Duration::from_micros(20));
                let (result, taken) = Fault { item, stage, panics: false }.run(&mut pipeline);
                let error = result.unwrap_err();
                assert_eq!((error.item, error.stage), (item, stage));
                assert_eq!(error.to_string(), format!("item {item}, {stage}: failure as told"));
                let behind = if stage == Stage::Take { 0 } else { pipeline.depth() };
                assert_eq!(taken, item.saturating_sub(behind), "what was taken before it");
                check_afterwards(&driver, pipeline);
                assert!(error.runtime_error().is_none());
            });
        }
    }
}

#[test]
fn a_closures_panic_waits_for_the_device() {
    for item in [0, 3, 7] {
        for stage in [Stage::Input, Stage::Compute, Stage::Take] {
            each_pipeline(&[1, 3], |driver, mut pipeline| {
                driver.set_delay(Duration::from_micros(20));
                let (result, _) = Fault { item, stage, panics: true }.run(&mut pipeline);
                assert!(result.is_ok(), "it panics");
                assert!(pipeline.device().take_drop_error().is_none());
                assert_eq!(Stream::current(pipeline.device()), pipeline.device().default_stream());
                check_afterwards(&driver, pipeline);
            });
        }
    }
}

#[test]
fn a_failed_run_returns_after_its_work() {
    for panics in [false, true] {
        each_pipeline(&[2, 3], |_, mut pipeline| {
            let device = pipeline.device().clone();
            let gate = Gate::new();
            let mut item = 0;
            let compute = |stream: &Stream, input: DeviceSlice<'_, f32>, output: DeviceSliceMut<'_, f32>| {
                item += 1;
                match item {
                    1 => gate.close_stream(stream),
                    // The kernel at the gate still runs when the run begins to end.
                    2 => drop(std::thread::spawn(|| {
                        std::thread::sleep(Duration::from_millis(20));
                        gate.open();
                    })),
                    _ => {}
                }
                Fault { item: 2, stage: Stage::Compute, panics }.at(item, Stage::Compute)?;
                double(stream, input, output)
            };
            let run = || pipeline.run(inputs(&device, 5), |len| len, compute, |_, _, _| Ok(()));
            assert!(catch_unwind(AssertUnwindSafe(run)).is_ok_and(|result| result.is_err()) != panics);
            assert!(gate.is_open(), "it did not wait");
            assert!(!gate.was_forced());
            run_and_check(&mut pipeline, 3).unwrap();
        });
    }
}

#[test]
fn any_call_may_fail_and_runs_go_on() {
    let calls = [
        (Call::CopyToDevice, Some(Stage::CopyIn)),
        (Call::CopyToHost, Some(Stage::CopyOut)),
        (Call::Launch, Some(Stage::Compute)),
        (Call::Memset, Some(Stage::Compute)),
        (Call::EventCreate, None),
        (Call::EventRecord, None),
        (Call::EventSynchronize, None),
        (Call::StreamWaitEvent, None),
        (Call::MemoryAllocate, None),
        (Call::PinnedAllocate, None),
    ];
    let mut failed = 0;
    for (call, stage) in calls {
        for after in [0, 1, 2, 3, 4, 7, 12] {
            each_pipeline(&[1, 3], |driver, mut pipeline| {
                driver.fail_call(call, after);
                let name = format!("{} after {after}, {pipeline:?}", call.name());
                // An allocation that fails is tried again once the cache is empty.
                let retried = [Call::MemoryAllocate, Call::PinnedAllocate].contains(&call);
                if let Err(error) = run_and_check(&mut pipeline, 8) {
                    failed += 1;
                    if let Some(stage) = stage {
                        assert_eq!((error.item, error.stage), (after as usize, stage), "{name}");
                    }
                    let text = error.to_string();
                    assert!(retried || text.contains(call.name()), "{name}: {text}");
                    assert!(error.runtime_error().is_some(), "{name}");
                    assert!(!pipeline.device().is_lost());
                } else {
                    assert!(stage.is_none() || after >= 8, "{name}");
                }
                // An order that the first run did not come to is met by the second.
                let _ = run_and_check(&mut pipeline, 8);
                if driver.calls(call) > after {
                    check_afterwards(&driver, pipeline);
                }
            });
        }
    }
    assert!(failed > 150, "only {failed} runs failed");
}

#[test]
fn a_fault_ends_the_run_with_it() {
    for strategy in STRATEGIES {
        for depth in [1, 3] {
            for bad in [0, 2, 6] {
                let (driver, device) = device();
                let mut pipeline = Pipeline::new(&device, strategy, depth).unwrap();
                let kernel = module(&device).kernel::<PanicAt>().unwrap();
                let mut item = 0;
                let compute =
                    |stream: &Stream, input: DeviceSlice<'_, f32>, output: DeviceSliceMut<'_, f32>| {
                        if item == bad {
                            kernel.launch(stream, Launch::linear(10, 10), (3u32,))?;
                        }
                        item += 1;
                        double(stream, input, output)
                    };
                let mut taken = 0;
                let take = |_, _, _: &mut PinnedBuffer<f32>| {
                    taken += 1;
                    Ok(())
                };
                let error = pipeline.run(inputs(&device, 7), |len| len, compute, take).unwrap_err();
                let name = format!("{strategy:?}, depth {depth}, item {bad}: {error}");
                assert!(error.to_string().contains("`panic_at` panicked"), "{name}");
                assert!(error.item <= bad, "{name}");
                assert_eq!(error.stage, Stage::Compute, "{name}");
                assert!(taken <= error.item, "{name}");
                assert!(device.is_lost());
                assert!(pipeline.run(inputs(&device, 0), |len| len, double, |_, _, _| Ok(())).is_ok());
                drop((pipeline, kernel, device));
                let device = Device::with_driver(driver, 0).unwrap();
                let mut pipeline = Pipeline::new(&device, strategy, depth).unwrap();
                run_and_check(&mut pipeline, 3).unwrap();
            }
        }
    }
}
