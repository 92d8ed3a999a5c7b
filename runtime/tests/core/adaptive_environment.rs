//! `WARPSMITH_ADAPTIVE_LAUNCH=1` and `WARPSMITH_CACHE_DIR`.

use crate::alone::alone;
use crate::common::*;
use warpsmith_runtime::{Device, LaunchStore};

#[test]
fn the_environment_turns_it_on_and_says_where_winners_are_kept() {
    let directory = std::env::temp_dir().join("warpsmith-environment");
    if alone!("WARPSMITH_ADAPTIVE_LAUNCH" => "1", "WARPSMITH_CACHE_DIR" => &directory).is_some() {
        return;
    }
    let (_, device) = device();
    assert!(device.is_adaptive_launch());
    assert_eq!(device.launch_store().path(), None, "times of an emulated device are not kept");
    assert_eq!(LaunchStore::shared().path(), Some(directory.join("launches.jsonl").as_path()));
    assert!(!directory.exists(), "nothing is written before there is something to write");
    // SAFETY: no other thread of this process uses the environment.
    unsafe { std::env::set_var("WARPSMITH_ADAPTIVE_LAUNCH", "yes") };
    assert!(
        !Device::with_driver(driver(1), 0).unwrap().is_adaptive_launch(),
        "1 turns it on, nothing else does"
    );
}
