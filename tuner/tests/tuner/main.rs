//! Measuring, searching, comparing and reporting: on emulated devices with simulated time, and `honesty_on_device` on the
//! device under test, `WARPSMITH_TEST_DEVICE`.

mod event_time;
mod fakes;
mod honesty;
mod honesty_on_device;
mod kernel;
mod killed;
mod landscapes;
mod log;
mod processes;
mod report_in_browser;
mod search;
mod tune;
mod tune_isolated;
