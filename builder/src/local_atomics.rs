//! Replaces atomic operations on local memory with plain operations.
//!
//! PTX has `atom` only for global and shared memory. ptxas rejects `atom` on local memory, and its behavior is
//! undefined through a generic address of local memory. A thread's local memory is private, so plain accesses are
//! sufficient. The replacement works on optimized IR, where inlining has exposed the origin of most pointers:
//!
//! | the pointer comes from | the operation |
//! | --- | --- |
//! | parameters of the kernel, statics, other address spaces | stays as it is |
//! | `alloca` alone | becomes plain |
//! | anything else (a function parameter, memory), in a module with an `alloca` | first tests the address space |
//!
//! gpu-std's inline-assembly atomics are included. Loads and stores are not affected: PTX defines them for every
//! address space.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::path::Path;

use crate::error::Error;
use crate::link::{self, INLINED, MAILBOX};
use crate::rewrite::text;
use crate::toolchain::LlvmTools;
use crate::tools;

/// Replaces atomics on local memory in the optimized module `ir`, stored in `file`. Most modules have none.
pub fn replace(llvm: &LlvmTools, file: &Path, ir: &str, input: &str) -> Result<(), Error> {
    let Some(ir) = rewrite(ir) else { return Ok(()) };
    link::write(file, &ir)?;
    let mut command = llvm.passes("opt");
    command.arg(format!("-passes={INLINED}")).args(["-S", "-o"]).arg(file).arg(file);
    tools::run(&mut command, input).map(drop)
}

/// Separator between an instruction and its location.
const LOCATION: &str = ", !dbg ";

/// Returns the module with all atomics that may access local memory replaced by calls of functions to be inlined, or
/// `None` if no such atomics exist.
fn rewrite(ir: &str) -> Option<String> {
    if !ir.contains(" = alloca ") && !ir.contains(" byval(") {
        return None;
    }
    let mut functions = Functions::default();
    let mut out = String::with_capacity(ir.len() + ir.len() / 16);
    let mut lines = ir.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        if !line.starts_with("define ") {
            continue;
        }
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        let code: Vec<&str> = body.iter().map(|line| line.split(LOCATION).next().unwrap_or(line)).collect();
        let mut pointers = None;
        for (instruction, whole) in code.iter().zip(body) {
            let replaced = Atomic::read(instruction).and_then(|atomic| {
                let pointers = pointers.get_or_insert_with(|| Pointers::of(line, &code));
                let is_local = pointers.is_local(atomic.pointer)?;
                let call = functions.call(instruction, &atomic, is_local);
                let location = whole.split_once(LOCATION).map(|(_, location)| location);
                Some(location.map_or_else(|| call.clone(), |location| format!("{call}{LOCATION}{location}")))
            });
            let _ = writeln!(out, "{}", replaced.as_deref().unwrap_or(whole));
        }
        out.push_str("}\n");
    }
    if functions.0.is_empty() {
        return None;
    }
    functions.0.values().for_each(|(_, text)| out.push_str(text));
    if !ir.contains("@llvm.nvvm.isspacep.local(") {
        out.push_str("declare i1 @llvm.nvvm.isspacep.local(ptr)\n");
    }
    Some(out)
}

/// An atomic read-modify-write instruction.
struct Atomic<'a> {
    /// Pointer operand, with its type if that is not `ptr`.
    pointer: &'a str,
    /// Other operands with their types: one value, or the expected and the new value.
    operands: Vec<(&'a str, &'a str)>,
    /// Type of the result.
    result: String,
    /// The instruction, with `@p@`, `@0@` and `@1@` as placeholders for its operands.
    form: String,
    /// LLVM's name for the operation, or `None` for a compare-exchange.
    operation: Option<&'a str>,
}

impl<'a> Atomic<'a> {
    fn read(line: &'a str) -> Option<Atomic<'a>> {
        let instruction = text::instruction(line);
        if let Some(rest) = instruction.strip_prefix("cmpxchg ") {
            let items = text::list(rest);
            let [first, expected, new, end @ ..] = &items[..] else { return None };
            let (flags, pointer) = first.split_at(first.find("ptr ")?);
            let (expected, (ty, new, order)) = (operand(expected)?, operand(new)?);
            let form = format!("cmpxchg {flags}@p@, {ty} @0@, {ty} @1@{order}{}", after(end));
            let operands = vec![(expected.0, expected.1), (ty, new)];
            return Some(Atomic {
                pointer,
                operands,
                result: format!("{{ {ty}, i1 }}"),
                form,
                operation: None,
            });
        }
        if let Some(rest) = instruction.strip_prefix("atomicrmw ") {
            let items = text::list(rest);
            let [first, value, end @ ..] = &items[..] else { return None };
            let (flags, pointer) = first.split_at(first.find("ptr ")?);
            let (ty, value, order) = operand(value)?;
            let form = format!("atomicrmw {flags}@p@, {ty} @0@{order}{}", after(end));
            let operation = Some(flags.trim_end().rsplit(' ').next()?);
            return Some(Atomic {
                pointer,
                operands: vec![(ty, value)],
                result: ty.to_owned(),
                form,
                operation,
            });
        }
        Atomic::of_assembly(instruction)
    }

    /// Parses `call i32 asm sideeffect "atom.relaxed.gpu.add.u32 $0, [$1], $2;", "…"(ptr %p, i32 %v) …`, as gpu-std
    /// writes it.
    fn of_assembly(instruction: &'a str) -> Option<Atomic<'a>> {
        let (before, rest) = instruction.split_once("\"atom.")?;
        let result = before.split_once("call ")?.1.split_once(" asm ")?.0;
        let (name, _) = rest.split_once(' ')?;
        let [_, _, operation, ty] = name.split('.').collect::<Vec<_>>()[..] else { return None };
        let operation = match (operation, &ty[..1]) {
            ("cas", _) => None,
            ("exch", _) => Some("xchg"),
            ("add", "f") => Some("fadd"),
            ("min", "u") => Some("umin"),
            ("max", "u") => Some("umax"),
            ("add" | "and" | "or" | "xor" | "min" | "max", _) => Some(operation),
            _ => return None,
        };
        let open = rest.find("\"(")? + 1;
        let (arguments, after) = text::parenthesised(&rest[open..])?;
        let after = after.split(", !").next().unwrap_or_default();
        let arguments = text::list(arguments);
        let [pointer, values @ ..] = &arguments[..] else { return None };
        let values: Vec<(&str, &str)> =
            values.iter().map(|value| value.split_once(' ')).collect::<Option<_>>()?;
        let places: String =
            values.iter().enumerate().map(|(place, (ty, _))| format!(", {ty} @{place}@")).collect();
        let is_known = pointer.starts_with("ptr ") && values.len() == 1 + usize::from(operation.is_none());
        // Attributes stand between the type and the name of an argument.
        let pointer = pointer.rsplit(' ').next()?;
        is_known.then(|| Atomic {
            pointer,
            operands: values,
            result: result.to_owned(),
            form: format!("{before}\"atom.{}(@p@{places}){after}", &rest[..open]),
            operation,
        })
    }

    /// Returns code that performs the same operation on the thread's local memory `%l` and returns the result.
    fn plain(&self) -> String {
        let (ty, result) = (self.operands[0].0, &self.result);
        if let Some(operation) = self.operation {
            // LLVM turns this into plain accesses.
            return format!(
                "  %old = atomicrmw {operation} ptr addrspace(5) %l, {ty} %v0 monotonic\n  ret {ty} %old\n"
            );
        }
        let pair = format!(
            "  %half = insertvalue {result} poison, {ty} %old, 0\n  \
             %pair = insertvalue {result} %half, i1 %same, 1\n  ret {result} %pair\n"
        );
        format!(
            "  %old = load {ty}, ptr addrspace(5) %l\n  %same = icmp eq {ty} %old, %v0\n  \
             %new = select i1 %same, {ty} %v1, {ty} %old\n  store {ty} %new, ptr addrspace(5) %l\n{}",
            if result == ty { format!("  ret {ty} %old\n") } else { pair }
        )
    }
}

/// Splits `i32 %5 monotonic` into the type, the value and the rest.
fn operand(text: &str) -> Option<(&str, &str, &str)> {
    let end = match text.starts_with('<') {
        true => text.find('>')? + 1,
        false => text.find(' ')?,
    };
    let (ty, value) = (&text[..end], &text[end + 1..]);
    let is_expression = ["getelementptr", "ptrtoint", "inttoptr", "addrspacecast"];
    let is_expression = is_expression.iter().any(|name| value.starts_with(name));
    let end = match value.find('(').filter(|_| is_expression) {
        Some(open) => value.len() - text::parenthesised(&value[open..])?.1.len(),
        None => value.find(' ').unwrap_or(value.len()),
    };
    Some((ty, &value[..end], &value[end..]))
}

/// Returns the list items that follow the operands, without metadata.
fn after(items: &[&str]) -> String {
    items.iter().filter(|item| !item.starts_with('!')).flat_map(|item| [", ", *item]).collect()
}

/// Origins of the pointers in a function.
struct Pointers<'a> {
    /// For each local, the instruction that defines it.
    made: HashMap<&'a str, &'a str>,
    /// For each parameter, true if it points to the thread's local memory, or `None` if that is unknown.
    parameters: HashMap<&'a str, Option<bool>>,
}

impl<'a> Pointers<'a> {
    fn of(header: &'a str, body: &[&'a str]) -> Pointers<'a> {
        let is_kernel = header.contains(" ptx_kernel ");
        let list = text::function(header).and_then(|(_, rest)| text::parenthesised(rest));
        let parameters = list.map_or_else(Vec::new, |(inside, _)| text::list(inside));
        let parameter = |text: &'a str| {
            let name = text.rsplit(' ').next().unwrap_or_default();
            // A `byval` parameter is copied to local memory before it is modified.
            let is_local = if text.contains(" byval(") { Some(true) } else { is_kernel.then_some(false) };
            (name, is_local)
        };
        Pointers {
            made: body
                .iter()
                .filter_map(|line| Some((text::defined_local(line)?, text::instruction(line))))
                .collect(),
            parameters: parameters.into_iter().map(parameter).collect(),
        }
    }

    /// Returns true if the pointer `ptr %5` always points to the thread's local memory, false if it may point there, or
    /// `None` if it never does.
    fn is_local(&self, pointer: &'a str) -> Option<bool> {
        let (mut local, mut other) = (false, false);
        let mut seen = HashSet::new();
        let mut rest = vec![pointer];
        while let Some(pointer) = rest.pop() {
            let value = pointer.strip_prefix("ptr ").unwrap_or(pointer);
            let (space, value) = match value.strip_prefix("addrspace(").and_then(|rest| rest.split_once(") "))
            {
                Some((space, value)) => (space, value),
                None => ("0", value),
            };
            match space {
                "0" => {}
                "5" => {
                    local = true;
                    continue;
                }
                _ => {
                    other = true;
                    continue;
                }
            }
            if !value.starts_with('%') {
                // A constant: the address of a static.
                other = true;
                continue;
            }
            if !seen.insert(value) {
                continue;
            }
            if let Some(is_local) = self.parameters.get(value) {
                match is_local {
                    Some(true) => local = true,
                    Some(false) => other = true,
                    None => return Some(false),
                }
                continue;
            }
            match self.made.get(value).copied() {
                Some(instruction) if instruction.starts_with("alloca ") => local = true,
                // A pointer from the mailbox, set by the host.
                Some(instruction) if instruction.contains(MAILBOX) => other = true,
                instruction => match instruction.and_then(sources) {
                    Some(sources) => rest.extend(sources),
                    None => return Some(false),
                },
            }
        }
        local.then_some(!other)
    }
}

/// Returns the pointers that a pointer is derived from, or `None` if it is not derived only from pointers of the
/// function.
fn sources(instruction: &str) -> Option<Vec<&str>> {
    if let Some(rest) = instruction.strip_prefix("getelementptr ") {
        return Some(vec![text::list(rest).into_iter().find(|item| item.starts_with("ptr "))?]);
    }
    if let Some(rest) = instruction.strip_prefix("phi ptr ") {
        let values =
            text::list(rest).into_iter().filter_map(|item| item.strip_prefix("[ ")?.rsplit_once(", "));
        return Some(values.map(|(value, _)| value).collect());
    }
    if let Some(rest) = instruction.strip_prefix("select ") {
        let values: Vec<&str> =
            text::list(rest).into_iter().filter(|item| item.starts_with("ptr ")).collect();
        return (values.len() == 2).then_some(values);
    }
    let cast = instruction.strip_prefix("addrspacecast ").or_else(|| instruction.strip_prefix("freeze "))?;
    Some(vec![cast.split_once(" to ").map_or(cast, |(value, _)| value)])
}

/// Functions that replace instructions: their names, keyed by definition.
#[derive(Default)]
struct Functions(BTreeMap<String, (String, String)>);

impl Functions {
    fn call(&mut self, line: &str, atomic: &Atomic<'_>, is_local: bool) -> String {
        let Atomic { pointer, operands, result, form, .. } = atomic;
        let is_cast = pointer.starts_with("ptr addrspace(5)");
        let ty = if is_cast { "ptr addrspace(5)" } else { "ptr" };
        let key = format!("{is_local} {ty} {result} {form}");
        let name = format!("__warpsmith_atomic.{}", self.0.len());
        let (name, _) = self.0.entry(key).or_insert_with(|| {
            let text = define(&name, ty, atomic, is_local);
            (name, text)
        });
        let values: String = operands.iter().map(|(ty, value)| format!(", {ty} {value}")).collect();
        let head = &line[..line.len() - text::instruction(line).len()];
        let pointer = pointer.strip_prefix(ty).unwrap_or(pointer).trim_start();
        format!("{head}call {result} @{name}({ty} {pointer}{values})")
    }
}

fn define(name: &str, pointer: &str, atomic: &Atomic<'_>, is_local: bool) -> String {
    let Atomic { operands, result, form, .. } = atomic;
    let parameters: String =
        operands.iter().enumerate().map(|(place, (ty, _))| format!(", {ty} %v{place}")).collect();
    let to_local = match pointer {
        "ptr" => "  %l = addrspacecast ptr %p to ptr addrspace(5)\n",
        _ => "  %l = getelementptr i8, ptr addrspace(5) %p, i64 0\n",
    };
    let plain = format!("{to_local}{}", atomic.plain());
    let body = match is_local {
        true => plain,
        false => {
            let mut form = form.replace("@p@", "ptr %p");
            (0..operands.len())
                .for_each(|place| form = form.replace(&format!("@{place}@"), &format!("%v{place}")));
            format!(
                "  %is_local = call i1 @llvm.nvvm.isspacep.local(ptr %p)\n  br i1 %is_local, label %local, label %other\n\
                 local:\n{plain}other:\n  %other_result = {form}\n  ret {result} %other_result\n"
            )
        }
    };
    format!("define internal {result} @{name}({pointer} %p{parameters}) alwaysinline nounwind {{\n{body}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lines of a kernel function `f` with this body, after the rewrite.
    fn rewritten(parameters: &str, body: &[&str]) -> Option<Vec<String>> {
        let kind = if parameters.is_empty() { "" } else { "ptx_kernel " };
        let ir = format!("define {kind}void @f(ptr %q{parameters}) {{\n{}\n}}\n", body.join("\n"));
        let text = rewrite(&ir)?;
        Some(text.lines().skip(1).take(body.len()).map(str::to_owned).collect())
    }

    const ALLOCA: &str = "  %a = alloca [4 x i32], align 4";

    #[test]
    fn atomics_of_local_memory_are_plain() {
        let exchange = "  %4 = cmpxchg weak ptr %3, i32 %1, i32 7 syncscope(\"block\") acq_rel monotonic, align 4, !dbg !9";
        let ir = format!(
            "define ptx_kernel void @f(ptr %q) {{\n{ALLOCA}\n  %3 = getelementptr inbounds i32, ptr %a, i64 %2\n{exchange}\n}}\n"
        );
        let text = rewrite(&ir).unwrap();
        assert!(
            text.contains("  %4 = call { i32, i1 } @__warpsmith_atomic.0(ptr %3, i32 %1, i32 7), !dbg !9\n")
                && text.contains("@__warpsmith_atomic.0(ptr %p, i32 %v0, i32 %v1) alwaysinline")
                && !text.contains("cmpxchg")
                && !text.contains("call i1"),
            "{text}"
        );
    }

    #[test]
    fn an_unknown_address_is_asked_for_its_space() {
        let add = "  %4 = atomicrmw add ptr %3, i8 %1 monotonic, align 1";
        let loaded = "  %3 = load ptr, ptr %q, align 8";
        let assembly = "  %5 = tail call i32 asm sideeffect \"atom.acq_rel.gpu.cas.b32 ${0}, [${1}], ${2}, ${3};\", \
                        \"=&r,l,r,r,~{memory}\"(ptr nonnull align 4 %3, i32 %1, i32 0) convergent #3";
        let ir = format!("define ptx_kernel void @f(ptr %q) {{\n{ALLOCA}\n{loaded}\n{add}\n{assembly}\n}}\n");
        let text = rewrite(&ir).unwrap();
        for part in [
            "  %4 = call i8 @__warpsmith_atomic.0(ptr %3, i8 %1)\n",
            "  %5 = call i32 @__warpsmith_atomic.1(ptr %3, i32 %1, i32 0)\n",
            "  %is_local = call i1 @llvm.nvvm.isspacep.local(ptr %p)\n",
            "  %old = atomicrmw add ptr addrspace(5) %l, i8 %v0 monotonic\n",
            "  %other_result = atomicrmw add ptr %p, i8 %v0 monotonic, align 1\n",
            "\"=&r,l,r,r,~{memory}\"(ptr %p, i32 %v0, i32 %v1) convergent #3\n",
            "asm sideeffect \"atom.acq_rel.gpu.cas.b32 ${0}, [${1}], ${2}, ${3};\"",
            "declare i1 @llvm.nvvm.isspacep.local(ptr)",
        ] {
            assert!(text.contains(part), "{part} {text}");
        }
    }

    #[test]
    fn the_ways_of_a_pointer_are_followed() {
        let add = |pointer: &str| format!("  %4 = atomicrmw add {pointer}, i32 1 monotonic, align 4");
        let of = |made: &str, pointer: &str| {
            let lines =
                [ALLOCA, "  %b = alloca i32", "  %g = getelementptr i8, ptr %q, i64 4", made, &add(pointer)];
            rewritten(", i64 %n", &lines).map(|lines| lines[4].contains("call"))
        };
        // Atomics through pointers from parameters, statics and other address spaces stay unchanged.
        for (made, pointer) in [
            ("", "ptr %q"),
            ("", "ptr %g"),
            ("", "ptr @COUNTER"),
            ("", "ptr addrspace(3) %s"),
            ("", "ptr addrspacecast (ptr addrspace(3) @TILE to ptr)"),
            ("", "ptr getelementptr inbounds nuw (i8, ptr @COUNTER, i64 8)"),
            ("  %p = phi ptr [ %q, %1 ], [ %r, %2 ]\n  %r = getelementptr i8, ptr %p, i64 4", "ptr %p"),
            ("  %p = select i1 %c, ptr %q, ptr %g", "ptr %p"),
            ("  %p = addrspacecast ptr addrspace(1) %x to ptr", "ptr %p"),
        ] {
            assert_eq!(of(made, pointer), None, "{made} {pointer}");
        }
        for made in [
            "  %p = phi ptr [ %a, %1 ], [ %q, %2 ]",
            "  %p = select i1 %c, ptr %b, ptr %a, !prof !3",
            "  %p = inttoptr i64 %n to ptr",
            "  %p = call ptr @f()",
            "  %p = freeze ptr %a",
        ] {
            assert_eq!(of(made, "ptr %p"), Some(true), "{made}");
        }
        // The rewrite does not know which pointers a function is called with.
        assert!(rewritten("", &[ALLOCA, &add("ptr %q")]).is_some());
    }

    #[test]
    fn a_module_without_local_memory_stays() {
        let line = "  %4 = atomicrmw add ptr %3, i32 1 monotonic, align 4";
        assert_eq!(rewritten("", &["  %3 = load ptr, ptr %q", line]), None);
    }
}
