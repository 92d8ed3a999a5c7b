//! Finds the unstable features that a crate's source enables, because rustc rejects a feature that is enabled twice.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A `cfg` condition that holds: its name, and its value if it has one.
pub type Cfg = (String, Option<String>);

/// Returns the features in the inner attributes `#![feature(…)]` and `#![cfg_attr(…, feature(…))]` of a crate's source,
/// given that `cfgs` hold. If a source is not valid Rust, no features are returned, and rustc reports the errors.
pub fn of_source(source: &str, cfgs: &BTreeSet<Cfg>) -> Vec<String> {
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let tokens = without_shebang(source).parse::<TokenStream>();
    let mut tokens = tokens.unwrap_or_default().into_iter();
    let mut features = Vec::new();
    // Inner attributes precede everything else; a `//!` comment is one of them.
    while let (Some(hash), Some(bang), Some(TokenTree::Group(attribute))) =
        (tokens.next(), tokens.next(), tokens.next())
    {
        if !(is_punct(&hash, '#') && is_punct(&bang, '!') && attribute.delimiter() == Delimiter::Bracket) {
            break;
        }
        of_attribute(attribute.stream(), cfgs, &mut features);
    }
    features
}

/// Follows rustc: `#!` is a shebang unless the next token makes it an attribute.
fn without_shebang(source: &str) -> &str {
    let is_shebang = source.strip_prefix("#!").is_some_and(|rest| {
        let first = rest.parse::<TokenStream>().ok().and_then(|tokens| tokens.into_iter().next());
        !matches!(first, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket)
    });
    if is_shebang { source.find('\n').map_or("", |end| &source[end..]) } else { source }
}

fn of_attribute(attribute: TokenStream, cfgs: &BTreeSet<Cfg>, features: &mut Vec<String>) {
    let mut tokens = attribute.into_iter();
    let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(list))) = (tokens.next(), tokens.next()) else {
        return;
    };
    let mut parts = parts(list.stream()).into_iter();
    match &*name.to_string() {
        "feature" => features.extend(parts.map(|part| part.to_string())),
        "cfg_attr" if parts.next().is_some_and(|condition| holds(condition, cfgs)) => {
            parts.for_each(|attribute| of_attribute(attribute, cfgs, features));
        }
        _ => {}
    }
}

/// Returns true if a condition holds: `all(…)`, `any(…)`, `not(…)`, `true`, `false`, `NAME` or `NAME = "VALUE"`.
fn holds(condition: TokenStream, cfgs: &BTreeSet<Cfg>) -> bool {
    let mut tokens = condition.into_iter();
    let Some(TokenTree::Ident(name)) = tokens.next() else { return false };
    let name = name.to_string();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(list)), _) => {
            let mut list = parts(list.stream()).into_iter().map(|condition| holds(condition, cfgs));
            match &*name {
                "all" => list.all(|holds| holds),
                "any" => list.any(|holds| holds),
                "not" => !list.next().unwrap_or(false),
                _ => false,
            }
        }
        (Some(_), Some(TokenTree::Literal(value))) => {
            let value = value.to_string();
            let text = value.trim_matches(|c| c == 'r' || c == '#').trim_matches('"').to_owned();
            cfgs.contains(&(name, Some(text)))
        }
        _ => name == "true" || cfgs.contains(&(name, None)),
    }
}

fn parts(list: TokenStream) -> Vec<TokenStream> {
    let mut parts: Vec<Vec<TokenTree>> = vec![Vec::new()];
    for token in list {
        match token {
            token if is_punct(&token, ',') => parts.push(Vec::new()),
            token => parts.last_mut().expect("it is never empty").push(token),
        }
    }
    parts.into_iter().filter(|part| !part.is_empty()).map(TokenStream::from_iter).collect()
}

fn is_punct(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(source: &str) -> String {
        let cfg = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        let cfgs = [cfg("target_arch", Some("nvptx64")), cfg("feature", Some("fast")), cfg("own", None)];
        of_source(source, &cfgs.into_iter().collect()).join(" ")
    }

    #[test]
    fn attributes_turn_features_on() {
        assert_eq!(
            of("#![feature(abi_ptx, foo)]\n#![no_std]\n#![feature(\n bar, // why\n)]\nfn f() {}"),
            "abi_ptx foo bar"
        );
        assert_eq!(of("# ! [ feature ( abi_ptx ) ]"), "abi_ptx");
        assert_eq!(
            of("\u{feff}//! Text.\n#![doc = \"]\"]\n#![allow(x)]\n#![feature(abi_ptx)]\nmod m;"),
            "abi_ptx"
        );
        assert_eq!(of("#!/usr/bin/env x\n#![feature(abi_ptx)]"), "abi_ptx");
        assert_eq!(of("#!/* text */[feature(abi_ptx)]"), "abi_ptx");
    }

    #[test]
    fn what_only_looks_like_an_attribute_does_not() {
        for source in [
            "/* #![feature(abi_ptx)] */",
            "/* /* nested */ #![feature(abi_ptx)] */",
            "/*! #![feature(abi_ptx)] */ //! #![feature(abi_ptx)]",
            "// #![feature(abi_ptx)]\n#![no_std]",
            "#![doc = \"#![feature(abi_ptx)]\"]",
            "#![doc = r#\"\"\n#![feature(abi_ptx)]\"#]",
            "const S: &str = \"\n#![feature(abi_ptx)]\n\";",
            "fn f() { #![feature(abi_ptx)] }",
            "macro_rules! m { () => { #![feature(abi_ptx)] } }",
            "#![allow(feature(abi_ptx))]",
            "struct S<'a>(&'a str); // '\n/* ' */",
            "this is \" no Rust",
            "",
        ] {
            assert_eq!(of(source), "", "{source}");
        }
    }

    #[test]
    fn conditions_are_those_of_the_build_for_the_gpu() {
        for (condition, holds) in [
            ("target_arch = \"nvptx64\"", true),
            ("target_arch = r\"nvptx64\"", true),
            ("not(target_arch = \"nvptx64\")", false),
            ("target_arch = \"x86_64\"", false),
            ("all(feature = \"fast\", own)", true),
            ("all(feature = \"fast\", not(own))", false),
            ("any(feature = \"slow\", own,)", true),
            ("any()", false),
            ("all()", true),
            ("true", true),
            ("false", false),
            ("test", false),
        ] {
            let source = format!("#![cfg_attr({condition}, allow(x), feature(abi_ptx))]");
            assert_eq!(of(&source), if holds { "abi_ptx" } else { "" }, "{condition}");
        }
        assert_eq!(of("#![cfg_attr(own, cfg_attr(feature = \"fast\", feature(a, b)))]"), "a b");
        assert_eq!(of("#![cfg_attr(own, cfg_attr(feature = \"slow\", feature(a, b)))]"), "");
    }
}
