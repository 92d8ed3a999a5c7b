//! Checks that every function that the PTX calls is defined; the driver would report an undefined function only when it
//! loads the module.

use crate::callers::Callers;
use crate::device_runtime::is_device_runtime;
use crate::error::Error;
use crate::link::{self, Linked};

/// Functions that the CUDA driver provides.
const PROVIDED: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

/// Returns true if a function comes with the driver or with cudadevrt.
fn is_provided(name: &str) -> bool {
    PROVIDED.contains(&name) || is_device_runtime(name)
}

/// Returns an error if `ptx`, the PTX compiled from `linked`, calls a function that is not defined.
pub fn check(ptx: &str, linked: &Linked) -> Result<(), Error> {
    let missing = missing(ptx);
    if missing.is_empty() {
        return Ok(());
    }
    let ir = link::read(&linked.reachable)?;
    let callers = Callers::of(&ir);
    let unresolved = missing
        .into_iter()
        .map(|name| {
            let by = callers.kernel_reaching(name, &linked.kernels);
            let by = by.map_or_else(String::new, |kernel| format!(", called by kernel `{kernel}`"));
            format!("`{name}`{by}{}", fix(name))
        })
        .collect();
    Err(Error::Unresolved { unresolved })
}

fn fix(name: &str) -> &'static str {
    if name.starts_with("__warpsmith_panic") {
        ": gpu-std defines it; add warpsmith-gpu-std to the kernel crate's dependencies and `use` it"
    } else if name.starts_with("__nv_") {
        ": libdevice does not define it"
    } else {
        ""
    }
}

/// Returns the names of undefined `.extern .func` declarations, in order and without duplicates.
pub fn missing(ptx: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for line in ptx.lines() {
        let Some(rest) = line.strip_prefix(".extern .func ") else { continue };
        // A return value precedes the name, in parentheses.
        let rest = rest.trim_start();
        let rest =
            if rest.starts_with('(') { rest.split_once(')').map_or(rest, |(_, rest)| rest) } else { rest };
        let name =
            rest.trim_start().split(|c: char| c == '(' || c.is_whitespace() || c == ';').next().unwrap_or("");
        if !name.is_empty() && !is_provided(name) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_driver_has_is_no_error() {
        let ptx = ".extern .func  (.param .b32 func_retval0) vprintf\n(\n.extern .func __assertfail\n(\n\
                   .extern .func  (.param .b32 func_retval0) foo\n(\n.extern .func bar(\n.extern .func bar(\n\
                   .extern .func (.param .b32 r) cudaDeviceSynchronize\n.visible .func baz\n";
        assert_eq!(missing(ptx), ["foo", "bar"]);
    }
}
