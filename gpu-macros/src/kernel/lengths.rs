//! `same_len(x, y)`: lengths that must agree in a launch. The host checks them before the launch. The host also checks
//! that the length of each `SlicePlanes` is a multiple of its number of planes.

use proc_macro2::{Literal, TokenStream};
use quote::quote;
use syn::Ident;

use super::forms::{Form, forms, planes_of};
use super::instances::Instance;
use super::params::{Kind, Param};
use super::{Errors, Kernel};

/// The name that represents the launch in a list of names.
const LAUNCH: &str = "launch";

/// Returns whether a parameter has a length.
fn has_length(param: &Param) -> bool {
    use Kind::{Planes, Slice, SliceMut, View, ViewMut};
    matches!(param.kind, Slice | Planes(_) | SliceMut(_) | View(_) | ViewMut(..))
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
    let mut slot = 0usize;
    let (mut lengths, mut planes) = (Vec::new(), Vec::new());
    for (index, (Form { element, kind, ty, slots, .. }, param)) in
        forms(kernel, instance).into_iter().zip(&kernel.params).enumerate()
    {
        let position = Literal::usize_unsuffixed(slot);
        slot += slots;
        if !has_length(param) {
            continue;
        }
        let count = match &param.kind {
            Kind::Planes(_) => Some(planes_of(instance, param, index)),
            Kind::SliceMut(Some(_)) => Some(quote!(<#ty as ::gpu_std::disjoint::MutableView>::PLANES)),
            _ => None,
        };
        planes.extend(count.clone());
        let count = count.unwrap_or(quote!(1));
        let label = param.name.to_string();
        let is_optional = param.is_optional;
        let length = quote! {
            ::gpu_std::__private::length::<#element>(
                args, #position, ::gpu_std::ParamKind::#kind, (#label, #count), #is_optional,
            )?
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
    let all = lengths.iter().map(|(_, length)| length);
    let function = quote! {
        #[allow(dead_code, unused_variables)]
        unsafe fn __lengths(
            args: *const *const ::core::ffi::c_void,
            extent: ::core::option::Option<[u64; 3]>,
        ) -> ::core::result::Result<(), ::gpu_std::__private::WrongLength> {
            // SAFETY: the caller passes one pointer for each kernel parameter.
            unsafe {
                #(let _ = #all;)*
                #(::gpu_std::__private::Length::all_agree(#groups)?;)*
            }
            ::core::result::Result::Ok(())
        }
    };
    let (some, none) =
        (quote!(::core::option::Option::Some(__lengths)), quote!(::core::option::Option::None));
    match (kernel.options.same_len.is_empty(), planes.is_empty()) {
        (false, _) => [some, function],
        (true, true) => [none, TokenStream::new()],
        (true, false) => [quote!(if #(#planes > 1)||* { #some } else { #none }), function],
    }
}
