//! Images that a package ships ready-made, because its kernel sources are in another package.
//!
//! A ready-made image is identical to the image that the builder generates from the kernel crate for all architectures,
//! with two exceptions. It does not specify the program's compiler, and omits the kernels' source folders.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::toolchain;

/// Placeholder for the compiler that will compile the program that embeds the image.
const HOST: &str = "@HOST_COMPILER@";

/// Copies the image in `file`, which the builder wrote, and its code into `folder`, and removes all other files from
/// `folder`. Pass the folder to [`PtxBuilder::ready_made`](crate::PtxBuilder::ready_made).
///
/// # Errors
/// Returns [`Error::ImageRequired`] if the image has no code, [`Error::Io`] if a file cannot be read or written.
pub fn export(file: &Path, folder: &Path) -> Result<(), Error> {
    let text = std::fs::read_to_string(file).map_err(Error::io("cannot read", file))?;
    if code_files(&text).is_empty() {
        return Err(Error::ImageRequired { reason: format!("{} has no code", file.display()) });
    }
    if folder.exists() {
        std::fs::remove_dir_all(folder).map_err(Error::io("cannot remove", folder))?;
    }
    std::fs::create_dir_all(folder).map_err(Error::io("cannot create", folder))?;
    let open = match text.split_once("host: \"").map(|(before, rest)| (before, rest.split_once('"'))) {
        Some((before, Some((_, after)))) => format!("{before}host: {HOST:?}{after}"),
        _ => text.clone(),
    };
    let is_place = |line: &&str| line.starts_with("    sources: &[");
    let open = match open.lines().find(is_place) {
        Some(place) => open.replacen(place, "    sources: &[],", 1),
        None => open,
    };
    let source = file.parent().unwrap_or(file);
    for code in code_files(&text) {
        copy(&source.join(&code), &folder.join(&code))?;
    }
    let target = folder.join(file.file_name().unwrap_or_default());
    std::fs::write(&target, open).map_err(Error::io("cannot write", &target))
}

/// Copies the ready-made image `name` in `folder` into `out`, and returns the file to include, or `None` if no such
/// image exists.
pub fn import(folder: &Path, name: &str, out: &Path) -> Result<Option<PathBuf>, Error> {
    let file = folder.join(format!("{name}_image.rs"));
    if !file.is_file() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&file).map_err(Error::io("cannot read", &file))?;
    for code in code_files(&text) {
        copy(&folder.join(&code), &out.join(&code))?;
    }
    let host = toolchain::host_compiler().unwrap_or_default();
    let target = out.join(format!("{name}_image.rs"));
    let text = text.replacen(&format!("host: {HOST:?}"), &format!("host: {host:?}"), 1);
    std::fs::write(&target, text).map_err(Error::io("cannot write", &target))?;
    Ok(Some(target))
}

/// Returns the files that the source of an image includes.
fn code_files(text: &str) -> Vec<String> {
    let names = text.split("include_bytes!(\"").skip(1);
    names.filter_map(|rest| rest.split_once('"').map(|(name, _)| name.to_owned())).collect()
}

fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::copy(from, to).map(drop).map_err(Error::io("cannot copy", from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exported_image_is_imported_with_its_code() {
        let base = std::env::temp_dir().join(format!("warpsmith-ready-{}", std::process::id()));
        let (made, ready, out) = (base.join("made"), base.join("ready"), base.join("out"));
        [&made, &out].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        std::fs::write(made.join("k.sm_80.ptx.lzma"), b"code").unwrap();
        let text = "\n    sources: &[Source {}],\ncompilers: Compilers { device: \"d\", host: \"builder's\" }, stream: include_bytes!(\"k.sm_80.ptx.lzma\")";
        std::fs::write(made.join("k_image.rs"), text).unwrap();
        export(&made.join("k_image.rs"), &ready).unwrap();
        let exported = std::fs::read_to_string(ready.join("k_image.rs")).unwrap();
        assert!(!exported.contains("builder's") && exported.contains("\n    sources: &[],\n"), "{exported}");

        let file = import(&ready, "k", &out).unwrap().unwrap();
        let imported = std::fs::read_to_string(file).unwrap();
        assert!(imported.contains("device: \"d\"") && !imported.contains(HOST), "{imported}");
        assert_eq!(std::fs::read(out.join("k.sm_80.ptx.lzma")).unwrap(), b"code");
        assert_eq!(import(&ready, "other", &out).unwrap(), None);
        std::fs::write(made.join("k_image.rs"), "modules: &[]").unwrap();
        assert!(matches!(export(&made.join("k_image.rs"), &ready), Err(Error::ImageRequired { .. })));
        std::fs::remove_dir_all(base).unwrap();
    }
}
