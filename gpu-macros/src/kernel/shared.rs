//! The parameters `Shared<A>` and `DoubleBuffer<A>`: arrays in shared memory. Those of a fixed length the entry reserves,
//! and the launch does not pass them. Of slices the launch passes the length, and they lie in dynamic shared memory, one
//! after the other.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::{GenericArgument, Ident, PathArguments, Type, TypePath};

use super::Errors;
use super::params::{Kind, Param};

/// The arrays of a kernel: each has a barrier of its own, of the 15 that a block has beside that of `sync_threads`.
const MAX: usize = 15;

/// What a parameter is.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    /// Whether it is a `DoubleBuffer`.
    is_double: bool,
    /// Whether it is of a slice: its length comes with the launch.
    pub is_slice: bool,
}

/// The arrays of a kernel ahead of one.
#[derive(Default)]
pub(crate) struct Ahead {
    /// Their number.
    count: usize,
    /// Bytes of each in dynamic shared memory, as expressions.
    bytes: Vec<TokenStream>,
}

impl Array {
    /// The parameter's type, of any lifetime. `element` is the element of a slice, or the whole array.
    pub fn ty(self, element: &TokenStream) -> TokenStream {
        let array = if self.is_slice { quote!([#element]) } else { element.clone() };
        match self.is_double {
            false => quote!(::gpu_std::Shared<'_, #array>),
            true => quote!(::gpu_std::DoubleBuffer<'_, #array>),
        }
    }

    /// What the launch passes the number of: the elements of a slice, of both arrays of a pair.
    pub fn counted(self, element: &TokenStream) -> TokenStream {
        if self.is_double { quote!([#element; 2]) } else { element.clone() }
    }

    /// Bytes of static shared memory.
    pub fn static_bytes(self, element: &TokenStream) -> Option<TokenStream> {
        let memory = self.counted(element);
        (!self.is_slice).then(|| quote!(::core::mem::size_of::<#memory>()))
    }

    /// The function that compiles for types that it can have.
    pub fn check(self) -> TokenStream {
        if self.is_slice { quote!(check_shared_elements) } else { quote!(check_shared) }
    }

    /// The argument of an entry behind others, on the GPU and on the host; `len` is a length that the launch passed.
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

    /// It reserves the memory.
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

/// `Shared<A>` or `DoubleBuffer<A>` as a parameter, if `path` is one.
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
            "say what the block shares: `{name}<[f32; 256]>`, `{name}<[[T; C]; R]>`, or `{name}<[f32]>` for a length that comes \
             with the launch"
        )),
    })
}

/// A kernel has no more arrays than a block has barriers for.
pub(crate) fn check_count(params: &[Param], errors: &mut Errors) {
    let arrays = params.iter().filter(|param| matches!(param.kind, Kind::Shared(_)));
    if let Some(first_too_many) = arrays.skip(MAX).map(|param| param.ty.to_token_stream()).next() {
        errors.push(
            first_too_many,
            format!("a kernel has at most {MAX} shared arrays: make several one, with an index more"),
        );
    }
}
