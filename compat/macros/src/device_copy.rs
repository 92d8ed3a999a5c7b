//! `#[derive(DeviceCopy)]`, which requires that every field is `DeviceCopy`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Field, GenericParam, Result, parse_quote};

/// Expands `#[derive(DeviceCopy)] item`; `device_copy` is the path of the trait.
pub(crate) fn expand(item: TokenStream, device_copy: &TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let fields: Vec<&Field> = match &input.data {
        Data::Struct(data) => data.fields.iter().collect(),
        Data::Enum(data) => data.variants.iter().flat_map(|variant| &variant.fields).collect(),
        Data::Union(data) => data.fields.named.iter().collect(),
    };
    let mut generics = input.generics.clone();
    for param in &mut generics.params {
        if let GenericParam::Type(ty) = param {
            ty.bounds.push(parse_quote!(#device_copy));
        }
    }
    let name = &input.ident;
    let (impl_generics, type_generics, clause) = generics.split_for_impl();
    let checks = fields.iter().map(|field| {
        let ty = &field.ty;
        quote_spanned!(ty.span()=> is_device_copy::<#ty>();)
    });
    Ok(quote! {
        // SAFETY: every field is `DeviceCopy`, as checked below.
        #[automatically_derived]
        unsafe impl #impl_generics #device_copy for #name #type_generics #clause {}

        const _: () = {
            #[allow(dead_code)]
            fn check #impl_generics () #clause {
                fn is_device_copy<T: #device_copy>() {}
                #(#checks)*
            }
        };
    })
}
