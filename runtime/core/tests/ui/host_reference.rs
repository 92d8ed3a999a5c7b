//! Host references do not go to device memory.
use warpsmith_runtime::*;

fn main() {
    let _ = size_of::<DeviceBuffer<&'static str>>();
}
