//! Tests of the tuner in one binary, so that they are linked only once.

#[cfg(feature = "command")]
#[path = "../../../runtime/tests/common/browser.rs"]
mod browser;
mod comparisons_on_device;
#[cfg(feature = "command")]
mod corpus;
#[cfg(feature = "criterion")]
mod event_time;
mod fakes;
mod kernel;
mod modeled_times;
mod noisy_device;
#[cfg(feature = "command")]
mod parsers;
#[cfg(feature = "command")]
mod report_in_browser;
mod search;
mod tune;
