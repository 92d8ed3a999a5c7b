//! Calls of functions that recurse, whose lanes return one after the other.
//!
//! ptxas (seen with 13.0) holds values that are the same for a whole warp in uniform registers, and keeps them there across a
//! call. Lanes that recurse to different depths return from the call at different times, although it takes them to reconverge:
//! the first lanes go on, change the uniform registers, and take the values from the lanes that come later. So the lanes that
//! call into a recursion wait for each other behind the call. A number that is always 0 is added to their mask, bit 0 of the
//! mask of the lanes above the thread's own: of lanes that it takes to be converged ptxas would leave the barrier out.

use std::fmt::Write;

use crate::ptx::{self, Ptx};

/// The module with lanes that wait for each other behind each call from elsewhere of a function that recurses. `text` is as LLVM
/// writes it: an instruction a line.
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
            let callee = if callee.starts_with('%') { ptx::ANY } else { callee };
            recursive.contains(callee) && !ptx.reaches(callee, caller)
        };
        let _ = match ptx::callee(line.trim_start()).is_some_and(enters) {
            true => write!(
                reconverged,
                "\t{{\n\t.reg .b32 \t%above, %callers;\n\tmov.u32 \t%above, %lanemask_gt;\n\
                 \tand.b32 \t%above, %above, 1;\n\tactivemask.b32 \t%callers;\n\
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
