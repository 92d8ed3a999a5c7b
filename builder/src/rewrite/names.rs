//! Assigns symbols to kernels.
//!
//! `#[kernel]` cannot know whether another kernel has the same name. It therefore writes a unique symbol, with
//! [`ENTRY_MARK`] after the name. At this point all kernels are known, so each kernel receives its name as its symbol,
//! followed by its module path if the name is taken ([`qualified`]). The host finds a kernel by name and module.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use gpu_spec::image::{ENTRY_MARK, ORIGIN_PREFIX, qualified};

use super::{RewriteError, kernels, text};

/// Returns the module with the final symbols of kernels and of the constants about them.
pub fn resolve(ir: &str) -> Result<Cow<'_, str>, RewriteError> {
    let symbols = symbols(ir)?;
    if symbols.is_empty() {
        return Ok(ir.into());
    }
    let mut resolved = String::with_capacity(ir.len());
    for line in ir.lines() {
        let mut rest = line;
        while let Some(at) = rest.find(ENTRY_MARK) {
            let is_outside = |c: char| !(c.is_ascii_alphanumeric() || "$._".contains(c));
            let start = rest[..at].rfind(is_outside).map_or(0, |before| before + 1);
            let id = &rest[at + ENTRY_MARK.len()..];
            let (id, after) = id.split_at(id.find(is_outside).unwrap_or(id.len()));
            // The symbol of a constant has a prefix that ends with a dot; a kernel name contains no dot.
            let name = rest[start..at].rfind('.').map_or(start, |point| start + point + 1);
            resolved.push_str(&rest[..name]);
            resolved.push_str(symbols.get(id).map_or(&rest[name..at], |symbol| symbol));
            rest = after;
        }
        resolved.push_str(rest);
        resolved.push('\n');
    }
    Ok(resolved.into())
}

/// Returns the symbol of each kernel, by its unique identifier.
fn symbols(ir: &str) -> Result<HashMap<&str, String>, RewriteError> {
    let mut taken = HashSet::new();
    let mut found = Vec::new();
    let mut modules = HashMap::new();
    for line in ir.lines() {
        let symbol = match line.as_bytes().first() {
            Some(b'@') => text::symbol(&line[1..]).map(|(name, _)| name),
            Some(b'd') => text::function(line).map(|(name, _)| name),
            _ => None,
        };
        let Some(symbol) = symbol.map(|symbol| symbol.trim_matches('"')) else { continue };
        match symbol.split_once(ENTRY_MARK) {
            Some((name, id)) if kernels::is_kernel(line) => found.push((name, id)),
            Some((name, id)) if name.starts_with(ORIGIN_PREFIX) => {
                let origin = line.split_once("c\"").and_then(|(_, rest)| rest.split_once('"'));
                let origin = origin.map(|(bytes, _)| text::unescape(bytes)).unwrap_or_default();
                let origin = String::from_utf8_lossy(&origin).into_owned();
                modules.insert(id, origin.split(' ').nth(2).unwrap_or_default().to_owned());
            }
            Some(_) => {}
            None => {
                taken.insert(symbol);
            }
        }
    }
    let mut uses: HashMap<&str, usize> = HashMap::new();
    found.iter().for_each(|(name, _)| *uses.entry(name).or_default() += 1);
    let mut symbols = HashMap::new();
    let mut seen = HashSet::new();
    for (name, id) in found {
        let symbol: String = match uses.get(name) == Some(&1) && !taken.contains(name) {
            true => name.to_owned(),
            false => qualified(name, modules.get(id).map_or("", |module| module)).collect(),
        };
        if !seen.insert(symbol.clone()) {
            let module = modules.remove(id).unwrap_or_default();
            return Err(RewriteError::SameKernels { kernel: name.to_owned(), module });
        }
        symbols.insert(id, symbol);
    }
    Ok(symbols)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a kernel as `#[kernel]` does, and another kernel that calls it.
    fn kernel(name: &str, id: &str, module: &str) -> String {
        format!(
            "@__warpsmith_origin.{name}.entry.{id} = constant [9 x i8] c\"k 0.1.0 {module}\", align 1\n\
             define ptx_kernel void @{name}.entry.{id}(ptr %0) {{\n  ret void\n}}\n"
        )
    }

    #[test]
    fn a_name_is_the_symbol() {
        let ir =
            kernel("scale__f32", "0f.1", "k::a") + "  store ptr @scale__f32.entry.0f.1, ptr %1, align 8\n";
        assert_eq!(
            resolve(&ir).unwrap(),
            "@__warpsmith_origin.scale__f32 = constant [9 x i8] c\"k 0.1.0 k::a\", align 1\n\
             define ptx_kernel void @scale__f32(ptr %0) {\n  ret void\n}\n  store ptr @scale__f32, ptr %1, align 8\n"
        );
        assert_eq!(
            resolve("define ptx_kernel void @by_hand() {\n").unwrap(),
            "define ptx_kernel void @by_hand() {\n"
        );
    }

    #[test]
    fn a_taken_name_gets_its_module() {
        let ir =
            kernel("scale", "a.1", "k::a") + &kernel("scale", "a.2", "k::b") + &kernel("copy", "a.3", "k::b");
        let resolved = resolve(&ir).unwrap();
        for symbol in ["scale$k$a", "scale$k$b", "copy"] {
            assert!(resolved.contains(&format!("@__warpsmith_origin.{symbol} = ")), "{resolved}");
            assert!(resolved.contains(&format!("define ptx_kernel void @{symbol}(")), "{resolved}");
        }
        let ir = kernel("memcpy", "a.1", "k")
            + "declare ptr @memcpy(ptr, ptr, i64)\n  call void @memcpy(ptr %0)\n";
        let resolved = resolve(&ir).unwrap();
        assert!(
            resolved.contains("void @memcpy$k(") && resolved.contains("call void @memcpy(ptr %0)"),
            "{resolved}"
        );
    }

    #[test]
    fn two_of_one_module_are_named() {
        let ir = kernel("scale", "a.1", "k::a") + &kernel("scale", "b.1", "k::a");
        let error = resolve(&ir).unwrap_err().to_string();
        assert!(error.contains("`scale`") && error.contains("`k::a`"), "{error}");
    }
}
