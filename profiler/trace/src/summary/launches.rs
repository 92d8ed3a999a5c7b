//! From calls to kernels.

use std::collections::HashSet;

use serde::Serialize;

use super::work::Work;

/// A kernel shorter than this many nanoseconds is a short one.
pub(super) const SHORT: u64 = 10_000;

/// From calls to kernels. Of a graph, the first of its nodes counts.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Launches {
    /// Kernels, nodes of graphs too.
    pub kernels: u64,
    /// Those shorter than 10 us.
    pub short: u64,
    /// Those that took less time than the call that launched them.
    pub shorter_than_call: u64,
    /// Kernels whose call is known.
    pub with_call: u64,
    /// From the end of the call to the start of the kernel, on average.
    pub average_delay: f64,
    /// Half of them waited no longer.
    pub median_delay: u64,
    /// 99 in 100 of them waited no longer.
    pub delay_99: u64,
    /// The longest wait.
    pub max_delay: u64,
    /// Kernels that began before their call did: the clocks of host and device differ.
    pub before_call: u64,
}

pub(super) fn launches(work: &[Work]) -> Launches {
    let mut launches = Launches::default();
    let mut delays = Vec::new();
    let mut graphs = HashSet::new();
    for kernel in work.iter().filter(|work| work.is_kernel) {
        launches.kernels += 1;
        launches.short += u64::from(kernel.duration() < SHORT);
        let Some(call) = kernel.launch else { continue };
        if kernel.is_in_graph && !graphs.insert(kernel.correlation) {
            continue;
        }
        launches.with_call += 1;
        launches.shorter_than_call += u64::from(kernel.duration() < call.end.saturating_sub(call.start));
        launches.before_call += u64::from(kernel.start < call.start);
        delays.push(kernel.start.saturating_sub(call.end));
    }
    delays.sort_unstable();
    let at =
        |share: usize| delays.get((delays.len() * share / 100).min(delays.len().saturating_sub(1))).copied();
    launches.median_delay = at(50).unwrap_or(0);
    launches.delay_99 = at(99).unwrap_or(0);
    launches.max_delay = delays.last().copied().unwrap_or(0);
    // A sum of no floats is -0.
    let total = delays.iter().fold(0.0, |total, delay| total + *delay as f64);
    launches.average_delay = super::rows::ratio(total, delays.len() as f64);
    launches
}
