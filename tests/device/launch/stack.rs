//! Kernels whose stack size is not known at compile time, on the device under test.

use crate::common::{Random, device, device_name, stream};
use test_kernels::IMAGE;
use test_kernels::stack::{call_in_turn, digest, digest_chains, format_floats, in_turn, text_digest};
use warpsmith::module::spec::StackUse;
use warpsmith::prelude::*;

#[test]
fn the_image_records_unknown_stacks() {
    assert_eq!(IMAGE.missing(), None, "the image is what this test looks at");
    for symbol in ["digest_chains", "format_floats", "call_in_turn"] {
        let record = IMAGE.spec().kernel(symbol).expect("the kernel is in the image");
        assert_eq!((record.stack, record.requested_stack), (StackUse::Unknown, 0), "{symbol}");
    }
    let record = IMAGE.spec().kernel("diagnose_index").expect("the kernel is in the image");
    assert!(matches!(record.stack, StackUse::Known(_)));
}

#[test]
fn deep_recursion_needs_nothing_of_the_user() {
    let mut random = Random::new();
    // Chains of 100 indices, with their ends, in random order.
    const LEN: usize = 100;
    let count = 64 * LEN;
    let mut places: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        places.swap(last, random.below(last + 1));
    }
    let mut next = vec![u32::MAX; count];
    for chain in places.chunks(LEN) {
        chain.windows(2).for_each(|pair| next[pair[0] as usize] = pair[1]);
    }
    let kernel = device().load(&IMAGE).unwrap().kernel::<digest_chains>().unwrap();
    let x = DeviceBuffer::from_host(&stream(), &next).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream(), count).unwrap();
    kernel.launch(&stream(), Launch::linear(count, 128), (&x, &mut out)).unwrap();
    let expected: Vec<u32> = (0..count as u32).map(|at| digest(&next, at)).collect();
    assert_eq!(out.to_host().unwrap(), expected, "seed {}", random.seed);
    if !device_name().starts_with("cpu") {
        assert!(device().stack_limit().unwrap() >= 16 << 10);
    }
}

#[test]
fn kernels_format_floats() {
    let mut random = Random::new();
    let mut values = vec![0.0, -0.0, 1.0, 0.1, -1e-30, f32::MAX, f32::MIN_POSITIVE, f32::NAN, f32::INFINITY];
    values.extend((0..1000).map(|_| f32::from_bits(random.below(1 << 32) as u32)));
    let kernel = device().load(&IMAGE).unwrap().kernel::<format_floats>().unwrap();
    let x = DeviceBuffer::from_host(&stream(), &values).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream(), values.len()).unwrap();
    kernel.launch(&stream(), Launch::linear(values.len(), 128), (&x, &mut out)).unwrap();
    let expected: Vec<u32> = values.iter().map(|value| text_digest(*value)).collect();
    assert_eq!(out.to_host().unwrap(), expected, "seed {}", random.seed);
}

#[test]
fn functions_of_a_table_are_called() {
    let mut random = Random::new();
    let values: Vec<u64> = (0..1000).map(|_| random.below(usize::MAX) as u64).collect();
    let kernel = device().load(&IMAGE).unwrap().kernel::<call_in_turn>().unwrap();
    let x = DeviceBuffer::from_host(&stream(), &values).unwrap();
    let mut out = DeviceBuffer::<u64>::zeros(&stream(), values.len()).unwrap();
    kernel.launch(&stream(), Launch::linear(values.len(), 128), (&x, &mut out)).unwrap();
    let expected: Vec<u64> = values.iter().map(|value| in_turn(*value)).collect();
    assert_eq!(out.to_host().unwrap(), expected, "seed {}", random.seed);
}
