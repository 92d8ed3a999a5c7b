//! [`Failure`]: the reason why a command failed, with its exit code and a one-line message.

use clap::error::ErrorKind;

/// Reason why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// Usage error or unusable input; the exit code is 2.
    Use(String),
    /// Failure of the machine or of a check; the exit code is 1.
    Failed(String),
    /// Failed check that the output already shows; the exit code is 1.
    Shown,
    /// Exit code of a child program, which is passed on. The program has already printed the reason.
    Program(u8),
    /// Termination by Ctrl-C; the exit code is 130, which shells report for a program terminated by SIGINT.
    Interrupted,
}

impl Failure {
    /// Returns the exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Use(_) => 2,
            Failure::Failed(_) | Failure::Shown => 1,
            Failure::Program(code) => *code,
            Failure::Interrupted => 130,
        }
    }

    /// Returns the message as one line, or `None` if it has already been shown.
    pub fn line(&self) -> Option<String> {
        match self {
            Failure::Use(text) | Failure::Failed(text) => Some(one_line(text)),
            Failure::Interrupted => {
                Some("ended early; the results measured until then are shown above".to_owned())
            }
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

/// Returns the failure for a device that cannot be opened; it counts as unusable input.
pub fn unusable_device(error: warpsmith_runtime::Error) -> Failure {
    Failure::Use(error.to_string())
}

/// Formats clap's message for the user of the program `name`, as one line and without the usage section.
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
