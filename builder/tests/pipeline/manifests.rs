//! Kernel crates in every form that cargo accepts.

use std::fs;
use std::path::PathBuf;

use warpsmith_builder::{Arch, PtxBuilder};

use crate::common::{build, folders};

const KERNEL: &str = "#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n\
    #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn one(x: *mut u32) { unsafe { *x += 1 } }\n";

/// Creates a crate for `test`: its manifest, and the library source at its path.
fn write(test: &str, manifest: &str, library: &str, source: &str) -> PathBuf {
    let folder = folders(test).out_dir.join("crate");
    let _ = fs::remove_dir_all(&folder);
    let file = folder.join(library);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(file, source).unwrap();
    folder
}

fn builds(test: &str, folder: &PathBuf) {
    let image = build(test, &PtxBuilder::new(folder).archs([Arch::SM_80])).unwrap();
    assert_eq!((image.kernels.len(), &*image.kernels[0].symbol, image.reason), (1, "one", None), "{test}");
}

#[test]
fn manifests_that_cargo_takes_are_built() {
    let library = "code/k.rs";
    for (name, manifest) in [
        (
            "comments",
            "[package] # mine\nname = \"NAME\" # its name\nedition = \"2024\"\n[lib] # here\npath = \"code/k.rs\"\n[workspace]\n",
        ),
        (
            "bom",
            "\u{feff}[package]\nname = \"NAME\"\nedition = \"2024\"\n[lib]\npath = \"code/k.rs\"\n[workspace]\n",
        ),
        (
            "dotted",
            "package.name = \"NAME\"\npackage.edition = \"2024\"\nlib.path = \"code/k.rs\"\nworkspace = {}\n",
        ),
        (
            "inline",
            "package = { name = \"NAME\", edition = \"2024\" }\nlib = { path = \"code/k.rs\" }\nworkspace = {}\n",
        ),
        (
            "text",
            "[package]\ndescription = \"\"\"\n[lib]\nname = \"no\"\n\"\"\"\nname = \"NAME\"\nedition = \"2024\"\n[lib]\npath = \"code/k.rs\"\n[workspace]\n",
        ),
        (
            "quoted",
            "[\"package\"]\n\"name\" = \"NAME\"\n'edition' = \"2024\"\n[ lib ]\n\"path\" = 'code/k.rs'\n[workspace]\n",
        ),
    ] {
        let test = format!("manifest-{name}");
        builds(&test, &write(&test, &manifest.replace("NAME", &test), library, KERNEL));
    }
}

#[test]
fn features_that_are_not_turned_on_are_turned_on() {
    let manifest = "[package]\nname = \"NAME\"\nedition = \"2024\"\n[features]\ndefault = [\"on\"]\non = []\noff = []\n[workspace]\n";
    for (name, attributes) in [
        ("comment", "/* #![feature(abi_ptx, asm_experimental_arch, stdarch_nvptx)] */\n#![no_std]"),
        ("nested", "/* /* */\n#![feature(abi_ptx)] */"),
        ("string", "#![doc = \"\n#![feature(abi_ptx)]\n\"]"),
        ("host", "#![cfg_attr(not(target_arch = \"nvptx64\"), feature(abi_ptx))]"),
        ("gpu", "#![cfg_attr(all(target_arch = \"nvptx64\", feature = \"on\"), feature(abi_ptx))]"),
        ("off", "#![cfg_attr(feature = \"off\", feature(abi_ptx))]"),
        ("own", "#![feature(abi_ptx)]"),
    ] {
        let test = format!("features-{name}");
        let source = format!("{attributes}\n{KERNEL}");
        builds(&test, &write(&test, &manifest.replace("NAME", &test), "src/lib.rs", &source));
    }
}

#[test]
fn a_lock_file_that_cannot_be_written_stays_as_it_is() {
    let test = "manifest-lock";
    let manifest = "[package]\nname = \"manifest-lock\"\nedition = \"2024\"\n[workspace]\n";
    let folder = write(test, manifest, "src/lib.rs", KERNEL);
    // Neither cargo nor root can write a file at the path of a folder.
    fs::create_dir(folder.join("Cargo.lock")).unwrap();
    builds(test, &folder);
    assert!(folder.join("Cargo.lock").is_dir());
    assert!(folders(test).out_dir.join("lock/Cargo.lock").is_file());
}
