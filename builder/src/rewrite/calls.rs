//! Marks calls that may hide a barrier as `convergent`.
//!
//! LLVM may neither duplicate a convergent call nor move it into or out of a branch. rustc marks functions but not
//! `asm!`, and an indirect call has only the attributes of the call instruction.

use super::text;

/// Returns the line with `convergent` on its call, if the call is inline assembly or indirect.
pub fn mark_convergent(line: &str, instruction: &str) -> Option<String> {
    let start = line.len() - instruction.len();
    let open = match instruction.find(" asm ") {
        Some(at) => start + at + after_strings(&instruction[at..])?,
        None => start + indirect_call(instruction)?,
    };
    let (_, after) = text::parenthesised(&line[open..])?;
    let close = line.len() - after.len();
    Some(format!("{} convergent{}", &line[..close], after))
}

/// Returns the offset of the `(` that follows the two strings of an `asm`.
fn after_strings(text: &str) -> Option<usize> {
    let mut quotes = text.match_indices('"').map(|(at, _)| at);
    let end = quotes.nth(3)?;
    Some(end + text[end..].find('(')?)
}

/// Returns the offset of the argument list of a call whose callee is a local: `call void %5(ptr %6)`.
fn indirect_call(instruction: &str) -> Option<usize> {
    let bytes = instruction.as_bytes();
    let mut from = 0;
    while let Some(at) = instruction[from..].find('%') {
        let name = from + at + 1;
        let end =
            name + bytes[name..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        if bytes.get(end) == Some(&b'(') {
            return Some(end);
        }
        from = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(line: &str) -> Option<String> {
        mark_convergent(line, text::instruction(line))
    }

    #[test]
    fn assembly_is_marked() {
        assert_eq!(
            mark("  call void asm sideeffect alignstack \"bar.sync 0;\", \"~{memory}\"(), !srcloc !38")
                .unwrap(),
            "  call void asm sideeffect alignstack \"bar.sync 0;\", \"~{memory}\"() convergent, !srcloc !38"
        );
        assert_eq!(
            mark("  %3 = call i32 asm \"mov $0, (%x)\", \"=r,r\"(i32 %2) #7").unwrap(),
            "  %3 = call i32 asm \"mov $0, (%x)\", \"=r,r\"(i32 %2) convergent #7"
        );
    }

    #[test]
    fn calls_through_pointers_are_marked() {
        assert_eq!(
            mark("  %3 = call noundef i32 %2(ptr align 8 captures(none) %1) #7").unwrap(),
            "  %3 = call noundef i32 %2(ptr align 8 captures(none) %1) convergent #7"
        );
    }

    #[test]
    fn direct_calls_stay() {
        assert_eq!(mark("  %3 = call i32 @f(i32 %2, ptr sret([8 x i8]) %4) #7"), None);
        assert_eq!(mark("  call void @llvm.assume(i1 %3)"), None);
    }
}
