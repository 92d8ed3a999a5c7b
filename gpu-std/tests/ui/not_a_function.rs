use gpu_std::prelude::*;

#[kernel]
struct Wrong;

fn main() {}
