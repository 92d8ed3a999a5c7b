//! `#[scan]`: generates a scan kernel from an associative operator.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Error, Expr, Ident, ItemFn, Result, ReturnType, Safety, Token, Type, parse_quote};

use super::{Family, OfTypes, add_constants, callee, function, inlined, options, output, parameters};
use crate::kernel;
use crate::kernel::emit::{bounded_generics, plain_generics};

/// Expands `#[scan(options)] item`.
pub(crate) fn expand(tokens: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let operator = function("scan", item)?;
    let params = parameters("scan", &operator)?;
    let value = output(&operator, "an operator must return the combined value: add `-> T`")?;
    let is_value = |ty: &Type| ty.to_token_stream().to_string() == value.to_token_stream().to_string();
    let is_operator = matches!(&params[..], [(_, a), (_, b)] if is_value(a) && is_value(b));
    if !is_operator {
        let message = "an operator must combine two values of one type into a value of that type: `fn(a: T, b: T) -> \
                       T`";
        return Err(Error::new_spanned(&operator.sig, message));
    }
    let mut identity: Option<Expr> = None;
    let mut options = options("scan", "identity = value", tokens, |name, input| {
        if name != "identity" {
            return Ok(false);
        }
        input.parse::<Token![=]>()?;
        identity = Some(input.parse()?);
        Ok(true)
    })?;
    let Some(identity) = identity else {
        let message = "the identity is missing: add `#[scan(identity = value)]`; the operator with the identity and \
                       any other value must return the other value";
        return Err(Error::new_spanned(&operator.sig.ident, message));
    };

    let mut signature = operator.sig.clone();
    let (declared, used) = plain_generics(&operator.sig.generics);
    let (bounded, predicates) = bounded_generics(&operator.sig.generics);
    let parameters = operator.sig.generics.type_params().map(|parameter| &parameter.ident);
    add_constants(&mut signature.generics, &mut options, &[5], &[16])?;
    let (all_declared, all_used) = plain_generics(&signature.generics);
    let threads = options.launch_bounds.get_or_insert((parse_quote!(256), Some(parse_quote!(2)))).0.clone();
    options.bytes.get_or_insert(parse_quote!(x.bytes() + out.bytes()));
    signature.safety = Safety::Unsafe(Default::default());
    signature.inputs = parse_quote! {
        exclusive: bool,
        initial: #value,
        x: &[#value],
        workspace: *mut u64,
        workspace_len: usize,
        out: ::gpu_std::DisjointMut<#value, ::gpu_std::disjoint::Unclaimed>
    };
    signature.output = ReturnType::Default;

    let (vis, callee) = (&operator.vis, callee(&operator));
    let helpers = quote! {
        #vis struct __Operator<#(#declared),*>(::core::marker::PhantomData<(#(#parameters,)*)>);
        impl<#(#bounded),*> ::gpu_std::scan::Operation for __Operator<#(#used),*>
        where #(#predicates,)*
        {
            type Item = #value;
            type Value = #value;
            type Output = #value;

            #[inline(always)]
            fn absent() -> #value {
                #identity
            }
            #[inline(always)]
            fn identity() -> #value {
                #identity
            }
            #[inline(always)]
            fn value(__item: #value) -> #value {
                __item
            }
            #[inline(always)]
            fn combine(__a: #value, __b: #value) -> #value {
                #callee(__a, __b)
            }
            #[inline(always)]
            fn output(__value: #value) -> #value {
                __value
            }
        }
    };
    let documentation: Vec<&Attribute> =
        operator.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
    let kernel: ItemFn = parse_quote! {
        #(#documentation)*
        #vis #signature {
            // The check is a separate function so that the expression cannot contain unsafe operations.
            fn check<#(#all_declared),*>() {
                const { ::core::assert!(#threads <= 256, "a block of a scan can have at most 256 threads") };
            }
            check::<#(#all_used),*>();
            // SAFETY: the kernel has the same safety contract as the called function, and the assertion holds.
            unsafe {
                ::gpu_std::scan::scan_slice::<__Operator<#(#used),*>, ITEMS, VECTOR>(
                    exclusive, initial, x, (workspace, workspace_len), out,
                )
            }
        }
    };
    let family = Family { function: inlined(&operator), helpers, of_host };
    kernel::write(kernel, options, Some(family))
}

/// Emits a `Scan` implementation for each list of types.
fn of_host(name: &Ident, groups: &[OfTypes]) -> TokenStream {
    let impls = groups.iter().map(|OfTypes { types, variants, .. }| {
        quote! {
            // SAFETY: the instances scan with this operator.
            #[cfg(not(target_arch = "nvptx64"))]
            unsafe impl ::gpu_std::scan::Scan for #name<#(#types,)* 0, 0> {
                type Operator = __Operator<#(#types),*>;
                const VARIANTS: &'static [::gpu_std::family::Variant] = &[#(#variants),*];
            }
        }
    });
    quote!(#(#impls)*)
}
