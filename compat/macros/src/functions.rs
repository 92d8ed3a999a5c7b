//! `#[gpu_only]` and `#[externally_visible]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, Result};

/// On the GPU, expands to the function; otherwise, to a function with the same signature that panics.
pub(crate) fn gpu_only(item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let ItemFn { attrs, vis, sig, .. } = &function;
    let message = format!("`{}` can be called only on a GPU", sig.ident);
    let mut on_host = sig.clone();
    on_host.abi = None;
    Ok(quote! {
        #[cfg(target_arch = "nvptx64")]
        #function

        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(unused_variables)]
        #(#attrs)* #vis #on_host {
            ::core::unimplemented!(#message)
        }
    })
}

/// Makes a static visible to the host under the name of the static. Functions are rejected, because device functions
/// are inlined into kernels, so other modules would find nothing to link against.
pub(crate) fn externally_visible(item: TokenStream) -> Result<TokenStream> {
    if let Ok(item) = syn::parse2(item.clone()) {
        return crate::address_space::expand_visible(item);
    }
    let function: ItemFn = syn::parse2(item)?;
    Err(Error::new(
        function.sig.ident.span(),
        "an image exports only kernels, so no other PTX can be linked against this function: make it a #[kernel], or \
         put it into a crate that both kernel crates depend on",
    ))
}
