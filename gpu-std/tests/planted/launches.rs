//! Launches of the corpus: memory with red zones, several orders, and what is expected.

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::ffi::c_void;

use gpu_std::Kernel;
use warpsmith_emulator::check::{self, Access, Finding, FindingKind};
use warpsmith_emulator::{Fault, Launch, Order};

/// What the launches of a case came to.
pub type Found = Vec<Result<(), Fault>>;

/// A kernel, what is wrong with it, and its launches.
#[derive(Clone, Copy)]
pub struct Case {
    pub kernel: &'static str,
    pub file: &'static str,
    pub source: &'static str,
    /// `None` for a clean kernel.
    pub kind: Option<FindingKind>,
    pub run: fn() -> Found,
}

/// The table of a module.
macro_rules! cases {
    ($($kernel:ident: $kind:expr, $run:expr;)*) => {
        pub fn cases() -> Vec<$crate::launches::Case> {
            vec![$($crate::launches::Case {
                kernel: stringify!($kernel),
                file: file!(),
                source: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../", file!())),
                kind: $kind,
                run: || { type K = $kernel; $run },
            }),*]
        }
    };
}
pub(crate) use cases;

impl Case {
    /// Whether each launch found what it should, and nothing else.
    pub fn verify(&self) -> Result<(), String> {
        let name = self.kernel;
        for (at, result) in (self.run)().into_iter().enumerate() {
            let findings = match (result, self.kind) {
                (Ok(()), None) => continue,
                (Ok(()), Some(kind)) => return Err(format!("{name}, launch {at}: no {kind:?} found")),
                (Err(Fault::Check { findings, then: None, .. }), _) => findings,
                (Err(fault), _) => return Err(format!("{name}, launch {at}: {fault}")),
            };
            let is_kind = |finding: &Finding| Some(finding.kind) == self.kind;
            // In another order the value that a race is about is not there yet.
            let follows = |finding: &Finding| {
                self.kind == Some(FindingKind::Race) && finding.kind == FindingKind::Uninitialized
            };
            if !findings.iter().any(is_kind) {
                return Err(format!("{name}, launch {at}: only {findings:?}"));
            }
            for finding in &findings {
                let places = self.verify_places(finding);
                if let Err(error) =
                    if is_kind(finding) || follows(finding) { places } else { Err("its kind".to_owned()) }
                {
                    return Err(format!("{name}, launch {at}: {error}: {finding}"));
                }
            }
        }
        Ok(())
    }

    fn verify_places(&self, finding: &Finding) -> Result<(), String> {
        let is_race = matches!(finding.kind, FindingKind::Race | FindingKind::NarrowScope);
        if finding.other.is_some() != is_race || finding.access.is_none() || finding.kernel != self.kernel {
            return Err("the kernel or the number of accesses".to_owned());
        }
        for access in [&finding.access, &finding.other].into_iter().flatten() {
            let line = Access::place(access).map_or(0, |place| place.line as usize);
            let lines: Vec<&str> = self.source.lines().collect();
            if !lines.get(line.wrapping_sub(1)).is_some_and(|text| text.ends_with("//~")) {
                return Err(format!("line {line} of {}", self.file));
            }
            let names_kernel = |text: &&&str| text.contains(" fn ");
            let of = lines[..line].iter().rev().find(names_kernel).copied().unwrap_or_default();
            if !of.contains(&format!("fn {}(", self.kernel)) {
                return Err(format!("line {line}, of `{}`", of.trim()));
            }
        }
        Ok(())
    }
}

/// A buffer of the device.
pub struct Buffer {
    address: *mut u8,
    layout: (Layout, usize),
}

impl Buffer {
    /// That nothing has written.
    pub fn uninit<T>(len: usize) -> Self {
        let bytes = len * size_of::<T>();
        let layout = check::with_red_zones(Layout::from_size_align(bytes, 512).unwrap()).unwrap();
        // SAFETY: the layout has a size; the buffer begins within it.
        let address = unsafe { alloc(layout.0).add(layout.1) };
        // SAFETY: within the layout.
        unsafe { address.write_bytes(0, bytes) };
        check::allocated(address as usize, bytes);
        Self { address, layout }
    }

    /// With zeros.
    pub fn zeros<T>(len: usize) -> Self {
        let buffer = Self::uninit::<T>(len);
        check::written(buffer.address as usize, len * size_of::<T>());
        buffer
    }

    /// That kernels may not touch any more.
    pub fn freed(self) -> Self {
        check::freed(self.address as usize);
        self
    }

    pub fn pointer<T>(&self) -> *mut T {
        self.address.cast()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        check::released(self.address as usize);
        // SAFETY: allocated with this layout, which begins `layout.1` bytes before the address.
        unsafe { dealloc(self.address.sub(self.layout.1), self.layout.0) };
    }
}

/// Arguments, each a value; a slice is two.
pub type Arguments = Vec<Box<dyn Any>>;

/// The arguments of a kernel of these buffers, as pointers.
pub fn pointers(buffers: &[&Buffer]) -> Arguments {
    buffers.iter().map(|buffer| Box::new(buffer.pointer::<u8>()) as Box<dyn Any>).collect()
}

/// Launches in several orders; `memory` makes the buffers anew for each.
pub fn launch<K: Kernel>(grid: u32, block: u32, memory: fn() -> Vec<Buffer>) -> Found {
    run::<K>(grid, block, 1, memory)
}

/// The same in clusters of two blocks.
pub fn launch_clusters<K: Kernel>(grid: u32, block: u32, memory: fn() -> Vec<Buffer>) -> Found {
    run::<K>(grid, block, 2, memory)
}

/// One block of 64 threads, with a buffer of as many numbers.
pub fn one_block<K: Kernel>() -> Found {
    launch::<K>(1, 64, || vec![Buffer::zeros::<u64>(64)])
}

fn run<K: Kernel>(grid: u32, block: u32, cluster: u32, memory: fn() -> Vec<Buffer>) -> Found {
    let orders = [Order::Sequential, Order::Seeded(1), Order::Seeded(2)];
    let launch = |order| {
        let buffers = memory();
        let arguments = pointers(&buffers.iter().collect::<Vec<_>>());
        let args: Vec<*const c_void> =
            arguments.iter().map(|argument| std::ptr::from_ref(&**argument).cast()).collect();
        let launch = Launch {
            kernel: K::spec(),
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared_bytes: 1024,
            cluster: [cluster, 1, 1],
            cooperative: K::spec().cooperative,
            args: &args,
            order,
        };
        // SAFETY: the kernels take one pointer for each buffer. Their faults stay within the red zones.
        unsafe { warpsmith_emulator::run(&launch) }
    };
    orders.map(launch).into()
}
