//! Representation of a kernel's parameters in each instance.
//!
//! Parameter types can depend on the generic parameters in any way (`T::Accumulator`, `[T; N]`), so the macro cannot
//! substitute generic arguments textually. Instead, a helper trait declares the parameter types as associated types,
//! and is implemented once for all arguments.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::Ident;
use syn::spanned::Spanned;

use super::Kernel;
use super::emit::{bounded_generics, plain_generics};
use super::instances::{Argument, Instance};
use super::params::{Kind, Param};
use super::shared::Ahead;

/// Emits the parameter types of all instances, with the same visibility as the function, because the types in its
/// signature can be as private as the function itself.
pub(crate) fn types(kernel: &Kernel) -> TokenStream {
    let (vis, generics) = (&kernel.function.vis, &kernel.function.sig.generics);
    let (declared, used) = plain_generics(generics);
    let (bounded, predicates) = bounded_generics(generics);
    let parameters = generics.type_params().map(|parameter| &parameter.ident);
    let names: Vec<Ident> = (0..kernel.params.len()).map(element_name).collect();
    let elements = kernel.params.iter().map(|param| &param.element);
    let mapping_names: Vec<Ident> = (0..kernel.params.len()).map(mapping_name).collect();
    let mappings = kernel.params.iter().map(|param| match &param.kind {
        Kind::SliceMut(Some(mapping)) | Kind::ViewMut(_, Some(mapping)) => quote!(#mapping),
        _ => quote!(::gpu_std::disjoint::Elements),
    });
    quote! {
        #vis struct __Types<#(#declared),*>(::core::marker::PhantomData<(#(#parameters,)*)>);
        #vis trait __ParamTypes { #(type #names; type #mapping_names;)* }
        impl<#(#bounded),*> __ParamTypes for __Types<#(#used),*> where #(#predicates,)* {
            #(type #names = #elements; type #mapping_names = #mappings;)*
        }
    }
}

/// Returns the marker of a parameter in `Kernel::Params`, or `None` for an array in static shared memory.
pub(crate) fn marker_of(param: &Param) -> Option<TokenStream> {
    let element = &param.element;
    let marker = match &param.kind {
        Kind::Value => quote!(::gpu_std::param::Value<#element>),
        Kind::Pointer => quote!(::gpu_std::param::Pointer<#element>),
        Kind::PointerMut => quote!(::gpu_std::param::PointerMut<#element>),
        Kind::Slice => {
            quote_spanned!(param.element.span()=> <#element as ::gpu_std::SliceElement>::Param)
        }
        Kind::SliceMut(_) => quote!(::gpu_std::param::SliceMut<#element>),
        Kind::View(dimensions) => {
            let view = format_ident!("{}", if *dimensions == 2 { "Rows" } else { "Planes" });
            quote_spanned! {param.element.span()=>
                <<#element as ::gpu_std::SliceElement>::Param as ::gpu_std::param::SliceMarker>::#view
            }
        }
        Kind::ViewMut(dimensions, _) => {
            let view = format_ident!("SliceMut{dimensions}");
            quote!(::gpu_std::param::#view<#element>)
        }
        Kind::TensorMap(rank) => quote!(::gpu_std::param::TensorMap<#element, #rank>),
        Kind::Shared(array) if array.is_slice => {
            let counted = array.counted(&quote!(#element));
            quote!(::gpu_std::param::Shared<#counted>)
        }
        Kind::Shared(_) => return None,
    };
    Some(if param.is_optional { quote!(::gpu_std::param::Optional<#marker>) } else { marker })
}

fn element_name(index: usize) -> Ident {
    format_ident!("P{index}")
}

fn mapping_name(index: usize) -> Ident {
    format_ident!("M{index}")
}

/// Emits `<__Types<f32, 4> as __ParamTypes>::name` with the span of the parameter's type.
fn projection(instance: &Instance, param: &Param, name: &Ident) -> TokenStream {
    let arguments = instance.0.iter().map(Argument::tokens);
    let at = param.element.span();
    let name = Ident::new(&name.to_string(), at);
    quote_spanned!(at=> <__Types<#(#arguments),*> as __ParamTypes>::#name)
}

/// Representation of one parameter in one instance.
pub(crate) struct Form {
    /// Type of the value, of a slice or view element, or of the array in shared memory. For a shared slice, the type of
    /// its elements.
    pub element: TokenStream,
    /// Variant of `gpu_spec::ParamKind`. The kind is not used for an array in static shared memory.
    pub kind: Ident,
    /// Type of the parameter, with any lifetime.
    pub ty: TokenStream,
    /// Function that compiles only for supported types and returns their signature.
    pub check: Option<TokenStream>,
    /// Kernel parameters (PTX `.param`) of the GPU entry, and the argument that is built from them.
    pub ptx_params: TokenStream,
    pub on_gpu: TokenStream,
    /// Function that reads the argument from the host's kernel parameters. The function reads `slots` of these
    /// parameters. For an array in shared memory, this is the argument itself, rather than a function. An argument in
    /// static shared memory does not use a kernel parameter. An argument in dynamic shared memory uses the array's
    /// length, under the length's name in the GPU entry.
    pub on_host: TokenStream,
    pub slots: usize,
}

pub(crate) fn forms(kernel: &Kernel, instance: &Instance) -> Vec<Form> {
    let mut ahead = Ahead::default();
    let form = |(index, param): (usize, &Param)| form(index, param, instance, &mut ahead);
    kernel.params.iter().enumerate().map(form).collect()
}

/// Returns the name of the kernel parameter that contains a length.
pub(crate) fn length_name(index: usize) -> Ident {
    format_ident!("n{index}")
}

fn form(index: usize, param: &Param, instance: &Instance, ahead: &mut Ahead) -> Form {
    let element = projection(instance, param, &element_name(index));
    let mapping = projection(instance, param, &mapping_name(index));
    let (data, len) = (format_ident!("p{index}"), length_name(index));
    let plain = |ty: TokenStream, kind: &str, check: Option<TokenStream>| Form {
        element: element.clone(),
        kind: format_ident!("{kind}"),
        check,
        ptx_params: quote!(#data: #ty),
        on_gpu: quote!(#data),
        on_host: quote!(read_value::<#ty>),
        slots: 1,
        ty,
    };
    let form = match &param.kind {
        Kind::Value => plain(element.clone(), "Value", Some(quote!(check_value))),
        Kind::Pointer => plain(quote!(*const #element), "Pointer", None),
        Kind::PointerMut => plain(quote!(*mut #element), "PointerMut", None),
        Kind::Slice => Form {
            kind: format_ident!("Slice"),
            ty: quote!(&[#element]),
            check: Some(quote!(check_element)),
            ptx_params: quote!(#data: *const #element, #len: usize),
            on_gpu: quote!(::gpu_std::__private::slice(#data, #len)),
            on_host: quote!(read_slice::<#element>),
            slots: 2,
            element,
        },
        Kind::SliceMut(_) => Form {
            kind: format_ident!("SliceMut"),
            ty: quote!(::gpu_std::DisjointMut<'_, #element, #mapping>),
            check: Some(quote!(check_view)),
            ptx_params: quote!(#data: *mut #element, #len: usize),
            on_gpu: quote!(::gpu_std::__private::view::<_, #mapping>(#data, #len)),
            on_host: quote!(read_view::<#element, #mapping>),
            slots: 2,
            element,
        },
        Kind::Shared(array) => {
            let [on_gpu, on_host] = array.arguments(&element, &len, ahead);
            Form {
                kind: format_ident!("Shared"),
                ty: array.ty(&element),
                check: Some(array.check()),
                ptx_params: quote!(#len: usize),
                on_gpu,
                on_host,
                slots: usize::from(array.is_slice),
                element: if array.is_slice { array.counted(&element) } else { element },
            }
        }
        Kind::TensorMap(rank) => Form {
            check: Some(quote!(check_tensor)),
            // The builder makes the parameter a grid constant, so the reference points to the parameter itself in
            // constant memory.
            ptx_params: quote!(#data: *const ::gpu_std::TensorMap<#element, #rank>),
            on_gpu: quote!(&*#data),
            on_host: quote!(read_tensor_map::<#element, #rank>),
            ..plain(quote!(&::gpu_std::TensorMap<#element, #rank>), "TensorMap", None)
        },
        Kind::View(dimensions) => {
            let (view, extents) = (format_ident!("Slice{dimensions}"), format_ident!("Extents{dimensions}"));
            let (make, read) = (format_ident!("slice{dimensions}"), format_ident!("read_slice{dimensions}"));
            Form {
                kind: view.clone(),
                ty: quote!(::gpu_std::#view<'_, #element>),
                check: Some(quote!(check_element)),
                ptx_params: quote!(#data: *const #element, #len: ::gpu_std::__private::#extents),
                on_gpu: quote!(::gpu_std::__private::#make(#data, #len)),
                on_host: quote!(#read::<#element>),
                slots: 2,
                element,
            }
        }
        Kind::ViewMut(dimensions, _) => {
            let (view, extents) =
                (format_ident!("DisjointMut{dimensions}"), format_ident!("Extents{dimensions}"));
            let (make, read) = (format_ident!("view{dimensions}"), format_ident!("read_view{dimensions}"));
            Form {
                kind: format_ident!("SliceMut{dimensions}"),
                ty: quote!(::gpu_std::#view<'_, #element, #mapping>),
                check: Some(quote!(check_view)),
                ptx_params: quote!(#data: *mut #element, #len: ::gpu_std::__private::#extents),
                on_gpu: quote!(::gpu_std::__private::#make::<_, #mapping>(#data, #len)),
                on_host: quote!(#read::<#element, #mapping>),
                slots: 2,
                element,
            }
        }
    };
    if !param.is_optional {
        return form;
    }
    let Form { ty, on_gpu, .. } = &form;
    Form {
        ty: quote!(::core::option::Option<#ty>),
        on_gpu: quote! {
            if #data.is_null() { ::core::option::Option::None } else { ::core::option::Option::Some(#on_gpu) }
        },
        ..form
    }
}
