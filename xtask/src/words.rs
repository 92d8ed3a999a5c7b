//! Checks the wording. Doc comments must begin with a noun phrase or a verb, names and texts must use standard terms,
//! and sentences in pages must be short.
//!
//! "Of the call that enqueued it." makes the reader search for the noun; "Correlation ID of the launching call." does
//! not. A doc comment therefore begins with a noun phrase or a verb, never with one of [`HEADLESS`]. A GPU engineer
//! searches for "skinny GEMM", not for "few rows": the words in [`REPLACED`] are therefore rejected in pages, comments,
//! texts and identifiers.

use std::path::Path;

use crate::error::{Error, Result};
use crate::markdown::Page;
use crate::process::tracked_files;

/// Words that a doc comment may not begin with.
const HEADLESS: [&str; 12] = [
    "Of", "That of", "Those of", "Whose", "Whether", "What", "Where", "Who", "Whom", "Which", "How",
    "By what",
];

/// Rejected words, each with its standard term, in the form that [`spelled`] returns, in which `_` joins the words of
/// one identifier.
const REPLACED: [(&str, &str); 34] = [
    ("attention_with_sums", "attention_with_lse"),
    ("band", "raster group"),
    ("bands", "raster groups"),
    ("bit for bit", "bit-identical"),
    ("few_rows", "skinny"),
    ("from tile to tile", "persistent"),
    ("greatest", "largest or maximum"),
    ("held_vectors", "resident_vectors"),
    ("host late", "launch-bound"),
    ("host_late", "launch_bound"),
    ("in turns", "interleaved"),
    ("is gone", "was dropped, has ended or failed"),
    ("machine parameter", "kernel parameter"),
    ("machine parameters", "kernel parameters"),
    ("machine_param", "ptx_param"),
    ("machine_params", "ptx_params"),
    ("meeting", "rendezvous"),
    ("one_tile", "non_persistent"),
    ("parts of k", "split-K"),
    ("planted", "seeded"),
    ("rig", "fixture or harness"),
    ("seam", "extension API"),
    ("slowed", "throttled"),
    ("takes turns", "ping-pong scheduling"),
    ("team", "thread group"),
    ("teams", "thread groups"),
    ("tensor copies", "TMA copies"),
    ("tile_end", "tile epilogue"),
    ("twist", "key transform"),
    ("under way", "pending or in flight"),
    ("under_way", "pending or in_flight"),
    ("untwist", "inverse transform"),
    ("warp_group", "warpgroup"),
    ("wrong use", "usage error"),
];

/// Maximum length of a sentence in a page, in words.
const LONGEST_SENTENCE: usize = 40;

/// Checks every Rust file and every page in the repository.
pub fn check(root: &Path) -> Result<()> {
    let mut problems = Vec::new();
    // `compat/` contains names from other crates, the changelog contains former names, and this file contains the list.
    let patterns = ["*.rs", "*.md", ":!compat", ":!CHANGELOG.md", ":!xtask/src/words.rs"];
    for file in tracked_files(root, &patterns)? {
        let path = root.join(&file);
        let text = std::fs::read_to_string(&path).map_err(Error::file(&path))?;
        let mut found = replaced(&text);
        if file.ends_with(".rs") {
            found.extend(headless(&text));
        } else if file.starts_with("docs/") || file == "README.md" {
            found.extend(long_sentences(&text));
        }
        problems.extend(found.into_iter().map(|(line, problem)| format!("{file}:{line}: {problem}")));
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(Error::Unexpected(format!("{}\n{count} wording problems", problems.join("\n")))),
    }
}

/// Returns the doc comments that begin with a word of [`HEADLESS`], with their lines.
fn headless(text: &str) -> Vec<(usize, String)> {
    let is_doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_first = |index: usize| is_doc(lines[index]) && (index == 0 || !is_doc(lines[index - 1]));
    let found = (0..lines.len()).filter(|&index| is_first(index) && is_headless(lines[index]));
    let problem = |line| format!("{line}: start the comment with a noun or a verb");
    found.map(|index| (index + 1, problem(lines[index]))).collect()
}

fn is_headless(line: &str) -> bool {
    let comment = line.trim_start_matches(['/', '!']).trim_start();
    HEADLESS.iter().any(|word| {
        comment.strip_prefix(word).is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric()))
    })
}

/// Returns the words of [`REPLACED`], with their lines.
fn replaced(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let text = spelled(text);
        for (word, term) in REPLACED {
            let is_apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
            let is_whole = |(at, _): (usize, &str)| {
                is_apart(text[..at].chars().next_back()) && is_apart(text[at + word.len()..].chars().next())
            };
            if text.match_indices(word).any(is_whole) {
                found.push((line + 1, format!("`{word}`: the standard term is {term}")));
            }
        }
    }
    found
}

/// Spells all identifiers of a line in lower case, with `_` between their words, and other characters as spaces.
fn spelled(line: &str) -> String {
    let mut spelled = String::with_capacity(line.len());
    let mut before = ' ';
    for c in line.chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            spelled.push('_');
        }
        spelled.push(if c.is_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { ' ' });
        before = c;
    }
    spelled
}

/// Returns the sentences of a page that are longer than [`LONGEST_SENTENCE`], with their lines.
fn long_sentences(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in Page::new(text).prose() {
        let words: Vec<&str> = text.split_whitespace().collect();
        let is_end =
            |word: &&str| word.trim_end_matches([')', '*', '_', '"', '\'']).ends_with(['.', '!', '?']);
        for sentence in words.split_inclusive(is_end) {
            let count = sentence.iter().filter(|word| word.contains(char::is_alphanumeric)).count();
            if count > LONGEST_SENTENCE {
                found.push((line, format!("the sentence has {count} words: split it")));
            }
        }
    }
    found
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
        let found = headless(&lines.join("\n"));
        assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 6]);
        assert!(found[1].1.starts_with("//! What it does."));
    }

    #[test]
    fn replaced_words_are_found_in_any_spelling() {
        let found = |text: &str| replaced(text).into_iter().map(|(_, problem)| problem).collect::<Vec<_>>();
        for text in ["launch_few_rows(x)", "struct FewRows;", "const FEW_ROWS: u32 = 8;"] {
            assert_eq!(found(text), ["`few_rows`: the standard term is skinny"], "{text}");
        }
        assert_eq!(found("/// Sums parts of K.\nlet twist = 1;").len(), 2);
        for text in ["a few rows", "the origin", "a sub-warp group", "seamless", "teamed"] {
            assert!(found(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn only_prose_has_long_sentences() {
        let long = "word ".repeat(LONGEST_SENTENCE + 1);
        let page = format!("{long}\n# {long}\n| {long} |\n```text\n{long}\n```\n`{long}`\nA. {long}");
        let lines: Vec<usize> = long_sentences(&page).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 8]);
        let two = "word ".repeat(LONGEST_SENTENCE - 1) + "end. " + &"word ".repeat(LONGEST_SENTENCE);
        assert!(long_sentences(&two).is_empty());
    }
}
