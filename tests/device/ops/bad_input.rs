//! Invalid input gives an error that names the problem, loses nothing, and leaves the device usable.

use crate::common::{device, stream};
use warpsmith::kernels::copy::copy;
use warpsmith::kernels::elementwise::axpy;
use warpsmith::ops::{self, Config, GridRule};
use warpsmith::prelude::*;
use warpsmith::{Error, IMAGE, OpError, random};

/// Returns the text of the error, and checks that the stream still works.
#[track_caller]
fn text_of<T: std::fmt::Debug, E: std::fmt::Display>(stream: &Stream, outcome: Result<T, E>, words: &[&str]) {
    let text = match outcome {
        Ok(value) => panic!("should have failed, gave {value:?}"),
        Err(error) => error.to_string(),
    };
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
    let x = DeviceBuffer::from_host(stream, &[1.0f32, 2.0, 3.0]).expect("the device still works");
    assert_eq!(ops::sum(stream, &x).expect("the device still works"), 6.0);
}

#[test]
fn lengths_that_differ_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &[7.0f32; 9]).unwrap();
    text_of(&stream, ops::axpy(&stream, &x, 2.0, &mut y), &["axpy", "x has 10", "y has 9"]);
    text_of(&stream, ops::copy(&stream, &x, &mut y), &["copy", "x has 10", "the output has 9"]);
    text_of(
        &stream,
        ops::cast(&stream, &x, &mut DeviceBuffer::<i32>::zeros(&stream, 11).unwrap()),
        &["10", "11"],
    );
    text_of(&stream, ops::add(&stream, &x, x.slice(..9), &mut y), &["add", "10", "9"]);
    text_of(&stream, ops::fma(&stream, x.slice(..9), x.slice(..9), &x, &mut y), &["fma", "z has 10", "9"]);
    text_of(&stream, ops::sum_into(&stream, &x, &mut y), &["reduce_sum", "9", "1"]);
    assert_eq!(y.to_host().unwrap(), [7.0; 9]);
}

#[test]
fn no_elements_are_no_work() {
    let stream = stream();
    let x = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    let mut y = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    ops::copy(&stream, &x, &mut y).unwrap();
    ops::fill(&stream, 1.0, &mut y).unwrap();
    ops::axpy(&stream, &x, 1.0, &mut y).unwrap();
    ops::add(&stream, &x, &x, &mut y).unwrap();
    let kernel = device().load(&IMAGE).unwrap().kernel::<axpy<f32, 4, 16>>().unwrap();
    kernel.launch(&stream, Launch::auto(0), (1.0f32, &x, &mut y)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(y.to_host().unwrap(), [0.0f32; 0]);
}

#[test]
fn an_uncompiled_variant_names_the_others() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &[0.0f32; 10]).unwrap();
    let config = Config { block: 128, grid: GridRule::Auto, items: 3, vector: 16 };
    let outcome = ops::with_config(config, || ops::copy(&stream, &x, &mut y));
    text_of(&stream, outcome, &["copy", "u32", "items=3", "vector=16", "1/16", "8/4"]);
}

#[test]
fn blocks_and_grids_over_a_limit_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &[0.0f32; 10]).unwrap();
    for (block, grid, words) in [
        (100_000, GridRule::Auto, ["copy", "100000"]),
        (513, GridRule::Auto, ["513", "512"]),
        (0, GridRule::Auto, ["block", "zero"]),
        (64, GridRule::Blocks(0), ["grid", "zero"]),
    ] {
        let config = Config { block, grid, items: 1, vector: 16 };
        text_of(&stream, ops::with_config(config, || ops::copy(&stream, &x, &mut y)), &words);
    }
    let config = Config { block: 64, grid: GridRule::Blocks(0), items: 4, vector: 16 };
    let generator = random::Generator::new(stream.device());
    let outcome = ops::with_config(config, || random::uniform(&stream, &generator, &mut y));
    text_of(&stream, outcome, &["grid", "zero"]);
    let kernel = device().load(&IMAGE).unwrap().kernel::<copy<u32, 1, 16>>().unwrap();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 10]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &[0u32; 10]).unwrap();
    let outcome = kernel.launch(&stream, Launch::linear(10, 32).shared(1 << 30), (&x, &mut y));
    text_of(&stream, outcome, &["shared memory", "1073741824"]);
    assert_eq!(y.to_host().unwrap(), [0; 10]);
}

#[test]
fn errors_keep_their_kind() {
    let stream = stream();
    let x = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    let error = ops::max(&stream, &x).unwrap_err();
    assert_eq!(error.downcast_ref(), Some(&OpError::Empty { operation: "max" }));
    assert!(matches!(Device::open("cuda:x"), Err(Error::UnknownDevice(_))));
}
