//! Reconverges the lanes of a warp after a call of a recursive function.
//!
//! ptxas (seen with 13.0) keeps warp-uniform values in uniform registers across a call, because it assumes that all
//! lanes return together. If lanes recurse to different depths, they do not return together, so the first lanes to
//! return overwrite uniform registers that later lanes still need. A `bar.warp.sync` after the call therefore waits for
//! every lane that made the call. ptxas removes a barrier if it assumes that the lanes are converged, so a zero that
//! ptxas cannot fold is added to the mask. Calls inside a recursion do not get a barrier, because a barrier would make
//! kernels hang.

use std::fmt::Write;

use crate::ptx::{self, Ptx, UNKNOWN_ZERO};

/// Returns the module `text` with a barrier after each call into a recursion. The text has one instruction per line, as
/// LLVM writes it.
pub fn reconverge(text: &str) -> String {
    let ptx = Ptx::read(text);
    let recursive = ptx.recursive();
    if recursive.is_empty() {
        return text.to_owned();
    }
    let mut reconverged = String::with_capacity(text.len());
    let mut caller = "";
    for line in text.lines() {
        caller = ptx::header(line).unwrap_or(caller);
        let enters = |callee: &str| {
            let callee = ptx::or_any(callee);
            recursive.contains(callee) && !ptx.reaches(callee, caller)
        };
        let _ = match ptx::callee(line.trim_start()).is_some_and(enters) {
            true => write!(
                reconverged,
                "\t{{\n\t.reg .b32 \t%above, %callers;\n{UNKNOWN_ZERO}\tactivemask.b32 \t%callers;\n\
                 \tor.b32 \t%callers, %callers, %above;\n{line}\n\tbar.warp.sync \t%callers;\n\t}}\n"
            ),
            false => writeln!(reconverged, "{line}"),
        };
    }
    reconverged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_wait_behind_calls_into_a_recursion() {
        let text = "\
.func walk()
{
\tcall.uni walk, ();
\tcall.uni leaf, ();
}
.func leaf()
{
}
.func eval()
{
\tcall %rd1, (), prototype_0;
}
.global .align 8 .u64 table[1] = {eval};
.func between()
{
\tcall.uni walk, ();
}
.visible .entry k()
{
\tcall.uni (retval0), walk, (param0);
\tcall.uni leaf, ();
\tcall.uni between, ();
\tcall.uni eval, ();
\tcall %rd2, (), prototype_1;
}
";
        let reconverged = reconverge(text);
        let lines: Vec<&str> = reconverged.lines().map(str::trim).collect();
        let waiting: Vec<&str> = lines
            .windows(2)
            .filter(|pair| pair[1].starts_with("bar.warp.sync"))
            .map(|pair| pair[0])
            .collect();
        let calls = [
            "call.uni walk, ();",
            "call.uni (retval0), walk, (param0);",
            "call.uni eval, ();",
            "call %rd2, (), prototype_1;",
        ];
        assert_eq!(waiting, calls);
        assert!(text.lines().all(|line| lines.contains(&line.trim())));
    }

    #[test]
    fn a_module_without_recursion_stays() {
        let text = "\
.func leaf()
{
}
.visible .entry k()
{
\tcall.uni leaf, ();
\tcall %rd1, (), prototype_0;
\tmov.b64 %rd1, leaf;
}
";
        assert_eq!(reconverge(text), text);
    }
}
