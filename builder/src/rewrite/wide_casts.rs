//! Adds comparisons that make casts from floats to 128-bit integers saturate.
//!
//! LLVM 22 cannot compile the saturating casts of Rust's `as` for this target. An option of `llc` expands the plain
//! casts in both directions (`codegen.rs`).

use std::collections::BTreeMap;

/// Float types: suffix of the intrinsic's name, type, and the constants 2^128 and 2^127, or infinity if the type cannot
/// represent them.
const FLOATS: [(&str, &str, [&str; 2]); 4] = [
    ("f16", "half", ["0xH7C00", "0xH7C00"]),
    ("bf16", "bfloat", ["0xR7F80", "0xR7F00"]),
    ("f32", "float", ["0x7FF0000000000000", "0x47E0000000000000"]),
    ("f64", "double", ["0x47F0000000000000", "0x47E0000000000000"]),
];

const INTRINSICS: [(&str, &str); 2] =
    [("@llvm.fptoui.sat.i128.", "fptoui"), ("@llvm.fptosi.sat.i128.", "fptosi")];

/// If the line calls the intrinsic of a saturating cast to 128 bits, returns the line with a different callee. Adds the
/// callee to `functions`, by symbol.
pub fn call(line: &str, functions: &mut BTreeMap<String, String>) -> Option<String> {
    let (intrinsic, cast) = INTRINSICS.iter().find(|(intrinsic, _)| line.contains(intrinsic))?;
    let (before, rest) = line.split_once(intrinsic)?;
    let (float, arguments) = rest.split_once('(')?;
    let (_, ty, limits) = FLOATS.iter().find(|(name, ..)| *name == float)?;
    let symbol = format!("__warpsmith_{cast}.{float}");
    let call = format!("{before}@{symbol}({arguments}");
    functions.insert(symbol.clone(), function(&symbol, cast, ty, limits));
    Some(call)
}

/// Defines a cast that is plain within the integer's range and saturates outside; NaN becomes 0.
fn function(symbol: &str, cast: &str, ty: &str, [unsigned, signed]: &[&str; 2]) -> String {
    let is_signed = cast == "fptosi";
    let limit = if is_signed { signed } else { unsigned };
    let (above, maximum) = match is_signed {
        true => (format!("fcmp olt {ty} %negated, {limit}"), i128::MAX.to_string()),
        false => (format!("fcmp ogt {ty} %x, 0.0"), "-1".to_owned()),
    };
    let under = match is_signed {
        true => format!("fcmp oge {ty} %negated, {limit}"),
        false => format!("fcmp ult {ty} %x, 0.0"),
    };
    let minimum = if is_signed { i128::MIN } else { 0 };
    format!(
        "define internal i128 @{symbol}({ty} %x) alwaysinline nounwind {{\n  \
         %negated = fneg {ty} %x\n  \
         %below = fcmp olt {ty} %x, {limit}\n  \
         %above = {above}\n  \
         %fits = and i1 %below, %above\n  \
         %value = select i1 %fits, {ty} %x, {ty} 0.0\n  \
         %cast = {cast} {ty} %value to i128\n  \
         %over = fcmp oge {ty} %x, {limit}\n  \
         %most = select i1 %over, i128 {maximum}, i128 %cast\n  \
         %under = {under}\n  \
         %result = select i1 %under, i128 {minimum}, i128 %most\n  \
         ret i128 %result\n}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturating_cast_is_a_function_of_ours() {
        for (cast, float, ty, limit) in [
            ("fptoui", "f32", "float", "0x7FF0000000000000"),
            ("fptosi", "f64", "double", "0x47E0000000000000"),
            ("fptosi", "f16", "half", "0xH7C00"),
        ] {
            let mut functions = BTreeMap::new();
            let line = format!("  %2 = tail call i128 @llvm.{cast}.sat.i128.{float}({ty} %1), !dbg !3");
            let symbol = format!("__warpsmith_{cast}.{float}");
            assert_eq!(
                call(&line, &mut functions).unwrap(),
                format!("  %2 = tail call i128 @{symbol}({ty} %1), !dbg !3")
            );
            let body = &functions[&symbol];
            assert!(body.contains(&format!("%below = fcmp olt {ty} %x, {limit}\n")), "{body}");
            assert!(body.contains(&format!("%cast = {cast} {ty} %value to i128\n")), "{body}");
        }
    }

    #[test]
    fn other_calls_stay() {
        let mut functions = BTreeMap::new();
        for line in [
            "  %2 = call i64 @llvm.fptoui.sat.i64.f32(float %1)",
            "  %2 = call i128 @f(float %1)",
            "declare i128 @llvm.fptosi.sat.i128.f128(fp128)",
        ] {
            assert_eq!(call(line, &mut functions), None);
        }
        assert!(functions.is_empty());
    }
}
