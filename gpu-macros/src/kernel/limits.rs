//! Launch limits of a kernel: `launch_bounds`, `block` and `cluster`.
//!
//! The numbers can be constants, which only the compilers can evaluate. The macro therefore emits a constant
//! `__LIMITS`. The host reads this constant directly, and the builder reads it as the bytes of a static.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, GenericParam};

use super::Kernel;
use super::instances::{Argument, Instance};

/// Emits the `const __LIMITS` of an instance. The numbers in it can use the instance's constants.
pub(crate) fn constant(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let options = &kernel.options;
    let number = |expr: &Expr| quote_spanned!(expr.span()=> (#expr) as u64);
    let sides = |sides: &Option<Vec<Expr>>| {
        let Some(sides) = sides else { return quote!([0, 0, 0]) };
        let ones = std::iter::repeat_n(quote!(1), 3 - sides.len());
        let sides = sides.iter().map(number).chain(ones);
        quote!([#(#sides),*])
    };
    let (max_threads, min_blocks) = match &options.launch_bounds {
        None => (quote!(0), quote!(0)),
        Some((threads, None)) => (number(threads), quote!(0)),
        Some((threads, Some(blocks))) => (number(threads), number(blocks)),
    };
    let constants = constants(kernel, instance);
    let (block, cluster) = (sides(&options.block), sides(&options.cluster));
    let bounded = options.launch_bounds.is_some();
    quote! {
        #[allow(dead_code, unused_parens, non_upper_case_globals, clippy::all)]
        const __LIMITS: ::gpu_std::__private::LaunchLimits = {
            #constants
            ::gpu_std::__private::LaunchLimits::new(#bounded, #max_threads, #min_blocks, #block, #cluster)
        };
    }
}

/// Emits one constant per const parameter.
pub(crate) fn constants(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let generics = &kernel.function.sig.generics;
    let of = |argument: &Argument| {
        let Argument::Const { parameter, value } = argument else { return None };
        let ty = generics.params.iter().find_map(|generic| match generic {
            GenericParam::Const(constant) if constant.ident == *parameter => Some(&constant.ty),
            _ => None,
        })?;
        let expr = &value.expr;
        Some(quote!(const #parameter: #ty = #expr;))
    };
    instance.0.iter().filter_map(of).collect()
}

/// Emits the static from which the builder reads the limits (see `gpu_spec::LaunchLimits`). Returns `None` if the
/// kernel has no limits.
pub(crate) fn record(kernel: &Kernel, symbol: &str) -> Option<TokenStream> {
    if !is_limited(kernel) {
        return None;
    }
    let symbol = format!("{}{symbol}", gpu_spec::LaunchLimits::PREFIX);
    Some(quote! {
        // SAFETY: the symbol consists of the entry's symbol, which is unique, and a prefix that no Rust name has.
        #[unsafe(export_name = #symbol)]
        static __RECORD: ::gpu_std::__private::LaunchLimits = __LIMITS;
    })
}

fn is_limited(kernel: &Kernel) -> bool {
    let options = &kernel.options;
    options.launch_bounds.is_some() || options.block.is_some() || options.cluster.is_some()
}
