//! Lists the kernels of a package from the reports that its builds leave for each image in cargo's target folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::json;
use warpsmith::bench::command::failure::Failure;
use warpsmith::module::spec::KernelResources;
use warpsmith_builder::{ArchReport, ImageReport, KernelReport};

use super::table::{self, Array, Code, Instance};
use super::{NO_FIGURES, check_names, chosen_arch, figures, retain};
use crate::args::KernelsArgs;

/// Packages of `PtxBuilder` and `CudaBuilder`, which build images.
const BUILDERS: [&str; 2] = ["warpsmith-builder", "warpsmith-cuda-builder"];

/// An image of a package.
pub struct Image {
    /// Builds of the image, newest first. There is at least one build.
    builds: Vec<ImageReport>,
}

impl Image {
    /// Returns the newest build that has resource data for `arch`, otherwise the newest build that has code, otherwise
    /// the newest build.
    fn build(&self, arch: Option<u32>) -> &ImageReport {
        let has_figures = |build: &&ImageReport| archs(build).iter().any(|(other, _)| Some(*other) == arch);
        let has_code = |build: &&ImageReport| build.reason.is_none();
        let found = self.builds.iter().find(has_figures).or_else(|| self.builds.iter().find(has_code));
        found.unwrap_or(&self.builds[0])
    }

    /// Name of the image.
    pub fn name(&self) -> String {
        format!("{} {}", self.builds[0].package, self.builds[0].version)
    }

    /// Describes the newest build that has code. `Err` contains the reason if no build has code.
    pub fn describe(&self) -> Result<String, &str> {
        let build = self.build(None);
        match &build.reason {
            Some(reason) => Err(reason),
            None => Ok(describe(build)),
        }
    }

    /// Describes why the newest build that has code is stale, and the command that repeats the build. Returns `None` if
    /// the build is up to date.
    pub fn stale(&self) -> Option<(String, String)> {
        stale(self.build(None))
    }
}

/// Returns the output that lists the kernels of the package in `folder`.
pub fn text(folder: &Path, args: &KernelsArgs) -> Result<String, Failure> {
    let images = images(folder)?;
    let without = images.iter().filter_map(|image| Some((image, image.describe().err()?)));
    let without: Vec<String> =
        without.map(|(image, reason)| format!("{}: no GPU code: {reason}", image.name())).collect();
    if without.len() == images.len() {
        return Err(Failure::Use(without.join("; ")));
    }
    let known: BTreeSet<u32> =
        images.iter().flat_map(|image| &image.builds).flat_map(archs).map(|(arch, _)| arch).collect();
    let known: Vec<u32> = known.into_iter().collect();
    let named = match args.arch.as_deref() {
        None => None,
        Some(text) => Some(chosen_arch(text, &known).map_err(|failure| {
            let line = failure.line().unwrap_or_default();
            Failure::Use(format!(
                "{line}; `WARPSMITH_GPU_ARCHS=all cargo build` in {} compiles for all architectures in build.rs; a \
                 list such as sm_80,sm_90a selects some",
                folder.display()
            ))
        })?),
    };
    let with_code = images.iter().filter(|image| image.describe().is_ok());
    let mut shown: Vec<(&ImageReport, Option<u32>, Vec<Instance>)> = with_code
        .map(|image| {
            let build = image.build(named);
            let arch = named.or_else(|| archs(build).last().map(|(arch, _)| *arch));
            (build, arch, instances(build, arch))
        })
        .collect();
    let all: Vec<Instance> = shown.iter().flat_map(|(_, _, instances)| instances.clone()).collect();
    check_names(&args.names, &all)?;
    shown.iter_mut().for_each(|(_, _, instances)| retain(&args.names, instances));
    shown.retain(|(_, _, instances)| !instances.is_empty());
    if args.json {
        let document = |(build, arch, instances): &(&ImageReport, Option<u32>, Vec<Instance>)| {
            let mut document = table::as_json(instances, *arch, args.block, None);
            document["image"] = json!({ "package": build.package, "version": build.version });
            document["host_folder"] = json!(build.host_folder);
            document["changed_since"] = json!(build.changed_source());
            document
        };
        let documents: Vec<_> = shown.iter().map(document).collect();
        return Ok(table::pretty(&json!({ "schema": 1, "images": documents, "without_code": without })));
    }
    let mut parts: Vec<String> = shown
        .iter()
        .map(|(build, arch, instances)| {
            let about = arch.map_or_else(|| NO_FIGURES.to_owned(), |arch| figures(arch, args.block));
            let stale = stale(build)
                .map_or_else(String::new, |(why, command)| format!("Stale: {why}; `{command}` updates it\n"));
            let table = table::as_text(instances, *arch, args.block, args.all);
            format!("{} {}: {}; {about}\n{stale}\n{table}", build.package, build.version, describe(build))
        })
        .collect();
    parts.extend(without.into_iter().map(|line| line + "\n"));
    Ok(parts.join("\n"))
}

/// Describes a build: `sm_80, sm_90a; 2 kernel instances`.
fn describe(build: &ImageReport) -> String {
    let archs: Vec<&str> = archs(build).into_iter().map(|(_, name)| name).collect();
    let archs = if archs.is_empty() { "PTX".to_owned() } else { archs.join(", ") };
    let plural = if build.kernels.len() == 1 { "" } else { "s" };
    format!("{archs}; {} kernel instance{plural}", build.kernels.len())
}

/// Describes why a build is stale, and the command that repeats the build.
fn stale(build: &ImageReport) -> Option<(String, String)> {
    let changed = build.changed_source()?.display().to_string();
    let release = if build.is_release { " --release" } else { "" };
    Some((format!("{changed} changed after the last build"), format!("cargo build{release}")))
}

/// Returns the architectures for which resource data exists, in ascending order, with their names.
fn archs(build: &ImageReport) -> Vec<(u32, &str)> {
    let resources = build.kernels.iter().flat_map(|kernel| &kernel.resources);
    let all: BTreeSet<(u32, &str)> = resources.map(|r| (r.capability, r.arch.as_str())).collect();
    all.into_iter().collect()
}

fn instances(build: &ImageReport, arch: Option<u32>) -> Vec<Instance> {
    let mut all: Vec<Instance> = build.kernels.iter().map(|kernel| instance(kernel, arch)).collect();
    table::sort(&mut all);
    all
}

/// Creates an instance. The symbol contains the arguments, as in `axpy__f32_4_16`. The report names the const parameters
/// of a kernel that `#[kernel]` has generated.
fn instance(kernel: &KernelReport, arch: Option<u32>) -> Instance {
    let (name, arguments) = match kernel.symbol.split_once("__") {
        Some((name, arguments)) if !name.is_empty() => (name, arguments),
        _ => (kernel.symbol.as_str(), ""),
    };
    let mut types: Vec<&str> = arguments.split('_').collect();
    let mut consts = Vec::new();
    while let Some(value) = types.last().and_then(|text| number(text)) {
        consts.insert(0, value);
        types.pop();
    }
    let named = |(index, value)| {
        (kernel.consts.get(index).map_or_else(|| format!("const{}", index + 1), String::clone), value)
    };
    // A device with that capability runs `sm_90a` code, not `sm_90` code.
    let on = |r: &&ArchReport| Some(r.capability) == arch;
    let found = kernel.resources.iter().filter(on).max_by_key(|r| r.arch.len());
    Instance {
        kernel: name.to_owned(),
        package: kernel.package.clone(),
        symbol: kernel.symbol.clone(),
        dtype: types.join("_"),
        more_types: String::new(),
        consts: consts.into_iter().enumerate().map(named).collect(),
        max_block: kernel.max_block.unwrap_or(1024),
        required: (kernel.block, kernel.cluster),
        min_arch: kernel.min_arch,
        is_arch_specific: kernel.is_arch_specific,
        static_shared: None,
        dynamic_shared: kernel
            .dynamic_shared
            .iter()
            .map(|bytes| Array { element_bytes: u64::from(*bytes), ..Array::default() })
            .collect(),
        resources: found.map(|r| KernelResources {
            arch: r.capability,
            registers: r.registers,
            static_shared: r.shared_bytes,
            stack: r.stack_bytes,
            spills: r.spill_bytes,
        }),
        code: Some(Code {
            stack_is_known: kernel.stack.is_some(),
            requested_stack: kernel.requested_stack,
            panics: kernel.panics.clone(),
        }),
    }
}

/// Reads a const argument of a symbol: `16`, or `m1` for -1.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix('m') {
        Some(digits) if digits.starts_with(|first: char| first.is_ascii_digit()) => {
            digits.parse().ok().map(|number: i64| -number)
        }
        _ if text.starts_with(|first: char| first.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// `cargo metadata` of a workspace.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    target_directory: PathBuf,
    /// Folder for build script output, which recent versions of cargo can separate from the target folder.
    build_directory: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

impl Package {
    /// Folder of the package, with symbolic links resolved.
    fn folder(&self) -> PathBuf {
        real(self.manifest_path.parent().unwrap_or(&self.manifest_path))
    }

    /// Returns true if the package's build script can build images.
    fn has_builder(&self) -> bool {
        let is_builder =
            |d: &Dependency| d.kind.as_deref() == Some("build") && BUILDERS.contains(&d.name.as_str());
        self.dependencies.iter().any(is_builder)
    }
}

/// Returns the images of the package in `folder`: the images that the package embeds or, for a kernel crate, the images
/// built from it.
///
/// # Errors
/// Returns a usage error that states the remedy if no image exists.
pub fn images(folder: &Path) -> Result<Vec<Image>, Failure> {
    let metadata = metadata(folder)?;
    let own_folder = real(folder);
    let mut reports = Vec::new();
    for target in [Some(&metadata.target_directory), metadata.build_directory.as_ref()].into_iter().flatten()
    {
        let found = ImageReport::all(target).map_err(|error| Failure::Use(error.to_string()))?;
        reports.extend(found.into_iter().filter(|report| !reports.contains(report)).collect::<Vec<_>>());
    }
    let Some(package) = metadata.packages.iter().find(|package| package.folder() == own_folder) else {
        let members = metadata.packages.iter().filter(|package| package.has_builder());
        let members: Vec<String> =
            members.map(|member| format!("-p {}", member.folder().display())).collect();
        let shown = folder.display();
        return Err(Failure::Use(match members.is_empty() {
            true => format!("{shown} is a workspace whose packages have no kernels"),
            false => format!("{shown} is a workspace without a package: use {}", members.join(" or ")),
        }));
    };
    let is_own = |report: &ImageReport| [&report.host_folder, &report.kernel_folder].contains(&&own_folder);
    let mut images: Vec<Image> = Vec::new();
    for report in reports.into_iter().filter(is_own) {
        let is_same = |image: &&mut Image| {
            let other = &image.builds[0];
            (&other.host_folder, &other.kernel_folder) == (&report.host_folder, &report.kernel_folder)
        };
        match images.iter_mut().find(is_same) {
            Some(image) => image.builds.push(report),
            None => images.push(Image { builds: vec![report] }),
        }
    }
    images.sort_by_key(Image::name);
    if images.is_empty() { Err(Failure::Use(nothing(package, folder, &metadata))) } else { Ok(images) }
}

/// Explains why a package has no report, and states the remedy.
fn nothing(package: &Package, folder: &Path, metadata: &Metadata) -> String {
    let (name, folder) = (&package.name, folder.display());
    let is_kernel_crate = package.dependencies.iter().any(|d| d.name == "warpsmith-gpu-std");
    match (package.has_builder(), is_kernel_crate) {
        (true, _) => format!(
            "there is no build of `{name}` in {}: run `cargo build` in {folder} (with --release for all architectures)",
            metadata.target_directory.display()
        ),
        (false, true) => format!(
            "there is no build of the kernel crate `{name}` in {}: pass the folder of the package whose build.rs \
             compiles it, after `cargo build` there",
            metadata.target_directory.display()
        ),
        (false, false) => format!(
            "`{name}` has no kernels: its build script does not use warpsmith-builder; `warpsmith new` writes a package \
             that does"
        ),
    }
}

/// Queries cargo for the packages and folders of the workspace in `folder`.
fn metadata(folder: &Path) -> Result<Metadata, Failure> {
    let shown = folder.display();
    if !folder.join("Cargo.toml").is_file() {
        return Err(Failure::Use(format!(
            "{shown} is not a folder with a Cargo.toml: pass the folder of a package, for example `-p .`"
        )));
    }
    // Cargo runs in this folder because its `.cargo/config.toml` may select a different target folder.
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--no-deps", "--format-version=1"]).current_dir(folder);
    let output = cargo.output().map_err(|error| Failure::Failed(format!("cannot run cargo: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Use(format!("cargo cannot read the package in {shown}: {}", said.trim())));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::Failed(format!("cannot read the output of cargo metadata: {error}")))
}

/// Resolves the links in `path`.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_from_the_symbol() {
        let of = |symbol: &str| {
            let i = instance(&KernelReport { symbol: symbol.to_owned(), ..KernelReport::default() }, None);
            let consts: Vec<i64> = i.consts.iter().map(|(_, value)| *value).collect();
            (i.kernel, i.dtype, consts)
        };
        let expected = |kernel: &str, dtype: &str, consts: &[i64]| {
            (kernel.to_owned(), dtype.to_owned(), consts.to_vec())
        };
        assert_eq!(of("axpy__f32_4_16"), expected("axpy", "f32", &[4, 16]));
        assert_eq!(of("shift__m1"), expected("shift", "", &[-1]));
        assert_eq!(of("mix__my_type_f32"), expected("mix", "my_type_f32", &[]));
        assert_eq!(of("smooth"), expected("smooth", "", &[]));
        assert_eq!(of("__start"), expected("__start", "", &[]));
    }

    #[test]
    fn the_specific_architecture_of_a_capability_is_shown() {
        let on = |arch: &str, registers| ArchReport {
            arch: arch.to_owned(),
            capability: 90,
            registers,
            shared_bytes: 0,
            stack_bytes: 0,
            spill_bytes: 0,
        };
        let kernel =
            KernelReport { resources: vec![on("sm_90a", 40), on("sm_90", 32)], ..KernelReport::default() };
        assert_eq!(instance(&kernel, Some(90)).resources.map(|r| r.registers), Some(40));
        assert_eq!(instance(&kernel, Some(80)).resources, None);
    }
}
