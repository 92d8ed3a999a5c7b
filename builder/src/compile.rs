//! Compiles the kernel crate and its dependency graph for the GPU with the device toolchain's cargo.
//!
//! The inner cargo runs in a separate environment, which excludes the outer build's settings for build scripts and
//! compilers (flags, wrappers, target folders, toolchain choices). Flags apply to every crate of the graph, including
//! `core`. The profile is fixed here and overrides the manifest's, including its profiles for single packages.

use std::collections::HashSet;
use std::env;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;

use crate::error::Error;
use crate::manifest::Manifest;
use crate::sources;
use crate::toolchain::DeviceToolchain;

const TARGET: &str = "nvptx64-nvidia-cuda";

/// Profile settings, passed as flags because cargo cannot ignore a manifest's settings for single packages
/// (`[profile.release.package.…]`). rustc uses the last value of a flag, and cargo passes profile settings first.
const PROFILE: [&str; 6] = [
    "-Copt-level=3",
    "-Csplit-debuginfo=off",
    "-Cdebug-assertions=off",
    "-Coverflow-checks=off",
    "-Ccodegen-units=1",
    "-Cstrip=none",
];

/// Unstable features that `#[kernel]` and inline assembly need in the kernel crate.
const FEATURES: &str = "-Zcrate-attr=feature(abi_ptx,asm_experimental_arch,stdarch_nvptx)";

/// A crate to compile, with its settings.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The kernel crate.
    pub manifest: &'a Manifest,
    /// Folder for the inner cargo's output. Builds share the folder, so that `core` is compiled only once.
    pub target_dir: &'a Path,
    /// Folder for the lock file if the source folder is read-only.
    pub lock_dir: &'a Path,
    /// Cargo features to enable in the kernel crate.
    pub features: &'a [String],
    /// True if the default features are enabled.
    pub default_features: bool,
    /// `--cfg` values for the kernel crate.
    pub cfgs: &'a [String],
    /// True if `alloc` is compiled in addition to `core`.
    pub alloc: bool,
    /// True if rustc's jump threading stays enabled. It duplicates barriers, so only tests enable it.
    pub jump_threading: bool,
    /// True if the code gets full debug information instead of only line tables.
    pub full_debug_info: bool,
}

/// Result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// Package name of the kernel crate.
    pub package: String,
    /// Static libraries of the dependency graph.
    pub rlibs: Vec<PathBuf>,
    /// Sources and manifests of the kernel crate and its path dependencies.
    pub sources: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    package_id: String,
    #[serde(default)]
    manifest_path: PathBuf,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    message: Option<Diagnostic>,
}

/// Message of rustc.
#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    code: Option<Code>,
    spans: Vec<Span>,
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: usize,
    column_start: usize,
    is_primary: bool,
    label: Option<String>,
}

/// Locks `target_dir` against other builds while the returned file is open. Cargo releases its own lock on exit, before
/// the libraries have been read.
pub fn lock(target_dir: &Path) -> Result<File, Error> {
    std::fs::create_dir_all(target_dir).map_err(Error::io("cannot create", target_dir))?;
    let path = target_dir.join(".warpsmith-lock");
    let file = File::create(&path).map_err(Error::io("cannot create", &path))?;
    file.lock().map_err(Error::io("cannot lock", &path))?;
    Ok(file)
}

/// Compiles `request`.
pub fn compile(toolchain: &DeviceToolchain, request: &Request<'_>) -> Result<Compiled, Error> {
    let manifest = request.manifest.path();
    let package = request.manifest.to_package().name;
    check_library(request.manifest, &package)?;
    let mut command = cargo(toolchain);
    command
        .args(["rustc", "--quiet", "--color=never", "--lib", "--crate-type=lib", "--release"])
        .arg(if request.alloc { "-Zbuild-std=core,alloc" } else { "-Zbuild-std=core" })
        .args(["--target", TARGET, "--message-format=json"])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(request.target_dir);
    let root = request.manifest.workspace_root();
    if let Some(lock) = lock_file(&root, request.lock_dir)? {
        command.arg("-Zlockfile-path").env("CARGO_RESOLVER_LOCKFILE_PATH", lock);
    }
    if !request.default_features {
        command.arg("--no-default-features");
    }
    if !request.features.is_empty() {
        command.arg("--features").arg(request.features.join(","));
    }
    command
        .args(["--", "-Zcrate-attr=no_std", FEATURES, "-Aunused-features", "-Aunused-attributes"])
        // The crate may enable the features itself.
        .arg("-Aduplicate-features")
        // A `cfg` may be one that rustc sets for other targets, such as target_feature.
        .arg("-Aexplicit-builtin-cfgs-in-flags")
        .args(request.cfgs.iter().flat_map(|cfg| ["--cfg", cfg]))
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(request).join("\x1f"));
    // Listed before the build, because a file that this build writes would look changed to the next build.
    let workspace = workspace_files(&root);
    let output = command.output().map_err(Error::io("cannot run", &toolchain.cargo))?;
    if !output.status.success() {
        let diagnostics = errors(&output, &request.target_dir.join("errors.txt"));
        return Err(Error::KernelCrate { package, diagnostics });
    }
    let mut compiled = read_messages(&String::from_utf8_lossy(&output.stdout), package, &manifest)?;
    workspace.into_iter().for_each(|file| push_once(&mut compiled.sources, file));
    Ok(compiled)
}

/// Lists the errors of a failed compilation, and writes rustc's full messages to a file. The compilation for the host,
/// which usually fails too, prints the full messages.
fn errors(output: &Output, file: &Path) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let messages = stdout.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()?.message);
    let is_error = |message: &Diagnostic| message.level.starts_with("error") && !message.spans.is_empty();
    let errors: Vec<Diagnostic> = messages.filter(is_error).collect();
    if errors.is_empty() {
        return String::from_utf8_lossy(&output.stderr).into_owned();
    }
    let mut text = String::new();
    for Diagnostic { level, message, code, spans, .. } in &errors {
        if let Some(span) = spans.iter().find(|span| span.is_primary) {
            text += &format!("{}:{}:{}: ", span.file_name, span.line_start, span.column_start);
        }
        let code = code.as_ref().map_or_else(String::new, |code| format!("[{}]", code.code));
        text += &format!("{level}{code}: {message}");
        let labels = spans.iter().filter(|span| span.is_primary).filter_map(|span| span.label.as_ref());
        labels.for_each(|label| text += &format!(": {label}"));
        text.push('\n');
    }
    let full: String = errors.into_iter().filter_map(|error| error.rendered).collect();
    if std::fs::write(file, full).is_ok() {
        text += &format!("\nrustc's full messages are in {}\n", file.display());
    }
    text
}

/// Checks that the crate has a library.
fn check_library(manifest: &Manifest, package: &str) -> Result<(), Error> {
    let path = manifest.library();
    if path.exists() { Ok(()) } else { Err(Error::NoLibrary { package: package.to_owned(), path }) }
}

/// If cargo cannot write the lock file in `root`, returns a path in `lock_dir`, to which an existing lock file is
/// copied. Otherwise, returns `None`.
fn lock_file(root: &Path, lock_dir: &Path) -> Result<Option<PathBuf>, Error> {
    let (own, lock) = (root.join("Cargo.lock"), lock_dir.join("Cargo.lock"));
    let can_write = match File::options().append(true).open(&own) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let probe = root.join(format!(".warpsmith-{}", std::process::id()));
            File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe)).is_ok()
        }
        opened => opened.is_ok(),
    };
    if can_write {
        return Ok(None);
    }
    std::fs::create_dir_all(lock_dir).map_err(Error::io("cannot create", lock_dir))?;
    if let Ok(text) = std::fs::read(&own) {
        std::fs::write(&lock, text).map_err(Error::io("cannot write", &lock))?;
    }
    Ok(Some(lock))
}

/// Returns the manifest and the lock file of the workspace in `root`.
fn workspace_files(root: &Path) -> Vec<PathBuf> {
    let files = ["Cargo.toml", "Cargo.lock"].map(|file| root.join(file));
    files.into_iter().filter(|file| file.is_file()).collect()
}

/// Returns the flags for every crate of the graph.
fn rustflags(request: &Request<'_>) -> Vec<String> {
    // Without MIR inlining, the calls that the IR rewrite replaces are still present; LLVM inlines later.
    let mut flags: Vec<String> =
        ["-Ctarget-cpu=sm_80", "-Zinline-mir=no", "-Cno-prepopulate-passes", "-Csymbol-mangling-version=v0"]
            .map(str::to_owned)
            .into();
    let switch = if request.jump_threading { "+" } else { "-" };
    flags.push(format!("-Zmir-enable-passes={switch}JumpThreading"));
    flags.extend(PROFILE.map(str::to_owned));
    let debug_info = if request.full_debug_info { "full" } else { "line-tables-only" };
    flags.push(format!("-Cdebuginfo={debug_info}"));
    flags
}

/// Creates a cargo command with a clean environment.
fn cargo(toolchain: &DeviceToolchain) -> Command {
    let mut command = Command::new(&toolchain.cargo);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_of_the_outer_build) {
            command.env_remove(name);
        }
    }
    command
        .env("RUSTC", &toolchain.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        // Paths in dependency files are relative to this folder. The variable overrides a configuration file.
        .env("CARGO_BUILD_DEP_INFO_BASEDIR", "/")
        // Empty values also override wrappers named in a configuration file.
        .env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "");
    // These settings cannot be rustc flags: build scripts see the optimization level, and the panic strategy determines
    // which crates cargo builds.
    command
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "off");
    command
}

/// Returns true if an environment variable belongs to the outer build and would change the inner one.
fn is_of_the_outer_build(name: &str) -> bool {
    const KEPT: [&str; 9] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_CREDENTIAL",
        "CARGO_MAKEFLAGS",
        "CARGO_TERM_",
        "CARGO_CACHE_",
    ];
    const EXACT: [&str; 12] = [
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTUP_TOOLCHAIN",
        "RUSTDOC",
        "TARGET",
        "HOST",
        "OPT_LEVEL",
        "PROFILE",
        "DEBUG",
        "NUM_JOBS",
        "OUT_DIR",
        "LIBRARY_PATH",
    ];
    (name.starts_with("CARGO") && !KEPT.iter().any(|kept| name.starts_with(kept)))
        || name.starts_with("RUSTC")
        || name.starts_with("DEP_")
        || EXACT.contains(&name)
}

fn read_messages(stdout: &str, package: String, manifest: &Path) -> Result<Compiled, Error> {
    let (mut rlibs, mut sources) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    let mut dep_info = None;
    for line in stdout.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).map_err(|error| Error::Tool {
            tool: "cargo".to_owned(),
            input: manifest.display().to_string(),
            message: format!("unexpected output: {error}: {line}"),
        })?;
        if message.reason != "compiler-artifact" {
            continue;
        }
        let manifest_path = message.manifest_path.to_string_lossy().replace('\\', "/");
        let in_sysroot = manifest_path.contains("/lib/rustlib/src/");
        let is_own = message.package_id.starts_with("path+") && !in_sysroot;
        if is_own {
            push_once(&mut sources, message.manifest_path.clone());
        }
        let for_gpu = |file: &PathBuf| file.components().any(|part| part.as_os_str() == TARGET);
        let find = |extension: &str| {
            let is = |file: &&PathBuf| file.extension().is_some_and(|e| e == extension) && for_gpu(file);
            message.filenames.iter().find(is)
        };
        // A package's library may be listed under two paths, one of which is sufficient.
        let Some(rlib) = find("rlib").filter(|_| seen.insert(message.package_id.clone())) else { continue };
        // The top crate may finish before its dependencies, because it waits only for their metadata.
        if sources::real(&message.manifest_path) == sources::real(manifest) {
            dep_info = Some(rlib.with_extension("d"));
        }
        // Cargo lists the top crate's library at a path where another build may replace it. The original file has a
        // hash in its name.
        let original = find("rmeta").map(|rmeta| rmeta.with_extension("rlib")).filter(|path| path.is_file());
        rlibs.push(original.unwrap_or_else(|| rlib.clone()));
    }
    if let Some(dep_info) = dep_info {
        let text = std::fs::read_to_string(&dep_info).map_err(Error::io("cannot read", &dep_info))?;
        dep_info_files(&text).into_iter().for_each(|file| push_once(&mut sources, file));
    }
    Ok(Compiled { package, rlibs, sources })
}

fn push_once(list: &mut Vec<PathBuf>, path: PathBuf) {
    if !list.contains(&path) {
        list.push(path);
    }
}

/// Returns the files that follow the colon in a make-style dependency file, in which a space in a path is written as `\
/// `. Paths are relative to the root folder, as [`cargo`] requests.
fn dep_info_files(text: &str) -> Vec<PathBuf> {
    let Some((_, files)) = text.lines().next().and_then(|line| line.split_once(": ")) else {
        return Vec::new();
    };
    let spaced = files.replace("\\ ", "\0");
    spaced
        .split(' ')
        .filter(|file| !file.is_empty())
        .map(|file| Path::new("/").join(file.replace('\0', " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_a_library_is_named() {
        let folder = env::temp_dir().join(format!("warpsmith-no-library-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("Cargo.toml"), "[package]\nname = \"program\"\n").unwrap();
        let error = check_library(&Manifest::of(&folder).unwrap(), "program").unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.contains("`program`") && error.replace('\\', "/").contains("src/lib.rs"), "{error}");
    }

    #[test]
    fn a_lock_file_that_cannot_be_written_is_copied() {
        let folder = env::temp_dir().join(format!("warpsmith-locks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // No file is left over, whether or not the workspace has a lock file.
        assert_eq!(lock_file(&folder, &folder.join("lock")).unwrap(), None);
        std::fs::write(folder.join("Cargo.lock"), "version = 4").unwrap();
        assert_eq!(lock_file(&folder, &folder.join("lock")).unwrap(), None);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        // A folder in which no one can create files.
        #[cfg(target_os = "linux")]
        {
            let lock = folder.join("lock/Cargo.lock");
            assert_eq!(lock_file(Path::new("/proc"), &folder.join("lock")).unwrap(), Some(lock));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn dependency_files() {
        assert_eq!(
            dep_info_files("/t:\\ s/libk.rlib: /a/lib.rs /a/with\\ \\ space.rs b:\\ c/d.rs\n\n/a/lib.rs:\n"),
            [PathBuf::from("/a/lib.rs"), PathBuf::from("/a/with  space.rs"), PathBuf::from("/b: c/d.rs")]
        );
        assert!(dep_info_files("").is_empty());
    }

    #[test]
    fn the_outer_builds_variables_are_known() {
        for name in [
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC",
            "CARGO_ENCODED_RUSTFLAGS",
            "RUSTFLAGS",
            "CARGO",
            "CARGO_TARGET_DIR",
            "CARGO_BUILD_TARGET",
            "CARGO_PKG_NAME",
            "RUSTUP_TOOLCHAIN",
            "OUT_DIR",
            "DEP_Z_ROOT",
            "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_LINKER",
        ] {
            assert!(is_of_the_outer_build(name), "{name}");
        }
        for name in ["PATH", "HOME", "CARGO_HOME", "RUSTUP_HOME", "CARGO_NET_OFFLINE", "HTTPS_PROXY"] {
            assert!(!is_of_the_outer_build(name), "{name}");
        }
    }

    #[test]
    fn libraries_are_taken_once_and_only_for_the_gpu() {
        let folder = env::temp_dir().join(format!("warpsmith-messages-{}", std::process::id())).join(TARGET);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("libk.d"), "libk.rlib: /k/src/lib.rs\n").unwrap();
        let at = folder.display().to_string().replace('\\', "/");
        let stdout = format!(
            "{{\"reason\":\"compiler-artifact\",\"package_id\":\"registry+x#syn\",\"manifest_path\":\"/s/Cargo.toml\",\"filenames\":[\"/t/release/deps/libsyn.rlib\"]}}\n\
             {{\"reason\":\"compiler-artifact\",\"package_id\":\"registry+x#half\",\"manifest_path\":\"/h/Cargo.toml\",\"filenames\":[\"{at}/libhalf.rlib\"]}}\n\
             {{\"reason\":\"build-script-executed\",\"package_id\":\"path+file:///k#0.1.0\"}}\n\
             {{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///k#0.1.0\",\"manifest_path\":\"/k/Cargo.toml\",\"filenames\":[\"{at}/libk.rlib\",\"{at}/deps/libk-1.rlib\"]}}\n\
             {{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///helpers#0.1.0\",\"manifest_path\":\"/helpers/Cargo.toml\",\"filenames\":[\"{at}/libhelpers.rlib\"]}}\n"
        );
        let compiled = read_messages(&stdout, "k".to_owned(), Path::new("/k/Cargo.toml")).unwrap();
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
        let rlibs = ["libhalf.rlib", "libk.rlib", "libhelpers.rlib"].map(|file| folder.join(file));
        assert_eq!(compiled.rlibs, rlibs);
        let sources = ["/k/Cargo.toml", "/helpers/Cargo.toml", "/k/src/lib.rs"];
        assert_eq!(compiled.sources, sources.map(PathBuf::from));
    }
}
