//! Replaces `half`'s software conversions with the GPU's, and allows contraction of products and sums.
//!
//! A product and a sum in Rust code may become one `fma`. The flag is set per instruction instead of globally, because
//! libdevice computes rounding errors with sums and products that must stay separate.
//!
//! For a target whose conversion instructions `half` does not use, it converts with integer arithmetic, which takes a
//! page of code per operator. Here, each conversion becomes one LLVM cast. LLVM then also turns "widen, operate,
//! narrow" into the operation on the narrow type if the result is the same. The only difference is that the hardware
//! determines the bits of a NaN.

use super::mangled;

/// The conversions: their path in `half`, and the types of argument, cast and result.
const CONVERSIONS: [(&str, Conversion); 8] = [
    ("8binary164arch19f16_to_f32_fallback", Conversion::widen("half", "float")),
    ("8binary164arch19f16_to_f64_fallback", Conversion::widen("half", "double")),
    ("8binary164arch19f32_to_f16_fallback", Conversion::narrow("float", "half")),
    ("8binary164arch19f64_to_f16_fallback", Conversion::narrow("double", "half")),
    ("6bfloat7convert11bf16_to_f32", Conversion::widen("bfloat", "float")),
    ("6bfloat7convert11bf16_to_f64", Conversion::widen("bfloat", "double")),
    ("6bfloat7convert11f32_to_bf16", Conversion::narrow("float", "bfloat")),
    ("6bfloat7convert11f64_to_bf16", Conversion::narrow("double", "bfloat")),
];

struct Conversion {
    from: &'static str,
    to: &'static str,
    widens: bool,
}

impl Conversion {
    const fn widen(from: &'static str, to: &'static str) -> Conversion {
        Conversion { from, to, widens: true }
    }

    const fn narrow(from: &'static str, to: &'static str) -> Conversion {
        Conversion { from, to, widens: false }
    }
}

/// Returns the definition that replaces the function `symbol`, if `symbol` is a conversion of `half`.
pub fn replacement(symbol: &str) -> Option<String> {
    let path = mangled::path_in(symbol, "4half")?;
    let (_, Conversion { from, to, widens }) =
        CONVERSIONS.iter().find(|(function, _)| mangled::is(path, function))?;
    Some(if *widens {
        format!(
            "define internal {to} @{symbol}(i16 %bits) alwaysinline nounwind {{\n  \
             %narrow = bitcast i16 %bits to {from}\n  \
             %wide = fpext {from} %narrow to {to}\n  \
             ret {to} %wide\n}}"
        )
    } else {
        format!(
            "define internal i16 @{symbol}({from} %wide) alwaysinline nounwind {{\n  \
             %narrow = fptrunc {from} %wide to {to}\n  \
             %bits = bitcast {to} %narrow to i16\n  \
             ret i16 %bits\n}}"
        )
    })
}

/// Returns `line` with the flag that permits contraction, if its instruction is a sum or a product of floats.
pub fn contract(line: &str, instruction: &str) -> Option<String> {
    let operator = ["fmul ", "fadd ", "fsub "].into_iter().find(|name| instruction.starts_with(name))?;
    let operands = &instruction[operator.len()..];
    let head = &line[..line.len() - operands.len()];
    Some(format!("{head}contract {operands}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::text;

    #[test]
    fn sums_and_products_may_be_contracted() {
        let contracted = |line| contract(line, text::instruction(line));
        assert_eq!(contracted("  %a = fmul float %b, %c").unwrap(), "  %a = fmul contract float %b, %c");
        let vector = contracted("  %a = fsub nsz <2 x half> %b, %c, !dbg !7").unwrap();
        assert_eq!(vector, "  %a = fsub contract nsz <2 x half> %b, %c, !dbg !7");
        assert_eq!(contracted("  %a = fdiv float %b, %c"), None);
        assert_eq!(contracted("  %a = mul i32 %b, %c"), None);
    }

    #[test]
    fn both_directions() {
        assert_eq!(
            replacement("_RNvNtNtCs1_4half8binary164arch19f16_to_f32_fallback29").unwrap(),
            "define internal float @_RNvNtNtCs1_4half8binary164arch19f16_to_f32_fallback29(i16 %bits) alwaysinline nounwind {
  %narrow = bitcast i16 %bits to half
  %wide = fpext half %narrow to float
  ret float %wide
}"
        );
        let narrow = replacement("_RNvNtNtCs1_4half6bfloat7convert11f64_to_bf16").unwrap();
        assert!(narrow.contains("fptrunc double %wide to bfloat"), "{narrow}");
    }

    #[test]
    fn other_functions_stay() {
        assert_eq!(replacement("_RNvNtNtCs1_4half8binary164arch10f32_to_f16"), None);
        assert_eq!(replacement("_RNvNtNtCs1_4core8binary164arch19f16_to_f32_fallback"), None);
        assert_eq!(replacement("k"), None);
    }
}
