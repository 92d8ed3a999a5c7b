//! `#[derive(KernelType)]`: a struct that host and device compiler lay out alike.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Meta, Result, Token, parse_quote_spanned};

/// The whole of `#[derive(KernelType)] item`.
pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let name = &input.ident;
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) => {
            return Err(Error::new(
                name.span(),
                "an enum cannot be a `KernelType`, because some bytes are none of its variants: pass a number, and \
                 match on it in the kernel",
            ));
        }
        Data::Union(_) => {
            return Err(Error::new(name.span(), "a union cannot derive `KernelType`: make it a struct"));
        }
    };
    if !has_layout(&input)? {
        let or = if fields.len() == 1 { " or `#[repr(transparent)]`" } else { "" };
        return Err(Error::new(
            name.span(),
            format!(
                "add `#[repr(C)]`{or} to `{name}`: the host and the GPU are compiled by two compilers, and without \
                 it each may order the fields in its own way"
            ),
        ));
    }
    let mut generics = input.generics.clone();
    let types = input.generics.clone();
    let (_, type_generics, _) = types.split_for_impl();
    let clause = generics.make_where_clause();
    for field in fields {
        let ty = &field.ty;
        clause.predicates.push(parse_quote_spanned!(ty.span()=> #ty: ::gpu_std::KernelType));
    }
    clause.predicates.push(parse_quote_spanned!(name.span()=> Self: ::core::marker::Copy));
    let (impl_generics, _, clause) = generics.split_for_impl();
    let traits = [
        quote!(::gpu_std::__private::bytemuck::Zeroable),
        quote!(::gpu_std::__private::bytemuck::AnyBitPattern),
        quote!(::gpu_std::KernelType),
    ];
    let impls = traits.iter().map(|name_of_trait| {
        quote_spanned! {name.span()=>
            // SAFETY: the attribute fixes the layout, and every field takes any bytes and has a fixed layout itself.
            #[automatically_derived]
            #[allow(trivial_bounds)]
            unsafe impl #impl_generics #name_of_trait for #name #type_generics #clause {}
        }
    });
    Ok(quote!(#(#impls)*))
}

/// Whether the struct is `repr(C)` or `repr(transparent)`.
fn has_layout(input: &DeriveInput) -> Result<bool> {
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        let list = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        if list.iter().any(|meta| meta.path().is_ident("C") || meta.path().is_ident("transparent")) {
            return Ok(true);
        }
    }
    Ok(false)
}
