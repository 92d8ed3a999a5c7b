//! The parameters `Shared<A>` and `DoubleBuffer<A>`: arrays in shared memory, which the entry reserves and the launch
//! does not pass.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};
use syn::{GenericArgument, PathArguments, Type, TypePath};

use super::Errors;
use super::params::{Kind, Param};

/// The arrays of a kernel: each has a barrier of its own, of the 15 that a block has beside that of `sync_threads`.
const MAX: usize = 15;

/// Which of the two a parameter is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Array {
    /// `Shared<A>`.
    Single,
    /// `DoubleBuffer<A>`.
    Double,
}

impl Array {
    fn of(path: &TypePath) -> Option<Self> {
        let name = &path.path.segments.last()?.ident;
        if name == "Shared" {
            Some(Array::Single)
        } else if name == "DoubleBuffer" {
            Some(Array::Double)
        } else {
            None
        }
    }

    /// The parameter's type, of any lifetime.
    pub fn ty(self, element: &TokenStream) -> TokenStream {
        match self {
            Array::Single => quote!(::gpu_std::Shared<'_, #element>),
            Array::Double => quote!(::gpu_std::DoubleBuffer<'_, #element>),
        }
    }

    /// Bytes of shared memory.
    pub fn bytes(self, element: &TokenStream) -> TokenStream {
        match self {
            Array::Single => quote!(::core::mem::size_of::<#element>()),
            Array::Double => quote!(2 * ::core::mem::size_of::<#element>()),
        }
    }

    /// The argument of an entry, of the `index`-th array of the kernel: it reserves the memory.
    pub fn argument(self, element: &TokenStream, index: usize) -> TokenStream {
        let barrier = Literal::usize_unsuffixed(index + 1);
        let (memory, make) = match self {
            Array::Single => (element.clone(), format_ident!("shared")),
            Array::Double => (quote!([#element; 2]), format_ident!("double_buffer")),
        };
        quote! {{
            #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".shared"))]
            static __SHARED: ::gpu_std::shared::SharedStatic<#memory> = ::gpu_std::shared::SharedStatic::new();
            ::gpu_std::__private::#make(&__SHARED, #barrier)
        }}
    }
}

/// `Shared<A>` or `DoubleBuffer<A>` as a parameter, if `path` is one.
pub(crate) fn classify(path: &TypePath) -> Option<Result<(Kind, Type), String>> {
    let array = Array::of(path)?;
    let segment = path.path.segments.last()?;
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
        Some(element) => Ok((Kind::Shared(array), element)),
        None => Err(format!("say what the block shares: `{name}<[f32; 256]>` or `{name}<[[T; C]; R]>`")),
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
