//! `#[reduction]`: generates a reduction kernel from an associative operator.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Attribute, Error, Expr, ExprClosure, Ident, ItemFn, Pat, Result, ReturnType, Safety, Token, Type,
    parse_quote,
};

use super::{Family, OfTypes, add_constants, callee, function, inlined, options, output, parameters};
use crate::kernel;
use crate::kernel::emit::{bounded_generics, plain_generics};

/// Expands `#[reduction(options)] item`.
pub(crate) fn expand(tokens: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let operator = function("reduction", item)?;
    let params = parameters("reduction", &operator)?;
    let partial = output(&operator, "an operator must return the combined value: add `-> T`")?;
    let is_partial = |ty: &Type| ty.to_token_stream().to_string() == partial.to_token_stream().to_string();
    let is_operator = matches!(&params[..], [(_, a), (_, b)] if is_partial(a) && is_partial(b));
    if !is_operator {
        let message = "an operator must combine two values of one type into a value of that type: `fn(a: T, b: T) -> \
                       T`";
        return Err(Error::new_spanned(&operator.sig, message));
    }
    let (mut identity, mut fold, mut finish): (Option<Expr>, Option<ExprClosure>, Option<ExprClosure>) =
        (None, None, None);
    let names = "identity = value, fold = |value, x: X| …, finish = |value| -> R { … }";
    let mut options = options("reduction", names, tokens, |name, input| {
        let closure = || -> Result<ExprClosure> {
            input.parse::<Token![=]>()?;
            input.parse()
        };
        match name.to_string().as_str() {
            "fold" => fold = Some(closure()?),
            "finish" => finish = Some(closure()?),
            "identity" => {
                input.parse::<Token![=]>()?;
                identity = Some(input.parse()?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let Some(identity) = identity else {
        let message = "the identity is missing: add `#[reduction(identity = value)]`; the operator with the identity \
                       and any other value must return the other value";
        return Err(Error::new_spanned(&operator.sig.ident, message));
    };
    let (item, folding) = folding(fold, &partial, &operator)?;
    let (result, finishing) = finishing(finish, &partial)?;

    let mut signature = operator.sig.clone();
    let (declared, _) = plain_generics(&operator.sig.generics);
    let (bounded, predicates) = bounded_generics(&operator.sig.generics);
    let (_, used) = plain_generics(&operator.sig.generics);
    let parameters = operator.sig.generics.type_params().map(|parameter| &parameter.ident);
    add_constants(&mut signature.generics, &mut options, &[4], &[16])?;
    options.launch_bounds.get_or_insert((parse_quote!(512), Some(parse_quote!(1))));
    options.bytes.get_or_insert(parse_quote!(input.bytes()));
    signature.safety = Safety::Unsafe(Default::default());
    signature.inputs = parse_quote!(input: &[#item], workspace: *mut u64, result: *mut #result);
    signature.output = ReturnType::Default;

    let (vis, callee) = (&operator.vis, callee(&operator));
    let helpers = quote! {
        #vis struct __Operator<#(#declared),*>(::core::marker::PhantomData<(#(#parameters,)*)>);
        impl<#(#bounded),*> ::gpu_std::reduction::Reduction for __Operator<#(#used),*>
        where #(#predicates,)*
        {
            type Item = #item;
            type Partial = #partial;
            type Output = #result;

            #[inline(always)]
            fn identity() -> #partial {
                #identity
            }
            #[inline(always)]
            fn fold(__partial: #partial, __value: #item, __index: u64) -> #partial {
                #folding
            }
            #[inline(always)]
            fn combine(__a: #partial, __b: #partial) -> #partial {
                #callee(__a, __b)
            }
            #[inline(always)]
            fn finish(__partial: #partial) -> #result {
                #finishing
            }
        }
    };
    let documentation: Vec<&Attribute> =
        operator.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
    let kernel: ItemFn = parse_quote! {
        #(#documentation)*
        #vis #signature {
            // SAFETY: the kernel has the same safety contract as the called function.
            unsafe {
                ::gpu_std::reduction::reduce_into::<__Operator<#(#used),*>, ITEMS, VECTOR>(input, workspace, result)
            }
        }
    };
    let family = Family { function: inlined(&operator), helpers, of_host };
    kernel::write(kernel, options, Some(family))
}

/// Returns the type of an element, and the code that accumulates one element.
fn folding(fold: Option<ExprClosure>, partial: &Type, operator: &ItemFn) -> Result<(Type, TokenStream)> {
    let Some(fold) = fold else {
        let callee = callee(operator);
        return Ok((partial.clone(), quote!(#callee(__partial, __value))));
    };
    let form = "the closure must take the accumulator, a typed element and, if needed, the element's index: `fold = \
                |sum, x: f32| …`, `fold = |best, x: f32, index| …`";
    let inputs: Vec<&Pat> = fold.inputs.iter().collect();
    let (value, element, index) = match &inputs[..] {
        [value, element] => (value, element, None),
        [value, element, index] => (value, element, Some(index)),
        _ => return Err(Error::new_spanned(&fold, form)),
    };
    let Pat::Type(element) = element else { return Err(Error::new_spanned(element, form)) };
    let index = index.map(|index| quote!(let #index = __index;));
    let body = statements(&fold.body);
    let item = (*element.ty).clone();
    Ok((item, quote!(let #value = __partial; let #element = __value; #index #body)))
}

/// Returns the type of the result, and the code that converts the final value to this type.
fn finishing(finish: Option<ExprClosure>, partial: &Type) -> Result<(Type, TokenStream)> {
    let Some(finish) = finish else { return Ok((partial.clone(), quote!(__partial))) };
    let form = "the closure must take the accumulator and declare the result type: `finish = |best| -> u64 { \
                best.index }`";
    let (ReturnType::Type(_, result), Some(value), 1) =
        (&finish.output, finish.inputs.first(), finish.inputs.len())
    else {
        return Err(Error::new_spanned(&finish, form));
    };
    let body = statements(&finish.body);
    Ok(((**result).clone(), quote!(let #value = __partial; #body)))
}

/// Returns a closure's body as a function body.
fn statements(body: &Expr) -> TokenStream {
    match body {
        Expr::Block(block) if block.label.is_none() && block.attrs.is_empty() => {
            let statements = &block.block.stmts;
            quote!(#(#statements)*)
        }
        other => quote!(#other),
    }
}

/// Emits a `Reduce` implementation for each list of types.
fn of_host(name: &Ident, groups: &[OfTypes]) -> TokenStream {
    let impls = groups.iter().map(|OfTypes { types, variants, .. }| {
        quote! {
            // SAFETY: the instances reduce with this operator.
            #[cfg(not(target_arch = "nvptx64"))]
            unsafe impl ::gpu_std::reduction::Reduce for #name<#(#types,)* 0, 0> {
                type Operator = __Operator<#(#types),*>;
                const VARIANTS: &'static [::gpu_std::family::Variant] = &[#(#variants),*];
            }
        }
    });
    quote!(#(#impls)*)
}
