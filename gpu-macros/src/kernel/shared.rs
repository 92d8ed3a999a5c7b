//! The parameters `Shared<A>` and `DoubleBuffer<A>`, which are arrays in shared memory. The entry reserves arrays of
//! fixed length in static shared memory, and the launch passes nothing for them. For slices, the launch passes the
//! length, and the slices follow one another in dynamic shared memory.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::{GenericArgument, Ident, PathArguments, Type, TypePath};

use super::Errors;
use super::params::{Kind, Param};

/// Maximum number of arrays per kernel. Each array needs its own barrier, and a block has 15 barriers in addition to
/// the barrier that `sync_threads` uses.
const MAX: usize = 15;

/// The kind of shared array that a parameter represents.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    /// True if the parameter is a `DoubleBuffer`.
    is_double: bool,
    /// True if the array is a slice, which is in dynamic shared memory.
    pub is_slice: bool,
}

/// A kernel's arrays that precede a given array.
#[derive(Default)]
pub(crate) struct Ahead {
    /// Number of arrays.
    count: usize,
    /// Expressions for the sizes, in bytes, of those arrays that are in dynamic shared memory.
    bytes: Vec<TokenStream>,
}

impl Array {
    /// Emits the type of the parameter, with any lifetime. `element` is the element type of a slice, or the type of the
    /// whole array.
    pub fn ty(self, element: &TokenStream) -> TokenStream {
        let array = if self.is_slice { quote!([#element]) } else { element.clone() };
        match self.is_double {
            false => quote!(::gpu_std::Shared<'_, #array>),
            true => quote!(::gpu_std::DoubleBuffer<'_, #array>),
        }
    }

    /// Emits the type that the length passed to the launch counts: elements of a slice, or element pairs of a double
    /// buffer.
    pub fn counted(self, element: &TokenStream) -> TokenStream {
        if self.is_double { quote!([#element; 2]) } else { element.clone() }
    }

    /// Emits the size of the array in static shared memory, in bytes.
    pub fn static_bytes(self, element: &TokenStream) -> Option<TokenStream> {
        let memory = self.counted(element);
        (!self.is_slice).then(|| quote!(::core::mem::size_of::<#memory>()))
    }

    /// Returns the function that compiles only for supported types.
    pub fn check(self) -> TokenStream {
        if self.is_slice { quote!(check_shared_elements) } else { quote!(check_shared) }
    }

    /// Emits the argument of an entry, for the GPU and for the host. The argument follows the arrays in `ahead`. `len`
    /// is the length that the launch passed, if any.
    pub fn arguments(self, element: &TokenStream, len: &Ident, ahead: &mut Ahead) -> [TokenStream; 2] {
        ahead.count += 1;
        if self.is_slice {
            return self.slice_arguments(element, len, ahead);
        }
        let argument = self.fixed_argument(element, ahead.count);
        [argument.clone(), argument]
    }

    fn slice_arguments(self, element: &TokenStream, len: &Ident, ahead: &mut Ahead) -> [TokenStream; 2] {
        let barrier = Literal::usize_unsuffixed(ahead.count);
        let make = if self.is_double { quote!(double_buffer_slice) } else { quote!(shared_slice) };
        let before = &ahead.bytes;
        let place = quote!(offset: 0 #(+ #before)*, len: #len);
        let on_gpu = quote! {
            ::gpu_std::__private::#make::<#element>(::gpu_std::__private::SharedPlace { #place }, #barrier)
        };
        let on_host = quote! {{
            static __SITE: ::gpu_std::shared::SharedStatic<u8> = ::gpu_std::shared::SharedStatic::new();
            let place = ::gpu_std::__private::SharedPlace { #place, site: &__SITE };
            ::gpu_std::__private::#make::<#element>(place, #barrier)
        }};
        let counted = self.counted(element);
        ahead.bytes.push(quote!(::gpu_std::__private::shared_bytes::<#counted>(#len)));
        [on_gpu, on_host]
    }

    /// Emits an argument that reserves the array's memory.
    fn fixed_argument(self, element: &TokenStream, barrier: usize) -> TokenStream {
        let barrier = Literal::usize_unsuffixed(barrier);
        let memory = self.counted(element);
        let make = if self.is_double { quote!(double_buffer) } else { quote!(shared) };
        quote! {{
            #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".shared"))]
            static __SHARED: ::gpu_std::shared::SharedStatic<#memory> = ::gpu_std::shared::SharedStatic::new();
            ::gpu_std::__private::#make(&__SHARED, #barrier)
        }}
    }
}

/// Classifies a parameter type as `Shared<A>` or `DoubleBuffer<A>` if `path` is one of them.
pub(crate) fn classify(path: &TypePath) -> Option<Result<(Kind, Type), String>> {
    let segment = path.path.segments.last()?;
    let is_double = match &*segment.ident.to_string() {
        "Shared" => false,
        "DoubleBuffer" => true,
        _ => return None,
    };
    let element = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty.clone()),
                _ => None,
            })
        }
        _ => None,
    };
    let name = &segment.ident;
    Some(match element {
        Some(Type::Slice(slice)) => Ok((Kind::Shared(Array { is_double, is_slice: true }), *slice.elem)),
        Some(element) => Ok((Kind::Shared(Array { is_double, is_slice: false }), element)),
        None => Err(format!(
            "the array type is missing: write `{name}<[f32; 256]>`, `{name}<[[T; C]; R]>`, or `{name}<[f32]>` for a \
             length set at the launch"
        )),
    })
}

/// Checks that a kernel has no more arrays than a block has barriers.
pub(crate) fn check_count(params: &[Param], errors: &mut Errors) {
    let arrays = params.iter().filter(|param| matches!(param.kind, Kind::Shared(_)));
    if let Some(first_too_many) = arrays.skip(MAX).map(|param| param.ty.to_token_stream()).next() {
        errors.push(
            first_too_many,
            format!(
                "a kernel can have at most {MAX} shared arrays: combine several into one array with an \
                     additional dimension"
            ),
        );
    }
}
