//! Kernel metadata that `#[kernel]` passes to the builder.
//!
//! Architecture and stack are encoded in a section name: `section ".warpsmith,MAX_THREADS,MIN_BLOCKS,MIN_ARCH,STACK"`.
//! A zero, or an absent stack size, means that no value was specified. `90a` means that the kernel is compiled only for
//! this architecture. The launch limits are a constant ([`gpu_spec::LaunchLimits`]; without it, the numbers of the
//! section are used) and become attributes:
//!
//! | limit | attribute | PTX |
//! | --- | --- | --- |
//! | maximum threads per block | `"nvvm.maxntid"` | `.maxntid` |
//! | minimum blocks per SM | `"nvvm.minctasm"` | `.minnctapersm` |
//! | required block | `"nvvm.reqntid"`, instead of `"nvvm.maxntid"` | `.reqntid` |
//! | required cluster | `"nvvm.cluster_dim"` | `.explicitcluster`, `.reqnctapercluster` |
//!
//! Origin and parameters are constants, too ([`gpu_spec::image::ORIGIN_PREFIX`], [`gpu_spec::AbiParam`]). Nothing
//! refers to these constants, so reducing the module removes them.

use std::collections::HashMap;

use gpu_spec::image::{NO_PANIC_PREFIX, ORIGIN_PREFIX};
use gpu_spec::{AbiParam, LaunchBounds, LaunchLimits, ParamKind};

use super::RewriteError;
use super::text;
use crate::arch::Arch;

/// A kernel of the module.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Symbol of the kernel.
    pub symbol: String,
    /// Minimum compute capability, as `10 * major + minor`. 0 means any compute capability.
    pub min_arch: u32,
    /// True if only that compute capability can run the kernel, for example because it uses instructions of `sm_90a`.
    pub is_arch_specific: bool,
    /// Requested stack in bytes, or 0 if no stack size is requested.
    pub stack: u32,
    /// Maximum number of threads per block, or 0 if no maximum is specified.
    pub max_threads: u32,
    /// Block dimensions that every launch must have.
    pub block: Option<[u32; 3]>,
    /// Cluster dimensions that every launch must have.
    pub cluster: Option<[u32; 3]>,
    /// True if a remaining panic is an error.
    pub no_panic: bool,
    /// Origin and parameters, or `None` if `#[kernel]` did not write them.
    pub abi: Option<Abi>,
}

impl Kernel {
    /// Returns true if the code for `arch` contains the kernel.
    pub fn is_in(&self, arch: Arch) -> bool {
        match self.is_arch_specific {
            true => arch.is_specific() && arch.capability() == self.min_arch,
            false => self.min_arch <= arch.capability(),
        }
    }
}

/// Origin of a kernel, and its parameters as the device compiler laid them out.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Abi {
    /// Package that defines the kernel.
    pub package: String,
    /// Version of the package.
    pub version: String,
    /// Path of the Rust module that defines the kernel, starting with the crate.
    pub module: String,
    /// Names of the const parameters.
    pub consts: Vec<String>,
    /// Parameters of the kernel.
    pub params: Vec<AbiParam>,
}

/// Constants about kernels: their bytes as LLVM writes them, keyed by symbol.
#[derive(Debug, Default)]
pub struct Records<'a>(HashMap<&'a str, &'a str>);

impl<'a> Records<'a> {
    /// Stores a line that starts with `@` if it is about a kernel.
    pub fn read(&mut self, line: &'a str) {
        let name = text::symbol(&line[1..]).map_or("", |(name, _)| name.trim_matches('"'));
        let prefixes = [AbiParam::PREFIX, ORIGIN_PREFIX, NO_PANIC_PREFIX, LaunchLimits::PREFIX];
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            let bytes = line.split_once("c\"").and_then(|(_, rest)| rest.split_once('"'));
            self.0.insert(name, bytes.map_or("", |(bytes, _)| bytes));
        }
    }

    /// Returns true if a kernel is marked `no_panic`.
    pub fn is_without_panics(&self, symbol: &str) -> bool {
        self.0.contains_key(&*format!("{NO_PANIC_PREFIX}{symbol}"))
    }

    /// Returns the constant whose name is `prefix` followed by the kernel's symbol.
    fn get(&self, prefix: &str, symbol: &str) -> Option<Vec<u8>> {
        self.0.get(&*format!("{prefix}{symbol}")).map(|text| text::unescape(text))
    }

    /// Returns the launch limits of a kernel, or `None` if it has no record of them.
    pub fn limits(&self, symbol: &str) -> Result<Option<LaunchLimits>, RewriteError> {
        match self.get(LaunchLimits::PREFIX, symbol) {
            None => Ok(None),
            Some(bytes) => match <&[u8; 32]>::try_from(&bytes[..]) {
                Ok(bytes) => Ok(Some(LaunchLimits::from_bytes(bytes))),
                Err(_) => Err(RewriteError::KernelRecord { symbol: symbol.to_owned() }),
            },
        }
    }

    /// Returns the record of a kernel.
    pub fn of(&self, symbol: &str) -> Result<Option<Abi>, RewriteError> {
        let get = |prefix: &str| self.get(prefix, symbol);
        let bad = || RewriteError::KernelRecord { symbol: symbol.to_owned() };
        let (origin, params) = match (get(ORIGIN_PREFIX), get(AbiParam::PREFIX)) {
            (None, None) => return Ok(None),
            (Some(origin), Some(params)) => (String::from_utf8(origin).map_err(|_| bad())?, params),
            _ => return Err(bad()),
        };
        let parts: Vec<&str> = origin.split(' ').collect();
        let ([package, version, module, consts @ ..], (numbers, [])) = (&parts[..], params.as_chunks::<16>())
        else {
            return Err(bad());
        };
        let number = |bytes: &[u8; 16], index: usize| {
            bytes.as_chunks::<4>().0.get(index).map_or(0, |number| u32::from_le_bytes(*number))
        };
        let param = |bytes: &[u8; 16]| AbiParam {
            kind: number(bytes, 0),
            size: number(bytes, 1),
            align: number(bytes, 2),
            signature: number(bytes, 3),
        };
        Ok(Some(Abi {
            package: (*package).to_owned(),
            version: (*version).to_owned(),
            module: (*module).to_owned(),
            consts: consts.iter().flat_map(|names| names.split(',')).map(str::to_owned).collect(),
            params: numbers.iter().map(param).collect(),
        }))
    }
}

const SECTION: &str = " section \".warpsmith";

/// Returns true if a `define` line defines a kernel.
pub fn is_kernel(line: &str) -> bool {
    line.find('@').is_some_and(|at| line[..at].contains(" ptx_kernel "))
}

/// Rewrites the `define` line of a kernel; also returns the settings that the kernel requests.
pub fn rewrite(line: &str, records: &Records<'_>) -> Result<(String, Kernel), RewriteError> {
    let name = text::function(line).map_or("", |(name, _)| name);
    let symbol = name.trim_matches('"').to_owned();
    let Some(at) = line.find(SECTION) else {
        return Ok((line.to_owned(), Kernel { symbol, ..Kernel::default() }));
    };
    let rest = &line[at + SECTION.len()..];
    let bad = || RewriteError::KernelSection { symbol: symbol.clone(), line: line.to_owned() };
    let (bounds, after) = rest.split_once('"').ok_or_else(bad)?;
    let is_arch_specific = bounds.split(',').nth(3).is_some_and(|arch| arch.ends_with('a'));
    let number = |(place, text): (usize, &str)| match is_arch_specific && place == 3 {
        true => text.trim_end_matches('a').parse(),
        false => text.parse(),
    };
    let numbers = bounds.split(',').enumerate().skip(1).map(number);
    let numbers: Vec<u32> = numbers.collect::<Result<_, _>>().map_err(|_| bad())?;
    let (max_threads, min_blocks, min_arch, stack) = match numbers[..] {
        [max_threads, min_blocks, min_arch] => (max_threads, min_blocks, min_arch, 0),
        [max_threads, min_blocks, min_arch, stack] => (max_threads, min_blocks, min_arch, stack),
        _ => return Err(bad()),
    };
    let limits = records.limits(&symbol)?;
    let bounds = match limits {
        Some(limits) => limits.launch_bounds().unwrap_or(LaunchBounds { max_threads: 0, min_blocks: 0 }),
        None => LaunchBounds { max_threads, min_blocks },
    };
    let mut rewritten = grid_constants(&line[..at], &records.of(&symbol)?).ok_or_else(bad)?;
    let mut attribute = |name: &str, value: String| {
        rewritten.push_str(&format!(" \"nvvm.{name}\"=\"{value}\""));
    };
    let sides = |[x, y, z]: [u32; 3]| format!("{x},{y},{z}");
    let (block, cluster) = (limits.and_then(LaunchLimits::block), limits.and_then(LaunchLimits::cluster));
    match block {
        Some(block) => attribute("reqntid", sides(block)),
        None if bounds.max_threads > 0 => attribute("maxntid", bounds.max_threads.to_string()),
        None => {}
    }
    if bounds.min_blocks > 0 {
        attribute("minctasm", bounds.min_blocks.to_string());
    }
    // A launch without clusters is treated as a launch with clusters of one block.
    if let Some(cluster) = cluster.filter(|cluster| *cluster != [1; 3]) {
        attribute("cluster_dim", sides(cluster));
    }
    rewritten.push_str(after);
    let max_threads = bounds.max_threads;
    let kernel = Kernel {
        symbol,
        min_arch,
        is_arch_specific,
        stack,
        max_threads,
        block,
        cluster,
        ..Kernel::default()
    };
    Ok((rewritten, kernel))
}

/// Returns the head of a `define` line with each tensor map passed by value, as a grid constant. `ptr %0` becomes `ptr
/// byval([128 x i8]) align 64 "nvvm.grid_constant" %0`. The kernel then has the address of the parameter itself, from
/// which the hardware reads the map. Returns `None` if the line's parameters differ from the record.
fn grid_constants(head: &str, abi: &Option<Abi>) -> Option<String> {
    let is_map = |param: &AbiParam| param.kind == ParamKind::TensorMap as u32;
    let Some(abi) = abi.as_ref().filter(|abi| abi.params.iter().any(is_map)) else {
        return Some(head.to_owned());
    };
    let open = head.find('@').and_then(|at| Some(at + head[at..].find('(')?))?;
    let (inside, after) = text::parenthesised(&head[open..])?;
    let lowered = abi.params.iter().flat_map(|param| {
        let (_, second) = param.lower();
        std::iter::once(is_map(param)).chain(second.map(|_| false))
    });
    let parameters = text::list(inside);
    let lowered: Vec<bool> = lowered.collect();
    if lowered.len() != parameters.len() {
        return None;
    }
    let parameters: Vec<String> = parameters
        .iter()
        .zip(lowered)
        .map(|(parameter, is_map)| match (is_map, parameter.rsplit_once(' ')) {
            (false, _) => Some((*parameter).to_owned()),
            (true, Some((ty, name))) if ty.starts_with("ptr") => {
                Some(format!("ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" {name}"))
            }
            (true, _) => None,
        })
        .collect::<Option<_>>()?;
    Some(format!("{}({}){after}", &head[..open], parameters.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(line: &str) -> Result<(String, Kernel), RewriteError> {
        rewrite(line, &Records::default())
    }

    #[test]
    fn limits_of_a_record_become_attributes() {
        let record = |numbers: [u8; 8]| {
            let bytes: String = numbers.iter().map(|n| format!("\\{n:02X}\\00\\00\\00")).collect();
            format!("@__warpsmith_launch.k = constant [32 x i8] c\"{bytes}\", align 4")
        };
        for (numbers, attributes) in [
            ([128, 2, 0, 0, 0, 0, 0, 0], r#" "nvvm.maxntid"="128" "nvvm.minctasm"="2""#),
            ([128, 0, 16, 8, 1, 0, 0, 0], r#" "nvvm.reqntid"="16,8,1""#),
            (
                [64, 3, 64, 1, 1, 2, 1, 1],
                r#" "nvvm.reqntid"="64,1,1" "nvvm.minctasm"="3" "nvvm.cluster_dim"="2,1,1""#,
            ),
            ([64, 0, 64, 1, 1, 1, 1, 1], r#" "nvvm.reqntid"="64,1,1""#),
        ] {
            let line = record(numbers);
            let mut records = Records::default();
            records.read(&line);
            let (rewritten, _) =
                rewrite("define ptx_kernel void @k() section \".warpsmith,0,0,90\" {", &records).unwrap();
            assert_eq!(rewritten, format!("define ptx_kernel void @k(){attributes} {{"));
        }
        let mut records = Records::default();
        records.read("@__warpsmith_launch.k = constant [4 x i8] c\"\\01\\00\\00\\00\", align 4");
        let error =
            rewrite("define ptx_kernel void @k() section \".warpsmith,0,0,0\" {", &records).unwrap_err();
        assert!(error.to_string().contains("`k`"), "{error}");
    }

    #[test]
    fn bounds_become_attributes() {
        let line =
            "define ptx_kernel void @axpy__f32(float %0) unnamed_addr #12 section \".warpsmith,256,2,90\" {";
        assert!(is_kernel(line));
        let (rewritten, kernel) = plain(line).unwrap();
        assert_eq!(
            rewritten,
            "define ptx_kernel void @axpy__f32(float %0) unnamed_addr #12 \"nvvm.maxntid\"=\"256\" \"nvvm.minctasm\"=\"2\" {"
        );
        let symbol = "axpy__f32".to_owned();
        assert_eq!(kernel, Kernel { symbol, min_arch: 90, max_threads: 256, ..Kernel::default() });
        let (_, kernel) = plain("define ptx_kernel void @k() section \".warpsmith,0,0,0,16384\" {").unwrap();
        assert_eq!((kernel.min_arch, kernel.stack), (0, 16384));
    }

    #[test]
    fn records_name_origin_and_parameters() {
        let mut records = Records::default();
        for line in [
            "@__warpsmith_origin.k = constant [24 x i8] c\"my-kernels 0.1.0 a::b N,M\", align 1",
            "@__warpsmith_abi.k = constant <{ [32 x i8] }> <{ [32 x i8] c\"\\01\\00\\00\\00\\04\\00\\00\\00\\04\\00\\00\\00\\07\\00\\00\\00\\00\\00\\00\\00\\0C\\00\\00\\00\\04\\00\\00\\00\\00\\01\\00\\00\" }>, align 4",
            "@__warpsmith_origin.none = constant [10 x i8] c\"p 1.0.0 a::b\", align 1",
            "@__warpsmith_abi.none = constant <{}> zeroinitializer, align 4",
            "@__warpsmith_origin.half = constant [10 x i8] c\"p 1.0.0 a::b\", align 1",
        ] {
            records.read(line);
        }
        let abi = records.of("k").unwrap().unwrap();
        assert_eq!((&*abi.package, &*abi.version, &*abi.module), ("my-kernels", "0.1.0", "a::b"));
        assert_eq!(abi.consts, ["N", "M"]);
        assert_eq!(
            abi.params,
            [
                AbiParam { kind: 1, size: 4, align: 4, signature: 7 },
                AbiParam { kind: 0, size: 12, align: 4, signature: 256 }
            ]
        );
        assert!(records.of("none").unwrap().unwrap().params.is_empty());
        assert_eq!(records.of("unknown").unwrap(), None);
        records.read("@__warpsmith_no_panic.k = constant [1 x i8] c\"\\01\", align 1");
        assert!(records.is_without_panics("k") && !records.is_without_panics("none"));
        assert!(records.of("half").unwrap_err().to_string().contains("`half`"));
    }

    #[test]
    fn tensor_maps_become_grid_constants() {
        let mut records = Records::default();
        for line in [
            "@__warpsmith_origin.k = constant [12 x i8] c\"p 1.0.0 a::b\", align 1",
            "@__warpsmith_abi.k = constant [32 x i8] c\"\\01\\00\\00\\00\\04\\00\\00\\00\\04\\00\\00\\00\\07\\00\\00\\00\\0A\\00\\00\\00\\02\\00\\00\\00\\02\\00\\00\\00\\08\\00\\00\\00\", align 4",
        ] {
            records.read(line);
        }
        let line = "define ptx_kernel void @k(ptr noundef %0, i64 noundef %1, ptr noundef %2) unnamed_addr #1 section \".warpsmith,0,0,90a\" {";
        let (rewritten, kernel) = rewrite(line, &records).unwrap();
        assert_eq!(
            rewritten,
            "define ptx_kernel void @k(ptr noundef %0, i64 noundef %1, ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" %2) unnamed_addr #1 {"
        );
        assert!(
            kernel.is_in(Arch::SM_90A) && !kernel.is_in(Arch::SM_90) && !kernel.is_in(Arch::specific(100))
        );
        let other = line.replace(", ptr noundef %2", "");
        assert!(rewrite(&other, &records).unwrap_err().to_string().contains("`k`"));
    }

    #[test]
    fn zeros_and_a_missing_section_ask_for_nothing() {
        let (rewritten, kernel) =
            plain("define ptx_kernel void @k() #1 section \".warpsmith,0,0,0\" {").unwrap();
        assert_eq!(rewritten, "define ptx_kernel void @k() #1 {");
        assert_eq!(kernel.min_arch, 0);
        let without = "define ptx_kernel void @k() #1 {";
        assert_eq!(plain(without).unwrap().0, without);
        assert!(!is_kernel("define void @not_a_ptx_kernel () {"));
    }

    #[test]
    fn a_malformed_section_is_an_error_that_names_the_kernel() {
        for section in
            [".warpsmith", ".warpsmith,1,2", ".warpsmith,1,2,3,4,5", ".warpsmith,a,2,3", ".warpsmith,-1,2,3"]
        {
            let error = plain(&format!("define ptx_kernel void @k() section \"{section}\" {{")).unwrap_err();
            assert!(error.to_string().contains("`k`"), "{error}");
        }
    }
}
