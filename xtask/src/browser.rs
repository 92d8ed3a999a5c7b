//! Finds or installs the browser in which the page tests run.

use warpsmith_builder::setup::{install_debian_packages, is_root_on_debian};

use crate::error::{Error, Result};
use crate::process::find;

/// Names under which Chromium and Chrome are installed.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Makes sure that there is a browser; installs Debian's Chromium if there is none.
pub fn ensure() -> Result<()> {
    if is_there() {
        return Ok(());
    }
    // A fresh machine has no package list, or an old one: the second attempt updates it first.
    if is_root_on_debian()
        && let Err(failure) = install_debian_packages(&["chromium"], false)
            .or_else(|_| install_debian_packages(&["chromium"], true))
    {
        println!("    {failure}");
    }
    if is_there() {
        return Ok(());
    }
    Err(Error::Missing {
        what: "there is no Chromium, in which pages are tested".to_owned(),
        advice: "Install it, on Debian with `apt-get install chromium`, then run this again.".to_owned(),
    })
}

fn is_there() -> bool {
    PROGRAMS.iter().any(|program| find(program).is_some())
}
