//! [`Targets`]: the architectures that a build compiles for.
//!
//! | build | compiled architectures |
//! | --- | --- |
//! | release, or `WARPSMITH_REQUIRE_GPU_IMAGE=1` | all architectures of the builder |
//! | development, on a machine with CUDA devices | the architectures of these devices |
//! | development, without CUDA devices | none: rustc checks the kernels for the GPU, and no code is generated |
//!
//! `WARPSMITH_GPU_ARCHS` overrides the rule: `all`, `native` (the architectures of the installed devices, even in a
//! release build), `none`, or a list such as `sm_80,sm_90a`. A device whose capability is unknown is assumed to support
//! all of these architectures.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::arch::Arch;
use crate::error::Error;
use crate::toolchain;

/// Variable that overrides the rule.
pub const VARIABLE: &str = "WARPSMITH_GPU_ARCHS";

/// Architectures for which a build compiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// Compiles for these architectures.
    Archs(Vec<Arch>),
    /// Only checks the kernels. The value contains the reason and the remedy.
    Check(String),
}

impl Targets {
    /// Selects the architectures of this build from the builder's `archs`.
    ///
    /// # Errors
    /// Returns [`Error::BadArchs`] if the variable has an invalid value.
    pub fn choose(archs: &[Arch]) -> Result<Targets, Error> {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let whole =
            is_set("WARPSMITH_REQUIRE_GPU_IMAGE") || std::env::var_os("PROFILE") != Some("debug".into());
        by_rule(archs, std::env::var_os(VARIABLE), whole, present_devices)
    }
}

fn by_rule(
    archs: &[Arch],
    variable: Option<OsString>,
    whole: bool,
    devices: impl FnOnce() -> Devices,
) -> Result<Targets, Error> {
    let all = || Targets::Archs(archs.to_vec());
    let variable = variable.map(|value| value.to_string_lossy().trim().to_owned()).unwrap_or_default();
    let native = match variable.as_str() {
        "" if whole => return Ok(all()),
        "" | "native" => devices(),
        "all" => return Ok(all()),
        "none" => {
            return Ok(Targets::Check(format!(
                "{VARIABLE} is \"none\"; set it to \"all\", or unset it, and build again"
            )));
        }
        list => return parse(list).map(Targets::Archs),
    };
    Ok(match native {
        Devices::None => Targets::Check(format!(
            "a development build on a machine without a CUDA device generates no GPU code; build with --release, or \
             with {VARIABLE}=all"
        )),
        Devices::Unknown => all(),
        Devices::Of(capabilities) => {
            let mut used: Vec<Arch> = Vec::new();
            for capability in capabilities {
                match best_for(archs, capability) {
                    Some(arch) if !used.contains(&arch) => used.push(arch),
                    Some(_) => {}
                    // No code fits the device. The load error lists the available code.
                    None => return Ok(all()),
                }
            }
            Targets::Archs(used)
        }
    })
}

/// Returns the architecture whose code a device uses: a cubin for exactly this device's architecture, otherwise the
/// newest PTX that the device supports.
fn best_for(archs: &[Arch], capability: u32) -> Option<Arch> {
    let fits = |arch: &&Arch| match arch.is_specific() {
        true => arch.capability() == capability,
        false => arch.capability() <= capability,
    };
    archs.iter().filter(fits).max_by_key(|arch| (arch.capability(), arch.is_specific())).copied()
}

fn parse(list: &str) -> Result<Vec<Arch>, Error> {
    let bad = |word: &str| Error::BadArchs { value: list.to_owned(), word: word.to_owned() };
    list.split(',')
        .map(|word| {
            let digits = word.trim().trim_start_matches("sm_");
            let (digits, specific) =
                digits.strip_suffix('a').map_or((digits, false), |digits| (digits, true));
            let capability = digits.parse::<u32>().ok().filter(|number| (50..=999).contains(number));
            let capability = capability.ok_or_else(|| bad(word))?;
            Ok(if specific { Arch::specific(capability) } else { Arch::new(capability) })
        })
        .collect()
}

/// CUDA devices of this machine, by capability.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Devices {
    None,
    /// CUDA devices exist, but `nvidia-smi` does not report their capabilities.
    Unknown,
    Of(Vec<u32>),
}

fn present_devices() -> Devices {
    let wsl = Path::new("/usr/lib/wsl/lib/nvidia-smi");
    let on_path = toolchain::search_path().into_iter().map(|folder| folder.join("nvidia-smi"));
    let is_there = Path::new("/dev/nvidiactl").exists() || Path::new("/dev/dxg").exists();
    if !is_there {
        return Devices::None;
    }
    let ask = |program: &Path| {
        let output =
            Command::new(program).args(["--query-gpu=compute_cap", "--format=csv,noheader"]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let mut programs = on_path.filter(|program| program.is_file()).chain([wsl.to_path_buf()]);
    programs.find_map(|program| ask(&program)).map_or(Devices::Unknown, |text| read_capabilities(&text))
}

/// Parses capabilities such as `9.0`, one device per line.
fn read_capabilities(text: &str) -> Devices {
    let capability = |line: &str| {
        let (major, minor) = line.trim().split_once('.')?;
        Some(10 * major.parse::<u32>().ok()? + minor.parse::<u32>().ok()?)
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    match lines.iter().map(|line| capability(line)).collect::<Option<Vec<u32>>>() {
        Some(all) if all.is_empty() => Devices::None,
        Some(all) => Devices::Of(all),
        None => Devices::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHS: [Arch; 2] = [Arch::SM_80, Arch::SM_90A];

    fn targets(variable: &str, whole: bool, devices: Devices) -> Targets {
        by_rule(&ARCHS, Some(variable.into()), whole, || devices).unwrap()
    }

    #[test]
    fn release_builds_compile_for_all_architectures() {
        assert_eq!(targets("", true, Devices::None), Targets::Archs(ARCHS.to_vec()));
        assert_eq!(targets("all", false, Devices::None), Targets::Archs(ARCHS.to_vec()));
    }

    #[test]
    fn development_builds_compile_for_present_devices() {
        let of = |capabilities: &[u32]| targets("", false, Devices::Of(capabilities.to_vec()));
        assert_eq!(of(&[90]), Targets::Archs(vec![Arch::SM_90A]));
        assert_eq!(of(&[86, 89]), Targets::Archs(vec![Arch::SM_80]));
        assert_eq!(of(&[90, 120]), Targets::Archs(vec![Arch::SM_90A, Arch::SM_80]));
        assert_eq!(of(&[75]), Targets::Archs(ARCHS.to_vec()), "the error of the load lists what there is");
        assert_eq!(targets("", false, Devices::Unknown), Targets::Archs(ARCHS.to_vec()));
        assert!(
            matches!(targets("", false, Devices::None), Targets::Check(reason) if reason.contains("--release"))
        );
    }

    #[test]
    fn the_variable_overrides_the_rule() {
        assert_eq!(targets("native", true, Devices::Of(vec![80])), Targets::Archs(vec![Arch::SM_80]));
        assert!(matches!(targets("none", true, Devices::Unknown), Targets::Check(_)));
        let listed = Targets::Archs(vec![Arch::new(86), Arch::specific(100)]);
        assert_eq!(targets("sm_86, 100a", false, Devices::None), listed);
        for bad in ["sm_", "hopper", "80,", "90b"] {
            let error = by_rule(&ARCHS, Some(bad.into()), false, || Devices::None).unwrap_err().to_string();
            assert!(error.contains("WARPSMITH_GPU_ARCHS") && error.contains("sm_80,sm_90a"), "{error}");
        }
    }

    #[test]
    fn capabilities_are_read_from_nvidia_smi() {
        assert_eq!(read_capabilities("9.0\n12.0\n"), Devices::Of(vec![90, 120]));
        assert_eq!(read_capabilities("[N/A]\n"), Devices::Unknown);
        assert_eq!(read_capabilities("\n"), Devices::None);
    }
}
