//! Works around a ptxas bug that miscompiles the negation and absolute value of the minimum integer: the result is the
//! maximum plus one.
//!
//! `neg` and `abs` of the minimum of a type are the minimum itself, in Rust and in LLVM. ptxas (seen with 13.0, for all
//! architectures) keeps 16-bit numbers in 32-bit registers and does not wrap the results of `neg.s16` and `abs.s16`. It
//! also assumes that a result of `abs` is never negative. The rewrite therefore computes a 16-bit negation as the
//! complement plus 1 (ptxas would turn 0 minus the number into a negation), and an absolute value as the maximum of a
//! number and its negation.

/// Returns the module without `neg.s16` and `abs` of integers. `text` has one instruction per line, as LLVM writes it.
pub fn spell_out(text: &str) -> String {
    let mut spelled = String::with_capacity(text.len());
    for line in text.lines() {
        match negation(line) {
            Some(instructions) => spelled.push_str(&instructions),
            None => spelled.push_str(line),
        }
        spelled.push('\n');
    }
    spelled
}

/// Returns the lines that replace a line that negates a number.
fn negation(line: &str) -> Option<String> {
    let (name, operands) = line.trim_start().strip_suffix(';')?.split_once(char::is_whitespace)?;
    let (operation, bits) = name.split_once(".s")?;
    let (to, from) = operands.split_once(',')?;
    let (to, from) = (to.trim(), from.trim());
    let negated = match (operation, bits) {
        ("neg" | "abs", "16") => format!("not.b16 \t%negated, {from};\n\tadd.s16 \t%negated, %negated, 1;"),
        ("abs", "32" | "64") => format!("neg.s{bits} \t%negated, {from};"),
        _ => return None,
    };
    let result = match operation {
        "neg" => format!("mov.b{bits} \t{to}, %negated;"),
        _ => format!("max.s{bits} \t{to}, {from}, %negated;"),
    };
    Some(format!("\t{{\n\t.reg .b{bits} \t%negated;\n\t{negated}\n\t{result}\n\t}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negations_are_spelled_out() {
        let of = |line| spell_out(line).replace('\t', "");
        assert_eq!(
            of("\tneg.s16 \t%rs2, %rs1;"),
            "{\n.reg .b16 %negated;\nnot.b16 %negated, %rs1;\nadd.s16 %negated, %negated, 1;\nmov.b16 %rs2, %negated;\n}\n"
        );
        assert_eq!(
            of("\tabs.s64 \t%rd1, %rd1;"),
            "{\n.reg .b64 %negated;\nneg.s64 %negated, %rd1;\nmax.s64 %rd1, %rd1, %negated;\n}\n"
        );
        assert!(of("\tabs.s16 \t%rs2, %rs1;").contains("max.s16 %rs2, %rs1, %negated;"));
    }

    #[test]
    fn other_lines_stay() {
        let lines = "\tneg.s32 \t%r1, %r2;\n\tneg.f32 \t%r1, %r2;\n\tabs.f64 \t%rd1, %rd2;\n\tsub.s16 \t%rs1, %rs2, %rs3;\n// neg.s16\n";
        assert_eq!(spell_out(lines), lines);
    }
}
