//! A wait that is left out lets work race: only unsafe code may ask for it.

use warpsmith_runtime::driver::emulated::EmulatedDriver;

fn main() {
    EmulatedDriver::builder().build().skip_wait(0);
}
