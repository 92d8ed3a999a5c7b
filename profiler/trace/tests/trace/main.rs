//! Written files are equal when read back, hostile ones do no harm, totals are correct, and pages display correctly in
//! a browser.

mod bombs;
#[path = "../../../../runtime/tests/common/browser.rs"]
mod browser;
mod corpus;
mod counters;
mod files;
mod fixture;
mod forms;
mod page;
mod page_in_browser;
mod tables;
