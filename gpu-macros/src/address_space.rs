//! `#[address_space(shared)]` declares a static in shared memory, using the same syntax as Rust-CUDA.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, GenericArgument, Ident, ItemStatic, PathArguments, Result, Type};

/// Expands `#[address_space(space)] item`.
pub(crate) fn expand(space: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let space: Ident = syn::parse2(space)?;
    if space != "shared" {
        return Err(Error::new(
            space.span(),
            format!("a static cannot be in address space `{space}`: write `shared`"),
        ));
    }
    let item: ItemStatic = syn::parse2(item).map_err(|error| {
        Error::new(
            error.span(),
            "#[address_space(shared)] applies only to a static: `static TILE: MaybeUninit<[f32; 256]> = \
             MaybeUninit::uninit();`",
        )
    })?;
    let Some(content) = maybe_uninit(&item.ty) else {
        return Err(Error::new_spanned(
            &item.ty,
            "shared memory starts uninitialized: make the type `MaybeUninit<…>`, and the value \
             `MaybeUninit::uninit()`",
        ));
    };
    let (ty, attrs, vis, name) = (&item.ty, &item.attrs, &item.vis, &item.ident);
    Ok(quote! {
        // Without this line, the compiler would report the import of the type as unused.
        const _: usize = ::core::mem::size_of::<#ty>();
        #(#attrs)*
        #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".shared"))]
        #vis static #name: ::gpu_std::shared::SharedStatic<#content> = ::gpu_std::shared::SharedStatic::new();
    })
}

/// Returns the type `T` of `MaybeUninit<T>`.
fn maybe_uninit(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "MaybeUninit")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(content)) if arguments.args.len() == 1 => Some(content),
        _ => None,
    }
}
