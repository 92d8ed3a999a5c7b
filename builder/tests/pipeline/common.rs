//! Builds a fixture as a build script would. A missing toolchain fails the test with the builder's own text.

use std::path::{Path, PathBuf};

use warpsmith_builder::{BuiltImage, Error, Folders, PtxBuilder, toolchain};

/// Folders of a test: its own output, and cargo's target folder of this build, so that `core` is compiled once.
pub fn folders(test: &str) -> Folders {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let out_dir = tmp.join("builder").join(test);
    std::fs::create_dir_all(&out_dir).unwrap();
    Folders {
        manifest_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"),
        out_dir,
        target_dir: tmp.parent().unwrap().to_path_buf(),
    }
}

/// Builds with `builder` into the folder of `test`.
pub fn build(test: &str, builder: &PtxBuilder) -> Result<BuiltImage, Error> {
    let search = toolchain::find_device_toolchain();
    assert!(
        search.found.is_some(),
        "this test needs a device toolchain:\n{}\ninstall one:\n{}",
        search.explain(),
        toolchain::INSTALL_COMMANDS
    );
    builder.build_in(&folders(test))
}

/// Returns the PTX for `arch` of all parts of an image, or of the parts whose name contains `part`.
pub fn ptx_of(image: &BuiltImage, arch: &str, part: &str) -> String {
    let end = format!(".{arch}.ptx");
    let name = |file: &Path| file.file_name().unwrap().to_string_lossy().into_owned();
    let is_it = |file: &&PathBuf| name(file).ends_with(&end) && name(file).contains(part);
    let texts: Vec<String> =
        image.modules.iter().filter(is_it).map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert!(!texts.is_empty(), "no PTX for {arch}");
    texts.concat()
}

/// Returns the PTX for `arch` of all parts of an image.
pub fn ptx(image: &BuiltImage, arch: &str) -> String {
    ptx_of(image, arch, "")
}

/// Types like those of `gpu_spec::image`, for programs without dependencies that include an image.
pub const IMAGE_TYPES: &str = concat!(
    include_str!("../../../gpu-spec/src/image.rs"),
    "\n#[derive(Debug, Clone, Copy, PartialEq, Eq)] pub struct AbiParam { pub kind: u32, pub size: u32, pub align: u32, pub signature: u32 }\n\
     pub struct KernelInfo { pub symbol: &'static str, pub module: &'static str }\n"
);

/// Returns a module `name` with these types.
pub fn image_types(name: &str) -> String {
    let types: String = IMAGE_TYPES
        .lines()
        .filter(|line| !["//!", "pub use", "use crate::"].iter().any(|start| line.starts_with(start)))
        .map(|line| format!("{line}\n"))
        .collect();
    format!("#[allow(dead_code)] mod {name} {{\n{types}}}\nuse {name}::*;\n")
}

/// Returns the PTX of the kernel or function `name` only.
pub fn function<'a>(ptx: &'a str, name: &str) -> &'a str {
    let start = ptx
        .match_indices(name)
        .map(|(at, _)| at)
        .find(|at| {
            let line = &ptx[ptx[..*at].rfind('\n').map_or(0, |start| start + 1)..];
            line.starts_with(".visible .entry") || line.starts_with(".func")
        })
        .unwrap_or_else(|| panic!("no {name} in the PTX"));
    let end = ptx[start..].find("\n}").unwrap();
    &ptx[start..start + end]
}

/// Creates a crate for `test`, with `source` as its library; files are rewritten only if they differ.
pub fn scratch_crate(test: &str, source: &str) -> PathBuf {
    let folder = folders(test).out_dir.join("crate");
    std::fs::create_dir_all(folder.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"scratch-{test}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n"
    );
    for (name, text) in [("Cargo.toml", manifest.as_str()), ("src/lib.rs", source)] {
        let file = folder.join(name);
        if std::fs::read_to_string(&file).ok().as_deref() != Some(text) {
            std::fs::write(&file, text).unwrap();
        }
    }
    folder
}

/// Returns the strings among the constants of a PTX text.
pub fn texts(ptx: &str) -> Vec<String> {
    let arrays = ptx.lines().filter(|line| line.starts_with(".global") && line.contains(".b8 "));
    arrays
        .filter_map(|line| line.split_once('{')?.1.split_once('}'))
        .map(|(numbers, _)| {
            let mut bytes: Vec<u8> = numbers.split(", ").map(|number| number.parse().unwrap()).collect();
            // PTX omits trailing zeros.
            bytes.push(0);
            String::from_utf8_lossy(&bytes).into_owned()
        })
        .collect()
}
