//! Runs a tool of the pipeline, and reports its failure with its own output.

use std::path::Path;
use std::process::Command;

use crate::error::Error;

/// Runs `command` to completion; `input` names the command's input in an error message.
pub fn run(command: &mut Command, input: &str) -> Result<Outputs, Error> {
    let program = Path::new(command.get_program()).to_path_buf();
    let output = command.output().map_err(Error::io("cannot run", &program))?;
    let outputs = Outputs {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if output.status.success() {
        return Ok(outputs);
    }
    let tool = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let text = format!("{}{}", outputs.stdout, outputs.stderr);
    let mut message = first_lines(text.trim(), LINES_SHOWN);
    if message.is_empty() {
        message = output.status.to_string();
    }
    Err(Error::Tool { tool, input: input.to_owned(), message })
}

/// Maximum number of output lines shown: an LLVM crash prints its stack and the whole command line, but the relevant
/// lines come first.
const LINES_SHOWN: usize = 20;

fn first_lines(text: &str, count: usize) -> String {
    let total = text.lines().count();
    let mut shown: Vec<&str> = text.lines().take(count).collect();
    let rest = format!("({} more lines)", total.saturating_sub(count));
    if total > count {
        shown.push(&rest);
    }
    shown.join("\n")
}

/// Output of a tool.
pub struct Outputs {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_failure_has_the_tools_words_and_name() {
        let error =
            run(Command::new("sh").args(["-c", "echo 'bad input' >&2; exit 3"]), "x.ll").err().unwrap();
        assert_eq!(error.to_string(), "sh failed on x.ll:\nbad input");
        let error = run(Command::new("sh").args(["-c", "exit 3"]), "x.ll").err().unwrap().to_string();
        assert!(error.contains("exit status: 3"), "{error}");
        let error = run(&mut Command::new("/no/such/tool"), "x.ll").err().unwrap().to_string();
        assert!(error.starts_with("cannot run /no/such/tool: "), "{error}");
    }

    #[test]
    fn long_output_is_cut() {
        assert_eq!(first_lines("a\nb\nc", 2), "a\nb\n(1 more lines)");
        assert_eq!(first_lines("a\nb", 2), "a\nb");
    }
}
