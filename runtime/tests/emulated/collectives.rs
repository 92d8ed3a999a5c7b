//! Tests of broadcast, scatter and gather on one to three devices: results, order, number of driver calls, and errors.

use std::sync::Arc;

use crate::transfers::*;
use warpsmith_runtime::emulated::{Call, EmulatedDriver, EmulatedDriverBuilder, Schedule};
use warpsmith_runtime::transfer::CHUNK_BYTES;
use warpsmith_runtime::transfer::collective::{
    COALESCE_BYTES, broadcast, broadcast_coalesced, broadcast_into, combine_coalesced, gather,
    gather_columns, gather_into, gather_to_host, scatter, scatter_columns, scatter_into,
};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSlice, Error, Stream};

/// Devices of one driver, with one stream each.
struct Fixture {
    driver: Arc<EmulatedDriver>,
    devices: Vec<Device>,
    streams: Vec<Stream>,
    what: String,
}

impl Fixture {
    fn new(builder: EmulatedDriverBuilder, devices: u32, access: bool) -> Self {
        let builder = builder.devices(devices);
        let driver = if access { builder } else { builder.without_peer_access() }.build();
        let devices: Vec<_> =
            (0..devices).map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap()).collect();
        let streams = devices.iter().map(|device| Stream::new(device).unwrap()).collect();
        let what = format!("{} devices, access: {access}", devices.len());
        Self { driver, devices, streams, what }
    }

    /// Fails if any memory is still in use after the caller has dropped its buffers.
    fn finish(self) {
        // Memory that waited for streams of other devices is free after the second round.
        for device in self.devices.iter().chain(&self.devices) {
            device.synchronize().unwrap();
            device.memory().empty_cache().unwrap();
            device.pinned_memory().empty_cache().unwrap();
        }
        for device in &self.devices {
            assert_eq!(self.driver.live_allocations(device.id().ordinal()), 0, "{}", self.what);
            assert!(device.take_drop_error().is_none(), "{}", self.what);
        }
        assert_eq!(self.driver.live_pinned(), 0, "{}", self.what);
    }
}

fn builder() -> EmulatedDriverBuilder {
    EmulatedDriver::builder().memory(1 << 30)
}

/// Returns fixtures with one, two and three devices, with and without peer access.
fn fixtures() -> impl Iterator<Item = Fixture> {
    (1..=3).flat_map(|devices| [true, false].map(|access| Fixture::new(builder(), devices, access)))
}

/// Returns the number of calls that enqueue a copy or allocate device memory.
fn copies(driver: &EmulatedDriver) -> u64 {
    let calls =
        [Call::CopyPeer, Call::CopyDevice, Call::CopyToHost, Call::CopyToDevice, Call::MemoryAllocate];
    calls.map(|call| driver.calls(call)).iter().sum()
}

fn lens(buffers: &[DeviceBuffer<u8>]) -> Vec<usize> {
    buffers.iter().map(DeviceBuffer::len).collect()
}

#[test]
fn broadcast_copies_to_every_stream_without_waiting() {
    for fixture in fixtures() {
        // Two copies for each device, including the source's device.
        let streams: Vec<_> = fixture.streams.iter().chain(&fixture.streams).cloned().collect();
        for length in [0, 1, 1000, 2 * CHUNK_BYTES + 7] {
            let what = format!("{}, {length}", fixture.what);
            let bytes = pattern(length, 3);
            let mut source = DeviceBuffer::from_host(&fixture.streams[0], &bytes).unwrap();
            let hold = fixture.driver.hold();
            let mut targets = broadcast(&source, &streams).unwrap();
            assert!(
                length == 0 || !streams.iter().any(|stream| stream.query().unwrap()),
                "{what}: nothing ran"
            );
            fixture.streams[0].memset(&mut source, 0).unwrap();
            fixture.streams[0].memset(&mut targets[0], 9).unwrap();
            drop((hold, source));
            assert_eq!(targets.len(), streams.len(), "{what}");
            for (index, (target, stream)) in targets.iter().zip(&streams).enumerate() {
                assert!(target.stream() == stream, "{what}, {index}");
                let expected = if index == 0 { vec![9; length] } else { bytes.clone() };
                assert_same(&target.to_host().unwrap(), &expected, &format!("{what}, {index}"));
            }
        }
        fixture.finish();
    }
}

#[test]
fn scatter_divides_as_torch_chunk_does() {
    let divided: [(usize, &[usize]); 8] = [
        (0, &[0, 0, 0]),
        (1, &[1, 0, 0]),
        (2, &[1, 1, 0]),
        (3, &[1, 1, 1]),
        (4, &[2, 2, 0]),
        (5, &[2, 2, 1]),
        (7, &[3, 3, 1]),
        (3 * CHUNK_BYTES + 1, &[CHUNK_BYTES + 1, CHUNK_BYTES + 1, CHUNK_BYTES - 1]),
    ];
    for fixture in fixtures() {
        let streams: Vec<_> = fixture.streams.iter().cycle().take(3).cloned().collect();
        for (length, expected) in divided {
            let bytes = pattern(length, 1);
            let source = DeviceBuffer::from_host(&fixture.streams[0], &bytes).unwrap();
            let chunks = scatter(&source, &streams, None).unwrap();
            assert_eq!(lens(&chunks), expected, "{}, {length}", fixture.what);
            let found: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.to_host().unwrap()).collect();
            assert_same(&found, &bytes, &fixture.what);
            assert!(chunks.iter().zip(&streams).all(|(chunk, stream)| chunk.stream() == stream));
        }
        fixture.finish();
    }
}

#[test]
fn gather_joins_slices_of_all_devices_in_order() {
    for fixture in fixtures() {
        let bytes = pattern(CHUNK_BYTES + 300, 7);
        let (sizes, mut start) = ([100, 0, CHUNK_BYTES + 1, 199], 0);
        let buffers: Vec<_> = sizes
            .iter()
            .zip(fixture.streams.iter().rev().cycle())
            .map(|(size, stream)| {
                start += size;
                DeviceBuffer::from_host(stream, &bytes[start - size..start]).unwrap()
            })
            .collect();
        for target in &fixture.streams {
            let hold = fixture.driver.hold();
            let all = gather(&buffers, target).unwrap();
            let [first, .., last] = &buffers[..] else { unreachable!() };
            let some = gather([last.slice(..5), first.slice(90..), all.slice(..1)], target).unwrap();
            drop(hold);
            assert!(all.stream() == target, "{}", fixture.what);
            assert_same(&all.to_host().unwrap(), &bytes, &fixture.what);
            let from = start - 199;
            let expected = [&bytes[from..from + 5], &bytes[90..100], &bytes[..1]].concat();
            assert_same(&some.to_host().unwrap(), &expected, &fixture.what);
        }
        drop(buffers);
        fixture.finish();
    }
}

/// Runs broadcast, scatter, gather and the coalesced broadcast, with writes before and after them on other streams of
/// the devices.
fn program(fixture: &Fixture) {
    let others: Vec<_> = fixture.devices.iter().map(|device| Stream::new(device).unwrap()).collect();
    let mut source = DeviceBuffer::<u8>::uninit(&others[0], 999).unwrap();
    fixture.streams[0].memset(&mut source, 1).unwrap();
    let mut copies = broadcast(&source, &fixture.streams).unwrap();
    others[0].memset(&mut source, 2).unwrap();
    let mut chunks = scatter(&source, &fixture.streams, None).unwrap();
    others[0].memset(&mut source, 3).unwrap();
    let packed =
        broadcast_coalesced([&source, &copies[0], &chunks[0]], &fixture.streams, COALESCE_BYTES).unwrap();
    drop(source);
    let gathered = gather(&copies, &others[0]).unwrap();
    for ((copy, chunk), other) in copies.iter_mut().zip(&mut chunks).zip(&others) {
        other.memset(copy, 4).unwrap();
        other.memset(chunk, 5).unwrap();
    }
    let rejoined = gather(&chunks, fixture.streams.last().unwrap()).unwrap();
    drop(chunks);
    let all = |slice: DeviceSlice<'_, u8>, value: u8| {
        assert!(slice.to_host().unwrap().iter().all(|byte| *byte == value), "{}: not {value}", fixture.what);
    };
    all(gathered.as_slice(), 1);
    all(rejoined.as_slice(), 5);
    copies.iter().for_each(|copy| all(copy.as_slice(), 4));
    for packed in &packed {
        packed.slices().into_iter().zip([3, 1, 2]).for_each(|(slice, value)| all(slice, value));
    }
}

#[test]
fn every_schedule_keeps_collectives_in_order() {
    for seed in 0..30 {
        for (devices, access) in [(1, true), (2, true), (3, true), (2, false), (3, false)] {
            let builder = builder().stepped(Schedule::Random(seed)).check_races();
            let fixture = Fixture::new(builder, devices, access);
            program(&fixture);
            let races = fixture.driver.take_races();
            assert!(races.is_empty(), "{}, seed {seed}: {races:?}", fixture.what);
        }
    }
}

#[test]
fn every_collective_refuses_an_empty_list() {
    let fixture = Fixture::new(builder(), 1, true);
    let source = DeviceBuffer::from_host(&fixture.streams[0], &[1u8, 2]).unwrap();
    let none: [&DeviceBuffer<u8>; 0] = [];
    let errors = [
        (broadcast(&source, &[]).unwrap_err(), "broadcast: the list of streams is empty"),
        (scatter(&source, &[], None).unwrap_err(), "scatter: the list of streams is empty"),
        (scatter(&source, &[], Some(&[])).unwrap_err(), "scatter: the list of streams is empty"),
        (gather(none, &fixture.streams[0]).unwrap_err(), "gather: the list of sources is empty"),
        (
            broadcast_coalesced([&source], &[], 100).unwrap_err(),
            "broadcast_coalesced: the list of streams is empty",
        ),
    ];
    for (error, text) in errors {
        assert!(matches!(error, Error::EmptyList { .. }), "{error}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
    let empty = broadcast_coalesced(none, &fixture.streams, 100).unwrap();
    assert!(empty.len() == 1 && empty[0].slices().is_empty(), "nothing to copy is no error");
}

#[test]
fn chunk_lengths_that_do_not_fit_are_refused() {
    let fixture = Fixture::new(builder(), 2, true);
    let source = DeviceBuffer::from_host(&fixture.streams[0], &[1u8; 10]).unwrap();
    fixture.driver.reset_calls();
    let bad: [&[usize]; 7] =
        [&[], &[10], &[5, 4], &[5, 6], &[5, 4, 1], &[usize::MAX, 11], &[usize::MAX, usize::MAX]];
    for lens in bad {
        let error = scatter(&source, &fixture.streams, Some(lens)).unwrap_err();
        let Error::BadChunks { chunks, streams: 2, len: 10, .. } = error else { panic!("{lens:?}: {error}") };
        assert_eq!(chunks, lens.len());
    }
    let error = scatter(&source, &fixture.streams, Some(&[5, 4])).unwrap_err().to_string();
    assert!(
        error.contains(
            "2 chunk lengths with a sum of 9 elements were passed for 2 streams and a source of 10"
        ),
        "{error}"
    );
    assert_eq!(copies(&fixture.driver), 0);
    // A buffer of zero-sized elements can have this number of elements.
    let nothing = DeviceBuffer::<()>::uninit(&fixture.streams[0], usize::MAX).unwrap();
    let error = scatter(&nothing, &fixture.streams, Some(&[usize::MAX, 1])).unwrap_err();
    assert!(matches!(error, Error::BadChunks { .. }), "{error}");
    assert!(matches!(gather([&nothing, &nothing], &fixture.streams[0]), Err(Error::TooManyElements { .. })));
    let halves = scatter(&nothing, &fixture.streams, None).unwrap();
    assert_eq!((halves[0].len(), halves[1].len()), (usize::MAX / 2 + 1, usize::MAX / 2));
}

#[test]
fn any_call_may_fail_and_the_next_works() {
    let calls = [
        Call::MemoryAllocate,
        Call::PeerEnable,
        Call::CopyPeer,
        Call::CopyDevice,
        Call::PinnedAllocate,
        Call::CopyToHost,
        Call::CopyToDevice,
        Call::EventRecord,
        Call::StreamWaitEvent,
    ];
    let mut failures = 0;
    for (access, call) in [true, false].into_iter().flat_map(|access| calls.map(|call| (access, call))) {
        for after in 0.. {
            let fixture = Fixture::new(builder(), 3, access);
            let bytes = pattern(10_000, 5);
            let source = DeviceBuffer::from_host(&fixture.streams[0], &bytes).unwrap();
            let before = fixture.driver.calls(call);
            fixture.driver.fail_call(call, after);
            let round = || -> Result<DeviceBuffer<u8>, Error> {
                let chunks = scatter(&source, &fixture.streams, None)?;
                broadcast(&chunks[1], &fixture.streams)?;
                let packed = broadcast_coalesced(&chunks, &fixture.streams, COALESCE_BYTES)?;
                gather(packed[2].slices(), &fixture.streams[1])
            };
            let result = round();
            let met = fixture.driver.calls(call) - before > after;
            failures += u32::from(result.is_err());
            drop(result);
            // If the injected failure has not occurred yet, it occurs here exactly once.
            let gathered = round().or_else(|_| round()).unwrap();
            let found = gathered.to_host().or_else(|_| gathered.to_host()).unwrap();
            assert_same(&found, &bytes, &format!("{} {after}, {}", call.name(), fixture.what));
            drop((gathered, source));
            fixture.finish();
            if !met {
                break;
            }
        }
    }
    assert!(failures > 40, "{failures}");
}

#[test]
fn a_coalesced_broadcast_gives_every_device_all() {
    for fixture in fixtures() {
        let sizes = [3, 0, 300, 256, 1, 5000, 20, 0, 70];
        let bytes: Vec<_> = (0u8..).zip(sizes).map(|(seed, size)| pattern(size, seed)).collect();
        // The sources may be on different devices.
        let streams = fixture.streams.iter().cycle();
        let sources: Vec<_> = bytes
            .iter()
            .zip(streams)
            .map(|(bytes, stream)| DeviceBuffer::from_host(stream, bytes).unwrap())
            .collect();
        for buffer_bytes in [0, 1, 512, 1000, COALESCE_BYTES, usize::MAX] {
            let what = format!("{}, in {buffer_bytes}", fixture.what);
            let hold = fixture.driver.hold();
            let results = broadcast_coalesced(&sources, &fixture.streams, buffer_bytes).unwrap();
            drop(hold);
            assert_eq!(results.len(), fixture.devices.len());
            for (result, device) in results.iter().zip(&fixture.devices) {
                let slices = result.slices();
                assert_eq!(slices.len(), sizes.len(), "{what}");
                for (slice, bytes) in slices.iter().zip(&bytes) {
                    assert!(slice.device() == device && slice.as_device_ptr().0 % 256 == 0, "{what}");
                    assert_same(&slice.to_host().unwrap(), bytes, &what);
                }
            }
        }
        drop(sources);
        fixture.finish();
    }
}

/// Broadcasts 50 buffers to 2 devices, and counts the copies between devices, page-locked memory and waits that
/// coalescing saves.
#[test]
fn coalescing_saves_the_driver_calls_it_is_for() {
    for access in [true, false] {
        let calls = |coalesced: bool| {
            let fixture = Fixture::new(builder(), 3, access);
            let sources: Vec<_> =
                (0..50).map(|i| DeviceBuffer::<u8>::zeros(&fixture.streams[0], 100 + i).unwrap()).collect();
            fixture.driver.reset_calls();
            if coalesced {
                broadcast_coalesced(&sources, &fixture.streams[1..], COALESCE_BYTES).unwrap();
            } else {
                for source in &sources {
                    broadcast(source, &fixture.streams[1..]).unwrap();
                }
            }
            [Call::CopyPeer, Call::CopyDevice, Call::CopyToHost, Call::CopyToDevice, Call::StreamWaitEvent]
                .map(|call| fixture.driver.calls(call))
        };
        let (each, coalesced) = (calls(false), calls(true));
        // A staged copy is one copy out and one in, with two additional waits.
        let staged = if access { 0 } else { 2 };
        let of_each = [if access { 100 } else { 0 }, 0, 50 * staged, 50 * staged, 2 + 100 * staged];
        // Two additional waits order the memory of the buffer into which the sources were packed.
        let of_all = [if access { 2 } else { 0 }, 50, staged, staged, 2 + 2 + 2 * staged];
        assert_eq!((each, coalesced), (of_each, of_all), "access: {access}");
    }
}

#[test]
fn buffers_coalesce_up_to_the_limit() {
    let fixture = Fixture::new(builder(), 2, true);
    // With the limit, the groups are the first two buffers, the third, the large one, and the last two, which begin at
    // offsets 0 and 256.
    let sources =
        [256, 256, 256, 5000, 1, 256].map(|len| DeviceBuffer::<u8>::zeros(&fixture.streams[0], len).unwrap());
    for (limit, expected) in
        [(511, [6, 0]), (512, [4, 4]), (767, [4, 4]), (768, [3, 5]), (COALESCE_BYTES, [1, 6])]
    {
        fixture.driver.reset_calls();
        broadcast_coalesced(&sources, &fixture.streams[1..], limit).unwrap();
        let found = [Call::CopyPeer, Call::CopyDevice].map(|call| fixture.driver.calls(call));
        assert_eq!(found, expected, "{limit}");
    }
}

#[test]
fn buffers_that_are_there_are_filled_whole_or_not() {
    for fixture in fixtures() {
        let bytes = pattern(CHUNK_BYTES + 5, 2);
        let source = DeviceBuffer::from_host(&fixture.streams[0], &bytes).unwrap();
        let last = fixture.streams.last().unwrap();
        let mut targets: Vec<_> = fixture
            .streams
            .iter()
            .map(|stream| DeviceBuffer::<u8>::zeros(stream, bytes.len()).unwrap())
            .collect();
        broadcast_into(&source, targets.iter_mut().map(DeviceBuffer::as_mut_slice)).unwrap();
        targets.iter().for_each(|target| assert_same(&target.to_host().unwrap(), &bytes, &fixture.what));

        // The destinations are one buffer in two parts and one buffer on another device.
        let mut parts = DeviceBuffer::<u8>::zeros(last, 1000).unwrap();
        let mut rest = DeviceBuffer::<u8>::zeros(&fixture.streams[0], bytes.len() - 1000).unwrap();
        let (first, second) = parts.split_at_mut(10);
        scatter_into(&source, [first, second, rest.as_mut_slice()]).unwrap();
        assert_same(&gather_to_host([&parts, &rest]).unwrap(), &bytes, &fixture.what);
        let mut whole = DeviceBuffer::<u8>::zeros(last, bytes.len() + 1).unwrap();
        gather_into([&parts, &rest], whole.slice_mut(1..)).unwrap();
        assert_same(&whole.slice(1..).to_host().unwrap(), &bytes, &fixture.what);
        assert_eq!(whole.slice(..1).to_host().unwrap(), [0]);

        // Sources that do not fit are rejected before the first copy.
        fixture.driver.reset_calls();
        let short = [parts.as_mut_slice(), rest.as_mut_slice()];
        assert!(matches!(broadcast_into(&source, short), Err(Error::LengthMismatch { .. })));
        let short = [parts.as_mut_slice()];
        let error = scatter_into(&source, short).unwrap_err();
        assert!(matches!(error, Error::BadChunks { chunks: 1, streams: 1, total: 1000, .. }), "{error}");
        let error = gather_into([&parts, &rest], &mut whole).unwrap_err();
        assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
        for error in [
            broadcast_into(&source, []).unwrap_err(),
            scatter_into(&source, []).unwrap_err(),
            gather_into([&source; 0], &mut whole).unwrap_err(),
            gather_to_host([&source; 0]).unwrap_err(),
        ] {
            assert!(matches!(error, Error::EmptyList { .. }), "{error}");
        }
        assert_eq!(copies(&fixture.driver), 0);
        drop((source, targets, parts, rest, whole));
        fixture.finish();
    }
}

#[test]
fn columns_go_to_devices_and_back() {
    for fixture in fixtures() {
        for (rows, columns, stride) in [(1, 1, 1), (3, 7, 7), (5, 7, 9), (64, 100, 130), (0, 0, 4)] {
            let what = format!("{}, {rows} of {columns} in {stride}", fixture.what);
            let len = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
            let bytes = pattern(len, 4);
            let source = DeviceBuffer::from_host(&fixture.streams[0], &bytes).unwrap();
            let matrix = source.as_2d_strided(rows, columns, stride).unwrap();
            let expected = |range: std::ops::Range<usize>| -> Vec<u8> {
                (0..rows).flat_map(|row| bytes[row * stride..][range.clone()].to_vec()).collect()
            };
            let hold = fixture.driver.hold();
            let parts = scatter_columns(matrix, &fixture.streams, None).unwrap();
            drop(hold);
            let equal = columns.div_ceil(fixture.streams.len());
            let mut start = 0;
            let mut rows_of_parts = Vec::new();
            for (part, stream) in parts.iter().zip(&fixture.streams) {
                let len = equal.min(columns - start);
                assert!(part.stream() == stream, "{what}");
                assert_same(&part.to_host().unwrap(), &expected(start..start + len), &what);
                start += len;
                if len > 0 {
                    rows_of_parts.push(part.as_2d(rows, len).unwrap());
                }
            }
            assert_eq!(start, columns, "{what}");
            if rows_of_parts.is_empty() {
                continue;
            }
            for stream in &fixture.streams {
                let whole = gather_columns(rows_of_parts.iter().copied(), stream).unwrap();
                assert!(whole.stream() == stream, "{what}");
                assert_same(&whole.to_host().unwrap(), &expected(0..columns), &what);
                // The rows may have gaps.
                let twice = gather_columns([matrix, matrix], stream).unwrap();
                let doubled: Vec<u8> =
                    expected(0..columns).chunks(columns).flat_map(|row| [row, row].concat()).collect();
                assert_same(&twice.to_host().unwrap(), &doubled, &what);
            }
        }
        fixture.finish();
    }
}

#[test]
fn columns_cross_without_their_gaps() {
    for access in [true, false] {
        let fixture = Fixture::new(builder(), 2, access);
        let bytes = pattern(4 << 20, 4);
        let source = DeviceBuffer::from_host(&fixture.streams[0], &bytes).unwrap();
        let column = source.as_2d_strided(1024, 1, 4096).unwrap();
        let whole = gather_columns([column, column], &fixture.streams[1]).unwrap();
        let expected: Vec<u8> = bytes.chunks(4096).flat_map(|row| [row[0], row[0]]).collect();
        assert_same(&whole.to_host().unwrap(), &expected, &fixture.what);
        let allocated = fixture.devices[1].memory().max_allocated();
        assert!(allocated <= 4 * 1024, "{}: {allocated} bytes for 2048", fixture.what);
        drop((source, whole));
        fixture.finish();
    }
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    let fixture = Fixture::new(builder(), 2, true);
    let source = DeviceBuffer::from_host(&fixture.streams[0], &[1u8; 12]).unwrap();
    let matrix = |columns| source.as_2d(12 / columns, columns).unwrap();
    fixture.driver.reset_calls();
    let error = scatter_columns(matrix(4), &fixture.streams, Some(&[1, 2])).unwrap_err();
    assert!(matches!(error, Error::BadChunks { len: 4, total: 3, .. }), "{error}");
    let error = scatter_columns(matrix(4), &[], None).unwrap_err();
    assert!(matches!(error, Error::EmptyList { .. }), "{error}");
    let error = gather_columns([matrix(4), matrix(3)], &fixture.streams[0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "gather_columns: the shapes are 3 rows of 4 elements and 4 rows of 3 elements; they must be equal"
    );
    let error = gather_columns::<u8>([], &fixture.streams[0]).unwrap_err();
    assert!(matches!(error, Error::EmptyList { .. }), "{error}");
    assert_eq!(copies(&fixture.driver), 0);
}

#[test]
fn types_that_differ_go_together_as_bytes() {
    let fixture = Fixture::new(builder(), 2, true);
    let x = DeviceBuffer::from_host(&fixture.streams[0], &[1.5f32, -2.0, 3.0]).unwrap();
    let y = DeviceBuffer::from_host(&fixture.streams[1], &[7u16]).unwrap();
    let bytes = [x.as_slice().cast::<u8>().unwrap(), y.as_slice().cast().unwrap()];
    let results = broadcast_coalesced(bytes, &fixture.streams, COALESCE_BYTES).unwrap();
    for result in &results {
        let [x, y] = result.slices()[..] else { panic!("two slices") };
        assert_eq!(x.cast::<f32>().unwrap().to_host().unwrap(), [1.5, -2.0, 3.0]);
        assert_eq!(y.cast::<u16>().unwrap().to_host().unwrap(), [7]);
    }
}

#[test]
fn combined_lists_have_equal_places_and_zeros_between() {
    for fixture in fixtures() {
        let sizes = [3, 0, 300, 256, 5000, 20];
        let lists: Vec<Vec<_>> = fixture
            .streams
            .iter()
            .map(|stream| {
                sizes.map(|size| DeviceBuffer::from_host(stream, &pattern(size, 1)).unwrap()).into()
            })
            .collect();
        let slices = || -> Vec<Vec<_>> {
            lists.iter().map(|list| list.iter().map(DeviceBuffer::as_slice).collect()).collect()
        };
        for buffer_bytes in [0, 600, COALESCE_BYTES] {
            let what = format!("{}, in {buffer_bytes}", fixture.what);
            // The result of the last list, with all bytes between its buffers.
            let mut between = 0;
            let result: Result<_, Error> = combine_coalesced(&slices(), buffer_bytes, |group| {
                assert!(group.iter().zip(&fixture.devices).all(|(slice, device)| slice.device() == device));
                between += group[0].to_host()?.into_iter().filter(|byte| *byte == 0).count();
                gather([*group.last().unwrap()], &fixture.streams[0])
            });
            let result = result.unwrap();
            for (slice, size) in result.slices().iter().zip(sizes) {
                assert_same(&slice.to_host().unwrap(), &pattern(size, 1), &what);
            }
            let zeros: usize =
                sizes.map(|size| pattern(size, 1).into_iter().filter(|byte| *byte == 0).count()).iter().sum();
            let gaps = match buffer_bytes {
                0 => 0,
                600 => 253,
                _ => 253 + 212 + 120,
            };
            assert_eq!(between, zeros + gaps, "{what}");
        }
        // Any mismatch is rejected before the first copy.
        fixture.driver.reset_calls();
        let never =
            |_: &[DeviceSlice<'_, u8>]| -> Result<DeviceBuffer<u8>, Error> { panic!("nothing to combine") };
        let mut shorter = slices();
        shorter.push(slices()[0][..5].to_vec());
        assert!(matches!(combine_coalesced(&shorter, 600, never), Err(Error::LengthMismatch { .. })));
        let mut other = slices();
        other.push(slices()[0].iter().rev().copied().collect());
        assert!(matches!(combine_coalesced(&other, 600, never), Err(Error::LengthMismatch { .. })));
        assert!(matches!(combine_coalesced(&[], 600, never), Err(Error::EmptyList { .. })));
        if fixture.devices.len() > 1 {
            let mixed = [vec![slices()[0][0], slices()[1][1]]];
            assert!(matches!(combine_coalesced(&mixed, 600, never), Err(Error::DifferentDevices { .. })));
        }
        assert_eq!(copies(&fixture.driver), 0);
        let wrong = combine_coalesced(&slices(), 600, |_| DeviceBuffer::uninit(&fixture.streams[0], 1));
        assert!(matches!(wrong, Err(Error::LengthMismatch { .. })));
        drop(lists);
        fixture.finish();
    }
}
