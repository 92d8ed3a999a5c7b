//! Kernels: launch bounds and least architecture travel from `#[kernel]` in the name of a section.
//!
//! `section ".warpsmith,MAX_THREADS,MIN_BLOCKS,MIN_ARCH"` (zero: not given) becomes the attributes
//! `"nvvm.maxntid"` and `"nvvm.minctasm"`, which LLVM writes as `.maxntid` and `.minnctapersm`.

use super::RewriteError;
use super::text;

/// A kernel of the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its symbol.
    pub symbol: String,
    /// The least compute capability that has it, `10 * major + minor`; 0 means any.
    pub min_arch: u32,
}

const SECTION: &str = " section \".warpsmith";

/// Whether a `define` line defines a kernel.
pub fn is_kernel(line: &str) -> bool {
    line.find('@').is_some_and(|at| line[..at].contains(" ptx_kernel "))
}

/// Rewrites the `define` line of a kernel; also says what it asks for.
pub fn rewrite(line: &str) -> Result<(String, Kernel), RewriteError> {
    let name = text::function(line).map_or("", |(name, _)| name);
    let symbol = name.trim_matches('"').to_owned();
    let Some(at) = line.find(SECTION) else {
        return Ok((line.to_owned(), Kernel { symbol, min_arch: 0 }));
    };
    let rest = &line[at + SECTION.len()..];
    let bad = || RewriteError::KernelSection { symbol: symbol.clone(), line: line.to_owned() };
    let (bounds, after) = rest.split_once('"').ok_or_else(bad)?;
    let numbers: Vec<u32> =
        bounds.split(',').skip(1).map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
    let [max_threads, min_blocks, min_arch] = numbers[..] else { return Err(bad()) };
    let mut rewritten = line[..at].to_owned();
    if max_threads > 0 {
        rewritten.push_str(&format!(" \"nvvm.maxntid\"=\"{max_threads}\""));
    }
    if min_blocks > 0 {
        rewritten.push_str(&format!(" \"nvvm.minctasm\"=\"{min_blocks}\""));
    }
    rewritten.push_str(after);
    Ok((rewritten, Kernel { symbol, min_arch }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_become_attributes() {
        let line =
            "define ptx_kernel void @axpy__f32(float %0) unnamed_addr #12 section \".warpsmith,256,2,90\" {";
        assert!(is_kernel(line));
        let (rewritten, kernel) = rewrite(line).unwrap();
        assert_eq!(
            rewritten,
            "define ptx_kernel void @axpy__f32(float %0) unnamed_addr #12 \"nvvm.maxntid\"=\"256\" \"nvvm.minctasm\"=\"2\" {"
        );
        assert_eq!(kernel, Kernel { symbol: "axpy__f32".to_owned(), min_arch: 90 });
    }

    #[test]
    fn zeros_and_a_missing_section_ask_for_nothing() {
        let (rewritten, kernel) =
            rewrite("define ptx_kernel void @k() #1 section \".warpsmith,0,0,0\" {").unwrap();
        assert_eq!(rewritten, "define ptx_kernel void @k() #1 {");
        assert_eq!(kernel.min_arch, 0);
        let plain = "define ptx_kernel void @k() #1 {";
        assert_eq!(rewrite(plain).unwrap().0, plain);
        assert!(!is_kernel("define void @not_a_ptx_kernel () {"));
    }

    #[test]
    fn a_malformed_section_is_an_error_that_names_the_kernel() {
        for section in
            [".warpsmith", ".warpsmith,1,2", ".warpsmith,1,2,3,4", ".warpsmith,a,2,3", ".warpsmith,-1,2,3"]
        {
            let error =
                rewrite(&format!("define ptx_kernel void @k() section \"{section}\" {{")).unwrap_err();
            assert!(error.to_string().contains("`k`"), "{error}");
        }
    }
}
