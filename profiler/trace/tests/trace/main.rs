//! Written files must be equal when they are read back, and malicious files must do no harm. Totals must be correct,
//! and pages must display correctly in a browser.

#[cfg(unix)]
mod bombs;
#[path = "../../../../runtime/tests/common/browser.rs"]
mod browser;
mod corpus;
mod files;
mod fixture;
mod forms;
mod page;
mod page_in_browser;
mod tables;
