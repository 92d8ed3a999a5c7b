//! The sum of buffers on several devices: on all devices of the kind under test, and on emulated devices with and
//! without peer access.

use std::sync::Arc;

use crate::common::{LENGTHS, Random, device};
use half::f16;
use warpsmith::driver::Driver;
use warpsmith::emulated::EmulatedDriver;
use warpsmith::ops::{self, Number};
use warpsmith::prelude::*;

/// Streams per driver under test, on all of its devices, at least three.
fn fixtures() -> Vec<Vec<Stream>> {
    let builder = || EmulatedDriver::builder().devices(3).memory(1 << 30);
    let device = device();
    let drivers: Vec<Arc<dyn Driver>> = if device.is_emulated() {
        vec![builder().build(), builder().without_peer_access().build()]
    } else {
        // SAFETY: all values passed to its methods belong to this device and are alive.
        vec![Arc::clone(unsafe { device.driver() }.0)]
    };
    let streams = |driver: Arc<dyn Driver>| {
        let count = driver.device_count().unwrap();
        let places = (0..count).map(|ordinal| Device::with_driver(Arc::clone(&driver), ordinal).unwrap());
        let places: Vec<_> = places.collect();
        places.iter().cycle().take(places.len().max(3)).map(|device| Stream::new(device).unwrap()).collect()
    };
    drivers.into_iter().map(streams).collect()
}

/// Sums one buffer of each device on each device. The result must be bit-identical to the host sum in the same order.
fn sums<T: Number + PartialEq + crate::common::TestNumber>(scale: f64, plus: impl Fn(T, T) -> T) {
    let mut random = Random::new();
    for streams in fixtures() {
        for n in LENGTHS {
            let values: Vec<Vec<T>> = streams.iter().map(|_| random.values(n, scale)).collect();
            let buffers: Vec<_> = streams
                .iter()
                .zip(&values)
                .map(|(stream, values)| DeviceBuffer::from_host(stream, values).unwrap())
                .collect();
            for on in &streams {
                let sum = ops::reduce_add(on, &buffers).unwrap();
                assert!(sum.stream() == on);
                for (i, found) in sum.to_host().unwrap().into_iter().enumerate() {
                    let expected = values[1..].iter().fold(values[0][i], |sum, next| plus(sum, next[i]));
                    let what =
                        format!("element {i} of {n} of {} buffers, seed {}", values.len(), random.seed);
                    assert!(found == expected, "{what}: {found:?}, not {expected:?}");
                }
            }
            for (buffer, values) in buffers.iter().zip(&values) {
                assert!(buffer.to_host().unwrap() == *values, "the sources stay as they are");
            }
        }
    }
}

#[test]
fn buffers_of_devices_add_in_order() {
    sums::<f32>(1e6, |x, y| x + y);
    sums::<f16>(100.0, |x, y| f16::from_f32(x.to_f32() + y.to_f32()));
    sums::<i32>(1.0, i32::wrapping_add);
    sums::<u64>(1.0, u64::wrapping_add);
}

#[test]
fn one_buffer_may_be_added_twice() {
    let stream = crate::common::stream();
    let x = DeviceBuffer::from_host(&stream, &[1i64, -2, 3]).unwrap();
    let copy = ops::reduce_add(&stream, [&x]).unwrap();
    assert!(copy.as_device_ptr() != x.as_device_ptr());
    assert_eq!(copy.to_host().unwrap(), [1, -2, 3]);
    let twice = ops::reduce_add(&stream, [x.slice(1..), x.slice(..2), x.slice(1..)]).unwrap();
    assert_eq!(twice.to_host().unwrap(), [-3, 4]);
}

#[test]
fn sums_of_lists_are_those_of_buffers() {
    let mut random = Random::new();
    for streams in fixtures() {
        let lens = [3, 0, 1000, 7, 4096, 1];
        let values: Vec<Vec<Vec<f32>>> =
            streams.iter().map(|_| lens.map(|len| random.values(len, 10.0)).into()).collect();
        let lists: Vec<Vec<_>> = streams
            .iter()
            .zip(&values)
            .map(|(stream, values)| {
                values.iter().map(|values| DeviceBuffer::from_host(stream, values).unwrap()).collect()
            })
            .collect();
        for (on, bytes) in streams.iter().zip([0, 5000, usize::MAX]) {
            let sums = ops::reduce_add_coalesced(on, bytes, &lists).unwrap();
            assert_eq!(sums.slices().len(), lens.len());
            for (index, sum) in sums.slices().into_iter().enumerate() {
                assert!(sum.device() == on.device());
                let buffers = lists.iter().map(|list| &list[index]);
                let expected = ops::reduce_add(on, buffers).unwrap().to_host().unwrap();
                assert!(sum.to_host().unwrap() == expected, "buffer {index}, seed {}", random.seed);
            }
        }
    }
    let none: [[&DeviceBuffer<f32>; 1]; 0] = [];
    let error = ops::reduce_add_coalesced(&crate::common::stream(), 100, none).unwrap_err();
    assert!(matches!(error, warpsmith::Error::EmptyList { .. }), "{error}");
}

#[test]
fn no_sources_and_unequal_lengths_are_refused() {
    let stream = crate::common::stream();
    let none: [&DeviceBuffer<f32>; 0] = [];
    let error = ops::reduce_add(&stream, none).unwrap_err();
    assert_eq!(error.to_string(), "reduce_add: the list of sources is empty; pass at least one element");
    let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0]).unwrap();
    let error = ops::reduce_add(&stream, [x.as_slice(), x.slice(1..)]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("the first source has 2 elements, but another source has 1"), "{text}");
}

#[test]
fn devices_of_two_drivers_are_refused() {
    let devices = [(); 2].map(|()| Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap());
    let streams = devices.each_ref().map(Device::default_stream);
    let buffers = streams.each_ref().map(|stream| DeviceBuffer::from_host(stream, &[1.0f32]).unwrap());
    let error = ops::reduce_add(&streams[0], &buffers).unwrap_err();
    assert!(matches!(error, warpsmith::Error::NoPeerAccess { .. }), "{error}");
}
