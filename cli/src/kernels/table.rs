//! The table of kernels, and the same data as a JSON document.
//!
//! By default there is one line per kernel and type; the line combines the instances that differ in items, vector bytes
//! and further type arguments. Instances with a stack frame or spilled registers are always listed individually,
//! because such instances are exceptions that the user should know about. The same holds for panics that the compiler
//! could not rule out, which are listed with their source locations.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use comfy_table::Cell;
use serde_json::{Value, json};
use warpsmith::bench::command::output::{note, plain, table};
use warpsmith::module::spec::KernelResources;
use warpsmith_builder::{CallSite, PanicPath};

use crate::occupancy::occupancy;

/// A kernel instance.
#[derive(Debug, Clone, Default)]
pub struct Instance {
    /// Name of the kernel.
    pub kernel: String,
    /// Package that defines the kernel.
    pub package: String,
    /// Symbol of the instance.
    pub symbol: String,
    /// First type argument, by which the lines are grouped; empty if the kernel has no type arguments.
    pub dtype: String,
    /// Further type arguments, joined into one string.
    pub more_types: String,
    /// Const arguments, by name.
    pub consts: Vec<(String, i64)>,
    /// Maximum number of threads per block.
    pub max_block: u32,
    /// Block and cluster dimensions that every launch must have.
    pub required: (Option<[u32; 3]>, Option<[u32; 3]>),
    /// Minimum compute capability. 0 means any compute capability.
    pub min_arch: u32,
    /// True if only exactly that compute capability can run the kernel.
    pub is_arch_specific: bool,
    /// Static shared memory per block for the kernel's parameters, in bytes, or `None` if it is unknown. It does not
    /// depend on the launch.
    pub static_shared: Option<u32>,
    /// Dynamic shared-memory arrays.
    pub dynamic_shared: Vec<Array>,
    /// Resources on the shown architecture.
    pub resources: Option<KernelResources>,
    /// Properties of the kernel's code, or `None` without a GPU image.
    pub code: Option<Code>,
}

/// Properties of a kernel's code that are the same on every architecture.
#[derive(Debug, Clone, Default)]
pub struct Code {
    /// False if the kernel recurses or calls through pointers.
    pub stack_is_known: bool,
    /// Requested stack in bytes, or 0 if no stack size is requested.
    pub requested_stack: u32,
    /// Remaining panics.
    pub panics: Vec<PanicPath>,
}

/// An array in dynamic shared memory.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Array {
    /// Name of the parameter, if it is known.
    pub parameter: Option<String>,
    /// Type of the parameter, if it is known.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// Bytes per element.
    pub element_bytes: u64,
}

impl std::fmt::Display for Array {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.parameter, &self.type_name) {
            (Some(parameter), Some(type_name)) => write!(f, "{parameter}: {type_name}"),
            _ => write!(f, "elements of {} bytes", self.element_bytes),
        }
    }
}

impl Instance {
    /// Returns true if `name` is the instance's kernel name or symbol.
    pub fn is(&self, name: &str) -> bool {
        self.kernel == name || self.symbol == name
    }

    /// Returns true if the stack size is unknown before the kernel runs.
    fn has_unknown_stack(&self) -> bool {
        self.code.as_ref().is_some_and(|code| !code.stack_is_known)
    }

    /// Static shared memory in bytes: as reported by `ptxas`, or otherwise the size that the kernel's parameters take.
    fn static_shared(&self) -> Option<u32> {
        self.resources.map(|resources| resources.static_shared).or(self.static_shared)
    }

    fn panics(&self) -> &[PanicPath] {
        self.code.as_ref().map_or(&[], |code| &code.panics)
    }

    /// Returns the theoretical occupancy for blocks of `block` threads, or of the nearest block size that the kernel
    /// allows.
    fn occupancy(&self, arch: Option<u32>, block: u32) -> Option<f64> {
        let resources = self.resources?;
        let block = match self.required.0 {
            Some(sides) => sides.iter().product(),
            None => block.min(self.max_block),
        };
        occupancy(arch?, block, resources.registers, resources.static_shared)
    }
}

/// Sorts instances so that instances shown on the same line are adjacent.
pub fn sort(instances: &mut [Instance]) {
    instances.sort_by(|a, b| {
        let key = |i: &Instance| (i.package.clone(), i.kernel.clone(), i.dtype.clone());
        key(a).cmp(&key(b)).then_with(|| (&a.more_types, &a.consts).cmp(&(&b.more_types, &b.consts)))
    });
}

/// Returns the table of `instances` and the lists of exceptions. If `one_by_one` is true, each instance has its own
/// line.
pub fn as_text(instances: &[Instance], arch: Option<u32>, block: u32, one_by_one: bool) -> String {
    let mut text = String::new();
    let mut rows = Vec::new();
    if one_by_one {
        rows.extend(instances.iter().map(|i| row(std::slice::from_ref(i), &i.symbol, arch, block)));
    } else {
        let same = |a: &Instance, b: &Instance| {
            (&a.package, &a.kernel, &a.dtype) == (&b.package, &b.kernel, &b.dtype)
        };
        for group in instances.chunk_by(same) {
            rows.push(row(group, &group[0].kernel, arch, block));
        }
    }
    let first = if one_by_one { "symbol" } else { "kernel" };
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
        text.push_str("\nWith a stack frame or spills (bytes per thread):\n");
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
            let asked = match i.code.as_ref().map_or(0, |code| code.requested_stack) {
                bytes if bytes > 0 => format!("asks for {bytes} bytes"),
                _ => "declares none: #[kernel(stack = BYTES)]".to_string(),
            };
            text.push_str(&format!("  {}: {asked}\n", i.symbol));
        }
    }
    text.push_str(&dynamic_shared(instances, one_by_one));
    text.push_str(&panics(instances, one_by_one));
    text
}

/// Lists the arrays in dynamic shared memory, and the kernels or instances that use them.
fn dynamic_shared(instances: &[Instance], one_by_one: bool) -> String {
    let with_arrays = instances.iter().filter(|i| !i.dynamic_shared.is_empty());
    let lines: BTreeSet<String> = with_arrays
        .map(|i| {
            let arrays: Vec<String> = i.dynamic_shared.iter().map(Array::to_string).collect();
            format!("  {}: {}\n", if one_by_one { &i.symbol } else { &i.kernel }, arrays.join(", "))
        })
        .collect();
    match lines.len() {
        0 => String::new(),
        _ => format!(
            "\nWith dynamic shared memory (+; not included in the occupancy):\n{}",
            lines.into_iter().collect::<String>()
        ),
    }
}

/// Lists the remaining panics, each with the calls that lead to it and the affected kernels (instances if `one_by_one`
/// is true).
fn panics(instances: &[Instance], one_by_one: bool) -> String {
    let mut places: BTreeMap<(&str, &PanicPath), (usize, usize)> = BTreeMap::new();
    for i in instances {
        let name = if one_by_one { &i.symbol } else { &i.kernel };
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
        for call in &place.calls {
            text.push_str(&format!("      called at {call}\n"));
        }
    }
    text
}

/// Formats a location as `src/lib.rs:12:9: index out of bounds`.
fn place_of(place: &PanicPath) -> String {
    match place.file.as_str() {
        "" => format!("unknown place: {}", place.what),
        file => format!("{file}:{}:{}: {}", place.line, place.column, place.what),
    }
}

/// Returns a line for the instances of one kernel and type. Values that differ between instances are shown as ranges.
fn row(group: &[Instance], name: &str, arch: Option<u32>, block: u32) -> Vec<Cell> {
    let first = &group[0];
    let more: BTreeSet<&str> =
        group.iter().map(|i| i.more_types.as_str()).filter(|t| !t.is_empty()).collect();
    let dtype = match more.len() {
        0 => first.dtype.clone(),
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
    let occupancies = group.iter().filter_map(|i| i.occupancy(arch, block));
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
        match range(group.iter().filter(|i| i.code.is_some()).map(|i| i.panics().len() as u32)) {
            None => plain("-"),
            Some(range) if *range.end() > 0 => note(span(&range)),
            Some(range) => plain(span(&range)),
        },
        plain(occupancies.map_or("-".to_string(), |range| format!("{} %", span(&range)))),
    ]
}

/// Formats the size of the static shared memory, followed by `+` if launches also request dynamic shared memory for
/// arrays.
fn shared(group: &[Instance]) -> String {
    let bytes =
        range(group.iter().filter_map(Instance::static_shared)).map_or("-".to_owned(), |range| span(&range));
    let more = if group.iter().any(|i| !i.dynamic_shared.is_empty()) { "+" } else { "" };
    bytes + more
}

/// Returns the block size that all instances require, or otherwise the maximum number of threads per block.
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

fn panic_json(place: &PanicPath) -> Value {
    let call = |call: &CallSite| json!({ "file": call.file, "line": call.line, "column": call.column });
    json!({
        "file": place.file,
        "line": place.line,
        "column": place.column,
        "what": place.what,
        "calls": place.calls.iter().map(call).collect::<Vec<_>>(),
    })
}

/// Returns the JSON document for `instances`. `missing` is the reason why no GPU image exists.
pub fn as_json(instances: &[Instance], arch: Option<u32>, block: u32, missing: Option<&str>) -> Value {
    let kernels: Vec<_> = instances
        .iter()
        .map(|i| {
            let consts: serde_json::Map<_, _> =
                i.consts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            let r = i.resources;
            json!({
                "kernel": i.kernel,
                "symbol": i.symbol,
                "package": i.package,
                "types": std::iter::once(i.dtype.as_str()).chain(i.more_types.split(',')).filter(|t| !t.is_empty()).collect::<Vec<_>>(),
                "consts": consts,
                "max_block": i.max_block,
                "block": i.required.0,
                "cluster": i.required.1,
                "min_arch": i.min_arch,
                "arch_specific": i.is_arch_specific,
                "registers": r.map(|r| r.registers),
                "static_shared": i.static_shared(),
                "dynamic_shared": i.dynamic_shared,
                "stack": r.map(|r| r.stack),
                "spills": r.map(|r| r.spills),
                "stack_is_known": i.code.as_ref().map(|code| code.stack_is_known),
                "requested_stack": i.code.as_ref().map(|code| code.requested_stack),
                "panics": i.code.as_ref().map(|code| code.panics.iter().map(panic_json).collect::<Vec<_>>()),
                "occupancy": i.occupancy(arch, block),
            })
        })
        .collect();
    json!({
        "schema": 1,
        "arch": arch.map(|arch| format!("sm_{arch}")),
        "no_image_because": missing,
        "occupancy_block": block,
        "kernels": kernels,
    })
}

/// Formats a document.
pub fn pretty(document: &Value) -> String {
    serde_json::to_string_pretty(document).expect("plain data always becomes JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(kernel: &str, dtype: &str) -> Instance {
        Instance {
            kernel: kernel.to_owned(),
            symbol: format!("{kernel}__{dtype}"),
            dtype: dtype.to_owned(),
            max_block: 256,
            static_shared: Some(512),
            ..Instance::default()
        }
    }

    #[test]
    fn panics_are_listed_by_kernel_and_place() {
        let place = |file: &str, what: &str, calls| PanicPath {
            file: file.to_owned(),
            line: 12,
            column: 9,
            what: what.to_owned(),
            calls,
        };
        let call = CallSite { file: "src/main.rs".to_owned(), line: 7, column: 13 };
        let bad = Code {
            panics: vec![
                place("src/lib.rs", "index out of bounds", Vec::new()),
                place("src/lib.rs", "index out of bounds", vec![call]),
                place("", "panic", Vec::new()),
            ],
            ..Code::default()
        };
        let all = [
            Instance { code: Some(Code::default()), ..instance("sum", "f32") },
            Instance { code: Some(bad), ..instance("sum", "f64") },
            instance("sum", "u8"),
        ];
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
        let shaped = Instance { required: (Some([16, 8, 1]), None), ..instance("sum", "i8") };
        assert_eq!(largest_block(&all), "256");
        assert_eq!(largest_block(&[shaped]), "16x8");
    }

    #[test]
    fn shared_arrays_are_shown_without_an_image() {
        let tile = Array {
            parameter: Some("tile".to_owned()),
            type_name: Some("Shared<[f32]>".to_owned()),
            element_bytes: 4,
        };
        let fixed = [instance("blur", "f32")];
        assert_eq!((shared(&fixed), dynamic_shared(&fixed, false)), ("512".to_owned(), String::new()));
        let with_tile = |dtype| Instance { dynamic_shared: vec![tile.clone()], ..instance("blur", dtype) };
        let mut both = [with_tile("f32"), with_tile("f64")];
        both[1].resources =
            Some(KernelResources { arch: 90, registers: 8, static_shared: 640, stack: 0, spills: 0 });
        assert_eq!(shared(&both), "512-640+");
        assert!(dynamic_shared(&both, false).ends_with(":\n  blur: tile: Shared<[f32]>\n"));
        assert!(dynamic_shared(&both, true).contains("\n  blur__f64: tile: Shared<[f32]>\n"));
        let json = as_json(&both, None, 256, None);
        assert_eq!(json["kernels"][0]["dynamic_shared"][0]["parameter"], "tile");
        assert_eq!(json["kernels"][1]["static_shared"], 640);
    }

    #[test]
    fn occupancy_is_of_a_block_that_the_kernel_allows() {
        let resources = KernelResources { arch: 90, registers: 64, static_shared: 0, stack: 0, spills: 0 };
        let kernel = Instance { resources: Some(resources), max_block: 32, ..Instance::default() };
        // At most 32 blocks of one warp each can be resident.
        assert_eq!(kernel.occupancy(Some(90), 256), Some(0.5));
        let shaped = Instance { required: (Some([32, 32, 1]), None), ..kernel };
        assert_eq!(shaped.occupancy(Some(90), 128), Some(0.5));
        assert_eq!(shaped.occupancy(None, 128), None);
    }
}
