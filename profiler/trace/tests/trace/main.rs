//! Files read back as they were written, hostile ones do no harm, tables add up, pages show what they should in a browser.

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
