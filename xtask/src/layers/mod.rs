//! Checks that no module imports upwards. In each crate with a declared order, a path from a module to a higher module
//! is an error. An import cycle of more than [`LARGEST_CIRCLE`] files is also an error.
//!
//! All paths count, whether in a `use` or inline, for example `crate::a::B` and `super::B`, including paths in groups
//! and in macros. A re-exported name counts as its original path. Tests (`#[cfg(test)]`) are exempt, and a module may
//! re-export items from modules below it in its own tree.

mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use self::order::{LAYERS, WITHOUT_ORDER};
use crate::error::{Error, Result};

/// Maximum number of files that may import each other in a cycle.
const LARGEST_CIRCLE: usize = 10;
/// Maximum number of re-exports that are followed for a name.
const MAX_EXPORTS: usize = 8;

/// Checks every crate that has an order.
pub fn check(root: &Path) -> Result<()> {
    let mut problems = Vec::new();
    let without_order = WITHOUT_ORDER.iter().map(|folder| (folder, None));
    for (folder, order) in LAYERS.iter().map(|(folder, order)| (folder, Some(*order))).chain(without_order) {
        let files = sources(&root.join(folder).join("src"))?;
        problems
            .extend(problems_of(&files, order).into_iter().map(|problem| format!("{folder}/src/{problem}")));
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(Error::Unexpected(format!("{}\n{count} imports break the layers", problems.join("\n")))),
    }
}

/// Returns the Rust files below a folder, with their relative paths.
fn sources(folder: &Path) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).map_err(Error::file(&next))? {
            let path = entry.map_err(Error::file(&next))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
                let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
                files.push((name, text));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the violations in a crate as `FILE:LINE: problem`. Each file is given as its path in `src/` and its text.
fn problems_of(files: &[(String, String)], order: Option<&[&str]>) -> Vec<String> {
    let mut crate_ = Crate::default();
    for (name, text) in files {
        match text.parse::<TokenStream>() {
            Ok(tokens) => crate_.read(name, tokens),
            Err(error) => return vec![format!("{name}: cannot be read: {error}")],
        }
    }
    crate_.leave_out_tests();
    let mut problems = order.map_or_else(Vec::new, |order| crate_.upward(order));
    let circle = crate_.largest_circle();
    if circle.len() > LARGEST_CIRCLE {
        let files = circle.join(", ");
        problems.push(format!(
            "{}: an import cycle of {} files exceeds the maximum of {LARGEST_CIRCLE}: {files}",
            circle[0],
            circle.len()
        ));
    }
    problems
}

/// A path that is used in a file.
struct Import {
    file: String,
    line: usize,
    /// Module that contains the path.
    from: Vec<String>,
    /// The path, relative to the crate root.
    to: Vec<String>,
    /// True if the path only re-exports a name (`pub use`).
    is_export: bool,
}

#[derive(Default)]
struct Crate {
    /// Files of modules, keyed by module path.
    modules: BTreeMap<Vec<String>, String>,
    /// Modules that are compiled for tests only.
    tests: Vec<Vec<String>>,
    imports: Vec<Import>,
    /// Imported names: the module path followed by the name, mapped to the path that the name stands for.
    names: BTreeMap<Vec<String>, Vec<String>>,
}

/// Position in a file while its tokens are walked.
struct Place<'a> {
    file: &'a str,
    module: Vec<String>,
}

impl Crate {
    fn read(&mut self, file: &str, tokens: TokenStream) {
        let module = module_of(file);
        self.modules.insert(module.clone(), file.to_owned());
        self.walk(&Place { file, module }, tokens.into_iter().collect());
    }

    fn walk(&mut self, place: &Place<'_>, tokens: Vec<TokenTree>) {
        let mut at = 0;
        let mut is_public = false;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(punct) if punct.as_char() == '#' && is_for_tests(tokens.get(at + 1)) => {
                    at = self.skip_item(place, &tokens, at + 2);
                    continue;
                }
                TokenTree::Ident(word) if word == "pub" => {
                    is_public = true;
                    // `pub(in crate::a)` is not an import.
                    let is_limited = matches!(tokens.get(at + 1), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                    at += 1 + usize::from(is_limited);
                    continue;
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) =
                        (tokens.get(at + 1), tokens.get(at + 2))
                    {
                        let inner =
                            Place { file: place.file, module: joined(&place.module, &name.to_string()) };
                        self.walk(&inner, body.stream().into_iter().collect());
                        at += 2;
                    }
                }
                TokenTree::Ident(word) if word == "use" => {
                    at = self.path(place, &tokens, at + 1, true, is_public)
                }
                TokenTree::Ident(word)
                    if (word == "crate" || word == "super") && is_path(&tokens, at + 1) =>
                {
                    at = self.path(place, &tokens, at, false, false);
                }
                TokenTree::Group(group) => self.walk(place, group.stream().into_iter().collect()),
                _ => {}
            }
            is_public = false;
            at += 1;
        }
    }

    /// Skips an item that is compiled only for tests. Returns the position after the item.
    fn skip_item(&mut self, place: &Place<'_>, tokens: &[TokenTree], from: usize) -> usize {
        let mut at = from;
        let mut is_item = false;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Ident(word) if word == "mod" => {
                    is_item = true;
                    if let Some(TokenTree::Ident(name)) = tokens.get(at) {
                        self.tests.push(joined(&place.module, &name.to_string()));
                    }
                }
                TokenTree::Ident(word) => is_item |= ITEMS.iter().any(|item| word == item),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return at,
                TokenTree::Punct(punct) if punct.as_char() == ';' || (punct.as_char() == ',' && !is_item) => {
                    return at;
                }
                _ => {}
            }
        }
        at
    }

    /// Records the path that starts at a position, or all paths of a `use`. Returns the position of the last token.
    fn path(
        &mut self,
        place: &Place<'_>,
        tokens: &[TokenTree],
        from: usize,
        is_use: bool,
        is_public: bool,
    ) -> usize {
        let mut prefix = Vec::new();
        let mut at = from;
        match tokens.get(at) {
            Some(TokenTree::Ident(word)) if word == "crate" => {}
            Some(TokenTree::Ident(word)) if word == "self" || word == "super" => {
                prefix.clone_from(&place.module);
                while matches!(tokens.get(at), Some(TokenTree::Ident(word)) if word == "super") {
                    prefix.pop();
                    if !matches!(tokens.get(at + 3), Some(TokenTree::Ident(word)) if word == "super") {
                        break;
                    }
                    at += 3;
                }
            }
            // The path belongs to another crate.
            _ => return from,
        }
        self.rest(place, tokens, at + 1, prefix, is_use, is_public)
    }

    /// Records the tokens that follow the start of a path: `::a::B`, `::{a, b::C}`, `::*`, `::B as C`.
    fn rest(
        &mut self,
        place: &Place<'_>,
        tokens: &[TokenTree],
        from: usize,
        mut path: Vec<String>,
        is_use: bool,
        is_public: bool,
    ) -> usize {
        let mut at = from;
        while is_path(tokens, at) {
            match &tokens[at + 2] {
                TokenTree::Ident(word) => {
                    if word != "self" {
                        path.push(word.to_string());
                    }
                    at += 3;
                }
                TokenTree::Group(group) if is_use => {
                    for part in group.stream().into_iter().collect::<Vec<_>>().split(is_comma) {
                        let Some(TokenTree::Ident(first)) = part.first() else { continue };
                        let mut inner = path.clone();
                        if first != "self" {
                            inner.push(first.to_string());
                        }
                        self.rest(place, part, 1, inner, is_use, is_public);
                    }
                    return at + 2;
                }
                _ => break,
            }
        }
        let line = tokens.get(at.saturating_sub(1)).map_or(0, |token| token.span().start().line);
        if is_use && let Some(name) = renamed(tokens, at).or(path.last().cloned()) {
            self.names.insert(joined(&place.module, &name), path.clone());
        }
        let (file, from) = (place.file.to_owned(), place.module.clone());
        self.imports.push(Import { file, line, from, to: path, is_export: is_use && is_public });
        at - 1
    }

    fn leave_out_tests(&mut self) {
        let tests = std::mem::take(&mut self.tests);
        self.imports.retain(|import| !tests.iter().any(|test| import.from.starts_with(test)));
        self.modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    }

    /// Resolves a path through re-exports. A module is never confused with another item of the same name.
    fn resolved(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        for _ in 0..MAX_EXPORTS {
            let other = |len: usize| {
                let known =
                    self.names.get(&path[..len]).filter(|_| !self.modules.contains_key(&path[..len]))?;
                Some((len, known))
            };
            let Some((len, to)) = (1..=path.len()).find_map(other) else { break };
            path = [&to[..], &path[len..]].concat();
        }
        path
    }

    /// Returns the paths that lead upwards, and the modules that are missing from the order.
    fn upward(&self, order: &[&str]) -> Vec<String> {
        let level = |module: &str| order.iter().position(|known| *known == module);
        let tops: BTreeSet<&String> = self.modules.keys().filter_map(|module| module.first()).collect();
        let unknown = tops.iter().filter(|top| level(top).is_none());
        let mut problems: Vec<String> = unknown
            .map(|top| format!("{top}: the module is missing in the order in xtask/src/layers/order.rs"))
            .collect();
        for Import { file, line, from, to, .. } in &self.imports {
            let target = self.resolved(to);
            let (Some(from), Some(target)) = (from.first(), target.first()) else { continue };
            if let (Some(low), Some(high)) = (level(from), level(target))
                && low < high
            {
                problems.push(format!(
                    "{file}:{line}: `{from}` imports `{}`, which is in a higher layer",
                    to.join("::")
                ));
            }
        }
        problems.sort();
        problems.dedup();
        problems
    }

    /// Returns the files of the largest import cycle.
    fn largest_circle(&self) -> Vec<String> {
        let file_of = |path: &[String]| (0..=path.len()).rev().find_map(|len| self.modules.get(&path[..len]));
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for import in &self.imports {
            // A module may re-export items from modules below it in its own tree. The crate root only re-exports.
            if import.from.is_empty() || (import.is_export && import.to.starts_with(&import.from)) {
                continue;
            }
            if let Some(to) = file_of(&self.resolved(&import.to)) {
                edges.entry(&import.file).or_default().insert(to);
            }
        }
        let reached = |from: &str| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
            while let Some(file) = open.pop() {
                let next = edges.get(file.as_str()).into_iter().flatten().map(|file| (*file).to_owned());
                open.extend(next.filter(|file| seen.insert(file.clone())));
            }
            seen
        };
        let reach: BTreeMap<&str, BTreeSet<String>> =
            edges.keys().map(|file| (*file, reached(file))).collect();
        let circle = |file: &str| -> Vec<String> {
            let back = |other: &str| reach[file].contains(other) && reach[other].contains(file);
            reach.keys().filter(|other| back(other)).map(|other| (*other).to_owned()).collect()
        };
        reach.keys().map(|file| circle(file)).max_by_key(Vec::len).unwrap_or_default()
    }
}

/// Keywords that start an item. An item ends with a brace or a semicolon, so commas do not end it.
const ITEMS: [&str; 11] =
    ["mod", "use", "fn", "impl", "struct", "enum", "const", "static", "type", "trait", "macro_rules"];

/// Returns the module that a file in `src/` defines.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").replace('\\', "/");
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("mod"))
        || matches!(&parts[..], [root] if root == "lib" || root == "main")
    {
        parts.pop();
    }
    parts
}

fn joined(module: &[String], name: &str) -> Vec<String> {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}

/// Returns true if `::` and another token follow at a position.
fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    let is_colon =
        |at: usize| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    is_colon(at) && is_colon(at + 1) && tokens.len() > at + 2
}

/// Returns the name after `as`.
fn renamed(tokens: &[TokenTree], at: usize) -> Option<String> {
    match (tokens.get(at)?, tokens.get(at + 1)?) {
        (TokenTree::Ident(word), TokenTree::Ident(name)) if word == "as" => Some(name.to_string()),
        _ => None,
    }
}

/// Returns true if the brackets of an attribute contain `cfg(test)` or `cfg(all(test, …))`.
fn is_for_tests(attribute: Option<&TokenTree>) -> bool {
    let Some(TokenTree::Group(group)) = attribute else { return false };
    let text: String = group.stream().to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: [&str; 3] = ["low", "middle", "high"];

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        problems_of(&files, Some(&ORDER))
    }

    #[test]
    fn imports_downwards_pass() {
        let found = problems(&[
            ("lib.rs", "pub mod low; pub mod middle; pub mod high; pub use self::high::H;"),
            (
                "low.rs",
                "use std::fmt; use other::high::X; // crate::high\nconst S: &str = \"crate::high::H\";",
            ),
            ("middle/mod.rs", "mod part; use crate::low::L; pub(in crate::high) use self::part::P;"),
            ("middle/part.rs", "use super::super::low::{L, self}; use super::Q;"),
            ("high.rs", "use crate::{low, middle::{self, Q}}; fn f() { crate::low::g() }"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn names_that_lead_to_themselves_end() {
        let found = problems(&[
            ("lib.rs", "pub use low::low; pub use a::b; use b::a;"),
            ("low.rs", "pub use self::low::low; fn f() { crate::low::x(); crate::a::b(); super::low() }"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_upward_path_is_found() {
        for (text, line) in [
            ("\nuse crate::high::H;", 2),
            ("use crate::{\n    low::L,\n    high::{H, I as J},\n};", 3),
            ("fn f() {\n    crate::high::g()\n}", 2),
            ("fn f() -> super::high::H { todo!() }", 1),
            ("use crate::H;", 1),
            ("use crate::Renamed;", 1),
            ("some_macro! {\n [crate::high::H] }", 2),
            ("pub mod inner { use super::super::high::H; }", 1),
        ] {
            let root = "pub mod low; pub mod high; pub use high::H; pub use self::high::{H, H as Renamed};";
            let found = problems(&[("lib.rs", root), ("low.rs", text), ("high.rs", "")]);
            assert!(!found.is_empty(), "{text}");
            assert!(found[0].starts_with(&format!("low.rs:{line}: `low` imports")), "{text}: {found:?}");
        }
    }

    #[test]
    fn tests_may_import_upwards() {
        let found = problems(&[
            (
                "low/mod.rs",
                "#[cfg(test)] mod tests; #[cfg(test)] use crate::high::H; #[cfg(all(test, unix))] mod more { use crate::high::H; }",
            ),
            ("low/tests.rs", "use crate::high::H;"),
            ("low/tests/deep.rs", "use crate::high::H;"),
            ("high.rs", ""),
        ]);
        assert_eq!(found, Vec::<String>::new());
        let after =
            problems(&[("low.rs", "#[cfg(test)] use crate::high::H;\nuse crate::high::I;"), ("high.rs", "")]);
        assert_eq!(after.len(), 1, "{after:?}");
    }

    #[test]
    fn a_module_without_a_place_is_named() {
        assert_eq!(
            problems(&[("new.rs", "")]),
            ["new: the module is missing in the order in xtask/src/layers/order.rs"]
        );
    }

    #[test]
    fn a_circle_of_eleven_files_is_too_large() {
        let ring = |count: usize| -> Vec<(String, String)> {
            let text = |at: usize| format!("use super::f{}::X;", (at + 1) % count);
            let mut files: Vec<_> = (0..count).map(|at| (format!("low/f{at}.rs"), text(at))).collect();
            files.push((
                "low/mod.rs".to_owned(),
                (0..count).map(|at| format!("pub use self::f{at}::Y{at};")).collect(),
            ));
            files
        };
        assert_eq!(problems_of(&ring(10), Some(&ORDER)), Vec::<String>::new());
        let found = problems_of(&ring(11), Some(&ORDER));
        assert!(found.len() == 1 && found[0].contains("an import cycle of 11 files"), "{found:?}");
    }

    #[test]
    fn the_repository_keeps_its_layers() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        check(root).unwrap();
    }
}
