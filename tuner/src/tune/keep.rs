//! The code that is tuned, and its winners in the launch store.

use gpu_spec::KernelSpec;
use warpsmith_runtime::store::{LaunchStore, TunedConfiguration, TuningKey};
use warpsmith_runtime::{Device, GpuImage};

use crate::document::Record;
use crate::error::Result;
use crate::measure::Mode;
use crate::run::{Plan, PlannedCase};
use crate::tune::Tuned;
use crate::value::Configuration;

/// Alignment of a benchmark's arrays, in bytes. Each array is a separate device allocation and therefore aligned for
/// the largest access.
pub const ALIGNMENT: u32 = 16;

/// Code of an image, as loaded by a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Hash of the code; 0 on an emulated device.
    pub hash: u64,
    /// Toolchain that compiled the code.
    pub toolchain: String,
}

impl Code {
    /// # Errors
    /// Returns the [enqueue errors](warpsmith_runtime::Error#enqueue-errors) that loading the code can cause.
    pub fn of(device: &Device, image: &'static GpuImage) -> Result<Self> {
        let module = device.load(image)?;
        Ok(Self { hash: module.image_hash(), toolchain: module.toolchain() })
    }
}

/// Returns the index of the configuration that launches of a case currently use, provided that it is a configuration of
/// the case and was compiled by the same toolchain. Returns `None` for runs and cases whose winner would never replace
/// it.
pub fn kept(plan: &Plan<'_>, planned: &PlannedCase<'_>, code: &Code) -> Option<usize> {
    if plan.mode() != Mode::Cold || plan.is_narrowed() || !LaunchStore::of(plan.device()).has_tuned() {
        return None;
    }
    if !decides(plan, planned, code) {
        return None;
    }
    planned.configurations.iter().position(|configuration| {
        let spec = planned.benchmark.instance(planned.dtype, configuration);
        spec.is_some_and(|spec| {
            let types = types(spec);
            let known = LaunchStore::of(plan.device()).tuned(&subject(plan, planned, code, spec, &types));
            known.is_some_and(|known| is_same(&known, planned, configuration, spec, code))
        })
    })
}

/// Returns true if the winner of this case must be stored. All sizes in a range share one entry of the store. If
/// several cases in a plan share an entry, the winner of the largest case is stored. Among equally large cases, the
/// winner of the last one is stored.
fn decides(plan: &Plan<'_>, planned: &PlannedCase<'_>, code: &Code) -> bool {
    let instance = |case: &PlannedCase<'_>| {
        case.configurations.iter().find_map(|c| case.benchmark.instance(case.dtype, c))
    };
    let Some(spec) = instance(planned) else { return true };
    // The store itself determines which sizes share an entry.
    let place = LaunchStore::in_memory();
    let any = TunedConfiguration {
        values: Vec::new(),
        symbol: None,
        threads: None,
        median_us: 1.0,
        toolchain: code.toolchain.clone(),
    };
    if place.store_tuned(&subject(plan, planned, code, spec, &types(spec)), any).is_err() {
        return true;
    }
    let shares = |case: &PlannedCase<'_>| {
        let of_place = |spec| place.tuned(&subject(plan, case, code, spec, &types(spec))).is_some();
        // Another image may contain kernels with the same names.
        let is_code = || Code::of(plan.device(), case.benchmark.image()).is_ok_and(|other| other == *code);
        instance(case).is_some_and(of_place) && is_code()
    };
    let sharing = plan.cases.iter().filter(|case| shares(case));
    sharing.max_by_key(|case| case.n).is_none_or(|largest| std::ptr::eq(largest, planned))
}

fn types(spec: &KernelSpec) -> String {
    let types: Vec<&str> = spec.types.iter().map(|argument| argument.name).collect();
    types.join(",")
}

/// Returns the store key for configurations of a case that launch instances of this kernel.
fn subject<'a>(
    plan: &'a Plan<'_>,
    planned: &PlannedCase<'_>,
    code: &Code,
    spec: &KernelSpec,
    types: &'a str,
) -> TuningKey<'a> {
    TuningKey {
        device: plan.device().properties(),
        package: spec.package,
        kernel: spec.name,
        types,
        image: code.hash,
        n: planned.n,
        alignment: ALIGNMENT,
    }
}

fn values(configuration: &Configuration) -> Vec<(String, String)> {
    configuration.iter().map(|(axis, value)| (axis.to_owned(), value.to_string())).collect()
}

/// Returns the number of threads that a configuration launches, unless it equals the number of elements.
fn threads(planned: &PlannedCase<'_>, configuration: &Configuration) -> Option<u64> {
    let threads = planned.benchmark.threads(planned.dtype, planned.n, configuration);
    (threads != planned.n).then_some(threads)
}

fn is_same(
    known: &TunedConfiguration,
    planned: &PlannedCase<'_>,
    configuration: &Configuration,
    spec: &KernelSpec,
    code: &Code,
) -> bool {
    let is_code = known.symbol.as_deref() == Some(spec.symbol) && known.toolchain == code.toolchain;
    is_code && known.values == values(configuration) && known.threads == threads(planned, configuration)
}

/// Stores a winner where launches on the device look it up, and returns whether launches now use it. If several cases
/// share a store entry, only the winner of the largest case is stored. A configuration without a kernel instance is
/// useful only to its benchmark and is not stored. The [`kept`] configuration must have been timed together with the
/// others.
///
/// # Errors
/// Returns the reason why the winner could not be stored.
pub fn winner(
    plan: &Plan<'_>,
    planned: &PlannedCase<'_>,
    code: &Code,
    tuned: &Tuned,
    kept: Option<usize>,
) -> std::result::Result<bool, String> {
    let not_kept = |why: &str| Err(format!("{}: the winner was not saved: {why}", planned.describe()));
    let (Some(winner), Some(median_us)) = (tuned.winner(), tuned.winner_us()) else { return Ok(false) };
    let Some(spec) = planned.benchmark.instance(planned.dtype, &winner.configuration) else {
        return Ok(false);
    };
    if !decides(plan, planned, code) {
        return Ok(false);
    }
    let types = types(spec);
    let subject = subject(plan, planned, code, spec, &types);
    let store = LaunchStore::of(plan.device());
    let known = store.tuned(&subject);
    // If the run has found no better configuration, nothing is written.
    if known.as_ref().is_some_and(|known| is_same(known, planned, &winner.configuration, spec, code)) {
        return Ok(true);
    }
    if plan.mode() != Mode::Cold {
        return not_kept("launches use only winners measured with cold caches; tune with --mode cold");
    }
    if plan.is_narrowed() && known.is_some() {
        return not_kept(
            "the saved winner may come from a search with more values; tune without --axis to replace it",
        );
    }
    let kept = kept.map(|kept| &planned.configurations[kept]);
    let is_throttled = |record: &Record| {
        let counts = record.is_winner || record.is_default || kept == Some(&record.configuration);
        counts && record.timing.as_ref().is_some_and(|timing| timing.throttled)
    };
    if tuned.records.iter().any(is_throttled) {
        return not_kept("the device was throttled during the measurement; tune again when it is cooler");
    }
    let configuration = TunedConfiguration {
        values: values(&winner.configuration),
        symbol: Some(spec.symbol.to_owned()),
        threads: threads(planned, &winner.configuration),
        median_us,
        toolchain: code.toolchain.clone(),
    };
    store.store_tuned(&subject, configuration).map_err(|error| error.to_string())?;
    Ok(true)
}
