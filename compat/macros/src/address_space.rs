//! `#[address_space(space)]`, which places a static in an address space.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, ItemStatic, Result, StaticMutability, Type};

/// Expands `#[address_space(space)] item`.
pub(crate) fn expand(space: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let space: Ident = syn::parse2(space)?;
    let mut item: ItemStatic = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), format!("#[address_space({space})] must be applied to a static"))
    })?;
    let attributes = item.attrs.len();
    item.attrs.retain(|attribute| !is_visible(attribute));
    let is_visible = item.attrs.len() < attributes;
    let visible = is_visible.then(|| quote!(#[cfg_attr(target_arch = "nvptx64", unsafe(no_mangle), used)]));
    match space.to_string().as_str() {
        "shared" if is_visible => Err(Error::new(
            space.span(),
            "the host cannot reach shared memory: it lives as long as a block. Take a pointer as the kernel's parameter",
        )),
        "shared" => shared(&item),
        "constant" => {
            let section = if is_visible { ".constant.visible" } else { ".constant" };
            Ok(quote! {
                #visible
                #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = #section))]
                #item
            })
        }
        // This is the default placement of a static.
        "global" if !is_visible => Ok(quote!(#item)),
        "global" => Ok(quote! {
            #visible
            #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".global.visible"))]
            #item
        }),
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

/// Returns true for `#[externally_visible]`, `#[no_mangle]` and `#[unsafe(no_mangle)]`, which let the host find the
/// static by its name.
fn is_visible(attribute: &Attribute) -> bool {
    let path = attribute.path();
    let is_named = |name: &str| path.segments.last().is_some_and(|last| last.ident == name);
    is_named("externally_visible")
        || is_named("no_mangle")
        || (path.is_ident("unsafe") && attribute.parse_args::<Ident>().is_ok_and(|name| name == "no_mangle"))
}

/// Expands `#[externally_visible] item` on a static.
pub(crate) fn expand_visible(mut item: ItemStatic) -> Result<TokenStream> {
    let is_space = |attribute: &Attribute| {
        attribute.path().segments.last().is_some_and(|last| last.ident == "address_space")
    };
    let at = item.attrs.iter().position(is_space);
    let space = match at.map(|at| item.attrs.remove(at)) {
        Some(attribute) => attribute.parse_args()?,
        None => quote!(global),
    };
    expand(space, quote!(#[externally_visible] #item))
}

/// Expands a shared static. On the GPU, the initial value of the static is dropped. On the emulated device, the static
/// refers to memory of the block.
fn shared(item: &ItemStatic) -> Result<TokenStream> {
    let ItemStatic { attrs, vis, mutability, ident, ty, expr, .. } = item;
    if matches!(mutability, StaticMutability::None) && !is_maybe_uninit(ty) {
        return Err(Error::new(
            ty.span(),
            "shared memory starts uninitialized, and this static could be read by safe code: write `static mut`, or make \
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

/// Returns whether the type is written as `MaybeUninit<…>`.
fn is_maybe_uninit(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "MaybeUninit"))
}
