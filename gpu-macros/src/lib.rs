//! Macros of the device library: `#[kernel]`, `#[elementwise]`, `#[reduction]`, `#[scan]`, `#[derive(KernelType)]`,
//! `#[derive(KernelValue)]`, `#[address_space(shared)]` and `printf!`.
//!
//! Use these macros through `gpu_std`, which re-exports them, because their expansions refer to that crate by its name
//! in the manifest.
//!
//! | module | purpose |
//! | --- | --- |
//! | `kernel` | parses a kernel function and its options, reports errors, and emits the kernel's entries |
//! | `family` | `#[elementwise]`, `#[reduction]` and `#[scan]`, which emit kernels of a fixed form |
//! | `kernel_type` | derives `KernelType` and `KernelValue` for types with a fixed layout |
//! | `address_space` | places a static in shared memory |
//! | `library` | finds gpu-std if the manifest gives it another name |
//! | `printf` | checks a C format string against its arguments |
#![deny(missing_docs)]

use proc_macro::TokenStream;

mod address_space;
mod family;
mod kernel;
mod kernel_type;
mod library;
mod printf;

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_attribute]
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(options.into(), item.into())
        .map(library::found)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_attribute]
pub fn elementwise(options: TokenStream, item: TokenStream) -> TokenStream {
    family::elementwise::expand(options.into(), item.into())
        .map(library::found)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_attribute]
pub fn reduction(options: TokenStream, item: TokenStream) -> TokenStream {
    family::reduction::expand(options.into(), item.into())
        .map(library::found)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_attribute]
pub fn scan(options: TokenStream, item: TokenStream) -> TokenStream {
    family::scan::expand(options.into(), item.into())
        .map(library::found)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_derive(KernelType)]
pub fn kernel_type(item: TokenStream) -> TokenStream {
    kernel_type::element(item.into())
        .map(library::found)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_derive(KernelValue)]
pub fn kernel_value(item: TokenStream) -> TokenStream {
    kernel_type::value(item.into())
        .map(library::found)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_attribute]
pub fn address_space(space: TokenStream, item: TokenStream) -> TokenStream {
    address_space::expand(space.into(), item.into())
        .map(library::found)
        .unwrap_or_else(|error| error.into_compile_error())
        .into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro]
pub fn printf(input: TokenStream) -> TokenStream {
    printf::expand(input.into()).map(library::found).unwrap_or_else(|error| error.into_compile_error()).into()
}
