//! The items that `#[kernel]` emits in addition to the function.
//!
//! - For the GPU, `#[kernel]` emits three items per instance: an `extern "ptx-kernel"` entry, a record of the entry's
//!   parameters as the device compiler lays them out, and a record of the launch limits. The name of the entry's
//!   section encodes its requirements: `.warpsmith,0,0,MIN_ARCH`, followed by `,STACK` if a stack size is requested.
//!   `MIN_ARCH` is `90a` for a kernel that runs only on that architecture. The builder reads these records and section
//!   names.
//! - For the host, `#[kernel]` emits a type with the kernel's name. The type implements `Kernel`, and `Instance` for
//!   the arguments of each instance. `#[kernel]` also emits an entry for the emulated device, and registers a
//!   `KernelSpec`.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use proc_macro2::{Literal, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, GenericParam, Generics, Ident, Visibility};

use super::Kernel;
use super::forms::{Form, forms, length_name, marker_of, types};
use super::instances::{Argument, Instance};
use super::params::{Kind, Param, text};
use super::traffic;
use super::{lengths, limits};
use crate::family::OfTypes;

/// Emits the function and its companion items.
pub(crate) fn kernel(kernel: &Kernel) -> TokenStream {
    let mut function = kernel.function.clone();
    if !function.attrs.iter().any(|attribute| attribute.path().is_ident("inline")) {
        function.attrs.push(syn::parse_quote!(#[inline(always)]));
    }
    // A kernel needs one parameter for each buffer that its launch passes.
    function.attrs.push(syn::parse_quote!(#[allow(clippy::too_many_arguments)]));
    function.block.stmts.insert(0, indices_for_debugger());
    // The kernel of a family is visible only as its type, because the function with this name is the user's.
    let (shown, hidden) = match &kernel.family {
        None => (quote!(#function), None),
        Some(family) => {
            function.sig.ident = callee_name(kernel);
            function.vis = Visibility::Inherited;
            let of_host = (family.of_host)(
                &kernel.function.sig.ident,
                &OfTypes::of(&kernel.function.sig.ident, &kernel.instances),
            );
            let (shown, helpers) = (&family.function, &family.helpers);
            (quote!(#shown), Some(quote!(#helpers #function #of_host)))
        }
    };
    let marker = marker(kernel);
    let instances = instances(kernel);
    let types = types(kernel);
    let as_kernel = as_kernel(kernel);
    let instances_of = kernel.instances.iter().map(|instance| {
        let (checks, on_gpu, on_host) =
            (checks(kernel, instance), gpu_entry(kernel, instance), host_entry(kernel, instance));
        quote!(const _: () = { #checks #on_gpu #on_host };)
    });
    quote! {
        #shown
        #marker
        #instances
        #[doc(hidden)]
        const _: () = {
            #hidden
            #types
            #as_kernel
            #(#instances_of)*
        };
    }
}

/// Returns a statement that defines the variables `block_idx` and `thread_idx` in the kernel's frame, for debuggers.
/// The kernel's own code cannot access these variables, and optimized code does not contain them.
fn indices_for_debugger() -> syn::Stmt {
    let (block, thread) =
        (Ident::new("block_idx", Span::mixed_site()), Ident::new("thread_idx", Span::mixed_site()));
    syn::parse_quote! {
        #[cfg(all(debug_assertions, not(target_arch = "nvptx64")))]
        #[allow(unused_variables)]
        let (#block, #thread) = ::gpu_std::__private::running_indices();
    }
}

/// Returns the generic parameters without lifetimes, bounds and defaults, in two forms: as declared, and as used.
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

/// Emits the type that represents the kernel in a launch.
fn marker(kernel: &Kernel) -> TokenStream {
    let function = &kernel.function;
    let (vis, name) = (&function.vis, &function.sig.ident);
    let docs: Vec<&Attribute> =
        function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
    let summary = format!("The kernel [`{name}()`] as a type, for launches.");
    let gap = (!docs.is_empty()).then(|| quote!(#[doc = ""]));
    let (mut declared, _) = plain_generics(&function.sig.generics);
    if kernel.family.is_some() {
        // The default values of `ITEMS` and `VECTOR`. Without these arguments, the type represents all instances with
        // the same types.
        let from = declared.len().saturating_sub(2);
        declared[from..].iter_mut().for_each(|constant| constant.extend(quote!(= 0)));
    }
    let types = function.sig.generics.type_params().map(|parameter| &parameter.ident);
    quote! {
        #[doc = #summary]
        #gap
        #(#docs)*
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #name<#(#declared),*> {
            _types: ::core::marker::PhantomData<(#(#types,)*)>,
        }
    }
}

/// Emits the list of all instances for the host.
fn instances(kernel: &Kernel) -> TokenStream {
    let sig = &kernel.function.sig;
    let name = &sig.ident;
    let (declared, used) = plain_generics(&sig.generics);
    let count = Literal::usize_unsuffixed(kernel.instances.len());
    let specs = kernel.instances.iter().map(|instance| {
        let arguments = instance.0.iter().map(Argument::tokens);
        quote!(<#name<#(#arguments),*> as ::gpu_std::Kernel>::spec)
    });
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(dead_code)]
        impl<#(#declared),*> #name<#(#used),*> {
            /// Returns all instances of the kernel, regardless of this type's generic arguments.
            pub fn instances() -> impl ::core::iter::Iterator<Item = &'static ::gpu_std::KernelSpec> {
                let specs: [fn() -> &'static ::gpu_std::KernelSpec; #count] = [#(#specs),*];
                specs.into_iter().map(|spec| spec())
            }
        }
    }
}

/// Returns the generic parameters with their bounds, and the predicates of the `where` clause.
pub(crate) fn bounded_generics(generics: &Generics) -> (Vec<TokenStream>, Vec<TokenStream>) {
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

/// Emits `Kernel` for all instances at once, so that generic code can use the parameters, and also emits `SafeKernel`.
fn as_kernel(kernel: &Kernel) -> TokenStream {
    let sig = &kernel.function.sig;
    let name = &sig.ident;
    let (_, used) = plain_generics(&sig.generics);
    let (bounded, predicates) = bounded_generics(&sig.generics);
    let markers = kernel.params.iter().filter_map(marker_of);
    // Only kernels with type parameters need these bounds. In other kernels, the types are checked where they are
    // written.
    let is_generic = sig.generics.type_params().next().is_some();
    let is_slice = |param: &&Param| is_generic && matches!(param.kind, Kind::Slice | Kind::View(_));
    let elements = kernel.params.iter().filter(is_slice);
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
        // SAFETY: `Params` and the entries of all instances are generated from the same parameters.
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

/// Emits checks of the parameters: each type at its location, all types together, and their lifetimes. The checks
/// define two constants: `__CLAIMED` for the mutable views, and `__SIGNATURES` for all parameters.
fn checks(kernel: &Kernel, instance: &Instance) -> TokenStream {
    // Properties, other than the parameters, on which a launch relies.
    let promises = [!kernel.is_safe, kernel.options.cooperative, kernel.options.dependent];
    let promises = promises.into_iter().rev().fold(0u32, |bits, promise| bits << 1 | u32::from(promise));
    let (mut claimed, mut signatures) = (Vec::new(), Vec::new());
    for (Form { check, element, ty, .. }, param) in forms(kernel, instance).into_iter().zip(&kernel.params) {
        let of_shape = match &param.kind {
            Kind::TensorMap(rank) => Literal::usize_unsuffixed(*rank).into_token_stream(),
            _ if param.is_claimed() => {
                let position = Literal::usize_unsuffixed(claimed.len());
                claimed.push(quote_spanned!(param.ty.span()=> ::gpu_std::__private::claims::<#ty>()));
                quote!(__CLAIMED[#position].1)
            }
            _ => quote!(0),
        };
        let of_type = match check {
            Some(check) => quote_spanned!(param.element.span()=> ::gpu_std::__private::#check::<#element>()),
            None => quote!(0),
        };
        let (promises, optional) = (Literal::u32_unsuffixed(promises), u8::from(param.is_optional));
        let optional = Literal::u8_unsuffixed(optional);
        signatures.push(quote! {
            ::gpu_std::__private::signature("", &[#of_type, #of_shape, #optional, #promises])
        });
    }
    let (claims_len, len) =
        (Literal::usize_unsuffixed(claimed.len()), Literal::usize_unsuffixed(signatures.len()));
    let abi = abi(kernel, instance);
    let any_lifetime = any_lifetime(kernel, instance);
    let shared_memory = static_shared(kernel, instance);
    let at = kernel.function.sig.ident.span();
    quote! {
        #[allow(dead_code)]
        const __CLAIMED: [(::gpu_std::Claims, u32, usize); #claims_len] = [#(#claimed),*];
        #[allow(dead_code)]
        const __SIGNATURES: [u32; #len] = [#(#signatures),*];
        const _: () = #any_lifetime;
    }
    .into_iter()
    .chain(quote_spanned!(at=>
        const _: () = ::gpu_std::__private::check_parameters(&[#(#abi),*]);
        #[cfg(target_arch = "nvptx64")]
        const _: u32 = #shared_memory;
    ))
    .collect()
}

/// Emits the size, in bytes, of the kernel's arrays in static shared memory. The expression compiles only if a block
/// has enough shared memory for them.
fn static_shared(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let arrays = forms(kernel, instance).into_iter().zip(&kernel.params).filter_map(|(form, param)| {
        let Kind::Shared(array) = param.kind else { return None };
        array.static_bytes(&form.element)
    });
    let arrays = quote!(&[#(#arrays),*]);
    quote_spanned!(kernel.function.sig.ident.span()=> ::gpu_std::__private::shared_memory(#arrays))
}

/// Emits a check that compiles only if the kernel accepts slices and views of any lifetime. Otherwise, a kernel could
/// require a lifetime longer than the launch, and retain the data.
fn any_lifetime(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let params = forms(kernel, instance).into_iter().map(|form| form.ty);
    let safety = (!kernel.is_safe).then(|| quote!(unsafe));
    let callee = callee(kernel, instance);
    quote!({ let _: #safety fn(#(#params),*) = #callee; })
}

/// Emits an `AbiParam` for each parameter of the launch.
fn abi(kernel: &Kernel, instance: &Instance) -> Vec<TokenStream> {
    let abi = |(index, Form { element, kind, .. }): (usize, Form)| {
        let index = Literal::usize_unsuffixed(index);
        quote! {
            ::gpu_std::__private::AbiParam::new(
                ::gpu_std::ParamKind::#kind,
                ::core::mem::size_of::<#element>(),
                ::core::mem::align_of::<#element>(),
                __SIGNATURES[#index],
            )
        }
    };
    forms(kernel, instance).into_iter().enumerate().filter(|(_, form)| form.slots > 0).map(abi).collect()
}

/// Returns the name of the function that the entries call.
fn callee_name(kernel: &Kernel) -> Ident {
    match kernel.family {
        None => kernel.function.sig.ident.clone(),
        Some(_) => Ident::new("__kernel", kernel.function.sig.ident.span()),
    }
}

/// Emits `name` or `name::<f32, 4>`.
fn callee(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let name = callee_name(kernel);
    let arguments: Vec<TokenStream> = instance.0.iter().map(Argument::tokens).collect();
    if arguments.is_empty() { quote!(#name) } else { quote!(#name::<#(#arguments),*>) }
}

/// Emits the kernel's entry point for the GPU image.
fn gpu_entry(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let symbol = instance.symbol(&kernel.function.sig.ident.unraw().to_string());
    let symbol = format!("{symbol}{}{}", gpu_spec::image::ENTRY_MARK, unique());
    let specific = if kernel.options.is_arch_specific { "a" } else { "" };
    let mut section = format!(".warpsmith,0,0,{}{specific}", kernel.options.arch);
    if let Some(bytes) = kernel.options.stack {
        section.push_str(&format!(",{bytes}"));
    }
    let forms = forms(kernel, instance);
    let ptx_params = forms.iter().filter(|form| form.slots > 0).map(|form| &form.ptx_params);
    let arguments = forms.iter().map(|form| &form.on_gpu);
    let callee = callee(kernel, instance);
    // A safe kernel must not run ahead of the work that it depends on, whereas an unsafe kernel waits explicitly.
    let wait =
        (kernel.options.dependent && kernel.is_safe).then(|| quote!(::gpu_std::grid::dependency_wait();));
    let as_type = gpu_type(kernel, instance);
    let record = abi_record(kernel, instance, &symbol);
    let origin = origin(&symbol, instance);
    let no_panic = kernel.options.no_panic.then(|| no_panic(&symbol));
    let (limits, limits_record) = (limits::constant(kernel, instance), limits::record(kernel, &symbol));
    let assume = kernel.options.block.is_some().then(|| {
        quote! {
            // SAFETY: every launch of the entry has this block size, which the builder writes into the PTX.
            unsafe { ::gpu_std::__private::assume_block(__LIMITS) };
        }
    });
    quote! {
        #[cfg(target_arch = "nvptx64")]
        const _: () = {
            #limits
            #limits_record
            // SAFETY: no other kernel has this symbol. The builder removes the suffix that makes the symbol unique, and
            // the section whose name encodes the entry's limits.
            #[unsafe(export_name = #symbol)]
            #[unsafe(link_section = #section)]
            #[allow(improper_ctypes_definitions, clippy::too_many_arguments)]
            pub unsafe extern "ptx-kernel" fn __entry(#(#ptx_params),*) {
                #assume
                #wait
                // SAFETY: the launch passes arguments that match the parameters, and the launching code upholds the
                // contract of an unsafe kernel.
                #[allow(unused_unsafe)]
                unsafe { #callee(#(#arguments),*) }
            }
            #record
            #origin
            #no_panic
            #as_type
        };
    }
}

/// Returns a string that is unique in the program: the crate's name and the number of kernels that this process has
/// emitted.
fn unique() -> String {
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let mut of_crate = std::hash::DefaultHasher::new();
    for variable in ["CARGO_PKG_NAME", "CARGO_PKG_VERSION", "CARGO_CRATE_NAME"] {
        std::env::var_os(variable).hash(&mut of_crate);
    }
    format!("{:016x}.{}", of_crate.finish(), WRITTEN.fetch_add(1, Ordering::Relaxed))
}

/// Emits the record of the parameters as laid out by the device compiler, for the builder (see `gpu_spec::AbiParam`).
fn abi_record(kernel: &Kernel, instance: &Instance, symbol: &str) -> TokenStream {
    let symbol = format!("{}{symbol}", gpu_spec::AbiParam::PREFIX);
    let params = abi(kernel, instance);
    let length = Literal::usize_unsuffixed(params.len());
    quote! {
        // SAFETY: the symbol consists of the entry's symbol, which is unique, and a prefix that no Rust name has.
        #[unsafe(export_name = #symbol)]
        static __ABI: [::gpu_std::__private::AbiParam; #length] = [#(#params),*];
    }
}

/// Emits the origin of the kernel, for the builder (see `gpu_spec::image::ORIGIN_PREFIX`).
fn origin(symbol: &str, instance: &Instance) -> TokenStream {
    let consts = instance.0.iter().filter_map(|argument| match argument {
        Argument::Const { parameter, .. } => Some(parameter.to_string()),
        Argument::Type { .. } => None,
    });
    let consts = consts.collect::<Vec<_>>().join(",");
    let gap = if consts.is_empty() { "" } else { " " };
    let symbol = format!("{}{symbol}", gpu_spec::image::ORIGIN_PREFIX);
    quote! {
        const __ORIGIN_TEXT: &str = ::core::concat!(
            ::core::env!("CARGO_PKG_NAME"), " ", ::core::env!("CARGO_PKG_VERSION"), " ", ::core::module_path!(), #gap, #consts
        );
        // SAFETY: the symbol consists of the entry's symbol, which is unique, and a prefix that no Rust name has.
        #[unsafe(export_name = #symbol)]
        static __ORIGIN: [u8; __ORIGIN_TEXT.len()] = *__ORIGIN_TEXT.as_bytes().first_chunk().unwrap();
    }
}

/// Returns the hash of the path of the compiled package's folder with symbolic links resolved, or 0 if the build does
/// not use cargo.
fn folder() -> u64 {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").and_then(|folder| std::fs::canonicalize(folder).ok());
    folder.map_or(0, |folder| gpu_spec::image::hash(folder.as_os_str().as_encoded_bytes()))
}

/// Emits the marker that makes remaining panics an error, for the builder (see `gpu_spec::image::NO_PANIC_PREFIX`).
fn no_panic(symbol: &str) -> TokenStream {
    let symbol = format!("{}{symbol}", gpu_spec::image::NO_PANIC_PREFIX);
    quote! {
        // SAFETY: the symbol consists of the entry's symbol, which is unique, and a prefix that no Rust name has.
        #[unsafe(export_name = #symbol)]
        static __NO_PANIC: [u8; 1] = [1];
    }
}

/// Emits the type with which other kernels of the GPU image launch the instance.
fn gpu_type(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let name = &kernel.function.sig.ident;
    let generic_arguments = instance.0.iter().map(Argument::tokens);
    quote! {
        // SAFETY: the entry belongs to this instance.
        unsafe impl ::gpu_std::Instance for #name<#(#generic_arguments),*> {
            #[inline(always)]
            fn of_gpu() -> *const ::core::ffi::c_void {
                __entry as *const ::core::ffi::c_void
            }
        }
    }
}

/// Emits the entry for the emulated device, and the type and data of the instance.
fn host_entry(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let name = &kernel.function.sig.ident;
    let label = name.unraw().to_string();
    let symbol = instance.symbol(&label);
    let generic_arguments: Vec<TokenStream> = instance.0.iter().map(Argument::tokens).collect();
    let callee = callee(kernel, instance);

    let mut arguments = Vec::new();
    let mut params = Vec::new();
    let mut lengths = Vec::new();
    let mut slot = 0usize;
    let claimed = kernel.params.iter().filter(|param| param.is_claimed()).enumerate();
    let claimed: Vec<_> = claimed.map(|(position, _)| Literal::usize_unsuffixed(position)).collect();
    for (index, (form, param)) in forms(kernel, instance).into_iter().zip(&kernel.params).enumerate() {
        let Form { element, kind, on_host, slots, .. } = form;
        if slots == 0 {
            arguments.push(on_host);
            continue;
        }
        let position = Literal::usize_unsuffixed(slot);
        slot += slots;
        let (param_name, type_name) = (param.name.unraw().to_string(), text(&param.ty));
        let signature = Literal::usize_unsuffixed(index);
        if let Kind::Shared(_) = param.kind {
            let length = length_name(index);
            lengths.push(quote!(let #length = ::gpu_std::__private::read_value::<usize>(args, #position);));
            arguments.push(on_host);
        } else {
            let argument = quote!(::gpu_std::__private::#on_host(args, #position));
            arguments.push(match param.is_optional {
                true => quote!((!::gpu_std::__private::is_null(args, #position)).then(|| #argument)),
                false => argument,
            });
        }
        params.push(quote! {
            ::gpu_std::ParamSpec {
                name: #param_name,
                kind: ::gpu_std::ParamKind::#kind,
                type_name: #type_name,
                size: ::core::mem::size_of::<#element>(),
                align: ::core::mem::align_of::<#element>(),
                signature: __SIGNATURES[#signature],
            }
        });
    }

    let mut types = Vec::new();
    let mut consts = Vec::new();
    for argument in &instance.0 {
        match argument {
            Argument::Type { parameter, name, .. } => {
                let parameter = parameter.to_string();
                types.push(quote!(::gpu_std::TypeArgument { parameter: #parameter, name: #name }));
            }
            Argument::Const { parameter, value } => {
                let (parameter, value) = (parameter.to_string(), value.value);
                consts.push(quote!(::gpu_std::ConstArgument { parameter: #parameter, value: #value }));
            }
        }
    }

    let limits = limits::constant(kernel, instance);
    let static_shared = static_shared(kernel, instance);
    let [bytes, bytes_function] = traffic::bytes(kernel, instance);
    let [check_lengths, lengths_function] = lengths::lengths(kernel, instance);
    let (min_arch, is_safe, folder) = (kernel.options.arch, kernel.is_safe, folder());
    let is_arch_specific = kernel.options.is_arch_specific;
    let stack = match kernel.options.stack {
        None => quote!(::core::option::Option::None),
        Some(bytes) => quote!(::core::option::Option::Some(#bytes)),
    };
    let (cooperative, dependent) = (kernel.options.cooperative, kernel.options.dependent);
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        const _: () = {
            #limits
            const __CLAIMS: ::gpu_std::Claims = ::gpu_std::Claims::all(&[#(__CLAIMED[#claimed].0),*]);
            const _: () = __LIMITS.check(__CLAIMS);
            const __INFO: ::gpu_std::KernelInfo = ::gpu_std::KernelInfo {
                name: #label,
                symbol: #symbol,
                package: ::core::env!("CARGO_PKG_NAME"),
                version: ::core::env!("CARGO_PKG_VERSION"),
                module: ::core::module_path!(),
                folder: #folder,
                types: &[#(#types),*],
                consts: &[#(#consts),*],
                params: &[#(#params),*],
                launch_bounds: __LIMITS.launch_bounds(),
                block: __LIMITS.block(),
                cluster: __LIMITS.cluster(),
                static_shared: #static_shared,
                claims: __CLAIMS,
                items: ::gpu_std::__private::items(&[#(__CLAIMED[#claimed].2),*]),
                stack: #stack,
                min_arch: #min_arch,
                is_arch_specific: #is_arch_specific,
                is_safe: #is_safe,
                cooperative: #cooperative,
                dependent: #dependent,
            };

            static __SPEC: ::gpu_std::KernelSpec =
                ::gpu_std::KernelSpec { info: __INFO, entry: ::gpu_std::__host_entry!(__entry), bytes: #bytes, lengths: #check_lengths };

            #bytes_function

            #lengths_function

            #[::gpu_std::__private::linkme::distributed_slice(::gpu_std::registry::KERNELS)]
            #[linkme(crate = ::gpu_std::__private::linkme)]
            static __REGISTERED: &::gpu_std::KernelInfo = &__INFO;

            #[allow(dead_code, unused_variables)]
            unsafe fn __entry(args: *const *const ::core::ffi::c_void) {
                // SAFETY: the caller passes one pointer per kernel parameter, as listed in `__SPEC`, and the launching
                // code upholds the contract of an unsafe kernel.
                #[allow(unused_unsafe)]
                unsafe {
                    #(#lengths)*
                    #callee(#(#arguments),*)
                }
            }

            // SAFETY: `__SPEC` belongs to this instance.
            unsafe impl ::gpu_std::Instance for #name<#(#generic_arguments),*> {
                fn of_host() -> &'static ::gpu_std::KernelSpec {
                    &__SPEC
                }
            }
        };
    }
}
