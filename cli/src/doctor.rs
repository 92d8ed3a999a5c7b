//! `warpsmith doctor`: reports what works, what is missing, and the commands to fix it.
//!
//! A missing item that this machine does not need, such as a GPU, or the device toolchain for a program that was built
//! with GPU code, is only a note. The exit code is 1 only if something that should work does not.

use std::path::Path;

use comfy_table::Cell;
use serde::Serialize;
use warpsmith::device::visible::VARIABLE;
use warpsmith::{Device, DeviceBuffer, IMAGE, Stream, ops};
use warpsmith_builder::{Cache, toolchain};
use warpsmith_libraries::Vendor;

use crate::args::DoctorArgs;
use crate::image;
use crate::kernels::package;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{bad, good, note, plain, print_form, table};
use warpsmith::bench::size::format_bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Note,
    Broken,
}

#[derive(Debug, Serialize)]
pub struct Check {
    pub what: String,
    pub status: Status,
    pub detail: String,
    /// Remedy, or an empty string if no remedy is known.
    pub fix: Vec<String>,
}

impl Check {
    pub fn new(what: impl Into<String>, status: Status, detail: impl Into<String>, fix: &[String]) -> Self {
        Self { what: what.into(), status, detail: detail.into(), fix: fix.to_vec() }
    }

    pub fn ok(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(what, Status::Ok, detail, &[])
    }
}

/// Runs and prints all checks.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let mut checks = vec![driver()];
    checks.extend(visible_devices());
    checks.extend(Device::list().into_iter().map(|info| device(&info)));
    checks.extend(libraries());
    checks.push(gpu_image());
    checks.extend(args.package.iter().flat_map(|folder| images_of(folder)));
    checks.extend(build_tools());
    let healthy = checks.iter().all(|check| check.status != Status::Broken);
    let text = if args.json {
        let document = serde_json::json!({"schema": 1, "ok": healthy, "checks": checks});
        serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n"
    } else {
        as_text(&checks)
    };
    print_form(&text, args.json)?;
    if healthy { Ok(()) } else { Err(Failure::Shown) }
}

fn driver() -> Check {
    match Device::cuda_count() {
        Ok(0) => Check::new("CUDA driver", Status::Note, "it works, but there is no CUDA device", &[]),
        Ok(1) => Check::ok("CUDA driver", "it works; there is one device"),
        Ok(count) => Check::ok("CUDA driver", format!("it works; there are {count} devices")),
        Err(error @ warpsmith::Error::Driver(warpsmith::DriverError::NoLibrary)) => {
            Check::new("CUDA driver", Status::Note, error.to_string(), &[])
        }
        Err(error) => {
            let fix = ["update or reinstall the NVIDIA driver until `nvidia-smi` works".to_string()];
            Check::new("CUDA driver", Status::Broken, error.to_string(), &fix)
        }
    }
}

/// Shows the list of visible devices and their number, if the variable is set.
fn visible_devices() -> Option<Check> {
    let list = std::env::var_os(VARIABLE)?;
    let count = Device::cuda_count().unwrap_or(0);
    let status = if count == 0 { Status::Note } else { Status::Ok };
    Some(Check::new("visible devices", status, format!("{count}, with {VARIABLE}={}", list.display()), &[]))
}

/// Runs two kernels on a device and compares their results.
fn device(info: &warpsmith::DeviceInfo) -> Check {
    let what = format!("device {}", info.id);
    let name = &info.properties.name;
    match try_kernels(&info.id.to_string()) {
        Ok(true) => Check::ok(what, format!("{name}: kernels run and give correct results")),
        Ok(false) => {
            let fix = ["report this with the output of `warpsmith doctor --json`".to_string()];
            Check::new(
                what,
                Status::Broken,
                format!("{name}: kernels run, but their results are incorrect"),
                &fix,
            )
        }
        Err(error) => Check::new(what, Status::Broken, format!("{name}: {error}"), &[]),
    }
}

fn try_kernels(device: &str) -> Result<bool, warpsmith::Error> {
    let stream = Stream::new(&Device::open(device)?)?;
    let x: Vec<f32> = (0..1001).map(|i| i as f32).collect();
    let expected: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
    let x = DeviceBuffer::from_host(&stream, &x)?;
    let mut y = DeviceBuffer::from_host(&stream, &[1.0f32; 1001])?;
    ops::axpy(&stream, &x, 2.0, &mut y)?;
    let sum = ops::sum(&stream, &y)?;
    Ok(y.to_host()? == expected && sum == expected.iter().sum::<f32>())
}

/// Checks NVIDIA's libraries, which a machine without a CUDA device does not need.
fn libraries() -> Vec<Check> {
    if Device::cuda_count().unwrap_or(0) == 0 {
        return Vec::new();
    }
    let check = |vendor: Vendor| match vendor.version() {
        Ok(version) => Check::ok(vendor.name(), version.to_string()),
        Err(error) => Check::new(vendor.name(), Status::Note, error.to_string(), &[]),
    };
    let checks = Vendor::ALL.iter().copied().map(check);
    #[cfg(feature = "collective")]
    let checks = checks.chain([match warpsmith::collective::nccl_library() {
        Ok(library) => Check::ok("NCCL", library.to_string()),
        Err(error) => Check::new("NCCL", Status::Note, error.to_string(), &[]),
    }]);
    checks.collect()
}

/// Returns whether builds generate GPU code in the user's environment.
fn is_gpu_code_on() -> bool {
    std::env::var("WARPSMITH_GPU_ARCHS").map_or(true, |archs| archs.trim() != "none")
}

fn gpu_image() -> Check {
    match IMAGE.missing() {
        None => Check::ok("GPU image", image::describe()),
        Some(_) if !is_gpu_code_on() => {
            Check::new("GPU image", Status::Note, "there is none, as WARPSMITH_GPU_ARCHS=none requests", &[])
        }
        Some(reason) => {
            let fix =
                [toolchain::SETUP_COMMAND, "cargo install --force --path cli (in the clone of Warpsmith)"];
            let fix = fix.map(str::to_owned);
            Check::new("GPU image", Status::Broken, format!("there is none: {reason}"), &fix)
        }
    }
}

fn images_of(folder: &Path) -> Vec<Check> {
    let images = match package::images(folder) {
        Ok(images) => images,
        Err(failure) => {
            let what = format!("GPU image of {}", folder.display());
            return vec![Check::new(what, Status::Note, failure.line().unwrap_or_default(), &[])];
        }
    };
    let check = |image: &package::Image| {
        let what = format!("GPU image of {}", image.name());
        match (image.describe(), image.stale()) {
            (Err(reason), _) => Check::new(what, Status::Note, format!("there is none: {reason}"), &[]),
            (Ok(detail), None) => Check::ok(what, detail),
            (Ok(_), Some((why, command))) => Check::new(what, Status::Note, why, &[command]),
        }
    };
    images.iter().map(check).collect()
}

fn generated_code() -> Check {
    let Some(cache) = Cache::of_user() else {
        return Check::ok(
            "generated code",
            "no images are cached: WARPSMITH_IMAGE_CACHE is off, or there is no cache folder",
        );
    };
    let (entries, bytes) = cache.size();
    let detail = format!("{entries} entries, {} in {}", format_bytes(bytes), cache.folder().display());
    Check::ok("generated code", detail)
}

/// Checks the tools for building kernels. The embedded kernels run without these tools.
fn build_tools() -> Vec<Check> {
    let (unneeded, fix) = match is_gpu_code_on() {
        true => ("to run the kernels embedded in this command", vec![toolchain::SETUP_COMMAND.to_owned()]),
        false => ("while WARPSMITH_GPU_ARCHS is none", Vec::new()),
    };
    let only_to_build = |detail: String| format!("{detail}; needed to build kernels, but not {unneeded}");
    let search = toolchain::find_device_toolchain();
    let compiler = match &search.found {
        Some(found) => Check::ok(
            "device toolchain",
            format!(
                "rustc {} at {} ({}), LLVM {}",
                found.rust_version,
                found.rustc.display(),
                found.origin,
                found.llvm.version
            ),
        ),
        None => {
            let detail = only_to_build(format!("not found; searched:\n{}\n", search.explain()));
            Check::new("device toolchain", Status::Note, detail, &fix)
        }
    };
    let tools = toolchain::find_cuda_tools();
    let found = |path: &Path| format!("{} ({})", path.display(), tools.origin_of(path));
    let check = |what: &str, path: Option<String>, without: &str| match path {
        Some(detail) => Check::ok(what, detail),
        None => Check::new(what, Status::Note, only_to_build(format!("not found: {without}")), &fix),
    };
    let ptxas = tools.ptxas.as_ref().map(|ptxas| format!("{} at {}", ptxas.version, found(&ptxas.path)));
    let ptxas = check("ptxas", ptxas, "no machine code and no register counts in images");
    let libdevice = tools.libdevice.as_deref().map(found);
    let libdevice = check("libdevice", libdevice, "no exp, sin, erf and similar functions in kernels");
    let cudadevrt = tools.cudadevrt.as_deref().map(found);
    let cudadevrt = check("libcudadevrt", cudadevrt, "no kernels that set a graph's conditions");
    let mut checks = vec![compiler, ptxas, libdevice, cudadevrt, generated_code()];
    if let Err(error) = toolchain::check_variables() {
        let fix = [format!("unset {}", error.variable)];
        checks.push(Check::new("variables", Status::Broken, error.to_string(), &fix));
    }
    checks
}

fn as_text(checks: &[Check]) -> String {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut fix: &[String] = &[];
    for check in checks {
        let status = match check.status {
            Status::Ok => good("ok"),
            Status::Note => note("note"),
            Status::Broken => bad("BROKEN"),
        };
        let mut details = check.detail.lines();
        rows.push(vec![status, plain(&check.what), plain(details.next().unwrap_or_default())]);
        rows.extend(details.map(|line| vec![plain(""), plain(""), plain(line)]));
        // A fix that several checks share is printed only once.
        if check.fix == fix {
            continue;
        }
        fix = &check.fix;
        rows.extend(fix.iter().map(|line| vec![plain(""), plain(""), plain(format!("-> {line}"))]));
    }
    table(&["", "what", "found"], &[], rows)
}
