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
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Use(_) => 2,
            Failure::Failed(_) | Failure::Shown => 1,
        }
    }

    /// What to say, on one line.
    pub fn line(&self) -> Option<String> {
        match self {
            Failure::Use(text) | Failure::Failed(text) => Some(one_line(text)),
            Failure::Shown => None,
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::Failed(format!("cannot write to standard output: {error}"))
    }
}

impl From<warpsmith_tuner::error::Error> for Failure {
    fn from(error: warpsmith_tuner::error::Error) -> Self {
        if error.is_wrong_use() {
            Failure::Use(error.to_string())
        } else {
            Failure::Failed(error.to_string())
        }
    }
}

/// A device that cannot be had is unusable input.
pub fn unusable_device(error: warpsmith::runtime::Error) -> Failure {
    Failure::Use(error.to_string())
}

/// What clap has to say, on one line and without its usage section.
pub fn usage_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "warpsmith: no command given: use devices, doctor, kernels, bench or memory; see warpsmith --help"
            .to_string();
    }
    let text = error.to_string();
    let said = text.split("\n\nUsage:").next().unwrap_or(&text);
    let said = said.split("\n\nFor more information").next().unwrap_or(said);
    let said = said.strip_prefix("error: ").unwrap_or(said);
    format!("warpsmith: {}; see warpsmith --help", one_line(said))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn complaints_are_one_line_and_say_what_to_do() {
        for (args, words) in [
            (&["warpsmith"][..], "no command given"),
            (&["warpsmith", "bnch"], "bnch"),
            (&["warpsmith", "bench"], "<KERNEL>"),
            (&["warpsmith", "bench", "copy", "--szies", "1"], "--szies"),
            (&["warpsmith", "kernels", "--block", "x"], "--block"),
        ] {
            let line = usage_line(&Cli::try_parse_from(args).unwrap_err());
            assert!(line.contains(words) && line.ends_with("--help") && !line.contains('\n'), "{line}");
        }
    }
}
