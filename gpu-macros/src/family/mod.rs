//! `#[elementwise]`, `#[reduction]` and `#[scan]` generate kernels of a fixed form around a user-written function.
//!
//! Each attribute emits a kernel function, which is processed like any `#[kernel]`. The kernel has two additional
//! generic constants after all others: `ITEMS` and `VECTOR`. The user's function keeps its name, and the kernel's type
//! has the same name.

pub(crate) mod elementwise;
pub(crate) mod reduction;
pub(crate) mod scan;

use proc_macro2::{Literal, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, FnArg, Generics, Ident, ItemFn, Pat, Result, ReturnType, Safety, Token, Type, parse_quote};

use crate::kernel::instances::{Argument, Instance};
use crate::kernel::options::{Const, List, Options};

/// Items that a family emits in addition to the items of a plain `#[kernel]`.
pub(crate) struct Family {
    /// The user's function, which is emitted in place of the kernel's function.
    pub function: TokenStream,
    /// Helper items that the kernel uses.
    pub helpers: TokenStream,
    /// Host-side items that implement traits for the kernel's type.
    pub of_host: fn(&Ident, &[OfTypes]) -> TokenStream,
}

/// Instances that have the same types.
pub(crate) struct OfTypes {
    /// All generic arguments except `ITEMS` and `VECTOR`.
    pub types: Vec<TokenStream>,
    /// One `Variant` per instance.
    pub variants: Vec<TokenStream>,
    /// One of the instances, written as a type.
    pub instance: TokenStream,
}

impl OfTypes {
    /// Groups the instances by their types, in the order in which they are listed.
    pub fn of(name: &Ident, instances: &[Instance]) -> Vec<Self> {
        let mut groups: Vec<(String, Self)> = Vec::new();
        for instance in instances {
            let [types @ .., items, vector] = &instance.0[..] else { continue };
            let types: Vec<TokenStream> = types.iter().map(Argument::tokens).collect();
            let key = quote!(#(#types),*).to_string();
            let number = |argument: &Argument| match argument {
                Argument::Const { value, .. } => Literal::i64_unsuffixed(value.value),
                Argument::Type { .. } => Literal::i64_unsuffixed(0),
            };
            let (items, vector) = (number(items), number(vector));
            let own = quote!(#name<#(#types,)* #items, #vector>);
            let variant = quote! {
                ::gpu_std::family::Variant {
                    items: #items,
                    vector: #vector,
                    spec: <#own as ::gpu_std::Kernel>::spec,
                }
            };
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.variants.push(variant),
                None => groups.push((key, Self { types, variants: vec![variant], instance: own })),
            }
        }
        groups.into_iter().map(|(_, group)| group).collect()
    }
}

/// Options that all families support. The options have the same meaning as in `#[kernel]`.
const SHARED: [&str; 6] = ["types", "consts", "launch_bounds", "arch", "no_panic", "crate"];

/// Reads a family's options. `own` reads a family-specific option, and returns whether it recognized the option. The
/// kernel's parser reads all other options.
fn options(
    attribute: &str,
    names: &str,
    tokens: TokenStream,
    mut own: impl FnMut(&Ident, ParseStream) -> Result<bool>,
) -> Result<Options> {
    let mut rest = TokenStream::new();
    let parse = |input: ParseStream| {
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            if !own(&name, input)? {
                if !SHARED.iter().any(|known| name == known) {
                    let message = format!(
                        "`#[{attribute}]` has no option `{name}`: the options are {names}, types(T = f32, f64), \
                         consts(ITEMS = 1, 4; VECTOR = 16), launch_bounds(max_threads, min_blocks), arch = 90 and \
                         no_panic"
                    );
                    return Err(Error::new(name.span(), message));
                }
                rest.extend(quote!(#name));
                while !input.is_empty() && !input.peek(Token![,]) {
                    rest.extend([input.parse::<TokenTree>()?]);
                }
                rest.extend(quote!(,));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    };
    parse.parse2(tokens)?;
    syn::parse2(rest)
}

/// Adds the constants `ITEMS` and `VECTOR` to the generic parameters, with default values if the attribute does not
/// list any.
fn add_constants(
    generics: &mut Generics,
    options: &mut Options,
    items: &[i64],
    vectors: &[i64],
) -> Result<()> {
    for (name, values) in [("ITEMS", items), ("VECTOR", vectors)] {
        if let Some(taken) = generics.params.iter().find_map(|parameter| match parameter {
            syn::GenericParam::Type(ty) if ty.ident == name => Some(&ty.ident),
            syn::GenericParam::Const(constant) if constant.ident == name => Some(&constant.ident),
            _ => None,
        }) {
            return Err(Error::new(
                taken.span(),
                format!("the generated kernel already has a constant `{name}`: rename this one"),
            ));
        }
        let ident = Ident::new(name, proc_macro2::Span::call_site());
        generics.params.push(parse_quote!(const #ident: usize));
        if !options.consts.iter().any(|list| list.parameter == ident) {
            let value = |value: &i64| {
                let literal = Literal::i64_unsuffixed(*value);
                Const { expr: parse_quote!(#literal), value: *value }
            };
            options.consts.push(List { parameter: ident, values: values.iter().map(value).collect() });
        }
    }
    for list in options.consts.iter().filter(|list| list.parameter == "VECTOR") {
        if let Some(wrong) = list.values.iter().find(|value| ![1, 2, 4, 8, 16].contains(&value.value)) {
            return Err(Error::new_spanned(&wrong.expr, "an access must have 1, 2, 4, 8 or 16 bytes"));
        }
    }
    for list in options.consts.iter().filter(|list| list.parameter == "ITEMS") {
        if let Some(wrong) = list.values.iter().find(|value| !(1..=16).contains(&value.value)) {
            return Err(Error::new_spanned(&wrong.expr, "a thread can have 1 to 16 accesses in flight"));
        }
    }
    Ok(())
}

/// Parses the function to which `#[attribute]` is applied.
fn function(attribute: &str, item: TokenStream) -> Result<ItemFn> {
    let function: ItemFn = syn::parse2(item.clone()).map_err(|error| {
        let is_function = item.into_iter().any(|token| token.to_string() == "fn");
        if is_function {
            error
        } else {
            Error::new(error.span(), format!("#[{attribute}] must be applied to a function"))
        }
    })?;
    let sig = &function.sig;
    if let Safety::Unsafe(token) = &sig.safety {
        return Err(Error::new_spanned(token, "the kernel is launched from safe code: remove `unsafe`"));
    }
    if let Some(token) = &sig.asyncness {
        return Err(Error::new_spanned(token, "a kernel cannot be async: remove `async`"));
    }
    if let Some(lifetime) = sig.generics.lifetimes().next() {
        return Err(Error::new_spanned(
            lifetime,
            "the function takes elements by value: remove the lifetime",
        ));
    }
    if let Some(attribute) =
        function.attrs.iter().find(|known| known.path().is_ident("cfg") || known.path().is_ident("cfg_attr"))
    {
        return Err(Error::new_spanned(attribute, "put this attribute above the kernel attribute"));
    }
    Ok(function)
}

/// Returns the parameters of an element function, which must be passed by value.
fn parameters(attribute: &str, function: &ItemFn) -> Result<Vec<(Ident, Type)>> {
    let of = |parameter: &FnArg| match parameter {
        FnArg::Typed(typed) => match (&*typed.pat, &*typed.ty) {
            (_, Type::Reference(reference)) => {
                let element = match &*reference.elem {
                    Type::Slice(slice) => slice.elem.to_token_stream(),
                    other => other.to_token_stream(),
                };
                let message =
                    format!("a function with #[{attribute}] takes elements: take `{element}` by value");
                Err(Error::new_spanned(&typed.ty, message))
            }
            (Pat::Ident(name), _) if name.subpat.is_none() && name.by_ref.is_none() => {
                Ok((name.ident.clone(), (*typed.ty).clone()))
            }
            (pattern, _) => Err(Error::new_spanned(
                pattern,
                "the parameters of a kernel must have names: write a name here",
            )),
        },
        FnArg::Receiver(receiver) => {
            Err(Error::new_spanned(receiver, "a kernel must be a free function: move it out of the `impl`"))
        }
    };
    function.sig.inputs.iter().map(of).collect()
}

/// Returns the return type of a function.
fn output(function: &ItemFn, what: &str) -> Result<Type> {
    match &function.sig.output {
        ReturnType::Type(_, ty) => Ok((**ty).clone()),
        ReturnType::Default => Err(Error::new_spanned(&function.sig.ident, what)),
    }
}

/// Emits `name` or `name::<T, U>`, with the generic parameters of the function.
fn callee(function: &ItemFn) -> TokenStream {
    let name = &function.sig.ident;
    let (_, used) = crate::kernel::emit::plain_generics(&function.sig.generics);
    if used.is_empty() { quote!(#name) } else { quote!(#name::<#(#used),*>) }
}

/// Emits the user's function with an added `inline` attribute.
fn inlined(function: &ItemFn) -> TokenStream {
    let inline = (!function.attrs.iter().any(|attribute| attribute.path().is_ident("inline")))
        .then(|| quote!(#[inline(always)]));
    quote!(#inline #function)
}
