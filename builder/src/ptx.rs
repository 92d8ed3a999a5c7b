//! Reads PTX to find the `.param`s of its entries, and the entries whose stack size is unknown.

use std::collections::{HashMap, HashSet};

use gpu_spec::{AbiParam, ParamKind};

use crate::error::Error;
use crate::rewrite::Kernel;

/// A function of a module.
#[derive(Debug, Default)]
struct Function<'a> {
    params: Vec<PtxParam>,
    calls: Vec<&'a str>,
    /// True if the function uses `wgmma`.
    has_wgmma: bool,
}

/// Size and alignment in bytes of a PTX `.param`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PtxParam {
    size: u64,
    align: u64,
}

/// Callee of an indirect call, which represents every function whose address the module takes.
pub const ANY: &str = "%";

/// Sets `%above` to bit 0 of the mask of the lanes above the thread's own lane. The bit is always 0, but ptxas cannot
/// fold it.
pub const UNKNOWN_ZERO: &str = "\tmov.u32 \t%above, %lanemask_gt;\n\tand.b32 \t%above, %above, 1;\n";

/// A parsed PTX module.
#[derive(Debug)]
pub struct Ptx<'a> {
    functions: HashMap<&'a str, Function<'a>>,
}

impl<'a> Ptx<'a> {
    /// Parses a module that LLVM has written.
    pub fn read(text: &'a str) -> Ptx<'a> {
        let mut functions: HashMap<&str, Function<'_>> = HashMap::new();
        let mut current = "";
        let mut in_header = false;
        for line in text.lines() {
            if let Some(name) = header(line) {
                (current, in_header) = (name, true);
                // A declaration that precedes the definition adds no information.
                functions.insert(name, Function::default());
            }
            let Some(function) = functions.get_mut(current) else { continue };
            let line = line.trim();
            if in_header {
                if let Some(param) = line.strip_prefix(".param ") {
                    function.params.extend(param_of(param));
                }
                in_header = !line.starts_with('{') && !line.starts_with(';');
            } else if line.contains("wgmma.mma_async") {
                function.has_wgmma = true;
            } else if let Some(callee) = callee(line) {
                function.calls.push(or_any(callee));
            }
        }
        let mut ptx = Ptx { functions };
        if ptx.functions.values().any(|function| function.calls.contains(&ANY)) {
            let calls = ptx.pointed_at(text);
            ptx.functions.insert(ANY, Function { calls, ..Function::default() });
        }
        ptx
    }

    /// Returns the functions whose addresses are taken: their names occur outside of headers and calls.
    fn pointed_at(&self, text: &'a str) -> Vec<&'a str> {
        let is_other = |line: &&str| header(line).is_none() && callee(line.trim_start()).is_none();
        let words = |line: &'a str| line.split(|c: char| !(c.is_ascii_alphanumeric() || "_$.".contains(c)));
        let functions: HashSet<&str> = text
            .lines()
            .filter(is_other)
            .flat_map(words)
            .filter(|word| self.functions.contains_key(word))
            .collect();
        functions.into_iter().collect()
    }

    /// Returns the functions that recurse, directly or indirectly; [`ANY`] can be one of them.
    pub fn recursive(&self) -> HashSet<&'a str> {
        self.functions.keys().copied().filter(|name| self.reaches(name, name)).collect()
    }

    /// Returns true if `caller` calls `callee`, directly or indirectly.
    pub fn reaches(&self, caller: &str, callee: &str) -> bool {
        let calls = self.functions.get(caller).map_or(&[][..], |function| &function.calls);
        self.reached(calls.iter().copied()).contains(callee)
    }

    /// Returns true if the stack size of a kernel's threads is unknown before the kernel runs, because the kernel
    /// recurses or makes indirect calls.
    pub fn has_unknown_stack(&self, kernel: &str) -> bool {
        self.reached([kernel]).into_iter().any(|name| name == ANY || self.reaches(name, name))
    }

    /// Returns true if a kernel uses `wgmma`, itself or in a function that it calls.
    pub fn has_wgmma(&self, kernel: &str) -> bool {
        self.reached([kernel]).into_iter().any(|name| self.functions.get(name).is_some_and(|f| f.has_wgmma))
    }

    /// Returns the functions `from` and all functions that they call, directly or indirectly.
    fn reached<'b>(&'b self, from: impl IntoIterator<Item = &'b str>) -> HashSet<&'b str> {
        let mut rest: Vec<&str> = from.into_iter().collect();
        let mut reached: HashSet<&str> = rest.iter().copied().collect();
        while let Some(name) = rest.pop() {
            // Functions that are not in the module belong to the driver, and do not call into the module.
            let calls = self.functions.get(name).into_iter().flat_map(|function| &function.calls);
            rest.extend(calls.copied().filter(|name| reached.insert(name)));
        }
        reached
    }

    /// Compares the PTX `.param`s of every entry with the parameters that `#[kernel]` recorded.
    ///
    /// # Errors
    /// Returns [`Error::ParameterMismatch`] for the first mismatch.
    pub fn check_parameters(&self, kernels: &[Kernel]) -> Result<(), Error> {
        for kernel in kernels {
            let (Some(abi), Some(entry)) = (&kernel.abi, self.functions.get(&*kernel.symbol)) else {
                continue;
            };
            let expected: Vec<(String, PtxParam)> =
                abi.params.iter().enumerate().flat_map(|(index, param)| ptx_params(index, param)).collect();
            for (index, (what, expected)) in expected.iter().enumerate() {
                let found = entry.params.get(index);
                if found != Some(expected) {
                    return Err(Error::ParameterMismatch {
                        kernel: kernel.symbol.clone(),
                        parameter: what.clone(),
                        recorded: expected.to_string(),
                        found: found.map_or("missing".to_owned(), ToString::to_string),
                    });
                }
            }
            if let Some(found) = entry.params.get(expected.len()) {
                return Err(Error::ParameterMismatch {
                    kernel: kernel.symbol.clone(),
                    parameter: format!("kernel parameter {}", expected.len()),
                    recorded: "missing".to_owned(),
                    found: found.to_string(),
                });
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for PtxParam {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes aligned to {}", self.size, self.align)
    }
}

/// Returns the name of the function whose definition or declaration starts on this line.
pub fn header(line: &str) -> Option<&str> {
    let (_, rest) =
        line.starts_with('.').then(|| line.split_once(".entry ").or_else(|| line.split_once(".func ")))??;
    // A return value precedes the name, in parentheses.
    let rest = rest.trim_start();
    let rest = if rest.starts_with('(') { rest.split_once(')')?.1.trim_start() } else { rest };
    let end = rest.find(|c: char| c == '(' || c == ';' || c.is_whitespace()).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Parses a parameter, given the text after `.param`: `.align 4 .b8 k_param_2[12],` or `.u64 .ptr .align 1 k_param_0`.
fn param_of(text: &str) -> Option<PtxParam> {
    let mut words = text.split_whitespace();
    let mut word = words.next()?;
    let mut explicit = None;
    if word == ".align" {
        explicit = Some(words.next()?.parse().ok()?);
        word = words.next()?;
    }
    let bits: u64 = word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?;
    let count = match text.split_once('[') {
        Some((_, count)) => count.split(']').next()?.parse().ok()?,
        None => 1,
    };
    Some(PtxParam { size: (bits / 8).checked_mul(count)?, align: explicit.unwrap_or(bits / 8) })
}

/// Returns a callee's name, or [`ANY`] for a call through a register.
pub fn or_any(callee: &str) -> &str {
    if callee.starts_with('%') { ANY } else { callee }
}

/// Returns the callee of a line: a function name, or a register.
pub fn callee(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("call.uni").or_else(|| line.strip_prefix("call"))?;
    let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
    let rest = if rest.starts_with('(') { rest.split_once("),")?.1.trim_start() } else { rest };
    rest.split([',', ';']).next().map(str::trim)
}

/// Returns the PTX `.param`s of the parameter `index` of a kernel, each with a readable name.
fn ptx_params(index: usize, param: &AbiParam) -> Vec<(String, PtxParam)> {
    let of =
        |machine: gpu_spec::PtxParam| PtxParam { size: machine.size as u64, align: machine.align as u64 };
    let is = |kind: ParamKind| param.kind == kind as u32;
    match param.lower() {
        (pointer, Some(second)) => {
            let (second_name, what) = match is(ParamKind::Slice) || is(ParamKind::SliceMut) {
                true => ("length", "slice"),
                false => ("extents", "view"),
            };
            vec![
                (format!("the pointer of parameter {index}, a {what},"), of(pointer)),
                (format!("the {second_name} of parameter {index}, a {what},"), of(second)),
            ]
        }
        (one, None) => {
            let is_pointer = is(ParamKind::Pointer) || is(ParamKind::PointerMut);
            let name = match (is(ParamKind::Shared), is_pointer) {
                _ if is(ParamKind::TensorMap) => format!("parameter {index}, a tensor map,"),
                (true, _) => format!("the length of parameter {index}, a shared array,"),
                (_, true) => format!("parameter {index}, a pointer,"),
                (_, false) => format!("parameter {index}, a value,"),
            };
            vec![(name, of(one))]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::Abi;

    const PTX: &str = "\
.extern .func  (.param .b32 func_retval0) vprintf
(
\t.param .b64 vprintf_param_0
)
;
.func  (.param .b32 func_retval0) once(
\t.param .b32 once_param_0
)
{
\tcall.uni (retval0), vprintf, (param0, param1);
\tret;
}
.func ping()
{
\tcall.uni pong;
}
.func pong()
{
\tcall.uni ping, ();
}
.visible .entry k(
\t.param .u64 .ptr .align 1 k_param_0,
\t.param .u64 k_param_1,
\t.param .align 4 .b8 k_param_2[12],
\t.param .u8 k_param_3
)                                       // @k
{
\t.param .b32 \tparam0;
\tcall.uni (retval0), once, (param0);
\tcall.uni (retval0), once, (param0);
}
.visible .entry recursive()
{
\tcall.uni ping;
}
.visible .entry deep()
{
\tcall.uni middle;
\tcall.uni of_the_driver;
}
.func middle()
{
\tcall.uni ping;
}
.visible .entry indirect()
.maxntid 256
{
\tprototype_3 : .callprototype (.param .b32 _) _ (.param .b32 _);
\tcall (retval0), %rd3, (param0), prototype_3;
}
";

    #[test]
    fn recursion_and_calls_through_pointers_have_no_known_stack() {
        let ptx = Ptx::read(PTX);
        let unknown =
            ["k", "recursive", "deep", "indirect", "missing"].map(|name| ptx.has_unknown_stack(name));
        assert_eq!(unknown, [false, true, true, true, false]);
    }

    fn check(params: &[(ParamKind, usize, usize)]) -> Result<(), String> {
        let params = params.iter().map(|&(kind, size, align)| AbiParam::new(kind, size, align, 0)).collect();
        let abi = Some(Abi { params, ..Abi::default() });
        let kernels = [Kernel { symbol: "k".to_owned(), abi, ..Kernel::default() }];
        Ptx::read(PTX).check_parameters(&kernels).map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_are_compared_one_by_one() {
        use ParamKind::{Pointer, PointerMut, Slice, SliceMut, Value};
        assert_eq!(check(&[(Slice, 4, 4), (Value, 12, 4), (Value, 1, 1)]), Ok(()));
        assert_eq!(check(&[(Pointer, 4, 4), (PointerMut, 2, 2), (Value, 12, 4), (Value, 1, 1)]), Ok(()));
        let wrong = [
            (
                &[(SliceMut, 4, 4), (Value, 16, 8), (Value, 1, 1)][..],
                "parameter 1, a value, is 16 bytes aligned to 8",
            ),
            (&[(SliceMut, 4, 4), (Value, 12, 4)], "kernel parameter 3 is missing"),
            (
                &[(SliceMut, 4, 4), (Value, 12, 4), (Value, 1, 1), (Value, 0, 1)],
                "parameter 3, a value, is 0 bytes aligned to 1 in the source but missing in the PTX",
            ),
        ];
        for (params, text) in wrong {
            let error = check(params).unwrap_err();
            assert!(error.contains("kernel `k`") && error.contains(text), "{error}");
        }
    }
}
