//! What a driver returns is trusted: only unsafe code may be one.

use warpsmith_runtime::driver::GraphDriver;

#[derive(Debug)]
struct Own;

impl GraphDriver for Own {}

fn main() {}
