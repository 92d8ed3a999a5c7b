//! Code that LLVM's straight-line strength reduction miscompiles, on the device under test.

use crate::common::{Random, device, stream};
use test_kernels::IMAGE;
use test_kernels::core_sorts::{read_wrapped, sort_arrays, wrapped};
use warpsmith::prelude::*;

#[test]
fn arrays_of_32_elements_are_sorted() {
    let mut random = Random::new();
    const COUNT: usize = 1000;
    let bytes: Vec<u8> = (0..32 * COUNT).map(|_| random.below(256) as u8).collect();
    let words: Vec<i32> = (0..32 * COUNT).map(|_| random.below(1 << 32) as u32 as i32).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<sort_arrays>().unwrap();
    let mut x = DeviceBuffer::from_host(&stream(), &bytes).unwrap();
    let mut y = DeviceBuffer::from_host(&stream(), &words).unwrap();
    kernel.launch(&stream(), Launch::linear(COUNT, 96), (&mut x, &mut y)).unwrap();
    let (mut expected_bytes, mut expected_words) = (bytes, words);
    expected_bytes.chunks_mut(32).for_each(<[u8]>::sort_unstable);
    expected_words.chunks_mut(32).for_each(|words| words.sort_unstable_by(|a, b| b.cmp(a)));
    assert_eq!(x.to_host().unwrap(), expected_bytes, "seed {}", random.seed);
    assert_eq!(y.to_host().unwrap(), expected_words, "seed {}", random.seed);
}

#[test]
fn indices_that_wrap_are_read_apart() {
    let x: Vec<u32> = (1..=4096).collect();
    let starts: Vec<i32> =
        (-150..150).chain(i32::MAX - 150..=i32::MAX).chain(i32::MIN..i32::MIN + 150).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<read_wrapped>().unwrap();
    let numbers = DeviceBuffer::from_host(&stream(), &x).unwrap();
    let places = DeviceBuffer::from_host(&stream(), &starts).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream(), 2 * starts.len()).unwrap();
    kernel.launch(&stream(), Launch::auto(starts.len()), (&numbers, &places, &mut out)).unwrap();
    let expected: Vec<u32> = starts.iter().flat_map(|&start| wrapped(&x, start)).collect();
    assert_eq!(out.to_host().unwrap(), expected);
}
