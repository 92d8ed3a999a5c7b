//! Tests that use scripts as installers, in processes whose search path contains only these scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{SetupError, cuda, install, rust, wheel};
use crate::alone::only_alone;
use crate::toolchain::{Origin, cuda_tools_in};

/// Creates a folder of programs; its `id` reports a user other than root.
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

/// Script that creates a toolchain where rustup would; its programs print the versions.
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

/// Creates a Python whose pip runs `download` in the download folder.
fn python(download: &str) -> String {
    format!(
        "[ \"$3\" = --help ] && exit 0\nwhile [ \"$1\" != --dest ]; do shift; done\nmkdir \"$2\" && cd \"$2\" || exit 9\n{download}\n"
    )
}

/// Writes a wheel with NVIDIA's tools, optionally without ptxas, to `file`; returns the requirements list.
fn wheel_in(file: &Path, with_ptxas: bool) -> String {
    let ptxas = if with_ptxas { "bin/ptxas" } else { "bin/other" };
    let members = [
        (ptxas, &b"#!/bin/sh\necho release 13.0\n"[..], true),
        ("nvvm/libdevice/libdevice.10.bc", &[b'B'; 1000], false),
        ("lib/libcudadevrt.a", b"!<arch>", false),
    ];
    let members = members.map(|(name, bytes, is_program)| (format!("nvidia/cu13/{name}"), bytes, is_program));
    let wheel = wheel::archive(&members.each_ref().map(|(name, bytes, program)| (&**name, *bytes, *program)));
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, &wheel).unwrap();
    format!("# A comment.\nnvidia-tools==13.0 \\\n    --hash=sha256:{}\n", wheel::sha256(&wheel))
}

#[test]
fn wheels_replace_what_is_incomplete() {
    only_alone!();
    let wheel = std::env::temp_dir().join(format!("warpsmith-setup-wheel-{}.whl", std::process::id()));
    let wheels = wheel_in(&wheel, true);
    let download = format!("cp {} .", wheel.display());
    let folder = programs("wheels", &[("python3", &python(&download))]);
    let data = folder.join("data");
    fs::create_dir_all(data.join("cuda-tools/bin")).unwrap();
    fs::create_dir_all(data.join(".cuda-tools-1")).unwrap();
    cuda::install(&mut |_| {}, &data, &wheels).unwrap();
    let tools = cuda_tools_in(&data.join("cuda-tools"));
    assert!(tools.are_complete(), "{:?}", tools.rejected);
    assert_eq!(fs::read(tools.libdevice.unwrap()).unwrap(), [b'B'; 1000]);
    assert!(!data.join("cuda-tools/bin").exists());
    assert_eq!(entries(&data), [".lock", "cuda-tools"]);
    fs::remove_dir_all(folder).unwrap();
    fs::remove_file(wheel).unwrap();
}

#[test]
fn a_download_that_fails_leaves_nothing() {
    only_alone!();
    let base = std::env::temp_dir().join(format!("warpsmith-setup-wheels-{}", std::process::id()));
    let (whole, part) = (base.join("whole.whl"), base.join("part.whl"));
    let (wheels, of_part) = (wheel_in(&whole, true), wheel_in(&part, false));
    let (whole, part) = (whole.display(), part.display());
    for (number, (script, wheels, words)) in [
        ("touch part; echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.' >&2; exit 1".to_owned(), &wheels, "has the wrong hash and was deleted"),
        ("touch part; echo 'ERROR: No matching distribution found for nvidia-nvvm==13.0.88' >&2; exit 1".to_owned(), &wheels, "check the network"),
        ("touch part; echo 'No space left on device' >&2; exit 1".to_owned(), &wheels, "No space left"),
        // Cases of unexpected downloads: no file, a different file, and one file too many.
        (String::new(), &wheels, "nvidia-tools==13.0 was not downloaded"),
        (format!("cp {part} ."), &wheels, "part.whl: its SHA-256 is"),
        (format!("cp {whole} {part} ."), &wheels, "part.whl: its SHA-256 is"),
        (format!("cp {whole} . && cp {whole} again.whl"), &wheels, "its SHA-256 is"),
        (format!("cp {part} ."), &of_part, "no bin/ptxas"),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = programs(&format!("broken-{number}"), &[("python3", &python(&script))]);
        let data = folder.join("data");
        let error = cuda::install(&mut |_| {}, &data, wheels).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(entries(&data), [".lock"]);
        fs::remove_dir_all(folder).unwrap();
    }
    fs::remove_dir_all(base).unwrap();
}

/// Creates files that would run if setup ran a program in, or from, the folder in which it was started.
#[test]
fn nothing_of_the_current_folder_is_run() {
    only_alone!();
    let python = std::process::Command::new("sh").args(["-c", "command -v python3"]).output().unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    assert!(!python.is_empty(), "this test needs python3");
    let wrapper = format!("exec {} \"$@\"", python.trim());
    let folder = programs("current", &[("python3", &wrapper), ("rustup", RUSTUP)]);
    let here = folder.join("here");
    let trap =
        |say: &str| format!("open({:?}, 'a').write({say:?})\n", here.join("RAN").display().to_string());
    for module in
        ["pip", "venv", "ensurepip", "sitecustomize", "usercustomize", "encodings", "argparse", "os"]
    {
        fs::create_dir_all(here.join(module)).unwrap();
        fs::write(here.join(module).join("__init__.py"), trap(module)).unwrap();
        fs::write(here.join(module).join("__main__.py"), trap(module)).unwrap();
        fs::write(here.join(format!("{module}.py")), trap(module)).unwrap();
    }
    for program in ["id", "apt-get", "apt-cache", "rustup", "python3", "sh"] {
        let file = here.join(program);
        fs::write(&file, format!("#!/bin/sh\necho {program} >> {}/RAN\nexit 1\n", here.display())).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let bin = folder.join("bin").display().to_string();
    std::env::set_current_dir(&here).unwrap();
    // SAFETY: this process runs one test, and no other thread of it uses the environment.
    let set = |variable: &str, value: &str| unsafe { std::env::set_var(variable, value) };
    set("PATH", &format!(".:{bin}::here"));
    set("PYTHONPATH", &here.display().to_string());
    set("PYTHONSTARTUP", &here.join("pip.py").display().to_string());
    set("PYTHONUSERBASE", ".");
    set("PIP_INDEX_URL", "file:///no/such/index");
    let error = cuda::install(&mut |_| {}, &folder.join("data"), cuda::WHEELS).unwrap_err();
    assert!(matches!(error, SetupError::Network { .. } | SetupError::NoPip { .. }), "{error}");
    rust::install(&mut |_| {}, "nothing").unwrap();
    assert!(!here.join("RAN").exists(), "{}", fs::read_to_string(here.join("RAN")).unwrap_or_default());
    std::env::set_current_dir("/").unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_missing_pip_is_named() {
    only_alone!();
    let folder = programs("no-pip", &[("python3", "exit 1")]);
    let error = cuda::install(&mut |_| {}, &folder.join("data"), cuda::WHEELS).unwrap_err().to_string();
    assert!(
        error.contains("neither pip nor venv") && error.contains("apt-get install python3-venv"),
        "{error}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    only_alone!();
    let folder = programs("unwritable", &[("python3", &python(""))]);
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    let error = cuda::install(&mut |_| {}, &file.join("data"), cuda::WHEELS).unwrap_err().to_string();
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
