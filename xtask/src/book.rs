//! Checks the pages of the guide in `docs/`.
//!
//! [`check`] requires no other program and takes milliseconds, so it runs for every change. The table of contents must
//! list every page, and the package in `docs/` must test every page with Rust listings. Listings below `<!-- quotes
//! FILE -->` quote a file. They are compiled with that file instead, and must match a part of it. Every listing must
//! specify a language and must not be ignored. Every link and its anchor must resolve, every picture must have a title,
//! and tables of measurements must be on the pages that [`benchmarks`] checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::benchmarks;
use crate::error::{Error, Result};
use crate::markdown::{Page, Quote};

/// Checks every page in `docs/`, and the links in the other documents.
pub fn check(root: &Path) -> Result<()> {
    let book = files_below(&root.join("docs"), &["md"])?;
    let mut pages = BTreeMap::new();
    for path in book.iter().map(|page| Path::new("docs").join(page)).chain(others(root)?) {
        let text = read(&root.join(&path))?;
        pages.insert(path, text);
    }
    let mut problems = Vec::new();
    let summary = Path::new("docs/SUMMARY.md");
    let listed = contents(pages.get(summary).map_or("", String::as_str));
    let tests = read(&root.join("docs/guide.rs"))?;
    for page in &book {
        let path = Path::new("docs").join(page);
        let text = Page::new(&pages[&path]);
        let is_quote = |line| text.quotes().any(|quote| quote.line == line);
        let has_listing = text.fences().any(|fence| fence.is_rust() && !is_quote(fence.line));
        if path != summary && !listed.contains(page) {
            problems.push(format!("{}: is not in docs/SUMMARY.md", path.display()));
        }
        if has_listing && !tests.contains(&format!("\"{}\"", page.display())) {
            problems.push(format!("{}: has listings, but is not in docs/guide.rs", path.display()));
        }
        problems.extend(text.fences().filter_map(|fence| {
            let problem = fence.problem()?;
            Some(format!("{}:{}: {problem}", path.display(), fence.line))
        }));
        for quote in text.quotes() {
            let file = root.join(quote.file);
            let source = if file.is_file() { read(&file)? } else { String::new() };
            problems.extend(
                misquoted(&quote, &source).map(|(line, text)| format!("{}:{line}: {text}", path.display())),
            );
        }
    }
    problems.extend(benchmarks::problems(&pages));
    for (path, text) in &pages {
        problems.extend(broken_links(root, path, text, &pages));
    }
    for picture in files_below(&root.join("docs"), &["svg"])? {
        if !read(&root.join("docs").join(&picture))?.contains("<title") {
            problems.push(format!("docs/{}: has no <title>, which screen readers need", picture.display()));
        }
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(Error::Unexpected(format!("{}\n{count} problems in the guide", problems.join("\n")))),
    }
}

/// If a quote differs from its file, returns the first line that differs and a description of the problem. The
/// comparison ignores the indentation of the whole listing and trailing whitespace.
fn misquoted(quote: &Quote<'_>, source: &str) -> Option<(usize, String)> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let is_blank = |line: &&str| line.trim().is_empty();
    let Some(margin) =
        quote.listing.iter().filter(|line| !is_blank(line)).map(|line| indentation(line)).min()
    else {
        return Some((quote.line, format!("the quote of {} is not followed by a listing", quote.file)));
    };
    let source: Vec<&str> = source.lines().collect();
    // Number of listing lines that match the file from line `start` on.
    let equal = |start: usize| {
        let mut added = None;
        let is_equal = |(listed, found): &(&&str, &&str)| {
            if is_blank(listed) || is_blank(found) {
                return is_blank(listed) && is_blank(found);
            }
            let add = indentation(found).checked_sub(indentation(listed) - margin);
            listed.trim() == found.trim() && add.is_some() && *added.get_or_insert(add) == add
        };
        quote.listing.iter().zip(&source[start..]).take_while(is_equal).count()
    };
    let best = (0..source.len()).map(equal).max().unwrap_or(0);
    let problem = || format!("the listing differs from {}; copy the lines again", quote.file);
    (best < quote.listing.len()).then(|| (quote.line + 1 + best, problem()))
}

/// Returns the pages that a table of contents lists.
fn contents(summary: &str) -> BTreeSet<PathBuf> {
    Page::new(summary).links().map(|(_, link)| PathBuf::from(link)).collect()
}

/// Returns the broken links in a document.
fn broken_links(root: &Path, path: &Path, text: &str, pages: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let broken = |(line, link): (usize, &str)| {
        if link.contains("://") || link.starts_with("mailto:") {
            return None;
        }
        let (_, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let target = resolve(path, link);
        let problem = match (&target, anchor) {
            (None, _) => "leads out of the repository".to_owned(),
            (Some(target), _) if !root.join(target).exists() => format!("{} is not there", target.display()),
            (Some(target), Some(anchor)) => {
                let text = pages.get(target)?;
                if Page::new(text).anchors().any(|heading| heading == anchor) {
                    return None;
                }
                format!("{} has no heading #{anchor}", target.display())
            }
            _ => return None,
        };
        Some(format!("{}:{line}: link to {link}: {problem}", path.display()))
    };
    Page::new(text).links().filter_map(broken).collect()
}

/// Returns the repository file to which a link in a document points.
fn resolve(from: &Path, link: &str) -> Option<PathBuf> {
    if link.contains("://") {
        return None;
    }
    let file = link.split('#').next()?;
    if file.is_empty() {
        return Some(from.to_path_buf());
    }
    let mut target = from.parent()?.to_path_buf();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir if !target.pop() => return None,
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    Some(target)
}

/// Returns the documents outside the guide.
fn others(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "fuzz/README.md"] {
        if root.join(name).is_file() {
            found.push(PathBuf::from(name));
        }
    }
    let examples = files_below(&root.join("examples"), &["md"])?;
    found.extend(examples.into_iter().map(|file| Path::new("examples").join(file)));
    Ok(found)
}

/// Returns the files with these extensions below a folder, as sorted relative paths. Excludes Cargo's build output.
fn files_below(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(next) = folders.pop() {
        let path = folder.join(&next);
        for entry in fs::read_dir(&path).map_err(Error::file(&path))? {
            let entry = entry.map_err(Error::file(&path))?;
            let file = next.join(entry.file_name());
            if entry.path().is_dir() {
                if entry.file_name() != "target" {
                    folders.push(file);
                }
            } else if file.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension))
            {
                files.push(file);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_resolve_from_their_page() {
        let of = |link| resolve(Path::new("docs/guide/a.md"), link);
        assert_eq!(of("b.md#c"), Some("docs/guide/b.md".into()));
        assert_eq!(of("../memory.md"), Some("docs/memory.md".into()));
        assert_eq!(of("#here"), Some("docs/guide/a.md".into()));
        assert_eq!(of("../../../x"), None);
        assert_eq!(of("https://example.org/x"), None);
    }

    #[test]
    fn broken_links_and_anchors_are_found() {
        let page = PathBuf::from("docs/SUMMARY.md");
        let pages = BTreeMap::from([(page.clone(), "# Some `code`, here\n".to_owned())]);
        let root = crate::root();
        let of = |text| broken_links(&root, &page, text, &pages).len();
        assert_eq!(of("[a](SUMMARY.md#some-code-here) [b](#some-code-here) `[c](no.md)`"), 0);
        assert_eq!(of("[a](no-such-page.md)"), 1);
        assert_eq!(of("[a](#some-code)"), 1);
        assert_eq!(of("[a](../../elsewhere)"), 1);
    }

    #[test]
    fn quotes_are_consecutive_lines_of_their_file() {
        let source = "fn a() {\n    if b {\n        c();\n\n        d();\n    }\n}\n";
        let of = |listing: &[&str]| {
            let quote = Quote { file: "a.rs", line: 10, listing: listing.to_vec() };
            misquoted(&quote, source).map(|(line, _)| line)
        };
        assert_eq!(of(&["fn a() {", "    if b {"]), None);
        assert_eq!(of(&["if b {", "    c();", "", "    d();", "}"]), None);
        assert_eq!(of(&["  c();", "", "  d();"]), None);
        // Cases: a different name, a missing blank line, different indentation, more lines than the file has, and an
        // empty listing.
        assert_eq!(of(&["if b {", "    d();"]), Some(12));
        assert_eq!(of(&["c();", "d();"]), Some(12));
        assert_eq!(of(&["if b {", "c();"]), Some(12));
        assert_eq!(of(&["    }", "}", "fn e() {}"]), Some(13));
        assert_eq!(of(&[""]), Some(10));
    }

    #[test]
    fn the_guide_is_correct() {
        check(&crate::root()).unwrap();
    }
}
