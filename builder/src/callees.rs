//! Works around a ptxas bug that miscompiles calls through a pointer that may be null.
//!
//! In a module of several kernels, the address of a function is an offset into a table of constants. If a pointer is
//! null on one path to a call (an `Option<fn()>` that was tested before), ptxas uses the entry at offset 0, which is
//! not a function, as the callee on every path (seen with 13.0, for all architectures, and in the driver). The
//! workaround adds a value that is always 0 but unknown to ptxas: bit 0 of the mask of the lanes above the thread's
//! own.

use crate::ptx::UNKNOWN_ZERO;

/// Returns the module with the callee pointers hidden from ptxas. `text` has one instruction per line, as LLVM writes
/// it.
pub fn hide(text: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    for line in text.lines() {
        match pointer(line) {
            Some(pointer) => {
                let call = line.replacen(pointer, "%callee", 1);
                hidden.push_str(&format!(
                    "\t{{\n\t.reg .b32 \t%above;\n\t.reg .b64 \t%callee;\n{UNKNOWN_ZERO}\tcvt.u64.u32 \t%callee, %above;\n\
                     \tadd.s64 \t%callee, %callee, {pointer};\n{call}\n\t}}\n"
                ));
            }
            None => {
                hidden.push_str(line);
                hidden.push('\n');
            }
        }
    }
    hidden
}

/// Returns the register that holds the callee of the call on a line.
fn pointer(line: &str) -> Option<&str> {
    let callee = crate::ptx::callee(line.trim_start())?;
    callee.starts_with('%').then_some(callee)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_hidden() {
        let hidden =
            hide("\tcall (retval0), %rd7, (param0, param1), prototype_3;\n\tcall %rd1, (), prototype_0;\n");
        let calls: Vec<&str> = hidden.lines().filter(|line| line.contains("call ")).collect();
        assert_eq!(
            calls,
            ["\tcall (retval0), %callee, (param0, param1), prototype_3;", "\tcall %callee, (), prototype_0;"]
        );
        let added: Vec<&str> = hidden.lines().filter(|line| line.contains("add.s64")).collect();
        assert_eq!(added, ["\tadd.s64 \t%callee, %callee, %rd7;", "\tadd.s64 \t%callee, %callee, %rd1;"]);
    }

    #[test]
    fn other_lines_stay() {
        let lines = "\tcall.uni (retval0), pong, (param0);\n\
                     \tprototype_3 : .callprototype (.param .b32 _) _ (.param .b32 _);\n\tadd.s64 \t%rd1, %rd2, 8;\n";
        assert_eq!(hide(lines), lines);
    }
}
