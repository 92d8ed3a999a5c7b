//! Names of kernels as the user wrote them.

use std::fmt::Write;
use std::panic::Location;

use gpu_spec::KernelInfo;

/// Returns the name of a kernel with the generic arguments of its instance, for example `axpy<f32, 4>`.
pub(crate) fn kernel(info: &KernelInfo) -> String {
    let types = info.types.iter().map(|argument| argument.name.to_owned());
    let consts = info.consts.iter().map(|argument| argument.value.to_string());
    let arguments: Vec<String> = types.chain(consts).collect();
    let mut name = info.name.to_owned();
    if !arguments.is_empty() {
        // Writing to a `String` cannot fail.
        let _ = write!(name, "<{}>", arguments.join(", "));
    }
    name
}

/// Formats a source line, for example as `src/main.rs:12`.
pub(crate) fn line(site: &Location<'_>) -> String {
    format!("{}:{}", site.file(), site.line())
}

#[cfg(test)]
mod tests {
    use gpu_spec::{ConstArgument, TypeArgument};

    use super::*;

    #[test]
    fn an_instance_is_named_as_it_was_written() {
        let mut info = KernelInfo::new("kernels", "1.0.0", "axpy__f32_4", &[]);
        assert_eq!(kernel(&info), "axpy__f32_4");
        info.name = "axpy";
        info.types = &[TypeArgument { parameter: "T", name: "f32" }];
        info.consts = &[ConstArgument { parameter: "ITEMS", value: 4 }];
        assert_eq!(kernel(&info), "axpy<f32, 4>");
    }
}
