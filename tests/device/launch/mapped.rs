//! Kernels on mapped host memory, on the device under test.

use warpsmith::graph::Graph;
use warpsmith::kernels::elementwise::axpy;
use warpsmith::prelude::*;
use warpsmith::{IMAGE, MappedBuffer, PinnedBuffer};

use crate::common::{LENGTHS, Random, device};

fn expected(a: f32, x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(x, y)| a.mul_add(*x, *y)).collect()
}

#[test]
fn kernels_read_and_write_host_memory() {
    let device = device();
    let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let kernel = device.load(&IMAGE).unwrap().kernel::<axpy<f32, 4, 16>>().unwrap();
    let mut random = Random::new();
    for n in LENGTHS {
        let [x_host, y_host]: [Vec<f32>; 2] = [(); 2].map(|()| random.values(n, 10.0));
        let mut x = PinnedBuffer::from_slice(&device, &x_host).unwrap().into_mapped(&stream).unwrap();
        let mut y = MappedBuffer::register(&stream, y_host.clone()).unwrap();
        kernel.launch(&stream, Launch::auto(n), (2.0f32, &*x, y.as_mut_slice())).unwrap();
        kernel.launch(&other, Launch::auto(n), (1.0f32, &*y, x.as_mut_slice())).unwrap();
        let y_expected = expected(2.0, &x_host, &y_host);
        let x_expected = expected(1.0, &y_expected, &x_host);
        assert_eq!(x.lock().unwrap()[..], x_expected, "{n} elements, seed {}", random.seed);
        x.lock().unwrap().copy_from_slice(&x_host);
        kernel.launch(&other, Launch::auto(n), (2.0f32, &*x, y.as_mut_slice())).unwrap();
        let y_expected = expected(2.0, &x_host, &y_expected);
        assert_eq!(y.into_inner().unwrap(), y_expected, "{n} elements, seed {}", random.seed);
        assert_eq!(x.into_inner().unwrap()[..], x_host);
    }
}

#[test]
fn copies_take_host_memory_for_a_buffer() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    for n in [1usize, 1000, 1 << 20] {
        let values: Vec<u32> = (0..n as u32).collect();
        let from = MappedBuffer::register(&stream, values.clone()).unwrap();
        let mut between = DeviceBuffer::<u32>::uninit(&stream, n).unwrap();
        let mut to = PinnedBuffer::<u32>::zeroed(&device, n).unwrap().into_mapped(&stream).unwrap();
        stream.copy(from.as_slice(), &mut between).unwrap();
        stream.copy(&between, to.as_mut_slice()).unwrap();
        assert_eq!((from.to_host().unwrap(), to.to_host().unwrap()), (values.clone(), values.clone()), "{n}");
        assert_eq!(from.clone_on(&stream).unwrap().to_host().unwrap(), values, "{n}");
        stream.memset(to.as_mut_slice(), 0).unwrap();
        assert_eq!(to.into_inner().unwrap()[..], vec![0; n]);
    }
}

#[test]
fn graphs_use_host_memory_in_place() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let kernel = device.load(&IMAGE).unwrap().kernel::<axpy<f32, 4, 16>>().unwrap();
    let mut x = PinnedBuffer::<f32>::zeroed(&device, 1000).unwrap().into_mapped(&stream).unwrap();
    let mut y = MappedBuffer::register(&stream, vec![0.0f32; 1000]).unwrap();
    let launch = || kernel.launch(&stream, Launch::auto(1000), (1.0f32, &*x, y.as_mut_slice()));
    let exec = Graph::capture(&stream, launch).unwrap().instantiate().unwrap();
    for round in 1..=5 {
        x.lock().unwrap().fill(round as f32);
        exec.launch(&stream).unwrap();
        assert_eq!(y.lock().unwrap()[..], [(round * (round + 1) / 2) as f32; 1000]);
    }
    exec.launch(&stream).unwrap();
    drop((x, y));
    exec.launch(&stream).unwrap_err();
    stream.synchronize().unwrap();
    assert!(device.take_drop_error().is_none());
}
