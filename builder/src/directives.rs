//! Removes text that LLVM writes next to line directives in PTX and that changes the machine code or only takes up
//! space.
//!
//! LLVM puts a label before each instruction that has its own location. ptxas (seen with 13.0) takes a label for the
//! start of a basic block, although nothing jumps to the label, and generates different code. Without the labels, the
//! code is byte-identical to code without line directives.

use crate::ptx;

/// Returns the PTX without location labels, without directives that repeat the previous line, and without comments on
/// directives.
pub fn shorten(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut current = "";
    for line in text.lines() {
        if is_label(line) {
            continue;
        }
        if ptx::header(line).is_some() {
            current = "";
        }
        let mut kept = line;
        if line.trim_start().starts_with(".loc") {
            kept = line.split("//").next().unwrap_or_default().trim_end();
            if kept == current {
                continue;
            }
            current = kept;
        }
        short.push_str(kept);
        short.push('\n');
    }
    short
}

/// Returns the PTX without lines that contain only a comment, such as those that LLVM writes around inline assembly.
/// They are an eighth of the compressed PTX of kernels for tensor cores.
pub fn without_comments(ptx: &[u8]) -> Vec<u8> {
    let is_comment = |line: &&[u8]| line.trim_ascii_start().starts_with(b"//");
    ptx.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_comment(line)).collect::<Vec<_>>().concat()
}

/// Returns true for a label that marks a location, or the start or end of a function.
fn is_label(line: &str) -> bool {
    ["$L__tmp", "$L__func_begin", "$L__func_end"].iter().any(|name| line.starts_with(name))
        && line.ends_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_only_a_comment_go() {
        let ptx =
            b"//\n// Generated\n\n.version 8.0\n\t// begin inline asm\n\tret; // end\n\t// end inline asm\n}";
        assert_eq!(without_comments(ptx), b"\n.version 8.0\n\tret; // end\n}");
        assert_eq!(without_comments(b""), b"");
    }

    #[test]
    fn labels_and_repeated_directives_go() {
        let text = "\
.visible .entry k()
{
$L__func_begin0:
\t.loc\t1 7 0                           // k.rs:7:0
$L__tmp0:
\tmov.b32 \t%r1, 0;
$L__BB0_1:                              // =>This Inner Loop Header
\t.loc\t1 7 0                           // k.rs:7:0
$L__tmp1:
\tbra \t$L__BB0_1;
\t.loc\t1 8 0
}
.visible .entry l()
\t.loc\t1 8 0
";
        let short = "\
.visible .entry k()
{
\t.loc\t1 7 0
\tmov.b32 \t%r1, 0;
$L__BB0_1:                              // =>This Inner Loop Header
\tbra \t$L__BB0_1;
\t.loc\t1 8 0
}
.visible .entry l()
\t.loc\t1 8 0
";
        assert_eq!(shorten(text), short);
    }
}
