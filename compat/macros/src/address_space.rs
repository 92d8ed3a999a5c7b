//! `#[address_space(space)]`: where a static lies.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemStatic, Result, StaticMutability, Type};

/// The whole of `#[address_space(space)] item`.
pub(crate) fn expand(space: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let space: Ident = syn::parse2(space)?;
    let item: ItemStatic = syn::parse2(item)
        .map_err(|error| Error::new(error.span(), format!("#[address_space({space})] goes on a static")))?;
    match space.to_string().as_str() {
        "shared" => shared(&item),
        "constant" => Ok(quote! {
            #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".constant"))]
            #item
        }),
        // Where a static lies without the attribute.
        "global" => Ok(quote!(#item)),
        "local" => Err(Error::new(
            space.span(),
            "a static cannot lie in a thread's local memory: write a `let` variable in the kernel",
        )),
        _ => Err(Error::new(
            space.span(),
            format!("there is no address space `{space}`: write shared, constant or global"),
        )),
    }
}

/// On the GPU, a static whose initial value is dropped. On the emulated device, one that names the block's memory.
fn shared(item: &ItemStatic) -> Result<TokenStream> {
    let ItemStatic { attrs, vis, mutability, ident, ty, expr, .. } = item;
    if matches!(mutability, StaticMutability::None) && !is_maybe_uninit(ty) {
        return Err(Error::new(
            ty.span(),
            "shared memory starts uninitialised, and this static could be read by safe code: write `static mut`, or make \
             the type `MaybeUninit<…>`",
        ));
    }
    Ok(quote! {
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(link_section = ".shared.dropped")]
        #item

        #[cfg(not(target_arch = "nvptx64"))]
        #(#attrs)*
        #vis static #mutability #ident: ::cuda_std::shared::Static<#ty> = {
            const _: () = { #[allow(dead_code)] static #mutability VALUE: #ty = #expr; };
            ::cuda_std::shared::Static::new()
        };
    })
}

/// Whether it is written as `MaybeUninit<…>`.
fn is_maybe_uninit(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "MaybeUninit"))
}
