//! Rewrites the linked LLVM IR of a kernel crate so that LLVM generates good GPU code from it.
//!
//! The rewrite maps text to text in two passes: one over the headers, and one over the lines. It needs no toolchain,
//! and its run time is linear in the length of the text. Unknown constructs are left unchanged. Each file implements
//! one change:
//!
//! | file | change |
//! | --- | --- |
//! | `names` | kernels get their symbols |
//! | `kernels` | launch bounds become attributes; the kernels are listed, with their origin and parameters |
//! | `atomics` | read-modify-write operations keep their ordering |
//! | `shared` | statics in shared and constant memory move to address spaces 3 and 4 |
//! | `calls` | inline assembly and indirect calls become `convergent` |
//! | `strings` | byte strings get a trailing NUL |
//! | `panics` | core's panic entry points call gpu-std's reporters |
//! | `floats` | `half`'s conversions become native; products may be contracted |
//! | `remainder` | `%` of floats calls libdevice's `fmod` |
//! | `wide_casts` | casts of floats to 128-bit integers saturate by comparisons |
//! | `attributes` | the architecture is left to `opt` and `llc` |
//!
//! The rewrite depends on the text form of the LLVM version and on core's internals, so only tested versions are
//! accepted (`crate::toolchain`).

mod atomics;
mod attributes;
mod calls;
mod floats;
mod kernels;
mod mangled;
mod names;
mod panics;
mod remainder;
mod shared;
mod strings;
pub(crate) mod text;
mod wide_casts;

use std::collections::{BTreeMap, HashMap, HashSet};

#[cfg(any(test, feature = "fuzzing"))]
pub use kernels::Abi;
pub use kernels::Kernel;
pub use panics::REPORTERS;
use shared::Space;

/// The rewritten module.
#[derive(Debug)]
pub struct Rewritten {
    /// The IR.
    pub ir: String,
    /// Kernels, in the order in which the module defines them.
    pub kernels: Vec<Kernel>,
    /// Statics that the host accesses by name.
    pub visible: Vec<String>,
}

/// Reason why a module cannot be rewritten.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RewriteError {
    /// A section that `#[kernel]` does not write.
    #[error(
        "the section of kernel `{symbol}` is not `.warpsmith,MAX_THREADS,MIN_BLOCKS,MIN_ARCH,STACK`; use gpu-std and \
         the builder in the same version ({line})"
    )]
    KernelSection {
        /// Symbol of the kernel.
        symbol: String,
        /// Line of IR.
        line: String,
    },
    /// A record of `#[kernel]` that the builder cannot read.
    #[error(
        "the metadata of kernel `{symbol}` (package and parameters) is incomplete; use gpu-std and the builder in \
         the same version"
    )]
    KernelRecord {
        /// Symbol of the kernel.
        symbol: String,
    },
    /// Two kernels with the same name and module.
    #[error("the module `{module}` defines two kernels named `{kernel}`: rename one")]
    SameKernels {
        /// Name of both kernels.
        kernel: String,
        /// Path of the Rust module that defines both kernels.
        module: String,
    },
    /// A shared static whose form is unknown.
    #[error("shared static `{symbol}` has a form that the builder does not support: {line}")]
    SharedStatic {
        /// Symbol of the static.
        symbol: String,
        /// Line of IR.
        line: String,
    },
    /// A shared static with an initial value.
    #[error(
        "shared static `{symbol}` has an initial value, but shared memory starts uninitialized on the GPU: use \
         shared_array! or MaybeUninit::uninit(), and store before loading"
    )]
    SharedValue {
        /// Symbol of the static.
        symbol: String,
    },
    /// A panic entry point of core with unexpected parameters.
    #[error("core's `{symbol}` has different parameters than in the tested Rust versions: {line}")]
    PanicEntry {
        /// Symbol of the function.
        symbol: String,
        /// Line of IR.
        line: String,
    },
}

/// Results of the first pass, over the headers.
#[derive(Default)]
struct Headers<'a> {
    /// Statics in shared and constant memory: their address space and new definition.
    statics: HashMap<&'a str, (Space, String)>,
    /// Statics that the host accesses by name.
    visible: Vec<&'a str>,
    /// Byte strings, as LLVM writes them.
    strings: HashMap<&'a str, &'a str>,
    /// Functions that the module defines or declares.
    functions: HashSet<&'a str>,
    /// Records of kernels.
    records: kernels::Records<'a>,
}

/// Rewrites `ir`. `contracts` allows contracting `a * b + c` to one `fma`, rounded once.
pub fn rewrite(ir: &str, contracts: bool) -> Result<Rewritten, RewriteError> {
    let ir = &*names::resolve(ir)?;
    let headers = read_headers(ir)?;
    let statics: HashMap<&str, Space> =
        headers.statics.iter().map(|(name, (space, _))| (*name, *space)).collect();
    let mut out = Output {
        contracts,
        ir: String::with_capacity(ir.len() + ir.len() / 16),
        constants: panics::constants(),
        messages: 0,
        functions: BTreeMap::new(),
    };
    let mut kernels = Vec::new();
    let mut templates: HashMap<&str, &str> = HashMap::new();
    let mut skipping = false;
    for line in ir.lines() {
        if skipping {
            skipping = line != "}";
            continue;
        }
        match line.as_bytes().first() {
            Some(b' ') => out.instruction(line, &statics, &headers, &mut templates),
            Some(b'@') => out.global(line, &statics, &headers),
            Some(b'd') if line.starts_with("define ") => {
                templates.clear();
                if let Some(replacement) = replace_function(line)? {
                    out.line(&replacement);
                    skipping = true;
                } else if kernels::is_kernel(line) {
                    let (line, kernel) = kernels::rewrite(line, &headers.records)?;
                    out.line(&line);
                    let abi = headers.records.of(&kernel.symbol)?;
                    let no_panic = headers.records.is_without_panics(&kernel.symbol);
                    kernels.push(Kernel { abi, no_panic, ..kernel });
                } else if let Some(line) = panics::rewrite_reporter(line) {
                    out.line(&line);
                } else {
                    out.line(line);
                }
            }
            Some(b'a') if line.starts_with("attributes ") => out.line(&attributes::strip_target(line)),
            _ => out.line(line),
        }
    }
    let Output { mut ir, constants, functions, .. } = out;
    ir.push_str(&constants);
    let functions = functions.iter().map(|(name, text)| (&**name, &**text));
    for (name, text) in panics::REPORTERS.into_iter().chain(functions) {
        if !headers.functions.contains(name) {
            ir.push_str(text);
            ir.push('\n');
        }
    }
    let visible = headers.visible.into_iter().map(str::to_owned).collect();
    Ok(Rewritten { ir, kernels, visible })
}

fn read_headers(ir: &str) -> Result<Headers<'_>, RewriteError> {
    let mut headers = Headers::default();
    for line in ir.lines() {
        match line.as_bytes().first() {
            Some(b'@') => {
                headers.records.read(line);
                headers.visible.extend(shared::visible(line));
                if let Some((name, space, definition)) = shared::rewrite_definition(line)? {
                    headers.statics.insert(name, (space, definition));
                } else if let Some(string) = strings::parse(line) {
                    headers.strings.insert(string.name, string.text);
                }
            }
            Some(b'd') => headers.functions.extend(text::function(line).map(|(name, _)| name)),
            _ => {}
        }
    }
    Ok(headers)
}

/// Returns the definition that replaces the function with this `define` line.
fn replace_function(line: &str) -> Result<Option<String>, RewriteError> {
    let Some((symbol, rest)) = text::function(line) else { return Ok(None) };
    if let Some(entry) = panics::entry(symbol) {
        let types =
            text::parenthesised(rest).map(|(inside, _)| text::parameter_types(inside)).unwrap_or_default();
        let bad = || RewriteError::PanicEntry { symbol: symbol.to_owned(), line: line.to_owned() };
        return entry.replacement(symbol, &types).map(Some).ok_or_else(bad);
    }
    Ok(floats::replacement(symbol))
}

struct Output {
    contracts: bool,
    ir: String,
    constants: String,
    messages: usize,
    /// Functions that replace instructions, keyed by symbol.
    functions: BTreeMap<String, String>,
}

impl Output {
    fn line(&mut self, line: &str) {
        self.ir.push_str(line);
        self.ir.push('\n');
    }

    fn global(&mut self, line: &str, statics: &HashMap<&str, Space>, headers: &Headers<'_>) {
        let name = text::symbol(&line[1..]).map_or("", |(name, _)| name);
        if let Some((_, definition)) = headers.statics.get(name) {
            return self.line(definition);
        }
        if let Some(definition) = shared::rewrite_visible_global(line) {
            return self.line(&definition);
        }
        // The definition of a global that points to one of the statics.
        if !statics.is_empty()
            && let Some((head, value)) = line.split_once(" = ")
            && let Some(cast) = shared::rewrite_uses(value, statics)
        {
            return self.line(&format!("{head} = {cast}"));
        }
        match strings::parse(line).as_ref().and_then(strings::terminate) {
            Some(terminated) => self.line(&terminated),
            None => self.line(line),
        }
    }

    /// Rewrites a line of a function's body. `templates` maps the locals of this function that hold a format string.
    fn instruction<'a>(
        &mut self,
        line: &'a str,
        statics: &HashMap<&str, Space>,
        headers: &Headers<'a>,
        templates: &mut HashMap<&'a str, &'a str>,
    ) {
        let instruction = text::instruction(line);
        let mut rewritten = None;
        if text::is_call(instruction) {
            rewritten = calls::mark_convergent(line, instruction);
            rewritten = rewritten
                .or_else(|| wide_casts::call(line, &mut self.functions))
                .or_else(|| self.panic_call(line, instruction, headers, templates));
        } else if self.contracts
            && let Some(contracted) = floats::contract(line, instruction)
        {
            rewritten = Some(contracted);
        } else if let Some(fenced) = atomics::fence(line, instruction) {
            rewritten = Some(fenced);
        } else if let Some(call) = remainder::call(line, instruction, &mut self.functions) {
            rewritten = Some(call);
        } else if !templates.is_empty()
            && let Some(rest) = instruction.strip_prefix("extractvalue { ptr, ptr } ")
            && let Some((source, index)) = rest.split_once(", ")
            && index.split(',').next() == Some("0")
            && let (Some(local), Some(template)) = (text::defined_local(line), templates.get(source).copied())
        {
            templates.insert(local, template);
        }
        let current = rewritten.as_deref().unwrap_or(line);
        match (!statics.is_empty()).then(|| shared::rewrite_uses(current, statics)).flatten() {
            Some(cast) => self.line(&cast),
            None => self.line(current),
        }
    }

    /// Tracks format strings that are passed to panics: records `Arguments::new`, and rewrites calls of inlined entry
    /// points.
    fn panic_call<'a>(
        &mut self,
        line: &'a str,
        instruction: &'a str,
        headers: &Headers<'a>,
        templates: &mut HashMap<&'a str, &'a str>,
    ) -> Option<String> {
        let (callee, rest) = text::function(instruction)?;
        if !callee.starts_with("_R") {
            return None;
        }
        if panics::is_arguments_new(callee) {
            let (arguments, _) = text::parenthesised(rest)?;
            let template = text::list(arguments).first()?.rsplit_once('@')?.1;
            templates.insert(text::defined_local(line)?, template);
            return None;
        }
        let entry = panics::entry(callee).filter(|entry| entry.is_inlined())?;
        let message = (entry == panics::Entry::Formatted)
            .then(|| {
                let (arguments, _) = text::parenthesised(rest)?;
                let local = text::list(arguments).first()?.rsplit(' ').next()?;
                let template = headers.strings.get(templates.get(local)?)?;
                panics::describe_template(&text::unescape(template))
            })
            .flatten();
        let (call, constant) =
            panics::rewrite_call(line, message.as_deref().map(|message| (message, self.messages)))?;
        if let Some(constant) = constant {
            self.constants.push_str(&constant);
            self.messages += 1;
        }
        Some(call)
    }
}

#[cfg(test)]
mod tests;
