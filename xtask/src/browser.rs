//! Finds or installs the browser in which the page tests run.

use crate::error::{Error, Result};
use crate::process::find;
use crate::setup::install;

/// Names under which Chromium and Chrome are installed.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Makes sure that a browser is installed. If none is found, installs Debian's Chromium.
pub fn ensure() -> Result<()> {
    if is_there() {
        return Ok(());
    }
    install("chromium");
    if is_there() {
        return Ok(());
    }
    Err(Error::Missing {
        what: "Chromium, which the page tests need, was not found".to_owned(),
        advice: "Install it (on Debian: `apt-get install chromium`), then run this command again.".to_owned(),
    })
}

fn is_there() -> bool {
    PROGRAMS.iter().any(|program| find(program).is_some())
}
