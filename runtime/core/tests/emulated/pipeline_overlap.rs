//! What of a pipeline runs at the same time: proved with a gate at which one of its streams stands still.

use std::time::{Duration, Instant};

use crate::common::*;
use crate::support::pipeline::*;
use warpsmith_runtime::transfer::pipeline::{Pipeline, Strategy};
use warpsmith_runtime::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Launch, PinnedBuffer, Stream};

/// Whether the elements come to be, as seen on a stream of which the pipeline knows nothing.
fn arrives(stream: &Stream, elements: DeviceSlice<'_, f32>, patience: Duration) -> bool {
    let host = PinnedBuffer::zeroed(stream.device(), elements.len()).unwrap();
    // The copy waits by itself for what writes the elements, and for nothing else.
    let copy = stream.copy_to_host(elements, host).unwrap();
    let start = Instant::now();
    while start.elapsed() < patience {
        if copy.is_done().unwrap() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

#[test]
fn the_next_input_copies_during_a_compute() {
    for (strategy, overlaps) in
        [(Strategy::StreamPerStage, true), (Strategy::StreamPerItem, true), (Strategy::InOrder, false)]
    {
        let (_, device) = device();
        let mut pipeline = Pipeline::new(&device, strategy, 2).unwrap();
        let probe = Stream::new(&device).unwrap();
        let gate = Gate::new();
        let mut item = 0;
        let compute = |stream: &Stream, input: DeviceSlice<'_, f32>, output: DeviceSliceMut<'_, f32>| {
            match item {
                0 => gate.close_stream(stream),
                1 => {
                    let patience = if overlaps { PATIENCE } else { Duration::from_millis(5) };
                    assert_eq!(arrives(&probe, input, patience), overlaps, "{strategy:?}");
                    gate.open();
                }
                _ => {}
            }
            item += 1;
            double(stream, input, output)
        };
        pipeline.run(inputs(&device, 3), |len| len, compute, |_, _, _| Ok(())).unwrap();
        assert!(!gate.was_forced());
    }
}

#[test]
fn a_result_copies_out_during_a_compute() {
    for strategy in [Strategy::StreamPerStage, Strategy::StreamPerItem] {
        let (_, device) = device();
        let mut pipeline = Pipeline::new(&device, strategy, 2).unwrap();
        let gate = Gate::new();
        let mut next = 0;
        let compute = |stream: &Stream, input: DeviceSlice<'_, f32>, output: DeviceSliceMut<'_, f32>| {
            if next == 1 {
                gate.close_stream(stream);
            }
            next += 1;
            double(stream, input, output)
        };
        let take = |item, _, output: &mut PinnedBuffer<f32>| {
            assert_eq!(output[1], (2 * (item * 1000 + 1)) as f32);
            assert_eq!(gate.is_open(), item > 0);
            gate.open();
            Ok(())
        };
        pipeline.run(inputs(&device, 5), |len| len, compute, take).unwrap();
        assert!(!gate.was_forced(), "{strategy:?}: the result came only after the gate");
    }
}

#[test]
fn an_inputs_buffer_is_reused_after_its_compute() {
    for depth in [1, 2, 3] {
        let (_, device) = device();
        let mut pipeline = Pipeline::new(&device, Strategy::StreamPerStage, depth).unwrap();
        let [side, probe] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let kernel = module(&device).kernel::<Axpy>().unwrap();
        let zeros = DeviceBuffer::<f32>::zeros(&side, LEN).unwrap();
        let gate = Gate::new();
        let mut item = 0;
        let compute = |stream: &Stream, input: DeviceSlice<'_, f32>, mut output: DeviceSliceMut<'_, f32>| {
            let number = item;
            item += 1;
            if number == depth {
                assert!(arrives(&probe, input, PATIENCE), "depth {depth}");
                gate.open();
            }
            double(stream, input, output.reborrow())?;
            if number == 0 {
                // The result is written once more, by a stream of which the pipeline knows nothing. Its copy out has
                // to wait for that, and stands still.
                gate.close_stream(&side);
                kernel.launch(&side, Launch::auto(LEN), (0.0, &zeros, output))?;
            }
            Ok(())
        };
        pipeline.run(inputs(&device, 6), |len| len, compute, |_, _, _| Ok(())).unwrap();
        assert!(!gate.was_forced());
    }
}

#[test]
fn the_timeline_tells_when_the_stages_ran() {
    each_pipeline(&[1, 3], |_, mut pipeline| {
        run_and_check(&mut pipeline, 4).unwrap();
        assert!(pipeline.timeline().is_empty(), "it was not requested");
        pipeline.record_timeline(true);
        for items in [7, 5] {
            run_and_check(&mut pipeline, items).unwrap();
            let timeline = pipeline.timeline();
            assert!(timeline.iter().map(|times| times.item).eq(0..items));
            for times in timeline {
                let stages = [&times.copy_in, &times.compute, &times.copy_out];
                assert!(stages.iter().all(|stage| 0.0 <= stage.start && stage.start <= stage.end));
                assert!(stages.windows(2).all(|pair| pair[0].end <= pair[1].start), "{times:?}");
            }
            let pairs = || timeline.windows(2).map(|pair| (&pair[0], &pair[1]));
            match pipeline.strategy() {
                Strategy::InOrder => assert!(pairs().all(|(x, y)| x.copy_out.end <= y.copy_in.start)),
                Strategy::StreamPerItem => {}
                Strategy::StreamPerStage => assert!(pairs().all(|(x, y)| {
                    x.copy_in.end <= y.copy_in.start
                        && x.compute.end <= y.compute.start
                        && x.copy_out.end <= y.copy_out.start
                })),
            }
        }
        pipeline.record_timeline(false);
        run_and_check(&mut pipeline, 1).unwrap();
        assert!(pipeline.timeline().is_empty());
    });
}
