//! Kernels that use crates from the registry, on the device under test, compared with the same functions on the host.

use crate::common::{device, stream};
use glam::Vec2;
use half::f16;
use num_complex::Complex;
use test_kernels::IMAGE;
use test_kernels::registry_crates::{
    decimal, decimals, fixed_mean, fixed_means, narrowed, numbered_hash, numbered_hashes, orbit, orbits,
    packed_halves, packed_sum, random_median, random_medians, turn, turned,
};
use warpsmith::prelude::*;

const COUNT: usize = 1000;

#[test]
fn texts_are_formatted_and_hashed() {
    let kernel = device().load(&IMAGE).unwrap().kernel::<numbered_hashes>().unwrap();
    let mut digests = DeviceBuffer::<u8>::zeros(&stream(), 32 * COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (0xC0FFEE, &mut digests)).unwrap();
    let expected: Vec<u8> = (0..COUNT as u64).flat_map(|number| numbered_hash(0xC0FFEE, number)).collect();
    assert_eq!(digests.to_host().unwrap(), expected);
    // Output of `printf %s 00c0ffee-999 | sha256sum`.
    let last = "ad485feee220c9faad693e630906d8a13bdc1ccc201428253e5f888b882b5360";
    let hex: String = expected[32 * (COUNT - 1)..].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, last);
}

#[test]
fn numbers_become_text() {
    let numbers: Vec<i32> = (0..COUNT as i32).map(|i| i.wrapping_mul(123_456_789)).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<decimals>().unwrap();
    let data = DeviceBuffer::from_host(&stream(), &numbers).unwrap();
    let mut texts = DeviceBuffer::<u8>::uninit(&stream(), 12 * COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (&data, &mut texts)).unwrap();
    let texts = texts.to_host().unwrap();
    for (number, text) in numbers.iter().zip(texts.chunks(12)) {
        assert_eq!(std::str::from_utf8(text).unwrap(), format!("{number:<12}"));
        assert_eq!(text, decimal(*number));
    }
}

#[test]
fn complex_numbers_escape() {
    let mut random = fastrand::Rng::with_seed(1);
    let points: Vec<f32> = (0..2 * COUNT).map(|_| random.f32() * 4.0 - 2.0).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<orbits>().unwrap();
    let data = DeviceBuffer::from_host(&stream(), &points).unwrap();
    let mut steps = DeviceBuffer::<u32>::uninit(&stream(), COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (&data, &mut steps)).unwrap();
    let expected: Vec<u32> = points.chunks(2).map(|c| orbit(Complex::new(c[0], c[1]))).collect();
    let same = steps.to_host().unwrap().iter().zip(&expected).filter(|(a, b)| a == b).count();
    // The GPU uses FMA, which matters for points near the border.
    assert!(same * 100 >= COUNT * 97, "{same} of {COUNT}");
    assert!(expected.contains(&100) && expected.contains(&1));
}

#[test]
fn random_numbers_are_sorted() {
    let kernel = device().load(&IMAGE).unwrap().kernel::<random_medians>().unwrap();
    let mut medians = DeviceBuffer::<u32>::uninit(&stream(), COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (&mut medians,)).unwrap();
    let expected: Vec<u32> = (0..COUNT as u64).map(random_median).collect();
    assert_eq!(medians.to_host().unwrap(), expected);
    assert!(expected.iter().any(|median| *median != expected[0]));
}

#[test]
fn fixed_point_numbers_have_a_mean() {
    let numbers: Vec<i32> = (0..4 * COUNT as i32).map(|i| i.wrapping_mul(7_654_321) >> 4).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<fixed_means>().unwrap();
    let data = DeviceBuffer::from_host(&stream(), &numbers).unwrap();
    let mut means = DeviceBuffer::<i32>::uninit(&stream(), COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (&data, &mut means)).unwrap();
    let expected: Vec<i32> = numbers.chunks(4).map(|four| fixed_mean(four.try_into().unwrap())).collect();
    assert_eq!(means.to_host().unwrap(), expected);
}

#[test]
fn points_turn() {
    let points: Vec<Vec2> = (0..COUNT).map(|i| Vec2::new(i as f32, 1.0)).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<turned>().unwrap();
    let mut data = DeviceBuffer::from_host(&stream(), &points).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (&mut data,)).unwrap();
    for (i, (point, turned)) in points.iter().zip(data.to_host().unwrap()).enumerate() {
        let expected = turn(i as u32) * *point;
        assert!(
            (turned - expected).length() <= 1e-5 * (1.0 + expected.length()),
            "{i}: {turned}, {expected}"
        );
    }
}

#[test]
fn halves_are_unpacked() {
    let words: Vec<u32> = (0..COUNT as u32).map(|i| 0x3c00_4000 + i * 3).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<packed_halves>().unwrap();
    let data = DeviceBuffer::from_host(&stream(), &words).unwrap();
    let mut sums = DeviceBuffer::<f32>::uninit(&stream(), COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (&data, &mut sums)).unwrap();
    let expected: Vec<f32> = words.iter().copied().map(packed_sum).collect();
    assert_eq!(sums.to_host().unwrap(), expected);
    assert_eq!(expected[0], 3.0);
}

#[test]
fn crates_write_device_memory() {
    let numbers: Vec<f32> = (0..8 * COUNT).map(|i| i as f32 / 16.0).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<narrowed>().unwrap();
    let data = DeviceBuffer::from_host(&stream(), &numbers).unwrap();
    let mut halves = DeviceBuffer::<f16>::uninit(&stream(), 8 * COUNT).unwrap();
    let mut sums = DeviceBuffer::<f32>::uninit(&stream(), COUNT).unwrap();
    kernel.launch(&stream(), Launch::auto(COUNT), (&data, &mut halves, &mut sums)).unwrap();
    let expected: Vec<f16> = numbers.iter().map(|number| f16::from_f32(*number)).collect();
    assert_eq!(halves.to_host().unwrap(), expected);
    let expected: Vec<f32> =
        expected.chunks(8).map(|eight| eight.iter().map(|half| half.to_f32()).sum()).collect();
    assert_eq!(sums.to_host().unwrap(), expected);
}
