//! The built `warpsmith` command, on the emulated device, and `agreement_on_device` on the device under test,
//! `WARPSMITH_TEST_DEVICE`.

mod agreement_on_device;
mod command;
mod shared;
mod tuning;
