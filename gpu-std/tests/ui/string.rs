use gpu_std::prelude::*;

#[kernel]
fn by_value(_text: String) {}

#[kernel]
fn in_slice(_texts: &[String]) {}

#[kernel]
fn in_view(_flags: DisjointMut<bool>) {}

fn main() {}
