//! `#[kernel(crate = path)]`: the expansion names gpu-std by another path.

use proc_macro2::{Group, Spacing, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::Path;

/// Replaces each `::gpu_std` in `tokens` by `path`.
pub(crate) fn library(tokens: TokenStream, path: &Path) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let mut renamed = Group::new(group.delimiter(), library(group.stream(), path));
                renamed.set_span(group.span());
                out.push(renamed.into());
            }
            TokenTree::Ident(name) if name == "gpu_std" && ends_with_colons(&out) => {
                out.truncate(out.len() - 2);
                let leading = path.leading_colon.map(|_| quote_spanned!(name.span()=> ::));
                let segments = path.segments.to_token_stream();
                out.extend(leading.into_iter().flatten().chain(segments));
            }
            other => out.push(other),
        }
    }
    out.into_iter().collect()
}

/// Whether the last two tokens are `::`.
fn ends_with_colons(tokens: &[TokenTree]) -> bool {
    let is = |token: &TokenTree, spacing: Option<Spacing>| match token {
        TokenTree::Punct(punct) => punct.as_char() == ':' && spacing.is_none_or(|s| punct.spacing() == s),
        _ => false,
    };
    matches!(tokens, [.., first, second] if is(first, Some(Spacing::Joint)) && is(second, None))
}
