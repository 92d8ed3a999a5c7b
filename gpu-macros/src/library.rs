//! Path of gpu-std in the crate in which a macro expands. The manifest of that crate may rename gpu-std, or depend only
//! on the facade.
//!
//! The module reads only the dependency tables of the manifest. The crate `proc-macro-crate` is not used because it has
//! 8 dependencies, and runs cargo for each crate that expands a macro.

use std::path::Path;

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::quote;

/// Name of the package that contains gpu-std.
const PACKAGE: &str = "warpsmith-gpu-std";

/// Replaces `::gpu_std` in the tokens with the path of gpu-std in this crate.
pub(crate) fn found(tokens: TokenStream) -> TokenStream {
    let own = std::env::var("CARGO_MANIFEST_DIR");
    match own.ok().and_then(|folder| path_of(Path::new(&folder))) {
        Some(path) => replace(tokens, &path),
        None => tokens,
    }
}

/// Returns the path of gpu-std according to the manifest in `folder`, or `None` if the path is `::gpu_std`.
fn path_of(folder: &Path) -> Option<TokenStream> {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).ok()?;
    let root = || {
        let mut manifests = folder.ancestors().skip(1).map(|folder| folder.join("Cargo.toml"));
        let text = |path: std::path::PathBuf| std::fs::read_to_string(path).ok();
        manifests.find_map(|path| text(path).filter(|text| text.contains("[workspace")))
    };
    let name = |package| name_of(&manifest, package, &root);
    let path = match (name(PACKAGE), name("warpsmith")) {
        (Some(name), _) => vec![name],
        (None, Some(facade)) => vec![facade, "gpu_std".to_owned()],
        (None, None) => return None,
    };
    if path == ["gpu_std"] {
        return None;
    }
    let path = path.iter().map(|name| Ident::new(name, Span::call_site()));
    Some(quote!(#(::#path)*))
}

/// Returns the Rust name under which a manifest depends on `package`. `root` returns the manifest of the crate's
/// workspace.
fn name_of(manifest: &str, package: &str, root: &dyn Fn() -> Option<String>) -> Option<String> {
    let mut found = None;
    for dependency in dependencies(manifest) {
        let is_it = match (&dependency.package, dependency.is_inherited) {
            (Some(renamed), _) => renamed == package,
            (None, false) => dependency.name == package,
            (None, true) => {
                let inherited = root().map(|root| dependencies(&root)).unwrap_or_default();
                let entry = inherited.into_iter().find(|entry| entry.name == dependency.name);
                entry.and_then(|entry| entry.package).unwrap_or_else(|| dependency.name.clone()) == package
            }
        };
        if is_it {
            // A dependency that is not renamed has the same name as its library.
            let name = if dependency.name == PACKAGE { "gpu_std" } else { &dependency.name };
            found = Some(name.replace('-', "_"));
        }
    }
    found
}

/// An entry in a manifest's dependency tables.
#[derive(Debug, PartialEq)]
struct Dependency {
    name: String,
    /// Package name, if the entry specifies it.
    package: Option<String>,
    /// True if the entry inherits its other fields from the workspace.
    is_inherited: bool,
}

/// Returns all dependencies of a manifest.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut all: Vec<Dependency> = Vec::new();
    let mut of = |name: &str, key: &str, value: &str| {
        let name = name.trim().trim_matches(['"', '\'']);
        let index = all.iter().position(|known| known.name == name).unwrap_or_else(|| {
            all.push(Dependency { name: name.to_owned(), package: None, is_inherited: false });
            all.len() - 1
        });
        match key.trim() {
            "package" => all[index].package = Some(value.trim().trim_matches(['"', '\'']).to_owned()),
            "workspace" => all[index].is_inherited = value.trim() == "true",
            _ => {}
        }
    };
    // The table to which the current lines belong: the table of all dependencies, or the table of a single dependency.
    let mut table: Option<Option<String>> = None;
    for line in split(manifest, '\n') {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']').trim();
            let last = header.rsplit('.').next().unwrap_or_default();
            let before = header.strip_suffix(last).unwrap_or_default();
            table = match () {
                () if last.ends_with("dependencies") => Some(None),
                () if before.ends_with("dependencies.") => {
                    of(last, "", "");
                    Some(Some(last.to_owned()))
                }
                () => None,
            };
            continue;
        }
        let (Some(table), Some((key, value))) = (&table, line.split_once('=')) else { continue };
        match table {
            Some(name) => of(name, key, value),
            None => match key.split_once('.') {
                Some((name, key)) => of(name, key, value),
                None => {
                    of(key, "", "");
                    let inside = value.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
                    for field in split(inside.unwrap_or_default(), ',') {
                        field.split_once('=').into_iter().for_each(|(field, value)| of(key, field, value));
                    }
                }
            },
        }
    }
    all
}

/// Splits TOML text at each `separator` outside brackets and strings, and removes comments.
fn split(toml: &str, separator: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote, mut chars) = (0_usize, None, toml.chars());
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('#', None) => {
                chars = chars.as_str().trim_start_matches(|c| c != '\n').chars();
                continue;
            }
            ('"' | '\'', None) => quote = Some(c),
            (_, Some(open)) if c == open => quote = None,
            ('\\', Some('"')) => {
                chars.next();
                continue;
            }
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            (_, None) if c == separator && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("the list begins with one").push(c);
    }
    parts
}

/// Replaces each `::gpu_std` in `tokens`.
pub(crate) fn replace(tokens: TokenStream, path: &TokenStream) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let mut replaced = Group::new(group.delimiter(), replace(group.stream(), path));
                replaced.set_span(group.span());
                out.push(replaced.into());
            }
            TokenTree::Ident(name) if name == "gpu_std" && ends_with_colons(&out) => {
                out.truncate(out.len() - 2);
                out.extend(path.clone());
            }
            other => out.push(other),
        }
    }
    out.into_iter().collect()
}

/// Returns true if the last tokens are a `::` at the start of a path.
fn ends_with_colons(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    match tokens {
        [rest @ .., first, second] if is_colon(first) && is_colon(second) => {
            !matches!(rest.last(), Some(TokenTree::Ident(name)) if is_in_path(name))
        }
        _ => false,
    }
}

/// Returns true if a `::` after this name continues a path. After a keyword such as `impl` or `as`, a `::` starts a new
/// path.
fn is_in_path(name: &Ident) -> bool {
    let name = name.to_string();
    ["crate", "self", "super", "Self"].contains(&&*name) || syn::parse_str::<Ident>(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(manifest: &str, package: &str) -> Option<String> {
        let root = "[workspace.dependencies]\ndevice = { path = \"x\", package = \"warpsmith-gpu-std\" }\n";
        name_of(manifest, package, &|| Some(root.to_owned()))
    }

    #[test]
    fn names_are_those_of_the_manifest() {
        for (manifest, expected) in [
            ("[dependencies]\nwarpsmith-gpu-std = \"0.1\"\n", Some("gpu_std")),
            (
                "[dependencies]\nmy-std = { version = \"0.1\", package = \"warpsmith-gpu-std\" } # renamed\n",
                Some("my_std"),
            ),
            ("[dependencies.my-std]\nversion = \"0.1\"\npackage = \"warpsmith-gpu-std\"\n", Some("my_std")),
            ("[dependencies.warpsmith-gpu-std]\nversion = \"0.1\"\n", Some("gpu_std")),
            ("[dependencies]\nk.package = \"warpsmith-gpu-std\"\nk.version = \"0.1\"\n", Some("k")),
            ("[dependencies]\ndevice.workspace = true\n", Some("device")),
            ("[dependencies]\ndevice = { workspace = true, features = [\"glam\"] }\n", Some("device")),
            ("[target.'cfg(unix)'.dependencies]\ng = { package = \"warpsmith-gpu-std\" }\n", Some("g")),
            ("[dev-dependencies]\nwarpsmith-gpu-std.workspace = true\n", Some("gpu_std")),
            (
                "[dependencies]\ng = { features = [\n  \"glam\", # and , or }\n  \"a\"\n], package = \"warpsmith-gpu-std\" }\n",
                Some("g"),
            ),
            ("[dependencies]\na = { features = [\"b, package = 'warpsmith-gpu-std'\"] }\n", None),
            ("[package]\ndescription = \"\"\"\n[dependencies]\nwarpsmith-gpu-std = '1'\n\"\"\"\n", None),
            ("[dependencies] # all\n'warpsmith-gpu-std' = '1'# \"quoted\n", Some("gpu_std")),
            ("[package]\nname = \"warpsmith-gpu-std\"\n[dependencies]\nserde = \"1\"\n", None),
            ("[dependencies]\nwarpsmith-gpu-std = { package = \"another\" }\n", None),
        ] {
            assert_eq!(name(manifest, PACKAGE).as_deref(), expected, "{manifest}");
        }
        assert_eq!(
            name("[dependencies]\nw = { package = \"warpsmith\" }\n", "warpsmith").as_deref(),
            Some("w")
        );
    }

    #[test]
    fn only_paths_from_the_root_are_replaced() {
        let tokens: TokenStream =
            "impl ::gpu_std::B for C { fn f(x: ::gpu_std::A) { ::gpu_std::g(gpu_std::h, mine::gpu_std::i) } }".parse().unwrap();
        let replaced = replace(tokens, &quote!(::w::gpu_std)).to_string().replace(' ', "");
        assert_eq!(
            replaced,
            "impl::w::gpu_std::BforC{fnf(x:::w::gpu_std::A){::w::gpu_std::g(gpu_std::h,mine::gpu_std::i)}}"
        );
    }
}
