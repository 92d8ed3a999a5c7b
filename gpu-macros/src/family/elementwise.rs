//! `#[elementwise]`: generates a kernel over arrays from a scalar function.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, FnArg, Ident, ItemFn, Result, Token, parenthesized, parse_quote};

use super::{Family, OfTypes, add_constants, callee, function, inlined, options, output, parameters};
use crate::kernel;

/// Maximum number of input arrays.
const MAX: usize = 4;

/// Expands `#[elementwise(options)] item`.
pub(crate) fn expand(tokens: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let element = function("elementwise", item)?;
    let params = parameters("elementwise", &element)?;
    let output = output(&element, "an elementwise function must return the output element: add `-> T`")?;
    let (mut scalars, mut updates): (Vec<Ident>, Option<Ident>) = (Vec::new(), None);
    let mut options = options("elementwise", "scalars(a, b), updates(y)", tokens, |name, input| {
        if name != "scalars" && name != "updates" {
            return Ok(false);
        }
        let content;
        parenthesized!(content in input);
        let names: Vec<Ident> =
            Punctuated::<Ident, Token![,]>::parse_terminated(&content)?.into_iter().collect();
        match (name == "scalars", &names[..]) {
            (true, _) => scalars = names,
            (false, [name]) => updates = Some(name.clone()),
            _ => {
                return Err(Error::new(name.span(), "`updates` takes exactly one array: write `updates(y)`"));
            }
        }
        Ok(true)
    })?;
    for named in scalars.iter().chain(&updates) {
        if !params.iter().any(|(name, _)| name == named) {
            return Err(Error::new(named.span(), format!("the function has no parameter `{named}`")));
        }
    }
    let is_scalar = |name: &Ident| scalars.contains(name);
    if let Some(updated) = &updates {
        let is_last = params.last().is_some_and(|(name, _)| name == updated) && !is_scalar(updated);
        if !is_last {
            let message =
                "the updated array must be the last parameter, and cannot be a scalar: move it there";
            return Err(Error::new(updated.span(), message));
        }
    }
    let arrays: Vec<&Ident> = params.iter().map(|(name, _)| name).filter(|name| !is_scalar(name)).collect();
    if arrays.len() > MAX {
        let message = format!("an elementwise kernel can read at most {MAX} arrays");
        return Err(Error::new(arrays[MAX].span(), message));
    }

    let mut signature = element.sig.clone();
    add_constants(&mut signature.generics, &mut options, &[1, 4], &[16])?;
    options.launch_bounds.get_or_insert((parse_quote!(512), None));
    let out = match &updates {
        Some(updated) => updated.clone(),
        None if params.iter().any(|(name, _)| name == "out") => format_ident!("output"),
        None => format_ident!("out"),
    };
    let is_updated = |name: &Ident| updates.as_ref() == Some(name);
    signature.inputs = params
        .iter()
        .filter(|(name, _)| !is_updated(name))
        .map(|(name, ty)| -> FnArg {
            if is_scalar(name) { parse_quote!(#name: #ty) } else { parse_quote!(#name: &[#ty]) }
        })
        .collect();
    signature.inputs.push(parse_quote!(mut #out: ::gpu_std::DisjointMut<#output>));
    signature.output = syn::ReturnType::Default;

    let read: Vec<&&Ident> = arrays.iter().filter(|name| !is_updated(name)).collect();
    let bytes: Vec<TokenStream> = read.iter().map(|name| quote!(#name.bytes())).collect();
    let written = if updates.is_some() { quote!(2 * #out.bytes()) } else { quote!(#out.bytes()) };
    let bytes: Expr = syn::parse2(quote!(#(#bytes +)* #written))?;
    options.bytes.get_or_insert(bytes);

    let sources = arrays
        .iter()
        .map(|name| if is_updated(name) { quote!(__out.cast_const()) } else { quote!(#name.as_ptr()) });
    let (callee, names) = (callee(&element), params.iter().map(|(name, _)| name));
    let vis = &element.vis;
    let documentation: Vec<&Attribute> =
        element.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
    let kernel: ItemFn = parse_quote! {
        #(#documentation)*
        #vis #signature {
            let __len = #out.len();
            #(let __len = if #read.len() < __len { #read.len() } else { __len };)*
            let __out = #out.as_mut_ptr();
            // SAFETY: all arrays are valid for `__len` elements. The disjoint view overlaps no other array. All threads
            // of the launch make this call with the kernel's arguments. `Elementwise` elements have no other safety
            // conditions.
            unsafe {
                ::gpu_std::elementwise::map::<ITEMS, VECTOR, _, _>(
                    (#(#sources,)*),
                    __out,
                    __len,
                    |(#(#arrays,)*)| #callee(#(#names),*),
                )
            }
        }
    };
    let family = Family { function: inlined(&element), helpers: TokenStream::new(), of_host };
    kernel::write(kernel, options, Some(family))
}

/// Emits an `Elementwise` implementation for each list of types.
fn of_host(name: &Ident, groups: &[OfTypes]) -> TokenStream {
    let impls = groups.iter().map(|OfTypes { types, variants, instance }| {
        quote! {
            // SAFETY: the instances are safe kernels that apply the function to each element of all slices.
            #[cfg(not(target_arch = "nvptx64"))]
            unsafe impl ::gpu_std::elementwise::Elementwise for #name<#(#types,)* 0, 0> {
                type Params = <#instance as ::gpu_std::Kernel>::Params;
                const VARIANTS: &'static [::gpu_std::family::Variant] = &[#(#variants),*];
            }
        }
    });
    quote!(#(#impls)*)
}
