//! `bytes = …`: the number of bytes that a launch transfers, which the host computes from the launch arguments.
//!
//! In the expression, values and pointers are used as they are. A slice or view is represented by a `gpu_std::Shape`,
//! because the host cannot read its elements. Generic parameters have the values of the instance.
//!
//! The expression is emitted in a separate, safe function. Like all expressions in the attribute, it can name the items
//! that the macro emits. Therefore, each of these items must be `unsafe` to use, or harmless.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::Kernel;
use super::forms::{Form, forms};
use super::instances::{Argument, Instance};
use super::limits;
use super::params::Kind;

/// Emits the spec's `bytes` field, and the function to which the field refers.
pub(crate) fn bytes(kernel: &Kernel, instance: &Instance) -> [TokenStream; 2] {
    let Some(expr) = &kernel.options.bytes else {
        return [quote!(::core::option::Option::None), TokenStream::new()];
    };
    let mut slot = 0usize;
    let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
    for (Form { element, kind, ty, slots, .. }, param) in
        forms(kernel, instance).into_iter().zip(&kernel.params)
    {
        let (position, name) = (Literal::usize_unsuffixed(slot), &param.name);
        slot += slots;
        let value = match param.kind {
            Kind::Shared(_) | Kind::TensorMap(_) => continue,
            Kind::Value | Kind::Pointer | Kind::PointerMut => quote!(read_argument::<#ty>(args, #position)),
            _ if param.is_optional => {
                quote!(read_optional_shape::<#element>(args, #position, ::gpu_std::ParamKind::#kind))
            }
            _ => quote!(read_shape::<#element>(args, #position, ::gpu_std::ParamKind::#kind)),
        };
        let shown = match param.kind {
            Kind::Value | Kind::Pointer | Kind::PointerMut => ty,
            _ if param.is_optional => quote!(::core::option::Option<::gpu_std::Shape>),
            _ => quote!(::gpu_std::Shape),
        };
        parameters.push(quote!(#name: #shown));
        arguments.push(quote!(::gpu_std::__private::#value));
    }
    let types = instance.0.iter().filter_map(|argument| match argument {
        Argument::Type { parameter, ty, .. } => Some(quote!(type #parameter = #ty;)),
        Argument::Const { .. } => None,
    });
    let constants = limits::constants(kernel, instance);
    let function = quote! {
        #[allow(dead_code, unused_variables, unused_parens, non_camel_case_types, non_upper_case_globals, clippy::all)]
        unsafe fn __bytes(args: *const *const ::core::ffi::c_void) -> u64 {
            fn moved(#(#parameters),*) -> u64 {
                #(#types)*
                #constants
                (#expr) as u64
            }
            // SAFETY: the caller passes one pointer for each kernel parameter.
            moved(#(unsafe { #arguments }),*)
        }
    };
    [quote!(::core::option::Option::Some(__bytes)), function]
}
