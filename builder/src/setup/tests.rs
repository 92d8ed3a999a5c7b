//! Installers that are scripts, in processes whose search path has nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{SetupError, cuda, install, rust};
use crate::alone::only_alone;
use crate::toolchain::{Origin, cuda_tools_in};

/// A folder of programs, of which `id` says that the user is not root.
fn programs(test: &str, scripts: &[(&str, &str)]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("warpsmith-setup-{test}-{}", std::process::id()));
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    for (name, script) in [("id", "echo 1000")].iter().chain(scripts) {
        let file = bin.join(name);
        fs::write(&file, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // SAFETY: this process runs one test, and no other thread of it uses the environment.
    unsafe {
        std::env::set_var("PATH", &bin);
        std::env::set_var("RUSTUP_HOME", folder.join("rustup"));
        std::env::remove_var("WARPSMITH_DEVICE_RUSTC");
        std::env::remove_var("WARPSMITH_LLVM_BIN");
    }
    folder
}

/// Leaves a toolchain where rustup would, whose programs say the versions.
const RUSTUP: &str = r#"
[ "$1 $2 $3" = "toolchain install 1.96.0" ] || exit 9
T="$RUSTUP_HOME/toolchains/1.96.0-x86_64"
B="$T/lib/rustlib/x86_64/bin"
mkdir -p "$T/bin" "$T/lib/rustlib/src/rust/library/core/src" "$B"
touch "$T/lib/rustlib/src/rust/library/core/src/lib.rs" "$T/bin/cargo" "$B/llvm-ar" "$B/llvm-link" "$B/llc"
cat > "$T/bin/rustc" <<END
#!/bin/sh
[ "\$1" = --print ] && echo "$T" || printf 'rustc 1.96.0\nhost: x86_64\nrelease: 1.96.0\nLLVM version: 22.1.0\n'
END
printf '#!/bin/sh\necho "LLVM version 22.1.0"\n' > "$B/opt"
chmod +x "$T/bin/rustc" "$B/opt"
"#;

#[test]
fn rustup_installs_a_toolchain_beside_the_users() {
    only_alone!();
    let folder = programs("rustup", &[("rustup", RUSTUP)]);
    let mut said = Vec::new();
    let found = rust::install(&mut |line| said.push(line.to_owned()), "nothing").unwrap();
    assert_eq!((found.origin, found.rust_version.minor), (Origin::Rustup, 96));
    assert!(said[0].contains("Rust 1.96.0 with rustup"), "{said:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_failure_of_rustup_ends_with_the_commands() {
    only_alone!();
    let folder = programs("no-rustup", &[("rustup", "echo 'could not download' >&2; exit 1")]);
    let error = rust::install(&mut |_| {}, "/usr/bin/rustc: it is Rust 1.63.0").unwrap_err().to_string();
    for words in
        ["rustup toolchain install 1.96.0", "failed (exit status: 1)", "it is Rust 1.63.0", "rustc-web"]
    {
        assert!(error.contains(words), "{words}: {error}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_chosen_toolchain_that_does_not_do_is_not_replaced() {
    only_alone!("WARPSMITH_DEVICE_RUSTC" => "/no/such/rustc");
    let error = install(&mut |_| {}).unwrap_err();
    assert!(matches!(error, SetupError::Overridden { variable: "WARPSMITH_DEVICE_RUSTC", .. }), "{error}");
    assert!(error.to_string().contains("/no/such/rustc: no such file"), "{error}");
}

/// A Python whose pip runs `install` in the folder that the wheels are to be unpacked into.
fn python(install: &str) -> String {
    format!(
        "[ \"$3\" = --help ] && exit 0\nwhile [ \"$1\" != --target ]; do shift; done\ncd \"$2\" || exit 9\n{install}\n"
    )
}

const UNPACK: &str = "mkdir -p nvidia/cu13/bin nvidia/cu13/nvvm/libdevice nvidia/cu13/lib
printf '#!/bin/sh\\necho release 13.0\\n' > nvidia/cu13/bin/ptxas; chmod +x nvidia/cu13/bin/ptxas
touch nvidia/cu13/nvvm/libdevice/libdevice.10.bc nvidia/cu13/lib/libcudadevrt.a";

#[test]
fn wheels_replace_what_is_incomplete() {
    only_alone!();
    let folder = programs("wheels", &[("python3", &python(UNPACK))]);
    let data = folder.join("data");
    fs::create_dir_all(data.join("cuda-tools/bin")).unwrap();
    fs::create_dir_all(data.join(".cuda-tools-1")).unwrap();
    cuda::install(&mut |_| {}, &data).unwrap();
    assert!(cuda_tools_in(&data.join("cuda-tools")).are_complete());
    assert!(!data.join("cuda-tools/bin").exists());
    assert_eq!(entries(&data), [".lock", "cuda-tools"]);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_download_that_fails_leaves_nothing() {
    only_alone!();
    for (number, (script, words)) in [
        ("touch part; echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.' >&2; exit 1", "not the file it should be"),
        ("touch part; echo 'ERROR: No matching distribution found for nvidia-nvvm==13.0.88' >&2; exit 1", "check the network"),
        ("touch part; echo 'No space left on device' >&2; exit 1", "No space left"),
        ("mkdir -p nvidia/cu13/lib", "no bin/ptxas"),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = programs(&format!("broken-{number}"), &[("python3", &python(script))]);
        let data = folder.join("data");
        let error = cuda::install(&mut |_| {}, &data).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(entries(&data), [".lock"]);
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_missing_pip_is_named() {
    only_alone!();
    let folder = programs("no-pip", &[("python3", "exit 1")]);
    let error = cuda::install(&mut |_| {}, &folder.join("data")).unwrap_err().to_string();
    assert!(
        error.contains("neither pip nor venv") && error.contains("apt-get install python3-venv"),
        "{error}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    only_alone!();
    let folder = programs("unwritable", &[("python3", &python(UNPACK))]);
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    let error = cuda::install(&mut |_| {}, &file.join("data")).unwrap_err().to_string();
    assert!(error.contains("cannot write to") && error.contains("WARPSMITH_DATA_DIR"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}

fn entries(folder: &Path) -> Vec<String> {
    let names =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}
