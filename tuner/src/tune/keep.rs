//! The code that is tuned, and its winners in the launch store.

use std::time::UNIX_EPOCH;

use warpsmith_runtime::launch::{TunedConfiguration, TunedFor};
use warpsmith_runtime::{Device, GpuImage};

use crate::document::Record;
use crate::error::Result;
use crate::run::PlannedCase;

/// The alignment in bytes of the arrays of a benchmark: each is a device allocation of its own, so it is at least the
/// largest access.
pub const ALIGNMENT: u32 = 16;

/// The code that a device loads of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Its hash; 0 on an emulated device.
    pub hash: u64,
    /// What compiled it.
    pub toolchain: String,
}

impl Code {
    /// # Errors
    /// What the runtime reports of loading it.
    pub fn of(device: &Device, image: &'static GpuImage) -> Result<Self> {
        let module = device.load(image)?;
        Ok(Self { hash: module.image_hash(), toolchain: module.toolchain() })
    }

    /// What measurements of the code are found by. On an emulated device the program itself is the code: a program that was
    /// built again is another.
    pub fn key(&self) -> String {
        match self.hash {
            0 => program().unwrap_or_else(|| "unknown program".to_owned()),
            hash => format!("{hash:016x}"),
        }
    }
}

/// Tells this program from others, and from itself when it is built again.
fn program() -> Option<String> {
    let file = std::env::current_exe().ok()?.metadata().ok()?;
    let changed = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("program {:x} {:x}", file.len(), changed.as_nanos()))
}

/// Keeps a winner where launches on the device find it; what is wrong with the store's file, if something is. A
/// configuration that names no instance is for nothing but its benchmark, and is not kept.
pub fn winner(device: &Device, planned: &PlannedCase<'_>, code: &Code, winner: &Record) -> Option<String> {
    let spec = planned.benchmark.instance(planned.dtype, &winner.configuration)?;
    let types: Vec<&str> = spec.types.iter().map(|argument| argument.name).collect();
    let subject = TunedFor {
        device: device.properties(),
        package: spec.package,
        kernel: spec.name,
        types: &types.join(","),
        image: code.hash,
        n: planned.n,
        alignment: ALIGNMENT,
    };
    let text = |(axis, value): (&str, &crate::value::Value)| (axis.to_owned(), value.to_string());
    let configuration = TunedConfiguration {
        values: winner.configuration.iter().map(text).collect(),
        symbol: Some(spec.symbol.to_owned()),
        median_us: winner.median_us()?,
        toolchain: code.toolchain.clone(),
    };
    let store = device.launch_store();
    // A run that measured nothing new writes nothing.
    if store.tuned(&subject).is_some_and(|known| *known == configuration) {
        return None;
    }
    store.keep_tuned(&subject, configuration).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_known_by_its_hash_or_by_its_program() {
        let code = |hash| Code { hash, toolchain: String::new() }.key();
        assert_eq!(code(0xab), "00000000000000ab");
        assert!(code(0).starts_with("program ") && code(0) == code(0), "{}", code(0));
    }
}
