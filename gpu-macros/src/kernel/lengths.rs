//! `same_len(x, y)`: lengths that must agree in a launch. The host checks them before the launch.

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::Ident;

use super::forms::{Form, forms};
use super::instances::Instance;
use super::params::{Kind, Param};
use super::{Errors, Kernel};

/// The name that represents the launch in a list of names.
const LAUNCH: &str = "launch";

/// Returns whether a parameter has a length.
fn has_length(param: &Param) -> bool {
    matches!(param.kind, Kind::Slice | Kind::SliceMut(_) | Kind::View(_) | Kind::ViewMut(..))
}

/// Checks that every name refers to a slice or view, or to the launch.
pub(crate) fn check_names(groups: &[Vec<Ident>], params: &[Param], errors: &mut Errors) {
    for name in groups.iter().flatten() {
        match params.iter().find(|param| param.name == *name) {
            Some(param) if has_length(param) => {}
            Some(_) => errors.push(name, format!("`{name}` has no length: name a slice or a view")),
            None if name == LAUNCH => {}
            None => errors.push(
                name,
                format!("the kernel has no parameter `{name}`: name slices and views, or `{LAUNCH}` for its threads"),
            ),
        }
    }
}

/// Emits the spec's `lengths` field, and the function to which the field refers.
pub(crate) fn lengths(kernel: &Kernel, instance: &Instance) -> [TokenStream; 2] {
    if kernel.options.same_len.is_empty() {
        return [quote!(::core::option::Option::None), TokenStream::new()];
    }
    let mut slot = 0usize;
    let mut lengths = Vec::new();
    for (Form { element, kind, slots, .. }, param) in forms(kernel, instance).into_iter().zip(&kernel.params)
    {
        let position = Literal::usize_unsuffixed(slot);
        slot += slots;
        if !has_length(param) {
            continue;
        }
        let label = param.name.to_string();
        let is_optional = param.is_optional;
        let length = quote! {
            ::gpu_std::__private::length::<#element>(
                args, #position, ::gpu_std::ParamKind::#kind, #label, #is_optional,
            )
        };
        lengths.push((&param.name, length));
    }
    let claimed: Vec<_> = kernel.params.iter().filter(|param| param.is_claimed()).collect();
    let groups = kernel.options.same_len.iter().map(|group| {
        // A launch counts elements of the group's mutable views or, without one, of all mutable views.
        let mut of_group: Vec<_> =
            (0..claimed.len()).filter(|view| group.contains(&claimed[*view].name)).collect();
        if of_group.is_empty() {
            of_group = (0..claimed.len()).collect();
        }
        let group = group.iter().map(|name| match lengths.iter().find(|(known, _)| *known == name) {
            Some((_, length)) => length.clone(),
            None => quote!(::gpu_std::__private::launch_length(
                extent,
                ::gpu_std::__private::items(&[#(__CLAIMED[#of_group].2),*]),
            )),
        });
        quote!(&[#(#group),*])
    });
    let function = quote! {
        #[allow(unused_variables)]
        unsafe fn __lengths(
            args: *const *const ::core::ffi::c_void,
            extent: ::core::option::Option<[u64; 3]>,
        ) -> ::core::result::Result<(), ::gpu_std::__private::WrongLength> {
            // SAFETY: the caller passes one pointer for each kernel parameter.
            unsafe {
                #(::gpu_std::__private::Length::all_agree(#groups)?;)*
            }
            ::core::result::Result::Ok(())
        }
    };
    [quote!(::core::option::Option::Some(__lengths)), function]
}
