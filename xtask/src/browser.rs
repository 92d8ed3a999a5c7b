//! Finds or installs the browser that the report's tests run in.

use crate::error::{Error, Result};
use crate::process::{find, run};
use crate::setup::{apt_get, install_packages, is_root_on_debian};

/// The names under which Chromium and Chrome are installed.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Makes sure that there is a browser; Debian's Chromium is installed where there is none.
pub fn ensure() -> Result<()> {
    if is_there() {
        return Ok(());
    }
    if is_root_on_debian() && !install_packages(&["chromium"]) {
        // A fresh machine has no package list, or an old one.
        let _ = run(apt_get().arg("update"));
        install_packages(&["chromium"]);
    }
    if is_there() {
        return Ok(());
    }
    Err(Error::Missing {
        what: "there is no Chromium, in which the report's page is tested".to_owned(),
        advice: "Install it, on Debian with `apt-get install chromium`, then run this again.".to_owned(),
    })
}

fn is_there() -> bool {
    PROGRAMS.iter().any(|program| find(program).is_some())
}
