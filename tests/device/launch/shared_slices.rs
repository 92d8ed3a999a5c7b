//! Dynamic shared memory as slices.

use crate::common::{Random, device, stream};
use test_kernels::IMAGE;
use test_kernels::shared_slices::{part_sums, reverse_parts, reverse_parts_raw, several_arrays, window_sums};
use warpsmith::gpu_std::Kernel;
use warpsmith::prelude::*;
use warpsmith::{LaunchError, TypedKernel};

fn kernel<K: Kernel>() -> TypedKernel<K> {
    device().load(&IMAGE).unwrap().kernel::<K>().unwrap()
}

/// Maximum bytes of dynamic shared memory for a kernel without static shared memory.
fn most() -> usize {
    let device = device();
    let properties = device.properties();
    properties.shared_memory_per_block_optin.max(properties.shared_memory_per_block) as usize
}

fn reversed(data: &[u32], part: usize) -> Vec<u32> {
    data.chunks(part).flat_map(|part| part.iter().rev()).copied().collect()
}

#[test]
fn a_halo_is_as_wide_as_the_launch_says() {
    let (stream, kernel, mut random) = (stream(), kernel::<window_sums<u64>>(), Random::new());
    for n in [1usize, 31, 32, 33, 1000] {
        let data: Vec<u64> = (0..n).map(|_| random.values::<f32>(1, 1e6)[0].abs() as u64).collect();
        let on_device = DeviceBuffer::from_host(&stream, &data).unwrap();
        for (reach, block) in [(0usize, 32u32), (1, 64), (5, 96), (40, 32), (300, 256)] {
            let mut out = DeviceBuffer::from_host(&stream, &vec![u64::MAX; n]).unwrap();
            let len = SharedLen(block as usize + 2 * reach);
            kernel
                .launch(&stream, Launch::linear(n, block), (reach as u32, &on_device, len, &mut out))
                .unwrap();
            let expected =
                |i: usize| data[i.saturating_sub(reach)..(i + reach + 1).min(n)].iter().sum::<u64>();
            let found = out.to_host().unwrap();
            assert!(found.into_iter().eq((0..n).map(expected)), "{n} within {reach}, seed {}", random.seed);
        }
    }
}

#[test]
fn safe_and_raw_dynamic_memory_agree() {
    let (stream, safe, raw) = (stream(), kernel::<reverse_parts>(), kernel::<reverse_parts_raw>());
    for block in [1usize, 32, 33, 96, 256, 1024] {
        let data: Vec<u32> = (0..4 * block as u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let on_device = DeviceBuffer::from_host(&stream, &data).unwrap();
        let launch = Launch::linear(4 * block, block as u32);
        let mut outs = [0; 2].map(|_| DeviceBuffer::from_host(&stream, &vec![7u32; data.len()]).unwrap());
        safe.launch(&stream, launch, (&on_device, SharedLen(block), &mut outs[0])).unwrap();
        // SAFETY: there is one element per thread, and shared memory for the elements of a block.
        unsafe { raw.launch_unsafe(&stream, launch.shared(4 * block as u32), (&on_device, &mut outs[1])) }
            .unwrap();
        for out in outs {
            assert_eq!(out.to_host().unwrap(), reversed(&data, block), "blocks of {block}");
        }
    }
}

#[test]
fn pairs_of_arrays_have_the_length_of_the_launch() {
    let (stream, kernel, mut random) = (stream(), kernel::<part_sums>(), Random::new());
    for (len, threads) in
        [(1usize, 1usize), (2, 2), (33, 33), (256, 256), (1000, 1000), (200, 32), (200, 1000)]
    {
        let data: Vec<f64> = random.values(2 * len, 1.0);
        let on_device = DeviceBuffer::from_host(&stream, &data).unwrap();
        let mut out = DeviceBuffer::from_host(&stream, &vec![f64::NAN; 2 * threads]).unwrap();
        let launch = Launch::linear(2 * threads, threads as u32);
        kernel.launch(&stream, launch, (&on_device, SharedLen(len), &mut out)).unwrap();
        let found = out.to_host().unwrap();
        for (found, data) in found.chunks(threads).zip(data.chunks(len)) {
            let mut sum = 0.0;
            for (found, x) in found.iter().zip(data) {
                sum += x;
                assert!((found - sum).abs() <= 1e-9, "{found} is not {sum}, seed {}", random.seed);
            }
        }
    }
}

#[test]
fn arrays_of_several_types_and_no_elements_lie_apart() {
    let (stream, kernel) = (stream(), kernel::<several_arrays>());
    for (bytes, bins, rows) in [(7usize, 5usize, 3usize), (0, 0, 0), (1, 0, 2), (0, 1, 0), (300, 33, 100)] {
        for threads in [1u32, 33, 256] {
            let mut sums = DeviceBuffer::<[u64; 5]>::zeros(&stream, 2).unwrap();
            let lengths = (SharedLen(bytes), SharedLen(bins), SharedLen(rows), &mut sums);
            kernel.launch(&stream, Launch::grid_block(2, threads), lengths).unwrap();
            let of_bytes = (0..bytes).map(|i| i % 256).sum::<usize>();
            let counted = if bins == 0 { 0 } else { threads as usize };
            let of_rows = (0..rows).map(|row| 3000 * row + 3).sum::<usize>();
            let dynamic = [bytes, 4 * bins, 24 * rows].map(|bytes| bytes.next_multiple_of(16)).iter().sum();
            let expected = [of_bytes, counted, 780, of_rows, dynamic].map(|x| x as u64);
            assert_eq!(sums.to_host().unwrap(), [expected; 2], "{bytes} {bins} {rows}, {threads} threads");
        }
    }
}

#[test]
fn the_device_limits_the_lengths() {
    let (stream, kernel) = (stream(), kernel::<reverse_parts>());
    let data: Vec<u32> = (0..256).collect();
    let on_device = DeviceBuffer::from_host(&stream, &data).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 256).unwrap();
    let launch = Launch::linear(256, 256);
    // The reversed part starts far after the block's elements, beyond the data.
    kernel.launch(&stream, launch, (&on_device, SharedLen(most() / 4), &mut out)).unwrap();
    assert_eq!(out.to_host().unwrap(), [0; 256]);
    for len in [most() / 4 + 1, 1 << 28, 1 << 30, usize::MAX] {
        let error = kernel.launch(&stream, launch, (&on_device, SharedLen(len), &mut out)).unwrap_err();
        assert!(matches!(error, Error::Launch(LaunchError::SharedMemoryTooLarge { .. })), "{error}");
        assert!(
            error.to_string().contains("reverse_parts") && error.to_string().contains("SharedLen"),
            "{error}"
        );
    }
    let both = launch.shared(most() as u32);
    let error = kernel.launch(&stream, both, (&on_device, SharedLen(4), &mut out)).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::SharedMemoryTooLarge { .. })), "{error}");
    kernel.launch(&stream, launch, (&on_device, SharedLen(256), &mut out)).unwrap();
    assert_eq!(out.to_host().unwrap(), reversed(&data, 256));
}

#[test]
fn prepared_launches_add_the_shared_memory_of_their_arguments() {
    let (stream, kernel) = (stream(), kernel::<reverse_parts>());
    let data: Vec<u32> = (0..512).collect();
    let on_device = DeviceBuffer::from_host(&stream, &data).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 512).unwrap();
    let prepared = kernel.prepare(Launch::linear(512, 128)).unwrap();
    for len in [128, most() / 4, 128] {
        prepared.launch(&stream, (&on_device, SharedLen(len), &mut out)).unwrap();
    }
    assert_eq!(out.to_host().unwrap(), reversed(&data, 128));
    let error = prepared.launch(&stream, (&on_device, SharedLen(most() / 4 + 1), &mut out)).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::SharedMemoryTooLarge { .. })), "{error}");
}

#[test]
fn graph_nodes_take_other_lengths() {
    let (stream, kernel) = (stream(), kernel::<reverse_parts>());
    let data: Vec<u32> = (0..512).collect();
    let on_device = DeviceBuffer::from_host(&stream, &data).unwrap();
    let mut out = DeviceBuffer::<u32>::zeros(&stream, 512).unwrap();
    let mut graph = Graph::new(&device()).unwrap();
    let arguments = (&on_device, SharedLen(128), &mut out);
    let node = graph.add_kernel(&kernel, Launch::linear(512, 128), arguments, &[]).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(out.to_host().unwrap(), reversed(&data, 128));
    let arguments = (&on_device, SharedLen(256), &mut out);
    exec.set_kernel(&node, &kernel, Launch::linear(512, 256), arguments).unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(out.to_host().unwrap(), reversed(&data, 256));
    let arguments = (&on_device, SharedLen(most()), &mut out);
    let error = exec.set_kernel(&node, &kernel, Launch::linear(512, 256), arguments).unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::SharedMemoryTooLarge { .. })), "{error}");
}

#[test]
fn an_open_launch_counts_the_arrays() {
    let (stream, kernel) = (stream(), kernel::<window_sums<f32>>());
    let data = DeviceBuffer::from_host(&stream, &[1.0f32; 5000]).unwrap();
    let mut out = DeviceBuffer::<f32>::zeros(&stream, 5000).unwrap();
    // A block has at most 1024 threads for any launch.
    let len = SharedLen(1024 + 2);
    for launch in [Launch::auto(5000), Launch::for_occupancy(5000)] {
        kernel.launch(&stream, launch, (1u32, &data, len, &mut out)).unwrap();
        let found = out.to_host().unwrap();
        assert_eq!((found[0], found[1], found[4998], found[4999]), (2.0, 3.0, 3.0, 2.0));
    }
    let bytes = len.bytes::<f32>().unwrap();
    let function = kernel.function();
    let (alone, with) = (function.occupancy(32, 0).unwrap(), function.occupancy(32, bytes).unwrap());
    assert!(with <= alone, "{with} blocks with {bytes} bytes, {alone} without");
}
