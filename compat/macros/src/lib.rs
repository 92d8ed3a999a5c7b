//! Macros that `cuda_std` and `cust_core` re-export. Their expansions refer to these crates.
#![deny(missing_docs)]

use proc_macro::TokenStream;

mod address_space;
mod device_copy;
mod functions;
mod kernel;

#[allow(missing_docs, reason = "documented where cuda_std re-exports it")]
#[proc_macro_attribute]
pub fn kernel(hints: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(hints.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where cuda_std re-exports it")]
#[proc_macro_attribute]
pub fn gpu_only(_: TokenStream, item: TokenStream) -> TokenStream {
    functions::gpu_only(item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where cuda_std re-exports it")]
#[proc_macro_attribute]
pub fn externally_visible(_: TokenStream, item: TokenStream) -> TokenStream {
    functions::externally_visible(item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where cuda_std re-exports it")]
#[proc_macro_attribute]
pub fn address_space(space: TokenStream, item: TokenStream) -> TokenStream {
    address_space::expand(space.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where cust_core re-exports it")]
#[proc_macro_derive(DeviceCopy)]
pub fn device_copy(item: TokenStream) -> TokenStream {
    let path = quote::quote!(::cust_core::DeviceCopy);
    device_copy::expand(item.into(), &path).unwrap_or_else(|error| error.into_compile_error()).into()
}

#[allow(missing_docs, reason = "documented where cust re-exports it, as DeviceCopy")]
#[proc_macro_derive(CustDeviceCopy)]
pub fn cust_device_copy(item: TokenStream) -> TokenStream {
    let path = quote::quote!(::cust::memory::DeviceCopy);
    device_copy::expand(item.into(), &path).unwrap_or_else(|error| error.into_compile_error()).into()
}
