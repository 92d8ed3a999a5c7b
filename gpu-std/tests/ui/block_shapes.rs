use gpu_std::prelude::*;

#[kernel]
fn no_element(_image: Slice2) {}

#[kernel]
fn forever(_image: Slice2<'static, f32>) {}

#[kernel(block(64, 32))]
fn large_block() {}

#[kernel(block(2, 2, 2, 2))]
fn four_sides() {}

#[kernel(block = 16)]
fn without_parentheses() {}

#[kernel(block("16"))]
fn no_number() {}

#[kernel(cluster(4, 8))]
fn large_cluster() {}

#[kernel(cluster(2), arch = 80)]
fn old_cluster() {}

fn main() {}
