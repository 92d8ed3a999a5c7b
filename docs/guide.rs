//! The pages of the guide. Each is the documentation of a module, so that its listings are compiled and run as tests:
//! `cargo test --doc -p warpsmith-guide`, or `… PAGE` for those of one page.
#![allow(rustdoc::broken_intra_doc_links, reason = "links of a page lead to other pages")]

macro_rules! pages {
    ($($name:ident = $file:literal;)*) => {
        /// Every page, by its path in `docs/`.
        pub const PAGES: &[&str] = &[$($file),*];
        $(#[cfg(doctest)] #[doc = include_str!($file)] mod $name {})*
    };
}

pages! {
    atomics = "guide/atomics.md";
    checking = "checking.md";
    debugging = "debugging.md";
    extending = "extending.md";
    first_kernel = "guide/first-kernel.md";
    from_pytorch = "from-pytorch.md";
    functions_and_operators = "guide/functions-and-operators.md";
    generic_kernels = "guide/generic-kernels.md";
    graphs = "guide/graphs.md";
    profiling = "profiling.md";
    installation = "installation.md";
    readme = "../README.md";
    registry_crates = "guide/registry-crates.md";
    indices = "guide/indices.md";
    interop = "interop.md";
    kernels = "kernels.md";
    launch = "launch.md";
    libraries = "libraries.md";
    memory = "memory.md";
    porting_from_cuda = "porting-from-cuda.md";
    porting_from_rust_cuda = "porting-from-rust-cuda.md";
    scans_and_sorts = "guide/scans-and-sorts.md";
    several_gpus = "several-gpus.md";
    streams = "streams.md";
    structs_and_math = "guide/structs-and-math.md";
    testing = "guide/testing.md";
    tensor_cores = "tensor-cores.md";
    tiles = "guide/tiles.md";
    tuning = "tuning.md";
    warps = "guide/warps.md";
}
