//! An impossible request is an error with a clear message. It does not advance the generator, and writes nothing.

use half::f16;
use warpsmith::emulated::EmulatedDriver;
use warpsmith::graph::Graph;
use warpsmith::ops::{self, Config, GridRule};
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};

use crate::common::{device, stream};

/// Checks that the text of the error has all words, and that the generator did not advance.
#[track_caller]
fn refused(generator: &Generator, outcome: Result<(), warpsmith::Error>, words: &[&str]) {
    let text = outcome.expect_err("should have failed").to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "`{word}` is not in: {text}"));
    assert_eq!(generator.offset().unwrap(), 4);
}

fn begun() -> Generator {
    let generator = Generator::new(&device());
    generator.set_offset(4).unwrap();
    generator
}

#[test]
fn arguments_that_cannot_be_are_refused() {
    let stream = stream();
    let g = begun();
    let mut x = DeviceBuffer::from_host(&stream, &[7.0f32; 4]).unwrap();
    for (low, high) in
        [(1.0, 1.0), (2.0, 1.0), (f32::NAN, 1.0), (0.0, f32::NAN), (0.0, f32::INFINITY), (f32::MIN, f32::MAX)]
    {
        let outcome = random::uniform_in(&stream, &g, low..high, &mut x);
        refused(&g, outcome, &["uniform_in", "finite", "ascending order"]);
    }
    let mut half = DeviceBuffer::<f16>::zeros(&stream, 4).unwrap();
    refused(&g, random::uniform_in(&stream, &g, f16::MIN..f16::MAX, &mut half), &["65504"]);
    for (mean, std) in [(0.0, -1.0), (0.0, f64::NAN), (0.0, f64::INFINITY), (f64::NAN, 1.0)] {
        refused(&g, random::normal(&stream, &g, mean, std, &mut x), &["normal", "std", &std.to_string()]);
    }
    for (mean, std) in [(1e39, 1.0), (0.0, 1e39)] {
        refused(&g, random::normal(&stream, &g, mean, std, &mut x), &["normal", "finite in f32"]);
    }
    refused(&g, random::normal(&stream, &g, 1e6, 1.0, &mut half_zeros(&stream)), &["finite in f16"]);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(&g, random::exponential(&stream, &g, rate, &mut x), &["exponential", &rate.to_string()]);
    }
    for p in [-0.1, 1.1, f64::NAN] {
        refused(&g, random::bernoulli(&stream, &g, p, &mut x), &["bernoulli", "0 to 1", &p.to_string()]);
        let (mut y, mut mask) = (x.to_host().unwrap(), DeviceBuffer::<u8>::zeros(&stream, 4).unwrap());
        let mut y = DeviceBuffer::from_host(&stream, y.as_mut_slice()).unwrap();
        refused(&g, random::dropout(&stream, &g, &x, p, &mut y, &mut mask), &["dropout", "0 to 1"]);
    }
    let mut i = DeviceBuffer::<i32>::zeros(&stream, 4).unwrap();
    for (low, high) in [(3, 3), (4, 3), (i32::MAX, i32::MIN)] {
        refused(
            &g,
            random::integers(&stream, &g, low..high, &mut i),
            &["integers", "empty", &low.to_string()],
        );
    }
    assert_eq!((x.to_host().unwrap(), i.to_host().unwrap()), (vec![7.0; 4], vec![0; 4]));
}

fn half_zeros(stream: &Stream) -> DeviceBuffer<f16> {
    DeviceBuffer::zeros(stream, 4).unwrap()
}

#[test]
fn what_cannot_be_launched_takes_nothing() {
    let stream = stream();
    let g = begun();
    let mut x = DeviceBuffer::from_host(&stream, &[7.0f32; 4]).unwrap();
    let config = Config { block: 256, grid: GridRule::Auto, items: 3, vector: 16 };
    refused(&g, ops::with_config(config, || random::uniform(&stream, &g, &mut x)), &["items=3"]);
    // A stream on another device.
    let elsewhere = Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap().default_stream();
    let words = ["the stream is on"];
    refused(&g, random::uniform(&elsewhere, &g, &mut x), &words);
    refused(&g, random::normal(&elsewhere, &g, 0.0, 1.0, &mut x), &words);
    let mut order = DeviceBuffer::<u32>::zeros(&stream, 4).unwrap();
    refused(&g, random::permutation(&elsewhere, &g, &mut order), &words);
    let (mut y, mut mask) = (half_zeros(&stream), DeviceBuffer::<u8>::zeros(&stream, 4).unwrap());
    refused(&g, random::dropout(&elsewhere, &g, &half_zeros(&stream), 0.5, &mut y, &mut mask), &words);
    assert_eq!(x.to_host().unwrap(), [7.0; 4]);

    // In a capture: operations after a rejected operation have the numbers that they would have without it.
    let captured = |refuse: bool| {
        let g = begun();
        let (stream, mut x) =
            (Stream::new(&device()).unwrap(), DeviceBuffer::<f32>::zeros(&stream, 4).unwrap());
        let graph = Graph::capture(&stream, || {
            if refuse {
                ops::with_config(config, || random::uniform(&stream, &g, &mut x)).unwrap_err();
            }
            random::uniform(&stream, &g, &mut x)
        });
        graph.unwrap().instantiate().unwrap().launch(&stream).unwrap();
        (x.to_host().unwrap(), g.offset().unwrap())
    };
    assert_eq!(captured(true), captured(false));
}

#[test]
fn lengths_that_differ_are_refused() {
    let stream = stream();
    let g = begun();
    let x = DeviceBuffer::<f32>::zeros(&stream, 5).unwrap();
    let (mut y, mut mask) =
        (DeviceBuffer::zeros(&stream, 5).unwrap(), DeviceBuffer::zeros(&stream, 4).unwrap());
    refused(&g, random::dropout(&stream, &g, &x, 0.5, &mut y, &mut mask), &["mask has 4", "x has 5"]);
    refused(&g, random::dropout(&stream, &g, &x, 0.5, y.slice_mut(1..), &mut mask), &["y has 4"]);
}

#[test]
fn no_elements_take_nothing() {
    let stream = stream();
    let g = begun();
    let mut x = DeviceBuffer::<f32>::uninit(&stream, 0).unwrap();
    let mut y = DeviceBuffer::<f32>::uninit(&stream, 0).unwrap();
    let mut i = DeviceBuffer::<u32>::uninit(&stream, 0).unwrap();
    let mut mask = DeviceBuffer::<u8>::uninit(&stream, 0).unwrap();
    random::uniform(&stream, &g, &mut x).unwrap();
    random::normal(&stream, &g, 0.0, 1.0, &mut x).unwrap();
    random::exponential(&stream, &g, 1.0, &mut x).unwrap();
    random::bernoulli(&stream, &g, 0.5, &mut x).unwrap();
    random::integers(&stream, &g, 0..5, &mut i).unwrap();
    random::permutation(&stream, &g, &mut i).unwrap();
    random::dropout(&stream, &g, &x, 0.5, &mut y, &mut mask).unwrap();
    assert_eq!(g.offset().unwrap(), 4);
}

#[test]
fn offsets_and_states_that_cannot_be_are_refused() {
    let g = begun();
    for offset in [1, 2, 3, 5, 1 << 63, u64::MAX] {
        refused(&g, g.set_offset(offset), &["set_offset", "multiple of 4", &offset.to_string()]);
    }
    for bytes in [0, 1, 7, 9, 15, 17, 24, 5056] {
        refused(&g, g.set_state(&vec![0; bytes]), &["set_state", "must have 16", &bytes.to_string()]);
    }
    let mut odd = g.state().unwrap();
    odd[8] = 3;
    refused(&g, g.set_state(&odd), &["set_state", "multiple of 4"]);
    g.set_offset((1 << 63) - 8).unwrap();
    let mut x = DeviceBuffer::<f32>::zeros(&stream(), 4).unwrap();
    random::uniform(&stream(), &g, &mut x).unwrap();
    let text = random::uniform(&stream(), &g, &mut x).unwrap_err().to_string();
    assert!(text.contains("exhausted") && text.contains("manual_seed"), "{text}");
}
