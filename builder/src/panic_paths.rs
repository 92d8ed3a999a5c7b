//! Finds the panics that remain in a kernel after optimization: their source locations and messages.
//!
//! A bounds check or an assertion that the compiler cannot prove true costs registers and a branch, and serializes
//! asynchronous instructions next to it. The remaining panics are calls of gpu-std's reporters (`rewrite::panics`),
//! directly or through functions that were not inlined. Each call passes a [`core::panic::Location`], a constant; if a
//! function forwards one of its parameters, its callers determine the location.
//!
//! The call chains come from the line table (`line_table`), since most calls were inlined, and from the functions in
//! the call chain that were not inlined.
//!
//! If there is only one location, LLVM moves it into the reporter, where it is lost. LLVM also merges panics from
//! several source locations. Kernels with remaining panics are therefore optimized once more, with public reporters
//! whose calls stay separate; this module analyzes that result.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use crate::callers::Callers;
use crate::line_table::{CallSite, LineTable};
use crate::rewrite::{Kernel, REPORTERS, text};

/// Maximum number of call chains reported per panic. Further call chains are omitted.
const MAX_CHAINS: usize = 16;

/// A panic that a kernel can reach, through one call chain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PanicPath {
    /// Source file as rustc names it, or an empty string if the location is unknown.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Panic message, for example `index out of bounds`.
    pub what: String,
    /// Calls that lead to the location, from the innermost call to the call in the kernel. The list is empty if the
    /// location is in the kernel itself.
    pub calls: Vec<CallSite>,
}

impl std::fmt::Display for PanicPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.file.is_empty() {
            true => write!(f, "unknown place: {}", self.what)?,
            false => write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.what)?,
        }
        self.calls.iter().try_for_each(|call| write!(f, "\n      called at {call}"))
    }
}

/// The reporters, with the indices of their location and message arguments.
const ARGUMENTS: [(&str, usize, Result<usize, &str>); 3] = [
    ("__warpsmith_panic_bounds_check", 2, Err("index out of bounds")),
    ("__warpsmith_panic_slice", 4, Err("slice range out of bounds")),
    ("__warpsmith_panic_str", 2, Ok(0)),
];

/// Returns the `kernels` with a remaining panic in the optimized module `ir`.
pub fn reporting<'k>(ir: &str, kernels: &[&'k Kernel]) -> Vec<&'k Kernel> {
    let functions = ir.lines().filter(|line| line.starts_with("define ")).filter_map(text::function);
    let reporters: Vec<&str> = functions.map(|(name, _)| name).filter(|name| is_reporter(name)).collect();
    if reporters.is_empty() {
        return Vec::new();
    }
    let callers = Callers::of(ir);
    let reaching: HashSet<&str> =
        reporters.into_iter().flat_map(|reporter| callers.reaching(reporter)).collect();
    kernels.iter().copied().filter(|kernel| reaching.contains(&*kernel.symbol)).collect()
}

/// Returns the functions of `ir` that do not return and therefore lead to panics.
pub fn diverging(ir: &str) -> Vec<String> {
    let does_not_return = |attributes: &str| attributes.split(' ').any(|word| word == "noreturn");
    let group = |line: &'_ str| line.starts_with("attributes #") && does_not_return(line);
    let groups: HashSet<&str> =
        ir.lines().filter(|line| group(line)).filter_map(|l| l.split(' ').nth(1)).collect();
    let name = |line| {
        let (name, rest) = text::function(line)?;
        let (_, attributes) = text::parenthesised(rest)?;
        let diverges = does_not_return(attributes) || attributes.split(' ').any(|word| groups.contains(word));
        diverges.then(|| name.to_owned())
    };
    ir.lines().filter(|line| line.starts_with("define ")).filter_map(name).collect()
}

fn is_reporter(name: &str) -> bool {
    REPORTERS.iter().any(|(reporter, _)| *reporter == name)
}

/// Returns the remaining panics of each of `kernels` in the optimized module `ir`, by symbol.
pub fn find<'k>(ir: &str, kernels: impl Iterator<Item = &'k str>) -> Vec<(String, Vec<PanicPath>)> {
    let module = Module::read(ir);
    let mut known = HashMap::new();
    let paths = |kernel: &str| {
        let calls = module.panics(module.functions.get_key_value(kernel)?.0, &mut known);
        let paths: BTreeSet<PanicPath> = calls.iter().map(|call| module.path(call)).collect();
        Some((kernel.to_owned(), paths.into_iter().collect()))
    };
    kernels.filter_map(paths).collect()
}

/// A known origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Value<'a> {
    /// The constant with this symbol.
    Global(&'a str),
    /// A parameter of the function.
    Parameter(usize),
    Text(&'static str),
    Unknown,
}

/// A panic of a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Panic<'a> {
    location: Value<'a>,
    message: Value<'a>,
    /// Location of the reporter call, and the calls that lead to it.
    frames: Vec<CallSite>,
}

/// A call in a function.
#[derive(Debug)]
struct Call<'a> {
    callee: &'a str,
    arguments: Vec<&'a str>,
    /// The call instruction; empty if the function only mentions the callee.
    instruction: &'a str,
}

#[derive(Debug, Default)]
struct Function<'a> {
    parameters: Vec<&'a str>,
    /// Functions that this function calls or otherwise mentions.
    calls: Vec<Call<'a>>,
    /// Instructions that select a value (`phi`, `select`), by local.
    choices: HashMap<&'a str, &'a str>,
}

#[derive(Debug, Default)]
struct Module<'a> {
    functions: HashMap<&'a str, Function<'a>>,
    /// Definitions of constants.
    constants: HashMap<&'a str, &'a str>,
    lines: LineTable<'a>,
}

impl<'a> Module<'a> {
    fn read(ir: &'a str) -> Module<'a> {
        let mut module = Module::default();
        let mut current: Option<Function<'_>> = None;
        let mut name = "";
        for line in ir.lines() {
            match line.as_bytes().first() {
                Some(b'@') => {
                    if let Some((symbol, definition)) = text::symbol(&line[1..]) {
                        module.constants.insert(symbol, definition);
                    }
                }
                Some(b'd') if line.starts_with("define ") => {
                    let Some((symbol, rest)) = text::function(line) else { continue };
                    let parameters = text::parenthesised(rest).map_or("", |(inside, _)| inside);
                    let parameters = text::list(parameters)
                        .into_iter()
                        .map(|p| p.rsplit(' ').next().unwrap_or(p))
                        .collect();
                    name = symbol;
                    current = Some(Function { parameters, ..Function::default() });
                }
                Some(b'}') => {
                    if let Some(function) = current.take() {
                        module.functions.insert(name, function);
                    }
                }
                Some(b' ') => {
                    if let Some(function) = &mut current {
                        function.read(line);
                    }
                }
                Some(b'!') => module.lines.read(line),
                _ => {}
            }
        }
        module
    }

    fn panics(&self, function: &'a str, known: &mut HashMap<&'a str, Vec<Panic<'a>>>) -> Vec<Panic<'a>> {
        if let Some(panics) = known.get(function) {
            return panics.clone();
        }
        // In a recursive function, the outer call finds the panics that the function reaches.
        known.insert(function, Vec::new());
        let Some(body) = self.functions.get(function) else { return Vec::new() };
        let mut panics = HashSet::new();
        for Call { callee, arguments, instruction } in &body.calls {
            let argument = |value: Value<'a>| match value {
                Value::Parameter(index) => arguments
                    .get(index)
                    .map_or_else(|| vec![Value::Unknown], |argument| body.values(argument)),
                value => vec![value],
            };
            let of_callee = match ARGUMENTS.iter().find(|(reporter, ..)| reporter == callee) {
                Some(&(_, location, message)) => {
                    let message = message.map_or_else(Value::Text, Value::Parameter);
                    vec![Panic { location: Value::Parameter(location), message, frames: Vec::new() }]
                }
                None => self.panics(callee, known),
            };
            let call = if of_callee.is_empty() { Vec::new() } else { self.lines.frames(instruction) };
            for Panic { location, message, frames } in of_callee {
                let (locations, messages) = (argument(location), argument(message));
                for (index, location) in locations.iter().enumerate() {
                    let message = match messages.len() {
                        1 => messages[0],
                        count if count == locations.len() => messages[index],
                        _ => Value::Unknown,
                    };
                    let frames = [&frames[..], &call].concat();
                    panics.insert(Panic { location: *location, message, frames });
                }
            }
        }
        let panics = limited(panics);
        known.insert(function, panics.clone());
        panics
    }

    fn path(&self, panic: &Panic<'a>) -> PanicPath {
        let what = match panic.message {
            Value::Text(text) => text.to_owned(),
            Value::Global(symbol) => self.string(symbol).unwrap_or_else(|| "panic".to_owned()),
            _ => "panic".to_owned(),
        };
        let place = match panic.location {
            Value::Global(symbol) => self.location(symbol),
            _ => None,
        };
        let (file, line, column) = place.unwrap_or_default();
        let calls = calls(&panic.frames, &file, line);
        PanicPath { file, line, column, what, calls }
    }

    /// Returns the string in a constant, without the trailing NUL.
    fn string(&self, symbol: &str) -> Option<String> {
        let bytes = text::unescape(bytes_of(self.constants.get(symbol)?)?);
        let text = String::from_utf8(bytes).ok()?;
        Some(text.trim_end_matches('\0').to_owned())
    }

    /// Reads a [`core::panic::Location`]: a pointer to the file name, its length, line and column.
    fn location(&self, symbol: &str) -> Option<(String, u32, u32)> {
        let definition = self.constants.get(symbol)?;
        let (_, file) = definition.split_once("ptr @")?;
        let file = self.string(text::symbol(file)?.0)?;
        let bytes = text::unescape(bytes_of(definition)?);
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some((file, number(8)?, number(12)?))
    }
}

/// Returns at most [`MAX_CHAINS`] panics per location, the shortest chains first.
fn limited(panics: HashSet<Panic<'_>>) -> Vec<Panic<'_>> {
    let mut panics: Vec<Panic<'_>> = panics.into_iter().collect();
    panics.sort_by(|a, b| (a.frames.len(), &a.frames).cmp(&(b.frames.len(), &b.frames)));
    let mut chains: HashMap<(Value<'_>, Value<'_>), usize> = HashMap::new();
    panics.retain(|panic| {
        let chains = chains.entry((panic.location, panic.message)).or_default();
        *chains += 1;
        *chains <= MAX_CHAINS
    });
    panics
}

/// Returns the frames of the calls that lead to the panic's location. The location is not the first frame if a
/// `#[track_caller]` function panics, and is in no frame if it is in the standard library.
fn calls(frames: &[CallSite], file: &str, line: u32) -> Vec<CallSite> {
    let is_place =
        |frame: &CallSite| frame.line == line && (frame.file.ends_with(file) || file.ends_with(&frame.file));
    let behind = frames.iter().position(is_place).map_or(0, |place| place + 1);
    frames[behind..].to_vec()
}

/// Returns the text between `c"` and `"` in a definition.
fn bytes_of(definition: &str) -> Option<&str> {
    definition.split_once("c\"").and_then(|(_, rest)| rest.split_once('"')).map(|(bytes, _)| bytes)
}

impl<'a> Function<'a> {
    fn read(&mut self, line: &'a str) {
        let instruction = text::instruction(line);
        if text::is_call(instruction)
            && let Some((callee, rest)) = text::function(instruction)
            && let Some((arguments, after)) = text::parenthesised(rest)
        {
            self.calls.push(Call { callee, arguments: text::list(arguments), instruction });
            self.mention(arguments);
            self.mention(after);
            return;
        }
        if (instruction.starts_with("phi ptr ") || instruction.starts_with("select "))
            && let Some(local) = text::defined_local(line)
        {
            self.choices.insert(local, instruction);
        }
        self.mention(instruction);
    }

    /// Records the symbols that `text` mentions, because functions among them may be called through a pointer.
    fn mention(&mut self, text: &'a str) {
        for (at, _) in text.match_indices('@') {
            if let Some((symbol, _)) = text::symbol(&text[at + 1..]) {
                self.calls.push(Call { callee: symbol, arguments: Vec::new(), instruction: "" });
            }
        }
    }

    /// Returns the possible values of an argument such as `ptr noundef align 8 @place` or `ptr %5`.
    fn values(&self, argument: &'a str) -> Vec<Value<'a>> {
        let (mut values, mut seen) = (Vec::new(), HashSet::new());
        let mut rest = vec![argument.rsplit(' ').next().unwrap_or(argument)];
        while let Some(operand) = rest.pop() {
            if let Some(symbol) = operand.strip_prefix('@') {
                values.push(Value::Global(symbol));
            } else if let Some(index) = self.parameters.iter().position(|parameter| *parameter == operand) {
                values.push(Value::Parameter(index));
            } else if let Some(choice) = self.choices.get(operand) {
                if seen.insert(operand) {
                    rest.extend(alternatives(choice).into_iter().rev());
                }
            } else {
                values.push(Value::Unknown);
            }
        }
        values
    }
}

/// Returns the operands of a choice such as `phi ptr [ %a, %1 ], [ @b, %2 ]` or `select i1 %c, ptr @a, ptr %b`.
fn alternatives(choice: &str) -> Vec<&str> {
    match choice.strip_prefix("phi ptr ") {
        Some(pairs) => {
            let pairs = text::list(pairs).into_iter().filter_map(|pair| pair.strip_prefix('['));
            pairs.filter_map(|pair| pair.split(',').next().map(str::trim)).collect()
        }
        None => text::list(choice)
            .into_iter()
            .skip(1)
            .filter_map(|operand| operand.strip_prefix("ptr "))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = "\
@file = private unnamed_addr constant [11 x i8] c\"src/lib.rs\\00\", align 1
@a = private unnamed_addr constant <{ ptr, [16 x i8] }> <{ ptr @file, [16 x i8] c\"\\0A\\00\\00\\00\\00\\00\\00\\00\\0C\\00\\00\\00\\05\\00\\00\\00\" }>, align 8
@b = private unnamed_addr constant <{ ptr, [16 x i8] }> <{ ptr @file, [16 x i8] c\"\\0A\\00\\00\\00\\00\\00\\00\\00\\22\\01\\00\\00\\09\\00\\00\\00\" }>, align 8
@text = private unnamed_addr constant [13 x i8] c\"none is left\\00\", align 1
@table = internal constant [1 x ptr] [ptr @through_pointer]
define ptx_kernel void @direct(ptr %0, i64 %1) #0 {
  call void @__warpsmith_panic_bounds_check(i64 noundef %1, i64 %1, ptr noundef nonnull align 8 @a) #3
  unreachable
}
define ptx_kernel void @chosen(i1 %c) {
  %p = phi ptr [ @a, %x ], [ %q, %y ]
  %q = select i1 %c, ptr @b, ptr %p
  tail call void @wrapper(i64 1, ptr %p)
  ret void
}
define internal void @wrapper(i64 %0, ptr %1) {
  call void @__warpsmith_panic_str(ptr @text, i64 12, ptr %1)
  unreachable
}
define ptx_kernel void @recursive(ptr %place) {
  call void @even(ptr %place)
  ret void
}
define void @even(ptr %0) {
  call void @odd(ptr %0)
  ret void
}
define void @odd(ptr %0) {
  call void @even(ptr %0)
  call void @__warpsmith_panic_slice(i32 0, i64 0, i64 0, i64 0, ptr @b)
  ret void
}
define ptx_kernel void @clean(ptr %0) {
  store ptr null, ptr %0
  ret void
}
define ptx_kernel void @mentions(ptr %0) {
  store ptr @wrapper, ptr %0
  ret void
}
define linkonce_odr void @__warpsmith_panic_str(ptr %0, i64 %1, ptr %2) {
  ret void
}
";

    fn paths(kernel: &str) -> Vec<String> {
        find(IR, [kernel].into_iter()).remove(0).1.iter().map(PanicPath::to_string).collect()
    }

    #[test]
    fn panics_are_found_where_they_are_written() {
        assert_eq!(paths("direct"), ["src/lib.rs:12:5: index out of bounds"]);
        assert!(paths("clean").is_empty());
    }

    #[test]
    fn locations_are_followed_through_choices_and_functions() {
        assert_eq!(paths("chosen"), ["src/lib.rs:12:5: none is left", "src/lib.rs:290:9: none is left"]);
        assert_eq!(paths("recursive"), ["src/lib.rs:290:9: slice range out of bounds"]);
        assert_eq!(paths("mentions"), ["unknown place: none is left"]);
    }

    #[test]
    fn unknown_kernels_have_no_entry() {
        assert!(find(IR, ["absent"].into_iter()).is_empty());
    }

    #[test]
    fn functions_that_do_not_return_are_found() {
        let ir = "define void @a(ptr %0) #1 {\ndefine void @b() cold noreturn nounwind {\ndefine void @c() #2 {\n\
                  attributes #1 = { cold noreturn nounwind \"x\"=\"y\" }\nattributes #2 = { nounwind }\n";
        assert_eq!(diverging(ir), ["a", "b"]);
    }

    #[test]
    fn calls_that_lead_to_a_panic_follow_its_place() {
        let frames = [("helper.rs", 1), ("middle.rs", 2), ("kernel.rs", 3)];
        let frames = frames.map(|(file, line)| CallSite { file: file.to_owned(), line, column: 1 });
        assert_eq!(super::calls(&frames, "helper.rs", 1), frames[1..]);
        assert_eq!(super::calls(&frames, "/of/another/folder/middle.rs", 2), frames[2..]);
        assert_eq!(super::calls(&frames, "library/core/src/option.rs", 2), frames);
        assert!(super::calls(&frames, "kernel.rs", 3).is_empty());
    }

    #[test]
    fn chains_of_calls_are_limited_by_place() {
        let panic = |line| {
            let frames = vec![CallSite { file: String::new(), line, column: 1 }; line as usize];
            Panic { location: Value::Unknown, message: Value::Unknown, frames }
        };
        let all = (1..40).map(panic).collect();
        assert_eq!(limited(all), (1..=MAX_CHAINS as u32).map(panic).collect::<Vec<_>>());
    }

    #[test]
    fn a_module_without_panics_is_not_searched() {
        let kernel = Kernel { symbol: "k".to_owned(), ..Kernel::default() };
        let of = |ir: &str| reporting(ir, &[&kernel]).len();
        let call = "define void @__warpsmith_panic_str() {\n}\ndefine void @k() {\n  call void @__warpsmith_panic_str()\n}\n";
        assert_eq!(of(call), 1);
        assert_eq!(of(&call.replace("@k", "@other")), 0);
        assert_eq!(of("declare void @__warpsmith_panic_str()\ndefine void @k() {\n}\n"), 0);
    }
}
