#![forbid(unsafe_code)]
#![allow(unused)]

use gpu_std::prelude::*;

/// Calls the function that reads the arguments.
#[kernel(bytes = if x.len() == 3 { __bytes([core::ptr::without_provenance(8); 4].as_ptr()) } else { 1 })]
fn all(x: &[f32]) {}

/// Calls the entry.
#[kernel(bytes = { __entry(core::ptr::null()); x.len() })]
fn entry(x: &[f32]) {}

/// Reads the arguments.
#[kernel(bytes = gpu_std::__private::read_argument::<u64>(args, 0))]
fn reads(x: &[f32]) {}

/// Reads the spec, whose function it would call.
#[kernel(bytes = (__SPEC.bytes.unwrap())(core::ptr::null()))]
fn of_spec(x: &[f32]) {}

#[kernel(launch_bounds({ __entry(core::ptr::null()); 32 }))]
fn bounds() {}

/// The bounds of a scan are not in an unsafe context.
#[scan(identity = 0, launch_bounds({ core::hint::assert_unchecked(true); 32 }))]
fn sum(a: u32, b: u32) -> u32 {
    a + b
}

#[reduction(identity = *core::ptr::null::<u32>())]
fn largest(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

fn main() {}
