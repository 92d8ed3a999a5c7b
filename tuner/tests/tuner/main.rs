//! The tuner's tests in one program, which is linked once.

#[cfg(feature = "command")]
mod corpus;
#[cfg(feature = "criterion")]
mod event_time;
mod fakes;
mod honesty;
mod honesty_on_device;
mod kernel;
mod landscapes;
mod log;
#[cfg(feature = "command")]
mod parsers;
#[cfg(feature = "command")]
mod report_in_browser;
mod search;
mod tune;
