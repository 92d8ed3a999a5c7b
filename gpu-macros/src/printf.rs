//! `printf!` checks a C format string against its arguments at compile time.

use std::ffi::CString;

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, LitStr, Result, Token};

/// Input of the macro, in the form `"format", argument, …`.
struct Input {
    format: LitStr,
    arguments: Punctuated<Expr, Token![,]>,
}

impl Parse for Input {
    fn parse(input: ParseStream) -> Result<Self> {
        let format = input.parse().map_err(|error| {
            Error::new(error.span(), "printf! must start with a format string: `printf!(\"i = %d\\n\", i)`")
        })?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        Ok(Self { format, arguments: Punctuated::parse_terminated(input)? })
    }
}

/// Kinds of arguments.
#[derive(Clone, Copy)]
enum Kind {
    Signed,
    Unsigned,
    Float,
    Char,
    String,
    Pointer,
}

impl Kind {
    fn of(conversion: char) -> Option<Self> {
        Some(match conversion {
            'd' | 'i' => Kind::Signed,
            'u' | 'o' | 'x' | 'X' => Kind::Unsigned,
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A' => Kind::Float,
            'c' => Kind::Char,
            's' => Kind::String,
            'p' => Kind::Pointer,
            _ => return None,
        })
    }

    /// Returns the function that converts an argument, the function's result type, and the name of the argument kind on
    /// the host.
    fn names(self) -> (&'static str, TokenStream, &'static str) {
        match self {
            Kind::Signed => ("c_signed", quote!(i64), "Signed"),
            Kind::Unsigned => ("c_unsigned", quote!(u64), "Unsigned"),
            Kind::Float => ("c_float", quote!(f64), "Float"),
            Kind::Char => ("c_char", quote!(u32), "Char"),
            Kind::String => ("c_string", quote!(*const ::core::ffi::c_char), "String"),
            Kind::Pointer => ("c_pointer", quote!(*const ::core::ffi::c_void), "Pointer"),
        }
    }
}

/// Expands `printf!(input)`.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let Input { format, arguments } = syn::parse2(input)?;
    let (text, kinds) = conversions(&format.value()).map_err(|message| Error::new(format.span(), message))?;
    if let Some(surplus) = arguments.iter().nth(kinds.len()) {
        return Err(Error::new_spanned(
            surplus,
            format!(
                "the format has {}, but there are {} arguments: this one is not printed",
                count(kinds.len()),
                arguments.len()
            ),
        ));
    }
    if arguments.len() < kinds.len() {
        let missing = format!(
            "the format has {}, but the arguments are {}: add one for each conversion, or write `%%` for a \
             percent sign",
            count(kinds.len()),
            arguments.len()
        );
        return Err(Error::new(format.span(), missing));
    }
    let text = CString::new(text)
        .map_err(|_| Error::new(format.span(), "a C format ends at its first NUL: remove the `\\0`"))?;
    let mut text = Literal::c_string(&text);
    text.set_span(format.span());
    Ok(emit(&text, &kinds, &arguments))
}

fn count(conversions: usize) -> String {
    match conversions {
        0 => "no conversions".to_owned(),
        1 => "1 conversion".to_owned(),
        n => format!("{n} conversions"),
    }
}

/// Returns the format with every integer conversion extended to 64 bits, and the kind of each conversion.
fn conversions(format: &str) -> std::result::Result<(String, Vec<Kind>), String> {
    let mut text = String::new();
    let mut kinds = Vec::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        text.push(c);
        if c != '%' {
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let mut written = String::from("%");
        while let Some(c) = chars.next_if(|c| "-+ #0123456789.".contains(*c)) {
            text.push(c);
            written.push(c);
        }
        while let Some(c) = chars.next_if(|c| "hlLjzt".contains(*c)) {
            written.push(c);
        }
        let Some(conversion) = chars.next() else {
            return Err(format!("the format ends within `{written}`: write `%%` for a percent sign"));
        };
        written.push(conversion);
        if conversion == '*' {
            return Err("a width or precision from an argument is not supported: write the number".to_owned());
        }
        let Some(kind) = Kind::of(conversion) else {
            return Err(format!(
                "unknown conversion `{written}`: the conversions are %d %i %u %o %x %X %c %s %p and %f %e %g %a; \
                 write `%%` for a percent sign"
            ));
        };
        if matches!(kind, Kind::Signed | Kind::Unsigned) {
            text.push_str("ll");
        }
        text.push(conversion);
        kinds.push(kind);
    }
    Ok((text, kinds))
}

fn emit(text: &Literal, kinds: &[Kind], arguments: &Punctuated<Expr, Token![,]>) -> TokenStream {
    let mut values = Vec::new();
    let mut types = Vec::new();
    let mut on_host = Vec::new();
    let names: Vec<Ident> = (0..kinds.len()).map(|i| format_ident!("argument_{i}")).collect();
    for ((kind, argument), name) in kinds.iter().zip(arguments).zip(&names) {
        let (function, ty, variant) = kind.names();
        let function = Ident::new(function, Span::call_site());
        let variant = Ident::new(variant, Span::call_site());
        values.push(quote_spanned!(argument.span()=> ::gpu_std::__private::#function(#argument)));
        types.push(ty);
        on_host.push(quote!(::gpu_std::__private::Argument::#variant(#name)));
    }
    quote! {
        match (#(#values,)*) {
            (#(#names,)*) => {
                #[cfg(target_arch = "nvptx64")]
                {
                    #[repr(C)]
                    struct Arguments(#(#types),*);
                    let arguments = Arguments(#(#names),*);
                    // SAFETY: the format was checked against the arguments, which have the layout of C variadic
                    // arguments.
                    unsafe {
                        ::gpu_std::__private::vprintf(#text.as_ptr().cast(), (&raw const arguments).cast());
                    }
                }
                #[cfg(not(target_arch = "nvptx64"))]
                // SAFETY: the format was checked against the arguments.
                unsafe {
                    ::gpu_std::__private::print(#text, &[#(#on_host),*]);
                }
            }
        }
    }
}
