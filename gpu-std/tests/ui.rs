//! What must not compile, and what the error says.

#[test]
fn wrong_kernels_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
