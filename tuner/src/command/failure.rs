//! The reason why a command failed, with its exit code and one-line message.

use clap::error::ErrorKind;

/// The reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Usage error or unusable input: exit code 2.
    Use(String),
    /// The machine or a check failed: exit code 1.
    Failed(String),
    /// A check failed, and the output already shows which: exit code 1.
    Shown,
    /// A child program ended with this exit code, which is passed on. It has already printed the reason.
    Program(u8),
    /// Ctrl-C ended the command: exit code 130, which shells report for a program ended by SIGINT.
    Interrupted,
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Use(_) => 2,
            Failure::Failed(_) | Failure::Shown => 1,
            Failure::Program(code) => *code,
            Failure::Interrupted => 130,
        }
    }

    /// The message, on one line; `None` if it was already shown.
    pub fn line(&self) -> Option<String> {
        match self {
            Failure::Use(text) | Failure::Failed(text) => Some(one_line(text)),
            Failure::Interrupted => Some("ended early; what was measured until then is above".to_owned()),
            Failure::Shown | Failure::Program(_) => None,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Failed(format!("cannot write to standard output: {error}"))
    }
}

impl From<crate::error::Error> for Failure {
    fn from(error: crate::error::Error) -> Self {
        if error.is_usage_error() {
            Failure::Use(error.to_string())
        } else {
            Failure::Failed(error.to_string())
        }
    }
}

/// Returns the failure for a device that cannot be opened: unusable input.
pub fn unusable_device(error: warpsmith_runtime::Error) -> Failure {
    Failure::Use(error.to_string())
}

/// Formats clap's message for the user of the program `name`, on one line and without its usage section.
pub fn usage_line(name: &str, error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("{name}: no command given; see {name} --help");
    }
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or(&text);
    let said = said.split("\n\nFor more information").next().unwrap_or(said);
    let said = said.strip_prefix("error: ").unwrap_or(said);
    format!("{name}: {}; see {name} --help", one_line(said))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
