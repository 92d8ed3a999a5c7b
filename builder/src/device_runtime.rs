//! Finds the kernels that need NVIDIA's device runtime (libcudadevrt) because they set conditional handles of a graph.
//!
//! Code that uses the device runtime is relocatable and is linked when it is loaded. To keep other kernels unaffected,
//! these kernels form a separate part.

use std::path::Path;

use crate::callers::Callers;
use crate::error::Error;
use crate::rewrite::{Kernel, text};

/// Kernels of a module that use the device runtime.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct DeviceRuntime {
    /// Symbols of the kernels that need the device runtime, in the order of the kernels.
    pub users: Vec<String>,
    /// A kernel that needs the device runtime, and a device-runtime function that the kernel reaches.
    pub first: Option<(String, String)>,
}

/// Copies libcudadevrt if the file is complete, because drivers crash when they link a truncated library.
pub fn copy_library(from: &Path, to: &Path) -> Result<(), Error> {
    let library = std::fs::read(from).map_err(Error::io("cannot read", from))?;
    if !is_whole_archive(&library) {
        return Err(Error::DamagedDeviceRuntime { path: from.to_path_buf() });
    }
    std::fs::write(to, library).map_err(Error::io("cannot write", to))
}

/// Returns true if `bytes` are an `ar` archive that is complete to the end of its last member.
fn is_whole_archive(bytes: &[u8]) -> bool {
    let Some(mut rest) = bytes.strip_prefix(b"!<arch>\n").filter(|members| !members.is_empty()) else {
        return false;
    };
    while !rest.is_empty() {
        // Name, time, owner, group, mode; then the size in decimal digits and the end of the header.
        let Some((header, contents)) = rest.split_first_chunk::<60>() else { return false };
        let size =
            str::from_utf8(&header[48..58]).ok().and_then(|size| size.trim_end().parse::<usize>().ok());
        let Some(size) = size.filter(|&size| header.ends_with(b"`\n") && size <= contents.len()) else {
            return false;
        };
        // Members start at even offsets.
        rest = contents.get(size.next_multiple_of(2)..).unwrap_or_default();
    }
    true
}

impl DeviceRuntime {
    /// Analyzes the module `ir`, which contains `kernels`.
    pub fn of(ir: &str, kernels: &[Kernel]) -> DeviceRuntime {
        let callers = Callers::of(ir);
        let functions = ir.lines().filter(|line| line.starts_with("declare ")).filter_map(text::function);
        let mut first = None;
        let mut reaching = std::collections::HashSet::new();
        for (function, _) in functions.filter(|(name, _)| is_device_runtime(name)) {
            let users = callers.reaching(function);
            if let Some(kernel) = kernels.iter().find(|kernel| users.contains(&*kernel.symbol)) {
                first.get_or_insert_with(|| (kernel.symbol.clone(), function.to_owned()));
            }
            reaching.extend(users);
        }
        let users: Vec<String> = kernels
            .iter()
            .filter(|kernel| reaching.contains(&*kernel.symbol))
            .map(|kernel| kernel.symbol.clone())
            .collect();
        DeviceRuntime { users, first }
    }

    /// Returns true if any kernel needs the device runtime.
    pub fn is_needed(&self) -> bool {
        !self.users.is_empty()
    }

    /// Returns true if the kernel needs the device runtime.
    pub fn is_user(&self, symbol: &str) -> bool {
        self.users.iter().any(|user| user == symbol)
    }
}

/// Returns true if the function belongs to NVIDIA's device runtime, cudadevrt.
pub fn is_device_runtime(name: &str) -> bool {
    name.starts_with("cuda") || name.starts_with("__cuda")
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = "\
define ptx_kernel void @plain() {
  ret void
}
define ptx_kernel void @setter() {
  call void @set(i64 1)
  ret void
}
define void @set(i64 %0) {
  call void @cudaGraphSetConditional(i64 %0, i32 1)
  ret void
}
declare void @cudaGraphSetConditional(i64, i32)
declare i32 @vprintf(ptr, ptr)
";

    fn kernels(names: &[&str]) -> Vec<Kernel> {
        names.iter().map(|name| Kernel { symbol: (*name).to_owned(), ..Kernel::default() }).collect()
    }

    #[test]
    fn kernels_that_set_conditions_are_found() {
        let runtime = DeviceRuntime::of(IR, &kernels(&["plain", "setter"]));
        assert_eq!(runtime.users, ["setter"]);
        assert_eq!(runtime.first, Some(("setter".to_owned(), "cudaGraphSetConditional".to_owned())));
    }

    #[test]
    fn what_needs_no_device_runtime_has_one_module() {
        let ir = "define ptx_kernel void @k() {\n  ret void\n}\ndeclare i32 @vprintf(ptr, ptr)\n";
        let runtime = DeviceRuntime::of(ir, &kernels(&["k"]));
        assert_eq!(runtime, DeviceRuntime::default());
        assert!(!runtime.is_needed() && !runtime.is_user("k"));
    }

    /// Creates an archive with the single member `member`.
    fn archive(member: &[u8]) -> Vec<u8> {
        let header = format!("{:<16}{:<32}{:<10}`\n", "member.o/", "0", member.len());
        let padding: &[u8] = if member.len() % 2 == 1 { b"\n" } else { b"" };
        [b"!<arch>\n", header.as_bytes(), member, padding].concat()
    }

    #[test]
    fn truncated_archives_are_detected() {
        let whole = [archive(b"even"), archive(b"uneven!")[8..].to_vec()].concat();
        assert!(is_whole_archive(&whole));
        assert!(is_whole_archive(&archive(b"")));
        // Ends of the two members, the last one with and without its padding.
        let ends = [72, whole.len() - 1];
        for length in 0..whole.len() {
            assert_eq!(is_whole_archive(&whole[..length]), ends.contains(&length), "{length} bytes");
        }
        assert!(!is_whole_archive(&[&whole[..], b"more"].concat()));
        assert!(!is_whole_archive(&[b"junk".repeat(100)].concat()));
    }

    #[test]
    fn truncated_libraries_are_refused() {
        let folder = std::env::temp_dir().join(format!("warpsmith-device-runtime-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (from, to) = (folder.join("libcudadevrt.a"), folder.join("copy.a"));
        let library = archive(b"all of it");
        std::fs::write(&from, &library[..70]).unwrap();
        let error = copy_library(&from, &to).unwrap_err().to_string();
        assert!(error.contains("libcudadevrt.a is not a complete library") && !to.exists(), "{error}");
        std::fs::write(&from, &library).unwrap();
        copy_library(&from, &to).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), library);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
