//! Pipelines on the device under test: `WARPSMITH_TEST_DEVICE`, the emulated one when it is not set. A device that is
//! not there fails the tests. The work on the device is copies, which every device can do without an image.

use crate::under_test::device;
use warpsmith_runtime::transfer::pipeline::{Failure, ItemTimes, Pipeline, Stage, Strategy};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, PinnedBuffer, Stream};

const STRATEGIES: [Strategy; 3] = [Strategy::InOrder, Strategy::StreamPerItem, Strategy::StreamPerStage];

/// A length, or a smaller one for a device that is emulated.
fn smaller(device: &Device, len: usize) -> usize {
    if device.is_emulated() { len.div_ceil(50) } else { len }
}

/// Different in every element of every item.
fn element(item: usize, i: usize) -> u32 {
    (item as u32).wrapping_mul(0x9E37_79B9).wrapping_add(i as u32)
}

fn inputs(
    device: &Device,
    lens: impl IntoIterator<Item = usize>,
) -> impl Iterator<Item = Result<PinnedBuffer<u32>, Failure>> {
    lens.into_iter().enumerate().map(|(item, len)| {
        let elements: Vec<u32> = (0..len).map(|i| element(item, i)).collect();
        Ok(PinnedBuffer::from_slice(device, &elements)?)
    })
}

fn copy(_: &Stream, input: DeviceSlice<'_, u32>, mut output: DeviceSliceMut<'_, u32>) -> Result<(), Failure> {
    Ok(output.copy_from(input)?)
}

fn check(item: usize, output: &[u32]) -> Result<(), Failure> {
    match output.iter().enumerate().find(|&(i, &found)| found != element(item, i)) {
        None => Ok(()),
        Some((i, found)) => Err(format!("element {i} is {found}, not {}", element(item, i)).into()),
    }
}

#[test]
fn results_are_right_for_every_strategy() {
    let device = device();
    let lens = [1, 40_000, 0, 300_001, 300_000, 7, 1_000_000, 1_000_000, 999_999, 0, 65_536, 1_000_000];
    let lens = lens.map(|len| smaller(&device, len));
    for strategy in STRATEGIES {
        for depth in [1, 2, 3, 5] {
            let mut pipeline = Pipeline::new(&device, strategy, depth).unwrap();
            for _ in 0..2 {
                let mut taken = 0;
                let take = |item: usize, input: PinnedBuffer<u32>, output: &mut PinnedBuffer<u32>| {
                    assert_eq!((item, input.len(), output.len()), (taken, lens[item], lens[item]));
                    taken += 1;
                    check(item, output)
                };
                pipeline.run(inputs(&device, lens), |len| len, copy, take).unwrap();
                assert_eq!(taken, lens.len(), "{pipeline:?}");
            }
        }
    }
}

#[test]
fn a_works_other_stream_is_awaited() {
    let device = device();
    let len = smaller(&device, 1_000_000);
    let side = Stream::new(&device).unwrap();
    for strategy in STRATEGIES {
        let mut pipeline = Pipeline::new(&device, strategy, 2).unwrap();
        let compute = |_: &Stream, input: DeviceSlice<'_, u32>, mut output: DeviceSliceMut<'_, u32>| {
            // By way of a buffer whose copies run on a stream of its own.
            let mut between = DeviceBuffer::<u32>::uninit(&side, input.len())?;
            between.copy_from(input)?;
            Ok(output.copy_from(&between)?)
        };
        let take = |item, _, output: &mut PinnedBuffer<u32>| check(item, output);
        pipeline.run(inputs(&device, [len; 10]), |len| len, compute, take).unwrap();
    }
}

#[test]
fn a_failure_leaves_a_pipeline_that_works() {
    let device = device();
    for strategy in STRATEGIES {
        let mut pipeline = Pipeline::new(&device, strategy, 3).unwrap();
        let take = |item, _, output: &mut PinnedBuffer<u32>| {
            check(item, output)?;
            if item == 4 { Err("enough".into()) } else { Ok(()) }
        };
        let error = pipeline.run(inputs(&device, [20_000; 9]), |len| len, copy, take).unwrap_err();
        assert_eq!((error.item, error.stage), (4, Stage::Take), "{error}");
        let take = |item, _, output: &mut PinnedBuffer<u32>| check(item, output);
        pipeline.run(inputs(&device, [20_000; 9]), |len| len, copy, take).unwrap();
    }
}

/// Whether a copy in ran while the results of an earlier item were computed or copied out.
fn overlaps(timeline: &[ItemTimes]) -> bool {
    timeline.windows(2).any(|pair| pair[1].copy_in.start < pair[0].copy_out.end)
}

#[test]
fn the_timeline_shows_overlap_on_a_gpu() {
    let device = device();
    // 32 MiB: half a millisecond or more to copy.
    let len = smaller(&device, 8 << 20);
    for strategy in STRATEGIES {
        let mut pipeline = Pipeline::new(&device, strategy, 3).unwrap();
        pipeline.record_timeline(true);
        // Made before: the device is not to wait for the host.
        let ready: Vec<_> = inputs(&device, [len; 8]).collect();
        // The first run allocates memory, during which nothing overlaps.
        let mut back = Vec::new();
        let keep = |_, input, _: &mut PinnedBuffer<u32>| {
            back.push(Ok(input));
            Ok(())
        };
        pipeline.run(ready, |len| len, copy, keep).unwrap();
        pipeline.run(back, |len| len, copy, |item, _, output| check(item, output)).unwrap();
        let timeline = pipeline.timeline();
        assert_eq!(timeline.len(), 8);
        for times in timeline {
            let stages = [&times.copy_in, &times.compute, &times.copy_out];
            assert!(stages.iter().all(|stage| 0.0 <= stage.start && stage.start <= stage.end), "{times:?}");
            assert!(stages.windows(2).all(|pair| pair[0].end <= pair[1].start), "{times:?}");
        }
        if strategy == Strategy::InOrder {
            assert!(!overlaps(timeline), "{timeline:?}");
        } else if !device.is_emulated() {
            assert!(overlaps(timeline), "{timeline:?}");
        }
    }
}
