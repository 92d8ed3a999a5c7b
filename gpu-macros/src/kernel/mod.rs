//! `#[kernel]`: generates entries for the GPU, entries for the emulated device, and a type that launches refer to.
//!
//! All errors in the function are detected before anything is emitted, and every error points to the token to change.

pub(crate) mod emit;
mod forms;
pub(crate) mod instances;
mod lengths;
mod limits;
pub(crate) mod options;
mod params;
mod place;
mod shared;
mod traffic;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Error, ItemFn, Result, ReturnType, Safety, Type, WherePredicate};

use crate::family::Family;
use options::Options;
use params::Param;

/// A valid kernel that is ready to be emitted.
pub(crate) struct Kernel {
    /// Function, unchanged.
    pub function: ItemFn,
    /// The attribute's options.
    pub options: Options,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// The instances, each of which is a list of arguments.
    pub instances: Vec<instances::Instance>,
    /// True if the function is not `unsafe`.
    pub is_safe: bool,
    /// The family's additional items, if `#[elementwise]`, `#[reduction]` or `#[scan]` generated the kernel. In this
    /// case, the kernel's function is hidden.
    pub family: Option<Family>,
}

/// Collects errors so that all of them are reported together.
#[derive(Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    /// Adds an error that points to `tokens`.
    pub fn push(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.merge(Error::new_spanned(tokens, message));
    }

    /// Adds an existing error.
    pub fn merge(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns the collected errors, if any.
    pub fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

/// Expands `#[kernel(options)] item`.
pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item.clone()).map_err(|error| {
        let is_function = item.into_iter().any(|token| token.to_string() == "fn");
        if is_function { error } else { Error::new(error.span(), "#[kernel] applies only to a function") }
    })?;
    let options: Options = syn::parse2(options)?;

    let mut errors = Errors::default();
    if function.sig.receiver().is_none() && place::is_method(&function.sig.ident) {
        errors.push(&function.sig.ident, "a kernel must be a free function: move it out of the `impl`");
        return errors.finish().map(|()| TokenStream::new());
    }
    write(function, options, None)
}

/// Emits a kernel.
pub(crate) fn write(function: ItemFn, options: Options, family: Option<Family>) -> Result<TokenStream> {
    let is_safe = !matches!(function.sig.safety, Safety::Unsafe(_));
    let mut errors = Errors::default();
    check_signature(&function, &mut errors);
    let params = params::read(&function.sig, is_safe, &mut errors);
    lengths::check_names(&options.same_len, &params, &mut errors);
    let instances = instances::expand(&function.sig.generics, &options, &mut errors);
    errors.finish()?;
    let library = options.library.clone();
    let items = emit::kernel(&Kernel { function, options, params, instances, is_safe, family });
    Ok(match library {
        Some(library) => crate::library::replace(items, &library.to_token_stream()),
        None => items,
    })
}

/// Rejects signatures that a kernel must not have. Parameters and generics are checked elsewhere.
fn check_signature(function: &ItemFn, errors: &mut Errors) {
    let sig = &function.sig;
    if let Some(token) = &sig.constness {
        errors.push(token, "a kernel runs only on a device: remove `const`");
    }
    if let Some(token) = &sig.asyncness {
        errors.push(
            token,
            "a kernel cannot be async: remove `async`; launches are asynchronous anyway, so wait for the stream \
             instead",
        );
    }
    if let Some(abi) = &sig.abi {
        errors.push(abi, "#[kernel] chooses the ABI of the entry itself: remove this `extern`");
    }
    if let Some(variadic) = &sig.variadic {
        errors.push(variadic, "a kernel must have a fixed list of parameters: pass a slice `&[T]`");
    }
    if let ReturnType::Type(_, ty) = &sig.output {
        let is_unit = matches!(&**ty, Type::Tuple(tuple) if tuple.elems.is_empty());
        if !is_unit {
            errors.push(
                ty,
                "a kernel cannot return a value: remove the return type, and write results through a parameter \
                 `DisjointMut<T>`",
            );
        }
    }
    let clauses = sig.generics.where_clause.iter().flat_map(|clause| &clause.predicates);
    let bounds = sig
        .generics
        .lifetimes()
        .filter(|lifetime| !lifetime.bounds.is_empty())
        .map(ToTokens::to_token_stream);
    for bound in bounds.chain(clauses.filter_map(|clause| match clause {
        WherePredicate::Lifetime(bound) => Some(bound.to_token_stream()),
        _ => None,
    })) {
        errors.push(bound, "the data lives only as long as the launch: remove this bound");
    }
    for attribute in &function.attrs {
        if attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr") {
            errors.push(attribute, "put this attribute above `#[kernel]`");
        }
    }
}
