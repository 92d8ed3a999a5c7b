//! `warpsmith kernels`: lists kernels with the resources of each instance.
//!
//! | module | contents |
//! | --- | --- |
//! | this one | the kernels in this program |
//! | [`package`] | the kernels of a package, from the reports that its builds leave in the target folder |
//! | [`table`] | the table of kernels, and the JSON document |

pub mod package;
mod table;

use std::collections::{BTreeSet, HashMap};

use warpsmith::IMAGE;
use warpsmith::bench::benchmark::nearest;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::print_form;
use warpsmith::gpu_std::{ParamKind, ParamSpec, registry};
use warpsmith::module::spec::{KernelRecord, KernelResources, PanicPlace, StackUse};
use warpsmith_builder::{CallSite, PanicPath};

use self::table::{Array, Code, Instance};
use crate::args::KernelsArgs;
use crate::image;

/// Prints the kernels.
pub fn run(args: &KernelsArgs) -> Result<(), Failure> {
    if args.block == 0 || args.block > 1024 {
        return Err(Failure::Use(format!("block {}: use 1 to 1024 threads", args.block)));
    }
    let text = match &args.package {
        Some(folder) => package::text(folder, args)?,
        None => own_text(args)?,
    };
    Ok(print_form(&text, args.json)?)
}

/// Returns the output that lists the kernels in this program.
fn own_text(args: &KernelsArgs) -> Result<String, Failure> {
    let arch = match args.arch.as_deref() {
        None => image::archs().last().copied(),
        Some(text) => Some(chosen_arch(text, &image::archs())?),
    };
    let resources = arch.map(image::resources).unwrap_or_default();
    let mut instances = instances(&resources);
    check_names(&args.names, &instances)?;
    retain(&args.names, &mut instances);
    if args.json {
        return Ok(table::pretty(&table::as_json(&instances, arch, args.block, IMAGE.missing())));
    }
    let head = match (arch, IMAGE.missing()) {
        (Some(arch), _) => format!("{}; {}", image::describe(), figures(arch, args.block)),
        (None, Some(reason)) => {
            format!(
                "No GPU image ({reason}): the table lists the emulated device's instances, without resource \
                     usage"
            )
        }
        (None, None) => format!("{}; {NO_FIGURES}", image::describe()),
    };
    Ok(format!("{head}\n\n{}", table::as_text(&instances, arch, args.block, args.all)))
}

/// Describes an image that contains no resource data.
const NO_FIGURES: &str = "resource usage is unknown: ptxas was not available during the build";

/// Describes which resource data a table shows.
fn figures(arch: u32, block: u32) -> String {
    format!("resource usage on sm_{arch}, occupancy at {block} threads per block")
}

/// Returns the architecture that a user named, which must be one of `archs`.
fn chosen_arch(text: &str, archs: &[u32]) -> Result<u32, Failure> {
    let digits = text.trim_start_matches("sm_").trim_end_matches('a');
    digits.parse().ok().filter(|arch| archs.contains(arch)).ok_or_else(|| {
        let known: Vec<String> = archs.iter().map(|arch| format!("sm_{arch}")).collect();
        let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        Failure::Use(format!("architecture {text:?}: the GPU image has resource usage only for {known}"))
    })
}

/// Fails if a name in `names` matches no instance.
fn check_names(names: &[String], instances: &[Instance]) -> Result<(), Failure> {
    let unknown = names.iter().find(|name| !instances.iter().any(|instance| instance.is(name)));
    unknown.map_or(Ok(()), |name| {
        let known: BTreeSet<&str> = instances.iter().map(|instance| instance.kernel.as_str()).collect();
        let hint = nearest(name, known.into_iter());
        Err(Failure::Use(format!("unknown kernel {name:?}: {hint}")))
    })
}

/// Keeps the instances whose name is in `names`, or all instances if `names` is empty.
fn retain(names: &[String], instances: &mut Vec<Instance>) {
    if !names.is_empty() {
        instances.retain(|instance| names.iter().any(|name| instance.is(name)));
    }
}

fn instances(resources: &HashMap<&'static str, KernelResources>) -> Vec<Instance> {
    let mut all: Vec<Instance> = registry::kernels()
        .map(|spec| {
            let record = IMAGE.spec().kernel(spec.symbol);
            let record =
                record.filter(|record| record.abi.is_some_and(|abi| abi.package.name == spec.package));
            let is_dynamic = |param: &&ParamSpec| param.kind == ParamKind::Shared;
            Instance {
                kernel: spec.name.to_owned(),
                package: spec.package.to_owned(),
                symbol: spec.symbol.to_owned(),
                dtype: spec.types.first().map_or("", |t| t.name).to_owned(),
                more_types: spec.types.iter().skip(1).map(|t| t.name).collect::<Vec<_>>().join(","),
                consts: spec.consts.iter().map(|c| (c.parameter.to_owned(), c.value)).collect(),
                max_block: spec.launch_bounds.map_or(1024, |bounds| bounds.max_threads),
                required: (spec.block, spec.cluster),
                min_arch: spec.min_arch,
                is_arch_specific: spec.is_arch_specific,
                static_shared: Some(spec.static_shared),
                dynamic_shared: spec.params.iter().filter(is_dynamic).map(array).collect(),
                resources: resources.get(spec.symbol).copied(),
                code: record.map(code),
            }
        })
        .collect();
    table::sort(&mut all);
    all
}

fn array(param: &ParamSpec) -> Array {
    Array {
        parameter: Some(param.name.to_owned()),
        type_name: Some(param.type_name.to_owned()),
        element_bytes: param.size as u64,
    }
}

fn code(record: &KernelRecord) -> Code {
    let panic = |place: &PanicPlace| PanicPath {
        file: place.file.to_owned(),
        line: place.line,
        column: place.column,
        what: place.what.to_owned(),
        calls: place
            .calls
            .iter()
            .map(|call| CallSite { file: call.file.to_owned(), line: call.line, column: call.column })
            .collect(),
    };
    Code {
        stack_is_known: record.stack != StackUse::Unknown,
        requested_stack: record.requested_stack,
        panics: record.panics.iter().map(panic).collect(),
    }
}
