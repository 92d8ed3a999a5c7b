//! Matches v0-mangled names against functions of `core` and `half`.

/// Returns the path of `symbol` inside crate `krate` (as mangled, for example `4core`), for a free function:
/// `_RNvNtCs1a_4core9panicking5panic` in `4core` is `9panicking5panic`. Generic arguments, and the number that
/// llvm-link appends to copies, stay at the end.
pub fn path_in<'a>(symbol: &'a str, krate: &str) -> Option<&'a str> {
    let rest = symbol.strip_prefix("_R")?.trim_start_matches(['I', 'N', 'v', 't']);
    let (disambiguator, path) = rest.strip_prefix("Cs")?.split_once('_')?;
    let plain = disambiguator.bytes().all(|b| b.is_ascii_alphanumeric());
    plain.then(|| path.strip_prefix(krate)).flatten()
}

/// Returns true if `path` is `function`, or a copy of it that llvm-link has numbered.
pub fn is(path: &str, function: &str) -> bool {
    path.strip_prefix(function).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_functions_are_found_in_their_crate_only() {
        let symbol = "_RNvNtCsduWobj5wX1U_4core9panicking18panic_bounds_check";
        assert_eq!(path_in(symbol, "4core"), Some("9panicking18panic_bounds_check"));
        assert_eq!(path_in(symbol, "4half"), None);
        let generic = "_RINvNtCsduWobj5wX1U_4core9panicking13assert_failedjjEB4_";
        assert_eq!(path_in(generic, "4core"), Some("9panicking13assert_failedjjEB4_"));
        assert_eq!(
            path_in("_RNvXss_NtCs1a_4half8binary16NtB5_3f16NtNtNtCs2b_4core3ops5arith3Mul3mul", "4core"),
            None
        );
        assert_eq!(path_in("k1", "4core"), None);
    }

    #[test]
    fn copies_count() {
        assert!(is("4arch11bf16_to_f32218", "4arch11bf16_to_f32"));
        assert!(is("9panicking5panic", "9panicking5panic"));
        assert!(!is("9panicking9panic_fmtE", "9panicking9panic_fmt"));
    }
}
