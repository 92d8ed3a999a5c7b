//! Code that must not compile, and its errors.

#[test]
fn wrong_kernels_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// Errors that the compiler finds only during code generation. If any case must pass, trybuild builds all of them.
#[test]
fn errors_of_instances_name_the_line_of_the_kernel() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui-built/fits.rs");
    cases.compile_fail("tests/ui-built/indices_of_arrays.rs");
}
