//! Shared memory: statics in the sections `.shared` and `.shared.dynamic` move to address space 3.
//!
//! Rust has no address spaces. A static in the section `.shared` becomes one in `addrspace(3)`, and each use
//! an `addrspacecast` to a generic pointer, which LLVM then propagates away, so that accesses become
//! `ld.shared` and `st.shared`. Shared memory has no initial value on the GPU, so such a static must be
//! uninitialised (`MaybeUninit::uninit()`). Statics in `.shared.dynamic` become external: all of them name
//! the start of the memory that the launch requests.

use std::collections::HashSet;

use super::RewriteError;
use super::text;

/// The definition in a line that starts with `@`, if it is a shared static.
pub fn rewrite_definition(line: &str) -> Result<Option<(&str, String)>, RewriteError> {
    let dynamic = line.contains(", section \".shared.dynamic\"");
    if !dynamic && !line.contains(", section \".shared\"") {
        return Ok(None);
    }
    let Some((name, _)) = text::symbol(&line[1..]) else { return Ok(None) };
    let after_align = line.split_once(", align ").map_or("", |(_, rest)| rest);
    let align: u32 = after_align.split(',').next().and_then(|number| number.parse().ok()).unwrap_or(1);
    if dynamic {
        let align = align.max(16);
        return Ok(Some((name, format!("@{name} = external addrspace(3) global [0 x i8], align {align}"))));
    }
    let bad = || RewriteError::SharedStatic { symbol: name.to_owned(), line: line.to_owned() };
    let (head, _) = line.split_once(", section ").ok_or_else(bad)?;
    let (_, value) = head.split_once(" global ").ok_or_else(bad)?;
    let kind = value
        .strip_suffix(" undef")
        .or_else(|| value.strip_suffix(" poison"))
        .ok_or_else(|| RewriteError::SharedValue { symbol: name.to_owned() })?;
    Ok(Some((name, format!("@{name} = internal addrspace(3) global {kind} poison, align {align}"))))
}

/// Replaces each use of a symbol in `shared` on a line by a cast to a generic pointer; `None` when the line
/// uses none.
pub fn rewrite_uses(line: &str, shared: &HashSet<&str>) -> Option<String> {
    let mut rewritten = String::new();
    let mut rest = line;
    let mut changed = false;
    while let Some(at) = rest.find('@') {
        let (before, from) = rest.split_at(at);
        rewritten.push_str(before);
        rest = &from[1..];
        match text::symbol(rest) {
            Some((name, after)) if shared.contains(name) => {
                rewritten.push_str("addrspacecast (ptr addrspace(3) @");
                rewritten.push_str(name);
                rewritten.push_str(" to ptr)");
                rest = after;
                changed = true;
            }
            Some((name, after)) => {
                rewritten.push('@');
                rewritten.push_str(name);
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
                "@_RNvCs6_1k4TILE = internal addrspace(3) global [1024 x i8] poison, align 16".to_owned()
            ))
        );
    }

    #[test]
    fn dynamic_memory_is_external_and_aligned_to_16() {
        let line =
            "@__warpsmith_dynamic_shared = global <{}> zeroinitializer, section \".shared.dynamic\", align 4";
        assert_eq!(
            rewrite_definition(line).unwrap().unwrap().1,
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
    fn other_globals_stay() {
        assert_eq!(rewrite_definition("@a = internal global i32 0, align 4").unwrap(), None);
        assert_eq!(rewrite_definition("@a = global i32 0, section \".sharedx\", align 4").unwrap(), None);
    }

    #[test]
    fn every_use_is_cast() {
        let shared = HashSet::from(["A", "B"]);
        assert_eq!(
            rewrite_uses("  call void @f(ptr noundef @A, ptr @AB, ptr @B)", &shared).unwrap(),
            "  call void @f(ptr noundef addrspacecast (ptr addrspace(3) @A to ptr), ptr @AB, \
             ptr addrspacecast (ptr addrspace(3) @B to ptr))"
        );
        assert_eq!(rewrite_uses("  call void @f(ptr @AB)", &shared), None);
    }
}
