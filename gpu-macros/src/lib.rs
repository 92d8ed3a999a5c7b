//! The macros of the device library: `#[kernel]`, `#[derive(KernelType)]`, `#[address_space(shared)]` and `printf!`.
//!
//! Use them through `gpu_std`, which re-exports them: what they expand to names that crate.
//!
//! | module | what it does |
//! | --- | --- |
//! | `kernel` | reads a kernel function and its options, says what is wrong with it, writes its entries |
//! | `kernel_type` | derives `KernelType` for structs of fixed layout |
//! | `address_space` | turns a static into shared memory |
//! | `printf` | checks a C format against its arguments |
#![deny(missing_docs)]

use proc_macro::TokenStream;

mod address_space;
mod kernel;
mod kernel_type;
mod printf;

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_attribute]
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(options.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_derive(KernelType)]
pub fn kernel_type(item: TokenStream) -> TokenStream {
    kernel_type::expand(item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro_attribute]
pub fn address_space(space: TokenStream, item: TokenStream) -> TokenStream {
    address_space::expand(space.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where gpu_std re-exports it")]
#[proc_macro]
pub fn printf(input: TokenStream) -> TokenStream {
    printf::expand(input.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
