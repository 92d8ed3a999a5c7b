//! Finds a Rust compiler that can target the GPU: rustc, cargo, core's sources and matching LLVM tools.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Rejected, Search, TESTED_LLVM, TESTED_RUST, Version, program};

/// A complete, tested device toolchain.
#[derive(Debug, Clone)]
pub struct DeviceToolchain {
    /// Path of rustc.
    pub rustc: PathBuf,
    /// Path of the matching cargo.
    pub cargo: PathBuf,
    /// Rust version.
    pub rust_version: Version,
    /// Version line of `rustc -V`, to distinguish builds of the same version.
    pub rust_description: String,
    /// The LLVM tools.
    pub llvm: LlvmTools,
    /// Origin of the toolchain.
    pub origin: Origin,
}

/// The LLVM tools of the pipeline.
#[derive(Debug, Clone)]
pub struct LlvmTools {
    /// Folder of the tools.
    pub folder: PathBuf,
    /// LLVM version.
    pub version: Version,
}

impl DeviceToolchain {
    /// Returns the compiler and its LLVM with their versions, as stored in images: `rustc 1.96.0 (ac68faa20
    /// 2026-05-25), LLVM 22.1.8`.
    pub fn description(&self) -> String {
        format!("{}, LLVM {}", self.rust_description, self.llvm.version)
    }
}

/// Returns the host package's compiler, which cargo names to build scripts, with its LLVM, in the format of
/// [`DeviceToolchain::description`]. Returns `None` outside of build scripts, or if the compiler does not report its
/// versions.
pub fn host_compiler() -> Option<String> {
    let about = run(Path::new(&env::var_os("RUSTC")?), &["-vV"]).ok()?;
    let llvm = about.lines().find_map(|line| line.strip_prefix("LLVM version:"))?;
    Some(format!("{}, LLVM {}", about.lines().next()?, Version::find_in(llvm)?))
}

impl LlvmTools {
    /// Returns the path of `tool`, for example `opt`.
    pub fn tool(&self, tool: &str) -> PathBuf {
        self.folder.join(program(tool))
    }

    /// Creates a command that runs `opt` or `llc` without LLVM's limit of 1024 bytes for names in its input, because
    /// inlining produces longer names.
    pub fn passes(&self, tool: &str) -> Command {
        let mut command = Command::new(self.tool(tool));
        command.arg("-non-global-value-max-name-size=1000000");
        command
    }
}

/// Origin of a device toolchain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Named by `WARPSMITH_DEVICE_RUSTC`.
    Environment,
    /// A rustup toolchain.
    Rustup,
    /// Installed by the system's package manager.
    System,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Environment => "WARPSMITH_DEVICE_RUSTC",
            Origin::Rustup => "rustup",
            Origin::System => "installed on the system",
        })
    }
}

/// Tools that an LLVM tools folder must contain.
const TOOLS: [&str; 4] = ["llvm-ar", "llvm-link", "opt", "llc"];

/// Looks for a device toolchain: `WARPSMITH_DEVICE_RUSTC`, then rustup's toolchains, then rustc on the `PATH` and in
/// `/usr/bin`. If `WARPSMITH_DEVICE_RUSTC` is set (with `WARPSMITH_LLVM_BIN` for the LLVM tools), no other toolchain is
/// tried.
pub fn find_device_toolchain() -> Search<DeviceToolchain> {
    let mut rejected = Vec::new();
    for (rustc, origin) in candidates(&mut rejected) {
        match examine(&rustc, origin) {
            Ok(toolchain) => return Search { found: Some(toolchain), rejected },
            Err(reason) => rejected.push(Rejected { candidate: rustc.display().to_string(), reason }),
        }
    }
    Search { found: None, rejected }
}

fn candidates(rejected: &mut Vec<Rejected>) -> Vec<(PathBuf, Origin)> {
    if let Some(rustc) = super::path_in("WARPSMITH_DEVICE_RUSTC") {
        return vec![(rustc, Origin::Environment)];
    }
    let mut found = Vec::new();
    match rustup_home() {
        Some(home) => {
            let mut toolchains: Vec<PathBuf> = std::fs::read_dir(home.join("toolchains"))
                .map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path()).collect())
                .unwrap_or_default();
            toolchains.sort();
            // The exact version is tried first; its folder name starts with the version.
            toolchains.sort_by_key(|path| {
                !path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(super::RUST_TO_INSTALL))
            });
            found.extend(
                toolchains.into_iter().map(|path| (path.join("bin").join(program("rustc")), Origin::Rustup)),
            );
        }
        None => rejected.push(Rejected {
            candidate: "rustup".to_owned(),
            reason: "neither RUSTUP_HOME nor the home folder is an absolute path".to_owned(),
        }),
    }
    let system =
        super::search_path().into_iter().chain([PathBuf::from("/usr/bin"), PathBuf::from("/usr/local/bin")]);
    for folder in system {
        let rustc = folder.join(program("rustc"));
        // rustup's proxies are in cargo's folder; the toolchains behind them are already in the list.
        if rustc.is_file() && !is_rustup_proxy(&rustc) && !found.iter().any(|(other, _)| *other == rustc) {
            found.push((rustc, Origin::System));
        }
    }
    found
}

pub(crate) fn rustup_home() -> Option<PathBuf> {
    let home = super::path_in("RUSTUP_HOME").or_else(|| Some(env::home_dir()?.join(".rustup")));
    home.filter(|home| home.is_absolute())
}

fn is_rustup_proxy(rustc: &Path) -> bool {
    let real = std::fs::canonicalize(rustc).unwrap_or_else(|_| rustc.to_path_buf());
    let rustup = program("rustup");
    real.file_name().is_some_and(|name| name == &*rustup) || rustc.with_file_name(rustup).exists()
}

fn examine(rustc: &Path, origin: Origin) -> Result<DeviceToolchain, String> {
    if rustc.is_relative() {
        return Err("it is a relative path; set WARPSMITH_DEVICE_RUSTC to an absolute path".to_owned());
    }
    if !rustc.is_file() {
        return Err("no such file".to_owned());
    }
    let about = run(rustc, &["-vV"])?;
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let rust_version = field("release:").and_then(Version::find_in).ok_or("it does not print its version")?;
    if rust_version.major != 1 || !TESTED_RUST.contains(&rust_version.minor) {
        return Err(format!(
            "it is Rust {rust_version}, but kernels are compiled only with the tested versions: {}",
            tested_rust()
        ));
    }
    let rust_llvm =
        field("LLVM version:").and_then(Version::find_in).ok_or("it does not print its LLVM version")?;
    if rust_llvm.major != TESTED_LLVM {
        return Err(format!("it uses LLVM {rust_llvm}, but only LLVM {TESTED_LLVM} was tested"));
    }
    let host = field("host:").ok_or("it does not print its host triple")?;
    let sysroot = PathBuf::from(run(rustc, &["--print", "sysroot"])?.trim());
    let library = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if !library.is_file() {
        return Err(format!("the sources of `core` are missing ({}): install rust-src", library.display()));
    }
    let cargo = rustc.with_file_name(program("cargo"));
    if !cargo.is_file() {
        return Err(format!("cargo is missing in the same folder ({})", cargo.display()));
    }
    let llvm = llvm_tools(&sysroot, host)?;
    let rust_description = about.lines().next().unwrap_or_default().to_owned();
    Ok(DeviceToolchain { rustc: rustc.to_path_buf(), cargo, rust_version, rust_description, llvm, origin })
}

/// Finds the LLVM tools of the tested major version for a compiler: from `WARPSMITH_LLVM_BIN` if set, otherwise from
/// the compiler's sysroot, otherwise from the system.
fn llvm_tools(sysroot: &Path, host: &str) -> Result<LlvmTools, String> {
    if let Some(folder) = super::path_in("WARPSMITH_LLVM_BIN") {
        return examine_llvm(&folder)
            .map_err(|reason| format!("the LLVM tools in WARPSMITH_LLVM_BIN cannot be used: {reason}"));
    }
    let mut folders = vec![
        sysroot.join("lib/rustlib").join(host).join("bin"),
        PathBuf::from(format!("/usr/lib/llvm-{TESTED_LLVM}/bin")),
        PathBuf::from(format!("/usr/lib64/llvm{TESTED_LLVM}/bin")),
        PathBuf::from(format!("/usr/lib/llvm/{TESTED_LLVM}/bin")),
    ];
    folders.extend(super::search_path());
    let mut reasons = Vec::new();
    for folder in folders.iter().filter(|folder| folder.join(program("opt")).is_file()) {
        match examine_llvm(folder) {
            Ok(tools) => return Ok(tools),
            Err(reason) => reasons.push(reason),
        }
    }
    let looked = if reasons.is_empty() { "none found".to_owned() } else { reasons.join("; ") };
    Err(format!(
        "the LLVM {TESTED_LLVM} tools ({}) are missing ({looked}): install llvm-{TESTED_LLVM}, or rustup's llvm-tools",
        TOOLS.join(", ")
    ))
}

fn examine_llvm(folder: &Path) -> Result<LlvmTools, String> {
    if folder.is_relative() {
        return Err(format!("{} is a relative path; set it to an absolute path", folder.display()));
    }
    for tool in TOOLS {
        if !folder.join(program(tool)).is_file() {
            return Err(format!("{} has no {tool}", folder.display()));
        }
    }
    let text = run(&folder.join(program("opt")), &["--version"])?;
    let version = text
        .lines()
        .find_map(|line| line.split_once("LLVM version ").and_then(|(_, rest)| Version::find_in(rest)))
        .ok_or_else(|| format!("{}/opt does not print its version", folder.display()))?;
    if version.major != TESTED_LLVM {
        return Err(format!("{} has LLVM {version}, not {TESTED_LLVM}", folder.display()));
    }
    Ok(LlvmTools { folder: folder.to_path_buf(), version })
}

fn tested_rust() -> String {
    let versions: Vec<String> = TESTED_RUST.iter().map(|minor| format!("1.{minor}")).collect();
    versions.join(", ")
}

fn run(program: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{} cannot be run: {error}", program.display()))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} fails: {}", program.display(), message.lines().next().unwrap_or_default()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_more_than_1024_bytes_are_read() {
        let llvm = find_device_toolchain().found.expect("a device toolchain").llvm;
        let folder = env::temp_dir();
        let text = folder.join(format!("warpsmith-long-names-{}.ll", std::process::id()));
        let block = "b".repeat(2000);
        std::fs::write(
            &text,
            format!("define void @f() {{\n  br label %{block}\n{block}:\n  ret void\n}}\n"),
        )
        .unwrap();
        for (tool, arguments) in
            [("opt", ["-S", "-passes=verify"]), ("llc", ["-mtriple=nvptx64", "-mcpu=sm_80"])]
        {
            let read = llvm
                .passes(tool)
                .args(arguments)
                .arg(&text)
                .args(["-o", if cfg!(windows) { "NUL" } else { "/dev/null" }])
                .output()
                .unwrap();
            assert!(read.status.success(), "{tool}: {}", String::from_utf8_lossy(&read.stderr));
        }
        std::fs::remove_file(text).unwrap();
    }

    #[test]
    fn a_missing_compiler_is_refused_with_a_reason() {
        let error = examine(&env::temp_dir().join("no-such-rustc"), Origin::Environment).unwrap_err();
        assert_eq!(error, "no such file");
    }

    #[test]
    #[cfg(unix)]
    fn a_program_that_is_no_compiler_is_refused() {
        let error = examine(Path::new("/bin/true"), Origin::Environment).unwrap_err();
        assert_eq!(error, "it does not print its version");
    }

    #[cfg(unix)]
    #[test]
    fn an_untested_version_is_refused_by_name() {
        use std::os::unix::fs::PermissionsExt;
        let path = env::temp_dir().join(format!("warpsmith-old-rustc-{}", std::process::id()));
        std::fs::write(
            &path,
            "#!/bin/sh\nprintf 'rustc 1.63.0\\nrelease: 1.63.0\\nLLVM version: 14.0.6\\n'\n",
        )
        .unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = examine(&path, Origin::Environment).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error, "it is Rust 1.63.0, but kernels are compiled only with the tested versions: 1.96");
    }
}
