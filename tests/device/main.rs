//! The facade crate on the device under test: `WARPSMITH_TEST_DEVICE`, or the emulated device if it is not set. A
//! missing device fails the tests. Also requirements on the PTX in the embedded image.

#[path = "../../runtime/tests/common/alone.rs"]
mod alone;
mod common;
mod extremes;
mod faults;
mod launch;
mod math;
mod ops;
mod profile;
mod ptx_facts;
mod random;
mod sites;
