//! Why a command did not succeed, its exit code and its one line.

use clap::error::ErrorKind;

/// Why a command did not succeed.
#[derive(Debug)]
pub enum Failure {
    /// Wrong use or unusable input: exit code 2.
    Use(String),
    /// The machine or a check failed: exit code 1.
    Failed(String),
    /// A check failed, and the output already says which: exit code 1.
    Shown,
    /// A program that was run ended with this exit code, which is passed on; it has said why.
    Program(u8),
    /// Ctrl-C ended it: exit code 130, as a shell gives for a program that this signal ends.
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

    /// The message, on one line.
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
        if error.is_wrong_use() {
            Failure::Use(error.to_string())
        } else {
            Failure::Failed(error.to_string())
        }
    }
}

/// A device that cannot be opened is unusable input.
pub fn unusable_device(error: warpsmith_runtime::Error) -> Failure {
    Failure::Use(error.to_string())
}

/// clap's message to the user of the program `name`, on one line and without its usage section.
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
