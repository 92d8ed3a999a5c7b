//! Pipelines on the emulated device: results and their order, bounds of memory, what an item costs.

use std::cell::RefCell;
use std::time::Duration;

use crate::common::*;
use crate::support::pipeline::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::transfer::pipeline::{Pipeline, Strategy};
use warpsmith_runtime::{DeviceSlice, DeviceSliceMut, Error, Launch, PinnedBuffer, Stream};

#[test]
fn results_are_right_in_every_configuration() {
    each_pipeline(&[1, 2, 3, 5, 40], |driver, mut pipeline| {
        driver.set_delay(Duration::from_micros(20));
        for items in [0, 1, 2, 17] {
            run_and_check(&mut pipeline, items).unwrap();
        }
    });
}

#[test]
fn lengths_may_differ_between_items() {
    let mut random = random();
    each_pipeline(&[1, 2, 3], |_, mut pipeline| {
        let device = pipeline.device().clone();
        let lens: Vec<usize> = (0..30).map(|_| random.usize(..600) * random.usize(..2)).collect();
        let outs: Vec<usize> = (0..30).map(|_| random.usize(..600) * random.usize(..2)).collect();
        let inputs = lens.iter().enumerate().map(|(item, &len)| pinned(&device, item, len));
        let mut next = outs.iter();
        let mut taken = 0;
        let output_len = |_| *next.next().unwrap();
        let take = |item: usize, input: PinnedBuffer<f32>, output: &mut PinnedBuffer<f32>| {
            assert_eq!((input.len(), output.len()), (lens[item], outs[item]));
            let expected = |i: usize| if i < lens[item] { (2 * (item * 1000 + i)) as f32 } else { 0.0 };
            assert!(output.iter().copied().eq((0..outs[item]).map(expected)), "item {item}");
            taken += 1;
            Ok(())
        };
        pipeline.run(inputs, output_len, double, take).unwrap();
        assert_eq!(taken, 30);
    });
}

#[test]
fn a_depth_of_zero_is_refused() {
    let (_, device) = device();
    for strategy in STRATEGIES {
        let error = Pipeline::new(&device, strategy, 0).unwrap_err();
        assert!(matches!(error, Error::NoDepth), "{error}");
    }
}

#[test]
fn a_kept_output_is_not_reused() {
    each_pipeline(&[1, 3], |_, mut pipeline| {
        let device = pipeline.device().clone();
        let mut kept = Vec::new();
        let take = |_, _, output: &mut PinnedBuffer<f32>| {
            kept.push(std::mem::replace(output, PinnedBuffer::zeroed(&device, LEN)?));
            Ok(())
        };
        pipeline.run(inputs(&device, 9), |len| len, double, take).unwrap();
        for (item, output) in kept.iter().enumerate() {
            assert!(output.iter().copied().eq((0..LEN).map(|i| (2 * (item * 1000 + i)) as f32)));
        }
        assert_eq!(kept.len(), 9);
    });
}

#[test]
fn compute_finds_its_stream_as_the_current_one() {
    each_pipeline(&[2], |_, mut pipeline| {
        let device = pipeline.device().clone();
        let compute = |stream: &Stream, input: DeviceSlice<'_, f32>, output: DeviceSliceMut<'_, f32>| {
            assert_eq!(Stream::current(stream.device()), *stream);
            double(stream, input, output)
        };
        pipeline.run(inputs(&device, 3), |len| len, compute, |_, _, _| Ok(())).unwrap();
        assert_eq!(Stream::current(&device), device.default_stream());
    });
}

#[test]
fn memory_does_not_grow_with_items() {
    for depth in [1, 2, 4] {
        for strategy in STRATEGIES {
            let peaks = [depth + 3, 100].map(|items| {
                let (_, device) = device();
                let mut pipeline = Pipeline::new(&device, strategy, depth).unwrap();
                // The inputs that are not in use.
                let spare = RefCell::new(
                    (0..=depth)
                        .map(|_| PinnedBuffer::<f32>::zeroed(&device, LEN).unwrap())
                        .collect::<Vec<_>>(),
                );
                let inputs = (0..items).map(|item| {
                    let mut input = spare.borrow_mut().pop().ok_or("more inputs are out than depth + 1")?;
                    input.fill(item as f32);
                    Ok(input)
                });
                let take = |item: usize, input, output: &mut PinnedBuffer<f32>| {
                    assert_eq!(output[..], [2.0 * item as f32; LEN]);
                    spare.borrow_mut().push(input);
                    Ok(())
                };
                pipeline.run(inputs, |len| len, double, take).unwrap();
                let (memory, pinned) = (device.memory().statistics(), device.pinned_memory().statistics());
                (memory.allocation.all.peak, memory.allocated_bytes.all.peak, pinned.active_requests.peak)
            });
            // Device buffers for inputs and results; page-locked ones for results, besides the inputs.
            let depth = depth as u64;
            let bytes = 2 * depth * (LEN as u64 * 4).next_multiple_of(512);
            assert_eq!(peaks, [(2 * depth, bytes, 2 * depth + 1); 2], "{strategy:?}, depth {depth}");
        }
    }
}

#[test]
fn shorter_items_use_the_buffers_of_longer_ones() {
    each_pipeline(&[1, 3], |_, mut pipeline| {
        let device = pipeline.device().clone();
        let lens = (0..20).map(|item| 500 - 20 * item);
        let inputs = lens.enumerate().map(|(item, len)| pinned(&device, item, len));
        let before = device.memory().statistics().allocation.all.allocated;
        pipeline.run(inputs, |len| len, double, |_, _, _| Ok(())).unwrap();
        let made = device.memory().statistics().allocation.all.allocated - before;
        assert_eq!(made, 2 * pipeline.depth() as u64);
    });
}

#[test]
fn an_item_costs_exactly_these_calls() {
    for (strategy, records, waits) in
        [(Strategy::InOrder, 2, 0), (Strategy::StreamPerItem, 2, 0), (Strategy::StreamPerStage, 3, 4)]
    {
        for depth in [1, 2, 4] {
            let (driver, device) = device();
            let mut pipeline = Pipeline::new(&device, strategy, depth).unwrap();
            let kernel = module(&device).kernel::<Axpy>().unwrap();
            let mut count = |items: usize| {
                // Page-locked buffers of the run before are seen to be free, which asks their events.
                device.synchronize().unwrap();
                device.pinned_memory().empty_cache().unwrap();
                let mut ready: Vec<_> = inputs(&device, items).collect();
                let mut kept = Vec::new();
                driver.reset_calls();
                let compute =
                    |stream: &Stream, input: DeviceSlice<'_, f32>, output: DeviceSliceMut<'_, f32>| {
                        Ok(kernel.launch(stream, Launch::auto(LEN), (2.0, input, output))?)
                    };
                let take = |_, input, _: &mut PinnedBuffer<f32>| {
                    kept.push(input);
                    Ok(())
                };
                pipeline.run(ready.drain(..), |len| len, compute, take).unwrap();
                Call::ALL.iter().map(|call| driver.calls(*call)).collect::<Vec<_>>()
            };
            // Events and memory are cached after the first.
            count(20);
            let (few, many) = (count(20), count(30));
            let per_item: Vec<(Call, u64)> = Call::ALL
                .iter()
                .zip(few.iter().zip(&many))
                .filter(|(_, (few, many))| few != many)
                .map(|(call, (few, many))| (*call, many - few))
                .collect();
            let mut expected = vec![
                (Call::StreamWaitEvent, 10 * waits),
                (Call::EventRecord, 10 * records),
                (Call::EventSynchronize, 20),
                (Call::CopyToDevice, 10),
                (Call::CopyToHost, 10),
                (Call::Launch, 10),
            ];
            expected.retain(|(_, calls)| *calls > 0);
            assert_eq!(per_item, expected, "{strategy:?}, depth {depth}");
        }
    }
}

#[test]
fn vectors_go_through_pipelines() {
    each_pipeline(&[1, 3], |driver, mut pipeline| {
        driver.set_delay(Duration::from_micros(20));
        // Copied in one piece, and in chunks.
        for (items, len) in [(9, 3), (9, 100), (4, 3 << 20)] {
            let inputs = (0..items).map(|item| Ok(vec![item as f32; len]));
            let mut taken = 0;
            let take = |item: usize, input: Vec<f32>, output: &mut PinnedBuffer<f32>| {
                assert_eq!((item, input.len()), (taken, len));
                assert!(output.iter().all(|x| *x == 2.0 * item as f32));
                taken += 1;
                Ok(())
            };
            pipeline.run(inputs, |len| len.min(1000), double, take).unwrap();
            assert_eq!(taken, items);
        }
    });
}
