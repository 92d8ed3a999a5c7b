use gpu_std::prelude::*;

#[kernel]
async fn asynchronous() {}

#[kernel]
const fn constant() {}

#[kernel]
extern "C" fn external() {}

fn main() {}
