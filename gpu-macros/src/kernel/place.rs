//! Finds a kernel's location in its source file, because a macro sees only the function, not the `impl` around it.

use proc_macro2::{Ident, Span};
use syn::{Attribute, ImplItem, Item, TraitItem};

/// Returns whether the file that contains `name` declares a method with that name and `#[kernel]`. Only indented
/// kernels are considered.
pub(crate) fn is_method(name: &Ident) -> bool {
    let here = Span::call_site().unwrap();
    if here.start().column() <= 1 {
        return false;
    }
    let text = here.local_file().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| syn::parse_file(&text).ok()).is_some_and(|file| has_method(&file.items, name))
}

fn has_method(items: &[Item], name: &Ident) -> bool {
    items.iter().any(|item| match item {
        Item::Mod(module) => module.content.as_ref().is_some_and(|(_, items)| has_method(items, name)),
        Item::Impl(block) => block.items.iter().any(|item| match item {
            ImplItem::Fn(function) => function.sig.ident == *name && is_kernel(&function.attrs),
            _ => false,
        }),
        Item::Trait(block) => block.items.iter().any(|item| match item {
            TraitItem::Fn(function) => function.sig.ident == *name && is_kernel(&function.attrs),
            _ => false,
        }),
        _ => false,
    })
}

fn is_kernel(attributes: &[Attribute]) -> bool {
    let last =
        |attribute: &Attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "kernel");
    attributes.iter().any(last)
}
