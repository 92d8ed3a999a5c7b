//! `#[derive(KernelType)]` and `#[derive(KernelValue)]`, for types that have the same layout in the host compiler and
//! the device compiler.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Data, DataEnum, DeriveInput, Error, Fields, Index, Member, Meta, Result, Token, parse_quote_spanned,
};

/// Integer types that an enum's discriminants can have.
const INTEGERS: [&str; 8] = ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"];

/// Expands `#[derive(KernelType)] item`.
pub(crate) fn element(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let name = &input.ident;
    let fields = fields(&input, "KernelType")?;
    let Some(fields) = fields else {
        return Err(Error::new(
            name.span(),
            format!(
                "an enum cannot be a `KernelType`, because not every bit pattern is a variant: derive `KernelValue`, \
                 pass it by value, and use `Checked<{name}>` in buffers"
            ),
        ));
    };
    let layout = layout(&input, fields)?;
    let padding = padding(&input, fields, layout);
    let is_generic =
        input.generics.type_params().next().is_some() || input.generics.const_params().next().is_some();
    let plain = if is_generic {
        quote!(::gpu_std::__private::bytemuck::AnyBitPattern)
    } else {
        quote!(::gpu_std::__private::bytemuck::Pod)
    };
    // A `Pod` struct automatically implements `DeviceCopy`.
    let device_copy = is_generic.then(|| {
        let of = quote!(::gpu_std::__private::DeviceCopy);
        implement(
            &input,
            fields,
            "KernelType",
            &of,
            &quote!(
                const CHECKED: () = ::core::assert!(!#padding);
            ),
        )
    });
    let impls = [
        (quote!(::gpu_std::__private::bytemuck::Zeroable), quote!()),
        (plain, quote!()),
        (quote!(::gpu_std::KernelValue), signature(&input, fields)),
        (quote!(::gpu_std::KernelType), quote!(const HAS_PADDING: bool = #padding;)),
    ]
    .map(|(of, content)| implement(&input, fields, "KernelType", &of, &content));
    let check =
        (!is_generic).then(|| quote_spanned!(name.span()=> const _: () = ::core::assert!(!#padding);));
    Ok(quote!(#(#impls)* #device_copy #check))
}

/// Expands `#[derive(KernelValue)] item`.
pub(crate) fn value(item: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(item)?;
    let of = quote!(::gpu_std::KernelValue);
    match (&input.data, fields(&input, "KernelValue")?) {
        (Data::Enum(data), _) => enumeration(&input, data),
        (_, Some(fields)) => {
            layout(&input, fields)?;
            Ok(implement(&input, fields, "KernelValue", &of, &signature(&input, fields)))
        }
        (_, None) => Ok(TokenStream::new()),
    }
}

/// Returns the fields of a struct, or `None` for an enum.
fn fields<'a>(input: &'a DeriveInput, derive: &str) -> Result<Option<&'a Fields>> {
    match &input.data {
        Data::Struct(data) => Ok(Some(&data.fields)),
        Data::Enum(_) => Ok(None),
        Data::Union(_) => {
            Err(Error::new(input.ident.span(), format!("a union cannot derive `{derive}`: use a struct")))
        }
    }
}

/// Emits `unsafe impl of for Name where …`. The clause requires that every field implements the trait `derive` and that
/// the type is `Copy`.
fn implement(
    input: &DeriveInput,
    fields: &Fields,
    derive: &str,
    of: &TokenStream,
    content: &TokenStream,
) -> TokenStream {
    let name = &input.ident;
    let mut generics = input.generics.clone();
    let (_, type_generics, _) = input.generics.split_for_impl();
    let clause = generics.make_where_clause();
    for field in fields {
        let (ty, bound) = (&field.ty, Ident::new(derive, field.ty.span()));
        clause.predicates.push(parse_quote_spanned!(ty.span()=> #ty: ::gpu_std::#bound));
    }
    clause.predicates.push(parse_quote_spanned!(name.span()=> Self: ::core::marker::Copy));
    let (impl_generics, _, clause) = generics.split_for_impl();
    // The `unsafe` has the macro's span, so that the derive also works in crates that forbid `unsafe`.
    quote_spanned! {name.span().resolved_at(Span::call_site())=>
        // SAFETY: the attribute fixes the layout, and every field satisfies the conditions of the trait.
        #[automatically_derived]
        #[allow(trivial_bounds)]
        unsafe impl #impl_generics #of for #name #type_generics #clause { #content }
    }
}

/// A struct's layout, as its `repr` attribute specifies.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    /// `repr(C)`.
    C,
    /// `repr(C, packed)` or `repr(transparent)`, without padding between fields. `packed(2)` is not included, because
    /// it places fields at multiples of 2.
    Tight,
}

fn layout(input: &DeriveInput, fields: &Fields) -> Result<Layout> {
    let names = representation(input)?;
    let has = |name: &str| names.iter().any(|known| known == name);
    if has("transparent") || has("C") && (has("packed") || has("packed(1)")) {
        return Ok(Layout::Tight);
    }
    if has("C") {
        return Ok(Layout::C);
    }
    let or = if fields.len() == 1 { " or `#[repr(transparent)]`" } else { "" };
    Err(Error::new(
        input.ident.span(),
        format!(
            "add `#[repr(C)]`{or} to `{}`: two compilers compile the host and the GPU code, and without it they may \
             order the fields differently",
            input.ident
        ),
    ))
}

/// Returns the items of `#[repr(…)]`, such as `C` or `packed(2)`.
fn representation(input: &DeriveInput) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        let list = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        names.extend(list.iter().map(|meta| meta.to_token_stream().to_string().replace(' ', "")));
    }
    Ok(names)
}

/// Emits an expression that does not compile if there is padding between or after the fields. The value of the
/// expression is true if there is padding inside the fields.
fn padding(input: &DeriveInput, fields: &Fields, layout: Layout) -> TokenStream {
    let name = &input.ident;
    let (_, type_generics, _) = input.generics.split_for_impl();
    let own = quote!(#name #type_generics);
    let members: Vec<(Member, &syn::Type)> = fields
        .iter()
        .enumerate()
        .map(|(index, field)| {
            let member = field.ident.clone().map_or(Member::Unnamed(Index::from(index)), Member::Named);
            (member, &field.ty)
        })
        .collect();
    let mut checks = Vec::new();
    if layout == Layout::C {
        for pair in members.windows(2) {
            let [(before, before_type), (member, ty)] = pair else { continue };
            let text = format!("`{name}` has padding before `{}`", member.to_token_stream());
            checks.push(quote_spanned! {ty.span()=>
                ::gpu_std::__private::check_padding(
                    #text,
                    ::core::mem::offset_of!(#own, #member)
                        - ::core::mem::offset_of!(#own, #before)
                        - ::core::mem::size_of::<#before_type>(),
                );
            });
        }
        if let Some((last, ty)) = members.last() {
            let text = format!("`{name}` has padding at its end");
            checks.push(quote_spanned! {name.span()=>
                ::gpu_std::__private::check_padding(
                    #text,
                    ::core::mem::size_of::<#own>()
                        - ::core::mem::offset_of!(#own, #last)
                        - ::core::mem::size_of::<#ty>(),
                );
            });
        }
    }
    if layout == Layout::Tight {
        // The check can only fail if another macro changes the struct after this one.
        let (text, types) = (format!("`{name}` has padding"), members.iter().map(|(_, ty)| ty));
        checks.push(quote_spanned! {name.span()=>
            ::gpu_std::__private::check_padding(
                #text,
                ::core::mem::size_of::<#own>() #(- ::core::mem::size_of::<#types>())*,
            );
        });
    }
    let inside = members
        .iter()
        .map(|(_, ty)| quote_spanned!(ty.span()=> || <#ty as ::gpu_std::KernelType>::HAS_PADDING));
    quote!({ #(#checks)* false #(#inside)* })
}

/// Emits the signature of a struct, by which host and GPU code are compared. The signature is computed from the name of
/// the struct and the names and signatures of its fields.
fn signature(input: &DeriveInput, fields: &Fields) -> TokenStream {
    let name = input.ident.to_string();
    let parts = fields.iter().enumerate().map(|(index, field)| {
        let (ty, label) = (&field.ty, field.ident.as_ref().map_or(index.to_string(), Ident::to_string));
        quote!(::gpu_std::__private::signature(#label, &[<#ty as ::gpu_std::KernelValue>::SIGNATURE]))
    });
    quote!(const SIGNATURE: u32 = ::gpu_std::__private::signature(#name, &[#(#parts),*]);)
}

/// Emits `KernelValue` and `KernelEnum` implementations for an enum.
fn enumeration(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream> {
    let name = &input.ident;
    if let Some(variant) = data.variants.iter().find(|variant| !variant.fields.is_empty()) {
        return Err(Error::new_spanned(
            variant,
            "a kernel takes only enums without fields: use a struct that contains the enum and the fields",
        ));
    }
    let names = representation(input)?;
    let integer = INTEGERS.iter().find(|integer| names.iter().any(|name| name == *integer));
    let Some(integer) = integer else {
        return Err(Error::new(
            name.span(),
            format!(
                "add the type of the discriminant to `{name}`, as in `#[repr(u8)]`: two compilers compile the host \
                 and the GPU code, and without it they may choose different types"
            ),
        ));
    };
    if data.variants.is_empty() {
        return Err(Error::new(
            name.span(),
            "an enum without variants has no values: add a variant, or remove the parameter",
        ));
    }
    let integer = Ident::new(integer, name.span());
    let integer = quote!(::core::primitive::#integer);
    let variants: Vec<&Ident> = data.variants.iter().map(|variant| &variant.ident).collect();
    let (label, labels) = (name.to_string(), variants.iter().map(|variant| variant.to_string()));
    let signature = quote! {
        const SIGNATURE: u32 = ::gpu_std::__private::signature(#label, &[
            <#integer as ::gpu_std::KernelValue>::SIGNATURE,
            #(::gpu_std::__private::signature(
                #labels,
                &[Self::#variants as u64 as u32, (Self::#variants as u64 >> 32) as u32],
            )),*
        ]);
    };
    let of_value =
        implement(input, &Fields::Unit, "KernelValue", &quote!(::gpu_std::KernelValue), &signature);
    let content = quote! {
        type Bits = #integer;

        #[inline(always)]
        fn is_valid(bits: #integer) -> bool {
            false #(|| bits == Self::#variants as #integer)*
        }
    };
    let of_enum =
        implement(input, &Fields::Unit, "KernelValue", &quote!(::gpu_std::checked::KernelEnum), &content);
    Ok(quote!(#of_value #of_enum))
}
