//! What Rust-CUDA has and these crates have not: using it is an error that says what to use instead.

/// Rust-CUDA's linker of several PTX files.
///
/// ```compile_fail
/// cust::link!();
/// ```
#[macro_export]
macro_rules! link {
    ($($input:tt)*) => {
        ::core::compile_error!(
            "cust::link is not provided: let one kernel crate depend on the others, so that the builder links them, or \
             link cubins with nvlink and load the result with Module::from_cubin"
        )
    };
}
