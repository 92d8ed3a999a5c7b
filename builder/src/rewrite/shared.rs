//! Moves statics to shared and constant memory. Statics in the sections `.shared`, `.shared.dropped` and
//! `.shared.dynamic` move to address space 3, those in `.constant` to address space 4. Statics in `.constant.visible`
//! and `.global.visible` keep their names in the PTX, for the host to read and write.
//!
//! Rust has no address spaces. A static in the section `.shared` becomes one in `addrspace(3)`, and each use becomes an
//! `addrspacecast` to a generic pointer. LLVM eliminates the casts, so that accesses become `ld.shared` and
//! `st.shared`. Shared memory cannot have an initial value on the GPU, so such a static must be uninitialized
//! (`MaybeUninit::uninit()`); in `.shared.dropped` it may have a value, which is dropped. Statics in `.shared.dynamic`
//! become external: all of them refer to the start of the launch's dynamic shared memory. Constant memory keeps its
//! values.

use std::collections::HashMap;

use super::RewriteError;
use super::text;

/// Sections of statics: in constant memory, in constant memory accessible to the host by name, and in global memory
/// accessible to the host by name.
const CONSTANT: &str = ", section \".constant\"";
const VISIBLE_CONSTANT: &str = ", section \".constant.visible\"";
const VISIBLE_GLOBAL: &str = ", section \".global.visible\"";

/// An LLVM address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// Address space 3.
    Shared,
    /// Address space 4.
    Constant,
}

impl Space {
    fn number(self) -> u32 {
        match self {
            Space::Shared => 3,
            Space::Constant => 4,
        }
    }
}

/// Returns the new definition for a line that starts with `@`, if it defines a static in shared or constant memory.
pub fn rewrite_definition(line: &str) -> Result<Option<(&str, Space, String)>, RewriteError> {
    let section = line.split_once(", section \"").and_then(|(_, rest)| rest.split('"').next());
    let Some((name, _)) = text::symbol(&line[1..]) else { return Ok(None) };
    let (dynamic, dropped) = match section {
        Some(".constant") => return constant(name, line, CONSTANT).map(Some),
        Some(".constant.visible") => return constant(name, line, VISIBLE_CONSTANT).map(Some),
        Some(".shared") => (false, false),
        Some(".shared.dropped") => (false, true),
        Some(".shared.dynamic") => (true, false),
        _ => return Ok(None),
    };
    let after_align = line.split_once(", align ").map_or("", |(_, rest)| rest);
    let align: u32 = after_align.split(',').next().and_then(|number| number.parse().ok()).unwrap_or(1);
    if dynamic {
        let align = align.max(16);
        let external = format!("@{name} = external addrspace(3) global [0 x i8], align {align}");
        return Ok(Some((name, Space::Shared, external)));
    }
    let bad = || RewriteError::SharedStatic { symbol: name.to_owned(), line: line.to_owned() };
    let (head, _) = line.split_once(", section ").ok_or_else(bad)?;
    let (_, value) = head.split_once(" global ").or_else(|| head.split_once(" constant ")).ok_or_else(bad)?;
    let kind = match dropped {
        true => first_type(value).ok_or_else(bad)?,
        false => value
            .strip_suffix(" undef")
            .or_else(|| value.strip_suffix(" poison"))
            .ok_or_else(|| RewriteError::SharedValue { symbol: name.to_owned() })?,
    };
    let shared = format!("@{name} = internal addrspace(3) global {kind} poison, align {align}");
    Ok(Some((name, Space::Shared, shared)))
}

/// Defines a static in constant memory, with its value.
fn constant<'a>(
    name: &'a str,
    line: &'a str,
    section: &str,
) -> Result<(&'a str, Space, String), RewriteError> {
    let bad = || RewriteError::SharedStatic { symbol: name.to_owned(), line: line.to_owned() };
    let (before, after) = line.split_once(section).ok_or_else(bad)?;
    let at = before.find(" constant ").into_iter().chain(before.find(" global ")).min().ok_or_else(bad)?;
    let (head, value) = before.split_at(at);
    // LLVM may merge copies of a static with this attribute.
    let head = head.replace(" unnamed_addr", "");
    // Without this keyword, LLVM would assume the initial value in every launch.
    let set_by_host = if section == VISIBLE_CONSTANT { " externally_initialized" } else { "" };
    Ok((name, Space::Constant, format!("{head} addrspace(4){set_by_host}{value}{after}")))
}

/// Returns the new definition for a line that starts with `@`, if it defines a static in global memory that the host
/// sets.
pub fn rewrite_visible_global(line: &str) -> Option<String> {
    let (before, after) = line.split_once(VISIBLE_GLOBAL)?;
    let at = before.find(" constant ").into_iter().chain(before.find(" global ")).min()?;
    let (head, value) = before.split_at(at);
    Some(format!("{head} externally_initialized{value}{after}"))
}

/// Returns the name of a static that the host accesses by name.
pub fn visible(line: &str) -> Option<&str> {
    let is_visible = [VISIBLE_CONSTANT, VISIBLE_GLOBAL].iter().any(|section| line.contains(section));
    is_visible.then(|| text::symbol(&line[1..])).flatten().map(|(name, _)| name)
}

/// Returns the type at the start of `text`: a bracketed group or a word.
fn first_type(text: &str) -> Option<&str> {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'<' | b'{' => depth += 1,
            b']' | b'>' | b'}' => depth = depth.checked_sub(1)?,
            b' ' if depth == 0 => return Some(&text[..at]),
            _ => {}
        }
    }
    None
}

/// Replaces each use of a symbol in `statics` on a line with a cast to a generic pointer. Returns `None` if the line
/// uses none of these symbols.
pub fn rewrite_uses(line: &str, statics: &HashMap<&str, Space>) -> Option<String> {
    let mut rewritten = String::new();
    let mut rest = line;
    let mut changed = false;
    while let Some(at) = rest.find('@') {
        let (before, from) = rest.split_at(at);
        rewritten.push_str(before);
        rest = &from[1..];
        match text::symbol(rest) {
            Some((name, after)) => {
                if let Some(space) = statics.get(name) {
                    let number = space.number();
                    rewritten.push_str(&format!("addrspacecast (ptr addrspace({number}) @{name} to ptr)"));
                    changed = true;
                } else {
                    rewritten.push('@');
                    rewritten.push_str(name);
                }
                rest = after;
            }
            None => rewritten.push('@'),
        }
    }
    rewritten.push_str(rest);
    changed.then_some(rewritten)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_moves_to_address_space_3() {
        let line = "@_RNvCs6_1k4TILE = internal global [1024 x i8] undef, section \".shared\", align 16";
        assert_eq!(
            rewrite_definition(line).unwrap(),
            Some((
                "_RNvCs6_1k4TILE",
                Space::Shared,
                "@_RNvCs6_1k4TILE = internal addrspace(3) global [1024 x i8] poison, align 16".to_owned()
            ))
        );
    }

    #[test]
    fn dynamic_memory_is_external_and_aligned_to_16() {
        let line =
            "@__warpsmith_dynamic_shared = global <{}> zeroinitializer, section \".shared.dynamic\", align 4";
        assert_eq!(
            rewrite_definition(line).unwrap().unwrap().2,
            "@__warpsmith_dynamic_shared = external addrspace(3) global [0 x i8], align 16"
        );
    }

    #[test]
    fn an_initial_value_is_refused() {
        for value in ["zeroinitializer", "c\"\\01\\02\""] {
            let line = format!("@TILE = internal global [2 x i8] {value}, section \".shared\", align 1");
            let error = rewrite_definition(&line).unwrap_err().to_string();
            assert!(error.contains("`TILE`") && error.contains("MaybeUninit"), "{error}");
        }
    }

    #[test]
    fn a_dropped_initial_value_leaves_the_type() {
        for (value, kind) in [
            ("<{ [8 x i8] }> <{ [8 x i8] c\"\\00\\00\\80?\\00\\00\\80?\" }>", "<{ [8 x i8] }>"),
            ("<{ [1024 x i8] }> zeroinitializer", "<{ [1024 x i8] }>"),
            ("i32 7", "i32"),
        ] {
            let line = format!("@TILE = internal global {value}, section \".shared.dropped\", align 4");
            assert_eq!(
                rewrite_definition(&line).unwrap().unwrap().2,
                format!("@TILE = internal addrspace(3) global {kind} poison, align 4")
            );
        }
    }

    #[test]
    fn constant_memory_keeps_its_values() {
        let line = "@WEIGHTS = internal unnamed_addr constant <{ [4 x i8] }> <{ [4 x i8] c\"\\01\\00\\00\\00\" }>, section \".constant\", align 4";
        assert_eq!(
            rewrite_definition(line).unwrap().unwrap(),
            (
                "WEIGHTS",
                Space::Constant,
                "@WEIGHTS = internal addrspace(4) constant <{ [4 x i8] }> <{ [4 x i8] c\"\\01\\00\\00\\00\" }>, align 4"
                    .to_owned()
            )
        );
    }

    #[test]
    fn statics_of_the_host_are_set_from_outside() {
        let line = "@WEIGHTS = local_unnamed_addr constant [4 x i8] c\"\\01\\00\\00\\00\", section \".constant.visible\", align 4";
        assert_eq!(visible(line), Some("WEIGHTS"));
        assert_eq!(
            rewrite_definition(line).unwrap().unwrap().2,
            "@WEIGHTS = local_unnamed_addr addrspace(4) externally_initialized constant [4 x i8] c\"\\01\\00\\00\\00\", align 4"
        );
        let line = "@CALLS = global [4 x i8] zeroinitializer, section \".global.visible\", align 4";
        assert_eq!((visible(line), rewrite_definition(line).unwrap()), (Some("CALLS"), None));
        assert_eq!(
            rewrite_visible_global(line).unwrap(),
            "@CALLS = externally_initialized global [4 x i8] zeroinitializer, align 4"
        );
        assert_eq!(visible("@a = global i32 0, section \".constant\", align 4"), None);
    }

    #[test]
    fn other_globals_stay() {
        assert_eq!(rewrite_definition("@a = internal global i32 0, align 4").unwrap(), None);
        assert_eq!(rewrite_definition("@a = global i32 0, section \".sharedx\", align 4").unwrap(), None);
    }

    #[test]
    fn every_use_is_cast() {
        let shared = HashMap::from([("A", Space::Shared), ("B", Space::Constant)]);
        assert_eq!(
            rewrite_uses("  call void @f(ptr noundef @A, ptr @AB, ptr @B)", &shared).unwrap(),
            "  call void @f(ptr noundef addrspacecast (ptr addrspace(3) @A to ptr), ptr @AB, \
             ptr addrspacecast (ptr addrspace(4) @B to ptr))"
        );
        assert_eq!(rewrite_uses("  call void @f(ptr @AB)", &shared), None);
    }
}
