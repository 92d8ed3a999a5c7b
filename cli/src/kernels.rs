//! `warpsmith kernels`: lists the kernels in this program with the resources of each instance.
//!
//! By default there is one line per kernel and type; it joins the instances that differ in items, vector and further
//! type parameters. Instances with a stack frame or spilled registers are always listed individually: there should be
//! none, so each is an exception to know about. The same holds for panics that the compiler could not rule out, which
//! are listed with their source locations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;

use comfy_table::Cell;
use serde_json::json;
use warpsmith::IMAGE;
use warpsmith::bench::benchmark::nearest;
use warpsmith::gpu_std::{ParamKind, ParamSpec, registry};
use warpsmith::module::spec::{CallPlace, KernelRecord, KernelResources, PanicPlace, StackUse};

use crate::args::KernelsArgs;
use crate::image;
use crate::occupancy::occupancy;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{note, plain, print_form, table};

/// A kernel instance.
struct Instance {
    kernel: &'static str,
    package: &'static str,
    symbol: &'static str,
    /// First type argument, by which the lines are grouped; empty if there is none.
    dtype: &'static str,
    /// Further type arguments, joined.
    more_types: String,
    consts: Vec<(&'static str, i64)>,
    max_block: u32,
    /// Block and cluster dimensions that every launch must have.
    required: (Option<[u32; 3]>, Option<[u32; 3]>),
    min_arch: u32,
    is_arch_specific: bool,
    /// Static shared memory of its parameters per block, in bytes, independent of the launch.
    static_shared: u32,
    /// Dynamic shared-memory arrays.
    dynamic_shared: Vec<&'static ParamSpec>,
    resources: Option<KernelResources>,
    /// Record of its code; `None` without a GPU image.
    record: Option<&'static KernelRecord>,
}

impl Instance {
    /// Returns true if the stack size is unknown before it runs.
    fn has_unknown_stack(&self) -> bool {
        self.record.is_some_and(|record| record.stack == StackUse::Unknown)
    }

    /// Static shared memory in bytes: as reported by `ptxas`, or otherwise that of its parameters.
    fn static_shared(&self) -> u32 {
        self.resources.map_or(self.static_shared, |resources| resources.static_shared)
    }

    /// Returns the remaining panics in its code.
    fn panics(&self) -> &'static [PanicPlace] {
        self.record.map_or(&[], |record| record.panics)
    }
}

/// Prints the kernels.
pub fn run(args: &KernelsArgs) -> Result<(), Failure> {
    if args.block == 0 || args.block > 1024 {
        return Err(Failure::Use(format!("block {}: use 1 to 1024 threads", args.block)));
    }
    let arch = chosen_arch(args.arch.as_deref())?;
    let resources = arch.map(image::resources).unwrap_or_default();
    let mut instances = instances(&resources);
    for name in &args.names {
        if !instances.iter().any(|i| i.kernel == name || i.symbol == name) {
            let names: BTreeSet<&str> = instances.iter().map(|i| i.kernel).collect();
            let hint = nearest(name, names.into_iter());
            return Err(Failure::Use(format!("unknown kernel {name:?}: {hint}")));
        }
    }
    if !args.names.is_empty() {
        instances.retain(|i| args.names.iter().any(|name| i.kernel == name || i.symbol == name));
    }
    let text = match args.json {
        true => as_json(&instances, arch, args.block),
        false => as_text(&instances, arch, args),
    };
    Ok(print_form(&text, args.json)?)
}

/// Returns the architecture to show: the requested one, otherwise the newest with resource data.
fn chosen_arch(text: Option<&str>) -> Result<Option<u32>, Failure> {
    let archs = image::archs();
    let Some(text) = text else { return Ok(archs.last().copied()) };
    let digits = text.trim_start_matches("sm_").trim_end_matches('a');
    match digits.parse().ok().filter(|arch| archs.contains(arch)) {
        Some(arch) => Ok(Some(arch)),
        None => {
            let known: Vec<String> = archs.iter().map(|arch| format!("sm_{arch}")).collect();
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            Err(Failure::Use(format!("architecture {text:?}: the GPU image has figures for {known}")))
        }
    }
}

fn instances(resources: &HashMap<&'static str, KernelResources>) -> Vec<Instance> {
    let mut all: Vec<Instance> = registry::kernels()
        .map(|spec| Instance {
            kernel: spec.name,
            package: spec.package,
            symbol: spec.symbol,
            dtype: spec.types.first().map_or("", |t| t.name),
            more_types: spec.types.iter().skip(1).map(|t| t.name).collect::<Vec<_>>().join(","),
            consts: spec.consts.iter().map(|c| (c.parameter, c.value)).collect(),
            max_block: spec.launch_bounds.map_or(1024, |bounds| bounds.max_threads),
            required: (spec.block, spec.cluster),
            min_arch: spec.min_arch,
            is_arch_specific: spec.is_arch_specific,
            static_shared: spec.static_shared,
            dynamic_shared: spec.params.iter().filter(|param| param.kind == ParamKind::Shared).collect(),
            resources: resources.get(spec.symbol).copied(),
            record: IMAGE
                .spec()
                .kernel(spec.symbol)
                .filter(|record| record.abi.is_some_and(|abi| abi.package.name == spec.package)),
        })
        .collect();
    all.sort_by(|a, b| {
        let key = |i: &Instance| (i.package, i.kernel, i.dtype);
        key(a).cmp(&key(b)).then_with(|| (&a.more_types, &a.consts).cmp(&(&b.more_types, &b.consts)))
    });
    all
}

fn as_text(instances: &[Instance], arch: Option<u32>, args: &KernelsArgs) -> String {
    let mut text = match arch {
        Some(arch) => format!(
            "{}; figures for sm_{arch}, occupancy at {} threads a block\n\n",
            image::describe(),
            args.block
        ),
        None => match IMAGE.missing() {
            Some(reason) => {
                format!("No GPU image ({reason}): instances for the emulated device, without figures\n\n")
            }
            None => format!("{}; no figures: ptxas was not there when it was built\n\n", image::describe()),
        },
    };
    let mut rows = Vec::new();
    if args.all {
        rows.extend(instances.iter().map(|i| row(std::slice::from_ref(i), i.symbol, arch, args.block)));
    } else {
        let same =
            |a: &Instance, b: &Instance| (a.package, a.kernel, a.dtype) == (b.package, b.kernel, b.dtype);
        for group in instances.chunk_by(same) {
            rows.push(row(group, group[0].kernel, arch, args.block));
        }
    }
    let first = if args.all { "symbol" } else { "kernel" };
    let header = [
        first,
        "type",
        "instances",
        "parameters",
        "max block",
        "registers",
        "shared",
        "stack",
        "spills",
        "panics",
        "occupancy",
    ];
    text.push_str(&table(&header, &[2, 4, 5, 6, 7, 8, 9, 10], rows));
    let exceptions: Vec<&Instance> =
        instances.iter().filter(|i| i.resources.is_some_and(|r| r.stack > 0 || r.spills > 0)).collect();
    if !exceptions.is_empty() {
        text.push_str("\nWith a stack frame or spills (bytes a thread):\n");
        for i in exceptions {
            if let Some(r) = i.resources {
                text.push_str(&format!("  {}: stack {}, spills {}\n", i.symbol, r.stack, r.spills));
            }
        }
    }
    let unknown: Vec<&Instance> = instances.iter().filter(|i| i.has_unknown_stack()).collect();
    if !unknown.is_empty() {
        text.push_str("\nWith a stack of unknown size (recursion, or calls through pointers):\n");
        for i in unknown {
            let asked = match i.record.map_or(0, |record| record.requested_stack) {
                bytes if bytes > 0 => format!("asks for {bytes} bytes"),
                _ => "asks for none: #[kernel(stack = BYTES)]".to_string(),
            };
            text.push_str(&format!("  {}: {asked}\n", i.symbol));
        }
    }
    text.push_str(&dynamic_shared(instances, args.all));
    text.push_str(&panics(instances, args.all));
    text
}

/// Lists the dynamic shared-memory arrays, with the kernels or instances that have them.
fn dynamic_shared(instances: &[Instance], one_by_one: bool) -> String {
    let with_arrays = instances.iter().filter(|i| !i.dynamic_shared.is_empty());
    let lines: BTreeSet<String> = with_arrays
        .map(|i| {
            let array = |param: &&ParamSpec| format!("{}: {}", param.name, param.type_name);
            let arrays: Vec<String> = i.dynamic_shared.iter().map(array).collect();
            format!("  {}: {}\n", if one_by_one { i.symbol } else { i.kernel }, arrays.join(", "))
        })
        .collect();
    match lines.len() {
        0 => String::new(),
        _ => format!(
            "\nWith shared arrays whose lengths come with the launch (+; occupancy without them):\n{}",
            lines.into_iter().collect::<String>()
        ),
    }
}

/// Lists the remaining panics, each with the calls that lead to it, and the kernels or, individually, the instances
/// that have them.
fn panics(instances: &[Instance], one_by_one: bool) -> String {
    let mut places: BTreeMap<(&str, &PanicPlace), (usize, usize)> = BTreeMap::new();
    for i in instances {
        let name = if one_by_one { i.symbol } else { i.kernel };
        let all = instances.iter().filter(|other| !one_by_one && other.kernel == i.kernel).count();
        for place in i.panics() {
            places.entry((name, place)).or_insert((0, all)).0 += 1;
        }
    }
    let mut text = String::new();
    let mut of = "";
    for ((name, place), (with_it, all)) in &places {
        if text.is_empty() {
            text.push_str(
                "\nPanics that the compiler could not rule out (#[kernel(no_panic)] makes them an error):\n",
            );
        }
        if of != *name {
            text.push_str(&format!("  {name}\n"));
            of = name;
        }
        let share = if with_it < all { format!(" (in {with_it} of {all} instances)") } else { String::new() };
        text.push_str(&format!("    {}{share}\n", place_of(place)));
        for call in place.calls {
            text.push_str(&format!("      called at {}:{}:{}\n", call.file, call.line, call.column));
        }
    }
    text
}

/// Formats a location as `src/lib.rs:12:9: index out of bounds`.
fn place_of(place: &PanicPlace) -> String {
    match place.file {
        "" => format!("unknown place: {}", place.what),
        file => format!("{file}:{}:{}: {}", place.line, place.column, place.what),
    }
}

/// Returns a line for instances of one kernel and type, with ranges where they differ.
fn row(group: &[Instance], name: &str, arch: Option<u32>, block: u32) -> Vec<Cell> {
    let first = &group[0];
    let more: BTreeSet<&str> =
        group.iter().map(|i| i.more_types.as_str()).filter(|t| !t.is_empty()).collect();
    let dtype = match more.len() {
        0 => first.dtype.to_string(),
        1 => format!("{},{}", first.dtype, more.first().copied().unwrap_or_default()),
        n => format!("{} to {n} types", first.dtype),
    };
    let mut parameters = Vec::new();
    for (index, (parameter, _)) in first.consts.iter().enumerate() {
        let values: BTreeSet<i64> = group.iter().filter_map(|i| i.consts.get(index)).map(|c| c.1).collect();
        let values: Vec<String> = values.iter().map(i64::to_string).collect();
        parameters.push(format!("{}={}", parameter.to_lowercase(), values.join("|")));
    }
    if let Some(cluster) = first.required.1 {
        parameters.push(format!("clusters of {}", sides(cluster)));
    }
    if first.min_arch > 0 {
        let which = if first.is_arch_specific { "a alone" } else { " and up" };
        parameters.push(format!("sm_{}{which}", first.min_arch));
    }
    let known: Vec<KernelResources> = group.iter().filter_map(|i| i.resources).collect();
    let figure = |of: fn(&KernelResources) -> u32, worth_a_look: bool| match range(known.iter().map(of)) {
        None => plain("-"),
        Some(range) if worth_a_look && *range.end() > 0 => note(span(&range)),
        Some(range) => plain(span(&range)),
    };
    let occupancies = known.iter().filter_map(|r| occupancy(arch?, block, r.registers, r.static_shared));
    let occupancies = range(occupancies.map(|share| (share * 100.0).round() as u32));
    vec![
        plain(name),
        plain(dtype),
        plain(group.len()),
        plain(parameters.join(" ")),
        plain(largest_block(group)),
        figure(|r| r.registers, false),
        plain(shared(group)),
        figure(|r| r.stack, true),
        figure(|r| r.spills, true),
        match range(group.iter().filter(|i| i.record.is_some()).map(|i| i.panics().len() as u32)) {
            None => plain("-"),
            Some(range) if *range.end() > 0 => note(span(&range)),
            Some(range) => plain(span(&range)),
        },
        plain(occupancies.map_or("-".to_string(), |range| format!("{} %", span(&range)))),
    ]
}

/// Formats the static shared memory, with `+` if the launch requests more for arrays.
fn shared(group: &[Instance]) -> String {
    let bytes = range(group.iter().map(Instance::static_shared)).map_or("-".to_owned(), |range| span(&range));
    let more = if group.iter().any(|i| !i.dynamic_shared.is_empty()) { "+" } else { "" };
    bytes + more
}

fn array_json(param: &&ParamSpec) -> serde_json::Value {
    json!({ "parameter": param.name, "type": param.type_name, "element_bytes": param.size })
}

/// Returns the required block of all instances, or otherwise the maximum number of threads per block.
fn largest_block(group: &[Instance]) -> String {
    let blocks: BTreeSet<Option<[u32; 3]>> = group.iter().map(|i| i.required.0).collect();
    if blocks.contains(&None) {
        return group.iter().map(|i| i.max_block).max().unwrap_or_default().to_string();
    }
    blocks.into_iter().flatten().map(sides).collect::<Vec<_>>().join("|")
}

/// Formats `[16, 8, 1]` as `16x8`.
fn sides([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    }
}

fn range(values: impl Iterator<Item = u32> + Clone) -> Option<RangeInclusive<u32>> {
    Some(values.clone().min()?..=values.max()?)
}

fn span(range: &RangeInclusive<u32>) -> String {
    if range.start() == range.end() {
        range.start().to_string()
    } else {
        format!("{}-{}", range.start(), range.end())
    }
}

fn panic_json(place: &PanicPlace) -> serde_json::Value {
    let call = |call: &CallPlace| json!({ "file": call.file, "line": call.line, "column": call.column });
    json!({
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "what": place.what,
        "calls": place.calls.iter().map(call).collect::<Vec<_>>(),
    })
}

fn as_json(instances: &[Instance], arch: Option<u32>, block: u32) -> String {
    let kernels: Vec<_> = instances
        .iter()
        .map(|i| {
            let consts: serde_json::Map<_, _> =
                i.consts.iter().map(|&(name, value)| (name.to_string(), json!(value))).collect();
            let r = i.resources;
            json!({
                "kernel": i.kernel,
                "symbol": i.symbol,
                "package": i.package,
                "types": std::iter::once(i.dtype).chain(i.more_types.split(',')).filter(|t| !t.is_empty()).collect::<Vec<_>>(),
                "consts": consts,
                "max_block": i.max_block,
                "block": i.required.0,
                "cluster": i.required.1,
                "min_arch": i.min_arch,
                "arch_specific": i.is_arch_specific,
                "registers": r.map(|r| r.registers),
                "static_shared": i.static_shared(),
                "dynamic_shared": i.dynamic_shared.iter().map(array_json).collect::<Vec<_>>(),
                "stack": r.map(|r| r.stack),
                "spills": r.map(|r| r.spills),
                "stack_is_known": i.record.map(|record| record.stack != StackUse::Unknown),
                "requested_stack": i.record.map(|record| record.requested_stack),
                "panics": i.record.map(|record| record.panics.iter().map(panic_json).collect::<Vec<_>>()),
                "occupancy": r.and_then(|r| occupancy(arch?, block, r.registers, r.static_shared)),
            })
        })
        .collect();
    let document = json!({
        "schema": 1,
        "arch": arch.map(|arch| format!("sm_{arch}")),
        "no_image_because": IMAGE.missing(),
        "occupancy_block": block,
        "kernels": kernels,
    });
    serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn record(panics: &'static [PanicPlace]) -> KernelRecord {
        let stack = StackUse::Known(0);
        KernelRecord {
            symbol: "k",
            part: 0,
            abi: None,
            stack,
            requested_stack: 0,
            block: None,
            cluster: None,
            resources: &[],
            panics,
        }
    }

    static CLEAN: KernelRecord = record(&[]);
    static BAD: KernelRecord = record(&[
        PanicPlace { file: "src/lib.rs", line: 12, column: 9, what: "index out of bounds", calls: &[] },
        PanicPlace {
            file: "src/lib.rs",
            line: 12,
            column: 9,
            what: "index out of bounds",
            calls: &[CallPlace { file: "src/main.rs", line: 7, column: 13 }],
        },
        PanicPlace { file: "", line: 0, column: 0, what: "panic", calls: &[] },
    ]);

    #[test]
    fn panics_are_listed_by_kernel_and_place() {
        let instance = |symbol, record| Instance {
            kernel: "sum",
            package: "p",
            symbol,
            dtype: "f32",
            more_types: String::new(),
            consts: Vec::new(),
            max_block: 256,
            required: (None, None),
            min_arch: 0,
            is_arch_specific: false,
            static_shared: 512,
            dynamic_shared: Vec::new(),
            resources: None,
            record,
        };
        let all =
            [instance("sum__f32", Some(&CLEAN)), instance("sum__f64", Some(&BAD)), instance("sum__u8", None)];
        let grouped = panics(&all, false);
        let lines: Vec<&str> = grouped.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "  sum",
                "    unknown place: panic (in 1 of 3 instances)",
                "    src/lib.rs:12:9: index out of bounds (in 1 of 3 instances)",
                "    src/lib.rs:12:9: index out of bounds (in 1 of 3 instances)",
                "      called at src/main.rs:7:13",
            ]
        );
        assert!(panics(&all, true).contains("\n    src/lib.rs:12:9: index out of bounds\n      called at"));
        assert_eq!(panics(&all[..1], false), "");
        let shaped = Instance { required: (Some([16, 8, 1]), None), ..instance("sum__i8", None) };
        assert_eq!(largest_block(&all), "256");
        assert_eq!(largest_block(&[shaped]), "16x8");
    }

    #[test]
    fn shared_arrays_are_shown_without_an_image() {
        static TILE: ParamSpec = ParamSpec {
            name: "tile",
            kind: ParamKind::Shared,
            type_name: "Shared<[f32]>",
            size: 4,
            align: 4,
            signature: 0,
        };
        let instance = |symbol, dynamic_shared| Instance {
            kernel: "blur",
            package: "p",
            symbol,
            dtype: "f32",
            more_types: String::new(),
            consts: Vec::new(),
            max_block: 256,
            required: (None, None),
            min_arch: 0,
            is_arch_specific: false,
            static_shared: 512,
            dynamic_shared,
            resources: None,
            record: None,
        };
        let fixed = [instance("blur__f32", Vec::new())];
        assert_eq!((shared(&fixed), dynamic_shared(&fixed, false)), ("512".to_owned(), String::new()));
        let mut both = [instance("blur__f32", vec![&TILE]), instance("blur__f64", vec![&TILE])];
        both[1].resources =
            Some(KernelResources { arch: 90, registers: 8, static_shared: 640, stack: 0, spills: 0 });
        assert_eq!(shared(&both), "512-640+");
        assert!(dynamic_shared(&both, false).ends_with(":\n  blur: tile: Shared<[f32]>\n"));
        assert!(dynamic_shared(&both, true).contains("\n  blur__f64: tile: Shared<[f32]>\n"));
        let json: serde_json::Value = serde_json::from_str(&as_json(&both, None, 256)).expect("JSON");
        assert_eq!(json["kernels"][0]["dynamic_shared"][0]["parameter"], "tile");
        assert_eq!(json["kernels"][1]["static_shared"], 640);
    }
}
