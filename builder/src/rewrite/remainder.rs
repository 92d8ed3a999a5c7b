//! Replaces `%` of floats with libdevice's `fmod`.
//!
//! LLVM 22 compiles `frem` for the GPU to `x - trunc(x / y) * y` with a rounded quotient: `1.0 % 0.1` would be -1.5e-8.
//! The remainder of floats is exact, so the 16-bit types can compute it in `f32`.

use std::collections::BTreeMap;

/// Parses `frem fast TYPE %a, %b, !dbg !7` and returns the call that replaces it, which keeps the `%r = ` of `line`.
/// Adds the functions that the call needs to `functions`, by symbol.
pub fn call(line: &str, instruction: &str, functions: &mut BTreeMap<String, String>) -> Option<String> {
    let mut operation = instruction.strip_prefix("frem ")?;
    while let Some((_, rest)) = operation.split_once(' ').filter(|(word, _)| FLAGS.contains(word)) {
        operation = rest;
    }
    let (ty, operands) = match operation.starts_with('<') {
        true => operation.split_at(operation.find('>')? + 1),
        false => operation.split_at(operation.find(' ')?),
    };
    let callee = function(ty, functions)?;
    let [x, y, rest @ ..] = &super::text::list(operands)[..] else { return None };
    let head = &line[..line.len() - instruction.len()];
    let rest: String = rest.iter().flat_map(|item| [", ", *item]).collect();
    Some(format!("{head}call {ty} @{callee}({ty} {x}, {ty} {y}){rest}"))
}

/// Fast-math flags. The call does not keep these flags, because they would allow an incorrect remainder.
const FLAGS: [&str; 8] = ["nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc", "fast"];

/// Scalar types, with the libdevice function that each uses.
const SCALARS: [(&str, &str); 4] =
    [("float", "__nv_fmodf"), ("double", "__nv_fmod"), ("half", "__nv_fmodf"), ("bfloat", "__nv_fmodf")];

/// Returns the function for a type and adds it to `functions`.
fn function(ty: &str, functions: &mut BTreeMap<String, String>) -> Option<String> {
    if let Some((count, scalar)) = ty.strip_prefix('<').and_then(|ty| ty.strip_suffix('>')?.split_once(" x "))
    {
        let callee = function(scalar, functions)?;
        let symbol = format!("__warpsmith_rem.{count}.{scalar}");
        let mut body = String::new();
        let mut result = "poison".to_owned();
        for lane in 0..count.parse::<u32>().ok()? {
            body.push_str(&format!(
                "  %x{lane} = extractelement {ty} %x, i32 {lane}\n  %y{lane} = extractelement {ty} %y, i32 {lane}\n  \
                 %r{lane} = call {scalar} @{callee}({scalar} %x{lane}, {scalar} %y{lane})\n  \
                 %v{lane} = insertelement {ty} {result}, {scalar} %r{lane}, i32 {lane}\n"
            ));
            result = format!("%v{lane}");
        }
        define(&symbol, ty, &format!("{body}  ret {ty} {result}\n"), functions);
        return Some(symbol);
    }
    let (_, libdevice) = SCALARS.iter().find(|(name, _)| *name == ty)?;
    let wide = if ty == "double" { "double" } else { "float" };
    functions.insert((*libdevice).to_owned(), format!("declare {wide} @{libdevice}({wide}, {wide})"));
    if ty == wide {
        return Some((*libdevice).to_owned());
    }
    let symbol = format!("__warpsmith_rem.{ty}");
    let body = format!(
        "  %a = fpext {ty} %x to float\n  %b = fpext {ty} %y to float\n  \
         %c = call float @{libdevice}(float %a, float %b)\n  %r = fptrunc float %c to {ty}\n  ret {ty} %r\n"
    );
    define(&symbol, ty, &body, functions);
    Some(symbol)
}

fn define(symbol: &str, ty: &str, body: &str, functions: &mut BTreeMap<String, String>) {
    let text = format!("define internal {ty} @{symbol}({ty} %x, {ty} %y) alwaysinline nounwind {{\n{body}}}");
    functions.insert(symbol.to_owned(), text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::text;

    fn of(line: &str) -> (Option<String>, Vec<String>) {
        let mut functions = BTreeMap::new();
        let call = call(line, text::instruction(line), &mut functions);
        (call, functions.into_values().collect())
    }

    #[test]
    fn a_remainder_calls_libdevice() {
        let (call, functions) = of("  %3 = frem float %1, 0x3FB99999A0000000, !dbg !7");
        assert_eq!(
            call.unwrap(),
            "  %3 = call float @__nv_fmodf(float %1, float 0x3FB99999A0000000), !dbg !7"
        );
        assert_eq!(functions, ["declare float @__nv_fmodf(float, float)"]);
        let (call, functions) = of("  %_0 = frem nnan fast double 1.0, %y");
        assert_eq!(call.unwrap(), "  %_0 = call double @__nv_fmod(double 1.0, double %y)");
        assert_eq!(functions, ["declare double @__nv_fmod(double, double)"]);
    }

    #[test]
    fn narrow_floats_and_vectors_use_it_too() {
        for ty in ["half", "bfloat"] {
            let (call, functions) = of(&format!("  %3 = frem {ty} %1, %2"));
            assert_eq!(call.unwrap(), format!("  %3 = call {ty} @__warpsmith_rem.{ty}({ty} %1, {ty} %2)"));
            assert!(functions[1].contains(&format!("fptrunc float %c to {ty}")), "{functions:?}");
        }
        let (call, functions) = of("  %3 = frem <2 x half> %1, <half 0xH3C00, half 0xH4000>");
        let vector = "<2 x half> <half 0xH3C00, half 0xH4000>";
        assert_eq!(
            call.unwrap(),
            format!("  %3 = call <2 x half> @__warpsmith_rem.2.half(<2 x half> %1, {vector})")
        );
        assert_eq!(functions.len(), 3);
        assert!(functions[1].contains("%r1 = call half @__warpsmith_rem.half(half %x1, half %y1)"));
    }

    #[test]
    fn other_operations_stay() {
        for line in ["  %3 = fdiv float %1, %2", "  %3 = urem i32 %1, %2", "  %3 = frem fp128 %1, %2"] {
            assert_eq!(of(line), (None, Vec::new()));
        }
    }
}
