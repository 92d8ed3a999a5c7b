//! `bytes = …`: what a launch moves, computed by the host from the launch's arguments.
//!
//! In the expression a value or pointer is itself, and a slice or view is a `gpu_std::Shape`: the host cannot read its
//! elements. Generic parameters are those of the instance.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::Kernel;
use super::forms::{Form, forms};
use super::instances::{Argument, Instance};
use super::limits;
use super::params::Kind;

/// The field of the spec, and the function that it holds.
pub(crate) fn bytes(kernel: &Kernel, instance: &Instance) -> [TokenStream; 2] {
    let Some(expr) = &kernel.options.bytes else {
        return [quote!(::core::option::Option::None), TokenStream::new()];
    };
    let mut slot = 0usize;
    let mut arguments = Vec::new();
    for (Form { element, kind, ty, slots, .. }, param) in
        forms(kernel, instance).into_iter().zip(&kernel.params)
    {
        let (position, name) = (Literal::usize_unsuffixed(slot), &param.name);
        slot += slots;
        let value = match param.kind {
            Kind::Shared(_) | Kind::TensorMap(_) => continue,
            Kind::Value | Kind::Pointer | Kind::PointerMut => quote!(read_argument::<#ty>(__args, #position)),
            _ if param.is_optional => {
                quote!(read_optional_shape::<#element>(__args, #position, ::gpu_std::ParamKind::#kind))
            }
            _ => quote!(read_shape::<#element>(__args, #position, ::gpu_std::ParamKind::#kind)),
        };
        arguments.push(quote! {
            // SAFETY: the function is called as an `unsafe fn` alone, with one pointer for each machine parameter.
            let #name = unsafe { ::gpu_std::__private::#value };
        });
    }
    let types = instance.0.iter().filter_map(|argument| match argument {
        Argument::Type { parameter, ty, .. } => Some(quote!(type #parameter = #ty;)),
        Argument::Const { .. } => None,
    });
    let constants = limits::constants(kernel, instance);
    let function = quote! {
        #[allow(dead_code, unused_variables, unused_parens, non_camel_case_types, non_upper_case_globals, clippy::all)]
        fn __bytes(__args: *const *const ::core::ffi::c_void) -> u64 {
            #(#types)*
            #constants
            #(#arguments)*
            (#expr) as u64
        }
    };
    [quote!(::core::option::Option::Some(__bytes)), function]
}
