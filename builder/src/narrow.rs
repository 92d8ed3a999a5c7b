//! Works around a ptxas bug that miscompiles stores of part of a register.
//!
//! LLVM stores the low half of a 64-bit register with `st.b32 [%rd1], %rd2`, as PTX allows. If a floating-point
//! instruction has written the register, ptxas (seen with 13.0, for all architectures) stores the number converted to
//! an integer instead of its low bits. The workaround first copies the value to a register of the stored size. This is
//! free: ptxas drops the conversion.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns the module with every store of part of a register replaced by a store of a whole register. `text` has one
/// instruction per line, as LLVM writes it.
pub fn store_whole_registers(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    for line in text.lines() {
        whole.push_str(&of_line(line));
        whole.push('\n');
    }
    whole
}

fn of_line(line: &str) -> Cow<'_, str> {
    let Some(stored) = stored(line) else { return line.into() };
    let mut narrowed = String::new();
    let mut store = line.to_owned();
    for register in stored.registers {
        let (from, bits) = (width(register), stored.bits);
        if from <= bits {
            continue;
        }
        // PTX has no 8-bit registers.
        let to = bits.max(16);
        // A register occurs at most once before the closing bracket of the address and once after it.
        let name = format!("%narrow{}", &register[1..]);
        let made = if from == to {
            format!("and.b16 \t{name}, {register}, 255;")
        } else {
            format!("cvt.u{to}.u{from} \t{name}, {register};")
        };
        if !narrowed.contains(&made) {
            let _ = writeln!(narrowed, "\t.reg .b{to} \t{name};\n\t{made}");
        }
        store = with_operand(&store, register, &name);
    }
    if narrowed.is_empty() { line.into() } else { format!("\t{{\n{narrowed}{store}\n\t}}").into() }
}

struct Stored<'a> {
    /// Bits per element.
    bits: u32,
    registers: Vec<&'a str>,
}

/// Returns the stored elements if the line is a store to memory of at most 32 bits per element.
fn stored(line: &str) -> Option<Stored<'_>> {
    let mut instruction = line.trim_start();
    if instruction.starts_with('@') {
        instruction = instruction.split_once(char::is_whitespace)?.1.trim_start();
    }
    let (name, operands) = instruction.split_once(char::is_whitespace)?;
    if !name.starts_with("st.") || name.contains(".param") {
        return None;
    }
    let bits = match name.rsplit('.').next()? {
        "b8" | "u8" | "s8" => 8,
        "b16" | "u16" | "s16" => 16,
        "b32" | "u32" | "s32" => 32,
        _ => return None,
    };
    let (_, values) = operands.split_once(']')?;
    let values = values.split(';').next()?;
    let names = values.split([',', '{', '}', ' ', '\t']).filter(|name| name.starts_with('%'));
    Some(Stored { bits, registers: names.collect() })
}

/// Returns the width in bits of the integer register with this LLVM name, or 0 for other registers.
fn width(register: &str) -> u32 {
    let class = register.trim_start_matches('%').trim_end_matches(|c: char| c.is_ascii_digit());
    match class {
        "rs" => 16,
        "r" => 32,
        "rd" => 64,
        _ => 0,
    }
}

/// Returns the line with another register in place of a stored one.
fn with_operand(line: &str, register: &str, other: &str) -> String {
    let (address, values) = line.split_at(line.find(']').unwrap_or(0));
    let mut replaced = address.to_owned();
    let mut rest = values;
    while let Some(at) = rest.find(register) {
        let (before, from) = rest.split_at(at);
        let after = &from[register.len()..];
        let is_whole = !after.starts_with(|c: char| c.is_ascii_digit());
        replaced.push_str(before);
        replaced.push_str(if is_whole { other } else { register });
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_registers_get_registers_of_their_own() {
        let of = |line| of_line(line).replace('\t', "");
        assert_eq!(
            of("\tst.shared.b32 \t[%rd1+4], %rd1;"),
            "{\n.reg .b32 %narrowrd1;\ncvt.u32.u64 %narrowrd1, %rd1;\nst.shared.b32 [%rd1+4], %narrowrd1;\n}"
        );
        assert_eq!(
            of("\t@%p1 st.global.b8 \t[%rd1], %r12;"),
            "{\n.reg .b16 %narrowr12;\ncvt.u16.u32 %narrowr12, %r12;\n@%p1 st.global.b8 [%rd1], %narrowr12;\n}"
        );
        assert_eq!(
            of("\tst.local.b8 \t[%rd1], %rs3;"),
            "{\n.reg .b16 %narrowrs3;\nand.b16 %narrowrs3, %rs3, 255;\nst.local.b8 [%rd1], %narrowrs3;\n}"
        );
        assert_eq!(
            of("\tst.global.v4.b32 \t[%rd2], {%rd1, %r5, %rd1, %rd12};"),
            "{\n.reg .b32 %narrowrd1;\ncvt.u32.u64 %narrowrd1, %rd1;\n.reg .b32 %narrowrd12;\ncvt.u32.u64 %narrowrd12, %rd12;\n\
             st.global.v4.b32 [%rd2], {%narrowrd1, %r5, %narrowrd1, %narrowrd12};\n}"
        );
    }

    #[test]
    fn other_lines_stay() {
        for line in [
            "\tst.shared.b32 \t[%rd1], %r2;",
            "\tst.shared.b64 \t[%rd1], %rd2;",
            "\tst.global.v2.b32 \t[%rd1], {%r2, 7};",
            "\tst.global.b16 \t[%rd1], %rs2;",
            "\tst.global.b32 \t[%rd1], 5;",
            "\tst.param.b8 \t[param0], %rs2;",
            "\tld.global.b32 \t%rd1, [%rd2];",
            "$L__BB6_67:                             // %st.exit",
            "",
        ] {
            assert_eq!(of_line(line), line);
        }
    }
}
