//! Preserves the ordering of read-modify-write operations.
//!
//! LLVM 22 compiles acquire and release loads and stores, compare-exchanges and fences for the GPU as specified, but
//! compiles every `atomicrmw` to a relaxed `atom`. The rewrite turns an operation with a stronger ordering into a
//! relaxed operation, preceded by a fence for release and followed by a fence for acquire. gpu-std's own operations
//! with an ordering are inline assembly.

/// Returns the lines that replace `line`, if its instruction is an `atomicrmw` with an ordering.
pub fn fence(line: &str, instruction: &str) -> Option<String> {
    if !instruction.starts_with("atomicrmw ") {
        return None;
    }
    let (at, ordering) = ["acquire", "release", "acq_rel", "seq_cst"].into_iter().find_map(|ordering| {
        let at = line.find(&format!(" {ordering}"))?;
        line[at + 1 + ordering.len()..].starts_with(',').then_some((at + 1, ordering))
    })?;
    let scope = line[..at].find("syncscope(").map_or("", |from| &line[from..at]);
    let (before, after) = match ordering {
        "acquire" => (None, Some("acquire")),
        "release" => (Some("release"), None),
        "acq_rel" => (Some("release"), Some("acquire")),
        _ => (Some("seq_cst"), Some("acquire")),
    };
    let mut lines = Vec::new();
    lines.extend(before.map(|ordering| format!("  fence {scope}{ordering}")));
    lines.push(format!("{}monotonic{}", &line[..at], &line[at + ordering.len()..]));
    lines.extend(after.map(|ordering| format!("  fence {scope}{ordering}")));
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::text;

    fn rewritten(line: &str) -> Option<String> {
        fence(line, text::instruction(line))
    }

    #[test]
    fn an_ordered_operation_is_fenced() {
        let of = |ordering| rewritten(&format!("  %3 = atomicrmw add ptr %p, i32 1 {ordering}, align 4"));
        let relaxed = "  %3 = atomicrmw add ptr %p, i32 1 monotonic, align 4";
        assert_eq!(of("acquire").unwrap(), format!("{relaxed}\n  fence acquire"));
        assert_eq!(of("release").unwrap(), format!("  fence release\n{relaxed}"));
        assert_eq!(of("acq_rel").unwrap(), format!("  fence release\n{relaxed}\n  fence acquire"));
        assert_eq!(of("seq_cst").unwrap(), format!("  fence seq_cst\n{relaxed}\n  fence acquire"));
        assert_eq!(of("monotonic"), None);
    }

    #[test]
    fn fences_have_the_scope_of_the_operation() {
        assert_eq!(
            rewritten("  atomicrmw or ptr %p, i8 1 syncscope(\"block\") release, align 1").unwrap(),
            "  fence syncscope(\"block\") release\n  atomicrmw or ptr %p, i8 1 syncscope(\"block\") monotonic, align 1"
        );
    }

    #[test]
    fn operations_that_llvm_orders_stay() {
        for line in [
            "  %1 = load atomic i32, ptr %p acquire, align 4",
            "  store atomic i32 %1, ptr %p release, align 4",
            "  %2 = cmpxchg ptr %p, i32 1, i32 2 acq_rel acquire, align 4",
            "  fence seq_cst",
        ] {
            assert_eq!(rewritten(line), None);
        }
    }
}
