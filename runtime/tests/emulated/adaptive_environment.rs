//! Tests of `WARPSMITH_ADAPTIVE_LAUNCH=1`.

use crate::alone::only_alone;
use crate::common::*;
use warpsmith_runtime::Device;

#[test]
fn the_environment_turns_it_on() {
    only_alone!("WARPSMITH_ADAPTIVE_LAUNCH" => "1");
    let (_, device) = device();
    assert!(device.is_adaptive_launch());
    // SAFETY: no other thread of this process accesses the environment.
    unsafe { std::env::set_var("WARPSMITH_ADAPTIVE_LAUNCH", "yes") };
    assert!(
        !Device::with_driver(driver(1), 0).unwrap().is_adaptive_launch(),
        "1 turns it on, nothing else does"
    );
}
