//! Checks the form of doc comments: each begins with what it describes.
//!
//! "Of the call that enqueued it." makes the reader search for the noun; "Correlation ID of the launching call." does
//! not. A doc comment therefore begins with a noun phrase or a verb, never with one of [`HEADLESS`].

use std::path::Path;

use crate::error::{Error, Result};
use crate::process::tracked_files;

/// Words that a doc comment may not begin with.
const HEADLESS: [&str; 12] = [
    "Of", "That of", "Those of", "Whose", "Whether", "What", "Where", "Who", "Whom", "Which", "How",
    "By what",
];

/// Checks every Rust file of the repository.
pub fn check(root: &Path) -> Result<()> {
    let mut problems = Vec::new();
    for file in tracked_files(root, &["*.rs"])? {
        let path = root.join(&file);
        let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        problems
            .extend(headless(&text).into_iter().map(|(line, comment)| format!("{file}:{line}: {comment}")));
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(Error::Unexpected(format!(
            "{}\n{count} doc comments do not begin with what they describe: use a noun or a verb",
            problems.join("\n")
        ))),
    }
}

/// Returns the first lines of doc comments that begin with a word of [`HEADLESS`], with their numbers.
fn headless(text: &str) -> Vec<(usize, &str)> {
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_first = |index: usize| is_doc(lines[index]) && (index == 0 || !is_doc(lines[index - 1]));
    let found = (0..lines.len()).filter(|&index| is_first(index) && is_headless(lines[index]));
    found.map(|index| (index + 1, lines[index])).collect()
}

fn is_headless(line: &str) -> bool {
    let comment = line.trim_start_matches(['/', '!']).trim_start();
    HEADLESS.iter().any(|word| {
        comment.strip_prefix(word).is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headless_comments_are_found() {
        let lines = [
            "/// Of the call.",
            "fn a() {}",
            "/// Offset in bytes,",
            "/// of which the first counts.",
            "fn b() {}",
            "    //! What it does.",
            "    /// Returns whether it is done.",
            "/// Which one?",
        ];
        let text = lines.join("\n");
        assert_eq!(headless(&text), [(1, "/// Of the call."), (6, "//! What it does.")]);
    }
}
