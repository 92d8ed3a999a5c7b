//! Code that must not compile, and its errors.

#[test]
fn wrong_kernels_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
