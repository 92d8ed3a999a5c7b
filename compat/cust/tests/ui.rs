//! Code that must not compile, with the expected errors.

#[test]
fn what_is_not_there_is_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
