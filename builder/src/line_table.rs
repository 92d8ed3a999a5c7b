//! Reads the line table of a module in LLVM's text form: the calls through which an instruction was inlined.
//!
//! Every instruction has a `DILocation`: line and column in a scope. Its `inlinedAt` is the location of the inlined
//! call, which may be inlined too, and so on up to the function that now contains the instruction. For this purpose,
//! all crates in the graph are compiled with line tables. The shipped code contains only [`user_lines`].

use std::collections::HashMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::rewrite::text;

/// A call site in the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallSite {
    /// Source file, as rustc names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl std::fmt::Display for CallSite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Function that `#[kernel]` generates around a kernel; it contains no lines that the user wrote.
const ENTRY: &str = "__entry";

/// Nodes of a module's line table, by name: `!35`.
#[derive(Debug, Default)]
pub struct LineTable<'a>(HashMap<&'a str, &'a str>);

impl<'a> LineTable<'a> {
    /// Stores a line that starts with `!` if it is a node of the line table.
    pub fn read(&mut self, line: &'a str) {
        if let Some((name, node)) = line.split_once(" = ") {
            let node = node.strip_prefix("distinct ").unwrap_or(node);
            if ["!DILocation(", "!DILexicalBlock", "!DISubprogram(", "!DIFile("]
                .iter()
                .any(|k| node.starts_with(k))
            {
                self.0.insert(name, node);
            }
        }
    }

    /// Returns the location of an instruction, and of the calls through which it was inlined, innermost first.
    /// Locations in core and alloc, and compiler-generated locations, are omitted.
    pub fn frames(&self, instruction: &str) -> Vec<CallSite> {
        let mut frames = Vec::new();
        let mut next = instruction.rsplit_once("!dbg ").map(|(_, rest)| id(rest));
        while let Some(location) = next.and_then(|name| self.0.get(name)) {
            frames.extend(self.site(location));
            next = field(location, "inlinedAt");
        }
        frames
    }

    fn site(&self, location: &str) -> Option<CallSite> {
        let number = |name| field(location, name).and_then(|number| number.parse().ok()).unwrap_or(0);
        let (line, column) = (number("line"), number("column"));
        let scope = self.0.get(field(location, "scope")?)?;
        let file = string(self.0.get(field(scope, "file")?)?, "filename")?;
        let mut function = *scope;
        while !function.starts_with("!DISubprogram(") {
            function = self.0.get(field(function, "scope")?)?;
        }
        let of_user = line > 0 && !is_of_core(&file) && string(function, "name").as_deref() != Some(ENTRY);
        of_user.then_some(CallSite { file, line, column })
    }
}

/// Replaces the line table of a module with a line table for debuggers and profilers: one line of the kernel's own
/// source per instruction, in directives that do not change the code.
///
/// An instruction that was inlined from core, alloc or gpu-std gets the line of the call in the kernel's source.
/// Columns are omitted, so that neighboring instructions share a directive.
pub fn user_lines(ir: &str) -> String {
    let mut table = LineTable::default();
    ir.lines().filter(|line| line.starts_with('!')).for_each(|line| table.read(line));
    let mut users = HashMap::new();
    let mut text = String::with_capacity(ir.len());
    for line in ir.lines() {
        let _ = match line.split_once(" = ").filter(|_| line.starts_with('!')) {
            Some((name, node)) if node.contains("!DILocation(") => {
                let node = node.strip_prefix("distinct ").map_or((node, ""), |node| (node, "distinct "));
                writeln!(text, "{name} = {}{}", node.1, table.user_location(node.0, &mut users))
            }
            Some((name, node)) if node.contains("!DICompileUnit(") => {
                let node = node.replace("emissionKind: LineTablesOnly", "emissionKind: DebugDirectivesOnly");
                writeln!(text, "{name} = {node}")
            }
            _ => writeln!(text, "{line}"),
        };
    }
    text
}

impl<'a> LineTable<'a> {
    /// Returns the innermost location in the kernel's own source for the node `location`, or the outermost location if
    /// none is in the kernel's own source. `users` caches the scopes that are the kernel's own.
    fn user_location(&self, mut location: &'a str, users: &mut HashMap<&'a str, bool>) -> String {
        loop {
            let (scope, at) = (field(location, "scope").unwrap_or_default(), field(location, "inlinedAt"));
            let line = field(location, "line").unwrap_or("0");
            let is_user = line != "0" && *users.entry(scope).or_insert_with(|| self.is_user_scope(scope));
            match at.and_then(|at| self.0.get(at)) {
                Some(caller) if !is_user => location = caller,
                _ => {
                    let at = at.map_or_else(String::new, |at| format!(", inlinedAt: {at}"));
                    return format!("!DILocation(line: {line}, scope: {scope}{at})");
                }
            }
        }
    }

    fn is_user_scope(&self, scope: &str) -> bool {
        let file = self.0.get(scope).and_then(|scope| self.0.get(field(scope, "file")?));
        let part = |name| file.and_then(|file| string(file, name)).unwrap_or_default().replace('\\', "/");
        // The name is relative to the folder of the workspace, or to the package's folder if the package belongs to
        // another workspace.
        let (folder, name) = (part("directory"), part("filename"));
        !name.is_empty() && !is_of_core(&name) && !is_of_gpu_std(&format!("{folder}/{name}"))
    }
}

/// Returns true if a file belongs to gpu-std, in its repository or in a registry's folder `warpsmith-gpu-std-0.1.0`.
fn is_of_gpu_std(file: &str) -> bool {
    let mut folders = file.split('/');
    folders.any(|name| name == "gpu-std" || name.starts_with("warpsmith-gpu-std-"))
}

/// Returns true if a file belongs to the standard library, by its installed path or by rustc's name for sources that
/// are not installed.
fn is_of_core(file: &str) -> bool {
    ["library/core/src/", "library/alloc/src/"].iter().any(|folder| file.contains(folder))
}

/// Returns the name of a node at the start of `text`.
fn id(text: &str) -> &str {
    let end = text[1..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |end| end + 1);
    &text[..end]
}

/// Returns a field of a node: `!DILocation(line: 51, column: 12, scope: !36)`.
fn field<'a>(node: &'a str, name: &str) -> Option<&'a str> {
    let (fields, _) = text::parenthesised(&node[node.find('(')?..])?;
    let is_it = |field: &'a str| field.strip_prefix(name)?.strip_prefix(": ");
    text::list(fields).into_iter().find_map(is_it)
}

fn string(node: &str, name: &str) -> Option<String> {
    let quoted = field(node, name)?.strip_prefix('"')?.strip_suffix('"')?;
    String::from_utf8(text::unescape(quoted)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str = "\
!1 = !DIFile(filename: \"src/a, b.rs\", directory: \"/x\", checksumkind: CSK_MD5, checksum: \"00\")
!2 = !DIFile(filename: \"/rustc/1f/library/core/src/iter.rs\", directory: \"\")
!3 = distinct !DISubprogram(name: \"each<f32, usize>\", linkageName: \"_R3\", scope: !9, file: !1, line: 3, unit: !8)
!4 = distinct !DISubprogram(name: \"__entry\", linkageName: \"k\", scope: !9, file: !1, line: 1, unit: !8)
!5 = distinct !DILexicalBlock(scope: !6, file: !1, line: 5, column: 9)
!6 = !DILexicalBlockFile(scope: !3, file: !1, discriminator: 0)
!7 = distinct !DISubprogram(name: \"for_each\", linkageName: \"_R7\", scope: !9, file: !2, line: 3, unit: !8)
!8 = distinct !DICompileUnit(language: DW_LANG_Rust, file: !1)
!10 = !DILocation(line: 7, column: 13, scope: !5, inlinedAt: !11)
!11 = distinct !DILocation(line: 800, column: 5, scope: !7, inlinedAt: !12)
!12 = distinct !DILocation(line: 30, column: 2, scope: !3, inlinedAt: !13)
!13 = distinct !DILocation(line: 1, column: 1, scope: !4)
!14 = !DILocation(line: 0, scope: !3)
";

    fn frames(instruction: &str) -> Vec<String> {
        let mut table = LineTable::default();
        NODES.lines().for_each(|line| table.read(line));
        table.frames(instruction).iter().map(CallSite::to_string).collect()
    }

    #[test]
    fn the_user_calls_of_an_inlined_instruction_are_listed() {
        let calls = ["src/a, b.rs:7:13", "src/a, b.rs:30:2"];
        assert_eq!(frames("call void @f(), !dbg !10"), calls);
        assert_eq!(frames("call void @f(), !dbg !10, !srcloc !3"), calls);
    }

    #[test]
    fn device_code_has_lines_of_the_users_sources_alone() {
        let lines = user_lines(&NODES.replace("LANG_Rust", "LANG_Rust, emissionKind: LineTablesOnly"));
        let has = |line: &str| assert!(lines.lines().any(|found| found == line), "{line} is not in {lines}");
        has("!10 = !DILocation(line: 7, scope: !5, inlinedAt: !11)");
        has("!11 = distinct !DILocation(line: 30, scope: !3, inlinedAt: !13)");
        has("!14 = !DILocation(line: 0, scope: !3)");
        has(
            "!8 = distinct !DICompileUnit(language: DW_LANG_Rust, emissionKind: DebugDirectivesOnly, file: !1)",
        );
        assert!(is_of_gpu_std("gpu-std/src/thread.rs"));
        assert!(is_of_gpu_std("/home/u/registry/src/x/warpsmith-gpu-std-0.1.0/src/thread.rs"));
        assert!(!is_of_gpu_std("src/my-gpu-std.rs"));
    }

    #[test]
    fn instructions_without_a_line_have_no_calls() {
        for instruction in ["call void @f()", "call void @f(), !dbg !14", "call void @f(), !dbg !99"] {
            assert!(frames(instruction).is_empty(), "{instruction}");
        }
    }
}
