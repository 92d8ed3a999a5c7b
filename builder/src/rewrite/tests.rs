//! Compares the rewrite of a whole module with a stored result.

use super::*;

const INPUT: &str = include_str!("golden/input.ll");
const OUTPUT: &str = include_str!("golden/output.ll");

#[test]
fn a_module_with_everything_is_rewritten_as_before() {
    let rewritten = rewrite(INPUT, false).unwrap();
    for (number, (actual, expected)) in rewritten.ir.lines().zip(OUTPUT.lines()).enumerate() {
        assert_eq!(actual, expected, "line {} of golden/output.ll", number + 1);
    }
    assert_eq!(rewritten.ir.lines().count(), OUTPUT.lines().count());
    let kernel = |symbol: &str, min_arch, max_threads| Kernel {
        symbol: symbol.to_owned(),
        min_arch,
        max_threads,
        ..Kernel::default()
    };
    assert_eq!(rewritten.kernels, [kernel("k1", 90, 256), kernel("k2", 0, 0)]);
}

#[test]
fn an_unknown_signature_of_a_panic_entry_is_an_error() {
    let ir = "define void @_RNvNtCs1a_4core9panicking18panic_bounds_check(i32 %0) {\n  unreachable\n}\n";
    let error = rewrite(ir, false).unwrap_err();
    assert!(matches!(error, RewriteError::PanicEntry { .. }), "{error}");
}

#[test]
fn an_empty_module_gets_only_the_declarations() {
    let rewritten = rewrite("", false).unwrap();
    assert!(rewritten.kernels.is_empty());
    assert_eq!(rewritten.ir.lines().filter(|line| line.starts_with("declare ")).count(), 3);
}

/// Doubling the text must about double the time; a quadratic step would quadruple it.
#[test]
fn the_time_is_linear() {
    let time = |copies: usize| {
        let body = INPUT.lines().filter(|line| line.starts_with("  ")).collect::<Vec<_>>().join("\n");
        let functions: String =
            (0..copies).map(|i| format!("define void @f{i}() {{\n{body}\n}}\n")).collect();
        let ir = format!(
            "{}{functions}",
            INPUT.lines().filter(|l| l.starts_with('@')).fold(String::new(), |a, l| a + l + "\n")
        );
        (0..5)
            .map(|_| {
                let start = std::time::Instant::now();
                assert!(rewrite(&ir, false).unwrap().ir.len() > ir.len());
                start.elapsed()
            })
            .min()
            .unwrap()
    };
    let (small, large) = (time(200), time(1600));
    assert!(large < small * 24, "{small:?} for one part, {large:?} for eight");
}
