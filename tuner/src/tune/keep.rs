//! The code that is tuned, and its winners in the launch store.

use std::time::UNIX_EPOCH;

use warpsmith_runtime::launch::{TunedConfiguration, TunedFor};
use warpsmith_runtime::{Device, GpuImage};

use crate::document::Record;
use crate::error::Result;
use crate::measure::Mode;
use crate::run::{Plan, PlannedCase};
use crate::tune::Tuned;

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

    /// What measurements of the code are found by: the code, and the program, which decides how it is launched. A program
    /// that was built again is another.
    pub fn key(&self) -> String {
        let program = program().unwrap_or_else(|| "unknown program".to_owned());
        match self.hash {
            0 => program,
            hash => format!("{hash:016x} {program}"),
        }
    }
}

/// Tells this program from others, and from itself when it is built again.
fn program() -> Option<String> {
    let file = std::env::current_exe().ok()?.metadata().ok()?;
    let changed = file.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("program {:x} {:x}", file.len(), changed.as_nanos()))
}

/// Keeps a winner where launches on the device find it; what someone should know, if it is not kept. A configuration that
/// names no instance is for nothing but its benchmark, and is not kept.
pub fn winner(plan: &Plan<'_>, planned: &PlannedCase<'_>, code: &Code, tuned: &Tuned) -> Option<String> {
    let (device, winner, median_us) = (plan.device(), tuned.winner()?, tuned.winner_us()?);
    let not_kept = |why: &str| Some(format!("{}: the winner is not kept: {why}", planned.describe()));
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
        median_us,
        toolchain: code.toolchain.clone(),
    };
    let store = device.launch_store();
    // A run that measured nothing new writes nothing.
    let same = |known: &TunedConfiguration| {
        (&known.values, &known.symbol, &known.toolchain)
            == (&configuration.values, &configuration.symbol, &configuration.toolchain)
    };
    let known = store.tuned(&subject);
    if known.as_ref().is_some_and(|known| same(known)) {
        return None;
    }
    if plan.mode() != Mode::Cold {
        return not_kept(
            "launches find what is fastest on memory that is not in the cache; tune with --mode cold",
        );
    }
    if plan.is_narrowed() && known.is_some() {
        return not_kept(
            "a search of more than the given values of --axis may have found the one that is stored",
        );
    }
    let throttled = |record: &Record| record.timing.as_ref().is_some_and(|timing| timing.throttled);
    if throttled(winner) || tuned.default_record().is_some_and(throttled) {
        return not_kept("the device was slowed while it was timed; tune again when it is cooler");
    }
    store.keep_tuned(&subject, configuration).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_known_by_its_hash_or_by_its_program() {
        let code = |hash| Code { hash, toolchain: String::new() }.key();
        assert_eq!(code(0xab), format!("00000000000000ab {}", code(0)));
        assert!(code(0).starts_with("program ") && code(0) == code(0), "{}", code(0));
    }
}
