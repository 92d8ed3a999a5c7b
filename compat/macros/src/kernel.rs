//! `#[kernel]` with the semantics of Rust-CUDA, implemented with the macro of gpu-std.
//!
//! The function is unchanged. An anonymous scope next to the function defines a gpu-std kernel with the same symbol,
//! which calls the function. The parameters of this kernel have types that gpu-std supports: a value becomes
//! `Plain<T>`, and a reference becomes a pointer. The type `NAME_kernel` identifies this kernel in launches through the
//! runtime. (A type with the name of the function could conflict with a module of that name where the function is
//! re-exported.)

use proc_macro2::{Literal, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{
    Error, FnArg, GenericParam, Ident, ItemFn, Pat, PointerMutability, Result, ReturnType, Safety, Signature,
    Token, Type,
};

/// Expands `#[kernel(hints)] item`.
pub(crate) fn expand(hints: TokenStream, item: TokenStream) -> Result<TokenStream> {
    check_hints.parse2(hints)?;
    let mut function: ItemFn = syn::parse2(item.clone()).map_err(|error| {
        let is_function = item.into_iter().any(|token| token.to_string() == "fn");
        if is_function { error } else { Error::new(error.span(), "#[kernel] must be applied to a function") }
    })?;
    check(&function.sig)?;
    let params = function.sig.inputs.iter().enumerate().map(param).collect::<Result<Vec<Param>>>()?;
    // The symbol belongs to the entry, so the function must not have it as well.
    function.attrs.retain(|attribute| !attribute.path().is_ident("no_mangle"));
    let inlined = function.attrs.iter().any(|attribute| attribute.path().is_ident("inline"));
    let inline = (!inlined).then(|| quote!(#[inline(always)]));
    let name = &function.sig.ident;
    let declared = params.iter().map(|param| &param.declared);
    let passed = params.iter().map(|param| &param.passed);
    let markers = params.iter().map(|param| &param.marker);
    // Parameter types that are not primitive may be less visible than the function, and a public marker must not expose
    // them.
    let marker = format_ident!("{name}_kernel");
    // An alias of the function, which the name of the entry does not shadow.
    let alias = format_ident!("__{name}_function");
    let generics = &function.sig.generics;
    let names: Vec<_> = (0..params.len()).map(|index| format_ident!("p{index}")).collect();
    let types = function.sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(&typed.ty),
        FnArg::Receiver(_) => None,
    });
    let vis = params.iter().all(|param| param.is_plain).then_some(&function.vis);
    let summary = format!("Marker type of the kernel [`{name}()`], for launches through the runtime.");
    Ok(quote! {
        #inline
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        #function

        #[doc = #summary]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #marker {
            _kernel: (),
        }

        #[doc(hidden)]
        #[inline(always)]
        #[allow(non_snake_case, clippy::missing_safety_doc, clippy::too_many_arguments)]
        unsafe fn #alias #generics (#(#names: #types),*) {
            // SAFETY: guaranteed by the caller.
            unsafe { #name(#(#names),*) }
        }

        const _: () = {
            // SAFETY: `Plain<T>` has the layout of `T`, and the entry receives a reference as a pointer.
            unsafe impl ::cuda_std::__private::gpu_std::Kernel for #marker {
                type Params = (#(#markers,)*);

                #[cfg(target_arch = "nvptx64")]
                fn code() -> *const ::core::ffi::c_void {
                    <#name as ::cuda_std::__private::gpu_std::Kernel>::code()
                }

                #[cfg(not(target_arch = "nvptx64"))]
                fn spec() -> &'static ::cuda_std::__private::gpu_std::KernelSpec {
                    <#name as ::cuda_std::__private::gpu_std::Kernel>::spec()
                }
            }

            #[cfg(not(target_arch = "nvptx64"))]
            #[::cuda_std::__private::linkme::distributed_slice(::cuda_std::__private::CUDA_STD_KERNELS)]
            #[linkme(crate = ::cuda_std::__private::linkme)]
            static __REGISTERED: fn() -> &'static ::cuda_std::__private::gpu_std::KernelSpec =
                <#marker as ::cuda_std::__private::gpu_std::Kernel>::spec;

            #[::cuda_std::__private::gpu_std::kernel(crate = ::cuda_std::__private::gpu_std)]
            unsafe fn #name(#(#declared),*) {
                // SAFETY: the launch passes arguments that have the types of the function's parameters.
                unsafe { #alias(#(#passed),*) }
            }
        };
    })
}

/// Checks hints about the dimensions of launches. The hints have no effect, because indices are always computed from
/// all dimensions.
fn check_hints(input: ParseStream<'_>) -> Result<()> {
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        if key != "grid_dim" && key != "block_dim" {
            let message = format!(
                "unknown hint `{key}`: there are grid_dim = 2d and block_dim = 2d. For launch_bounds and other options \
                 write the kernel with gpu-std's own #[kernel]"
            );
            return Err(Error::new(key.span(), message));
        }
        input.parse::<Token![=]>()?;
        let dimension: Literal = input.parse()?;
        if !["1d", "2d", "3d", "1D", "2D", "3D"].contains(&dimension.to_string().as_str()) {
            return Err(Error::new(dimension.span(), "write 1d, 2d or 3d"));
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

fn check(sig: &Signature) -> Result<()> {
    if !matches!(sig.safety, Safety::Unsafe(_)) {
        return Err(Error::new(
            sig.fn_token.span(),
            "a kernel of Rust-CUDA is an `unsafe fn`: add `unsafe`, or write a safe kernel with gpu-std's own #[kernel]",
        ));
    }
    if let ReturnType::Type(_, ty) = &sig.output
        && !matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty())
    {
        return Err(Error::new(
            ty.span(),
            "a kernel returns nothing: remove this, and write results through a pointer",
        ));
    }
    let generic = sig.generics.params.iter().find(|param| !matches!(param, GenericParam::Lifetime(_)));
    if let Some(generic) = generic {
        return Err(Error::new(
            generic.span(),
            "a kernel of Rust-CUDA has no type parameters: write one function for each type, or use gpu-std's own \
             #[kernel(types(T = f32, f64))]",
        ));
    }
    Ok(())
}

/// Parameter of the entry.
struct Param {
    /// Declaration in the gpu-std kernel.
    declared: TokenStream,
    /// Argument passed to the function.
    passed: TokenStream,
    /// Marker type in `Kernel::Params`.
    marker: TokenStream,
    /// True if all types of the parameter are primitive types.
    is_plain: bool,
}

/// Returns whether all types in the tokens are primitive numeric types.
fn is_plain(tokens: TokenStream) -> bool {
    const PLAIN: [&str; 17] = [
        "bool", "char", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "u128", "i128", "usize",
        "isize", "f32", "f64", "mut",
    ];
    tokens.into_iter().all(|token| match token {
        TokenTree::Group(group) => is_plain(group.stream()),
        TokenTree::Ident(name) => name == "const" || PLAIN.iter().any(|plain| name == plain),
        _ => true,
    })
}

fn param((index, input): (usize, &FnArg)) -> Result<Param> {
    let typed = match input {
        FnArg::Typed(typed) => typed,
        FnArg::Receiver(receiver) => {
            return Err(Error::new(
                receiver.span(),
                "a kernel must be a free function: move it out of the `impl`",
            ));
        }
    };
    let name = match &*typed.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        _ => format_ident!("parameter_{index}"),
    };
    let private = quote!(::cuda_std::__private);
    let is_plain = is_plain(typed.ty.to_token_stream());
    Ok(match ungrouped(&typed.ty) {
        Type::Reference(reference) if reference.mutability.is_some() => {
            let pointee = reference.elem.to_token_stream();
            let (slice, element) = match &*reference.elem {
                Type::Slice(slice) => ("slice", slice.elem.to_token_stream()),
                _ => ("reference", pointee),
            };
            return Err(Error::new(
                typed.ty.span(),
                format!("every thread would have the same mutable {slice}: take `*mut {element}`"),
            ));
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Slice(slice) => {
                let element = &slice.elem;
                let ty = quote_spanned!(element.span()=> &[#private::Plain<#element>]);
                Param {
                    declared: quote!(#name: #ty),
                    passed: quote!(#private::Plain::slice(#name)),
                    marker: quote!(#private::gpu_std::param::Slice<#element>),
                    is_plain,
                }
            }
            _ => Param {
                declared: quote!(#name: *const ::core::ffi::c_void),
                passed: quote!(&*#name.cast()),
                marker: quote!(#private::gpu_std::param::Pointer<::core::ffi::c_void>),
                is_plain,
            },
        },
        Type::Ptr(pointer) => {
            let (ty, element) = (&typed.ty, &pointer.elem);
            let kind = match pointer.mutability {
                PointerMutability::Const(_) => quote!(Pointer),
                PointerMutability::Mut(_) => quote!(PointerMut),
            };
            Param {
                declared: quote!(#name: #ty),
                passed: quote!(#name),
                marker: quote!(#private::gpu_std::param::#kind<#element>),
                is_plain,
            }
        }
        ty => {
            let plain = quote_spanned!(ty.span()=> #private::Plain<#ty>);
            Param {
                declared: quote!(#name: #plain),
                passed: quote!(#name.get()),
                marker: quote!(#private::gpu_std::param::Value<#ty>),
                is_plain,
            }
        }
    })
}

fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => ungrouped(&group.elem),
        Type::Paren(paren) => ungrouped(&paren.elem),
        ty => ty,
    }
}
