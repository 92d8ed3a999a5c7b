//! The parts that are written once for all instances: the parameter types, and `Kernel`.
//!
//! Parameter types may depend on the generic parameters in any way (`T::Accumulator`, `[T; N]`), so they are
//! not substituted as text: a helper trait, implemented once for all arguments, has them as associated types.

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericParam, Generics, Ident};

use super::Kernel;
use super::params::{Kind, Param};

/// The generic parameters without lifetimes, bounds or defaults: as declared, and as used.
pub(crate) fn plain_generics(generics: &Generics) -> (Vec<TokenStream>, Vec<&Ident>) {
    let mut declared = Vec::new();
    let mut used = Vec::new();
    for parameter in &generics.params {
        match parameter {
            GenericParam::Lifetime(_) => {}
            GenericParam::Type(ty) => {
                let ident = &ty.ident;
                declared.push(quote!(#ident));
                used.push(ident);
            }
            GenericParam::Const(constant) => {
                let (ident, ty) = (&constant.ident, &constant.ty);
                declared.push(quote!(const #ident: #ty));
                used.push(ident);
            }
        }
    }
    (declared, used)
}

/// The generic parameters with their bounds, and the where clause's predicates.
fn bounded_generics(generics: &Generics) -> (Vec<TokenStream>, Vec<TokenStream>) {
    let bounded = generics.params.iter().filter_map(|parameter| match parameter {
        GenericParam::Lifetime(_) => None,
        GenericParam::Type(ty) => {
            let (ident, colon, bounds) = (&ty.ident, &ty.colon_token, &ty.bounds);
            Some(quote!(#ident #colon #bounds))
        }
        GenericParam::Const(constant) => {
            let (ident, ty) = (&constant.ident, &constant.ty);
            Some(quote!(const #ident: #ty))
        }
    });
    let predicates = generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    (bounded.collect(), predicates.map(ToTokens::to_token_stream).collect())
}

/// The parameter types of all instances. As visible as the function: its types may be no more visible.
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

/// `Kernel` for all instances at once, so that generic code knows the parameters, and `SafeKernel`.
pub(crate) fn as_kernel(kernel: &Kernel) -> TokenStream {
    let sig = &kernel.function.sig;
    let name = &sig.ident;
    let (_, used) = plain_generics(&sig.generics);
    let (bounded, predicates) = bounded_generics(&sig.generics);
    let markers = kernel.params.iter().filter_map(marker_of);
    // Known of types without parameters; those are checked where they are written.
    let is_generic = sig.generics.type_params().next().is_some();
    let elements = kernel.params.iter().filter(|param| is_generic && matches!(param.kind, Kind::Slice));
    let elements = elements.map(|param| {
        let element = &param.element;
        quote_spanned!(element.span()=> #element: ::gpu_std::SliceElement,)
    });
    let of = quote!(#name<#(#used),*>);
    let clause = quote!(where #of: ::gpu_std::Instance, #(#elements)* #(#predicates,)*);
    let safe = kernel.is_safe.then(|| {
        quote! {
            // SAFETY: the kernel is a safe function.
            unsafe impl<#(#bounded),*> ::gpu_std::SafeKernel for #of #clause {}
        }
    });
    quote! {
        // SAFETY: `Params` and the entries of all instances are written from the same parameters.
        unsafe impl<#(#bounded),*> ::gpu_std::Kernel for #of #clause {
            type Params = (#(#markers,)*);

            #[cfg(not(target_arch = "nvptx64"))]
            fn spec() -> &'static ::gpu_std::KernelSpec {
                <Self as ::gpu_std::Instance>::of_host()
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn code() -> *const ::core::ffi::c_void {
                <Self as ::gpu_std::Instance>::of_gpu()
            }
        }
        #safe
    }
}

/// The type that stands for a parameter in `Kernel::Params`; none for an array in shared memory.
fn marker_of(param: &Param) -> Option<TokenStream> {
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
            let view = format_ident!("Slice{dimensions}");
            quote!(::gpu_std::param::#view<#element>)
        }
        Kind::ViewMut(dimensions, _) => {
            let view = format_ident!("SliceMut{dimensions}");
            quote!(::gpu_std::param::#view<#element>)
        }
        Kind::Shared(_) => return None,
    };
    Some(if param.is_optional { quote!(::gpu_std::param::Optional<#marker>) } else { marker })
}

pub(crate) fn element_name(index: usize) -> Ident {
    format_ident!("P{index}")
}

pub(crate) fn mapping_name(index: usize) -> Ident {
    format_ident!("M{index}")
}
