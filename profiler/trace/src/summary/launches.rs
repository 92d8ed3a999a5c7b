//! Launch latency: the delay from a call to the kernel that it launches.

use std::collections::HashSet;

use serde::Serialize;

use super::work::Work;

/// Duration, in nanoseconds, below which a kernel counts as short.
pub(super) const SHORT: u64 = 10_000;

/// Launch latency statistics, in nanoseconds. In a graph launch, only the first node counts as launched by the call.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Launches {
    /// Number of kernels, including graph nodes.
    pub kernels: u64,
    /// Number of kernels that took less than 10 us.
    pub short: u64,
    /// Number of kernels that took less time than the call that launched them.
    pub shorter_than_call: u64,
    /// Number of kernels whose call is known.
    pub with_call: u64,
    /// Average delay from the end of the call to the start of the kernel.
    pub average_delay: f64,
    /// Median delay.
    pub median_delay: u64,
    /// 99th percentile of the delay.
    pub delay_99: u64,
    /// Maximum delay.
    pub max_delay: u64,
    /// Number of kernels that started before their call, which happens if the clocks of host and device differ.
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
    // The sum starts at 0, because the empty sum of floats is -0.
    let total = delays.iter().fold(0.0, |total, delay| total + *delay as f64);
    launches.average_delay = super::rows::ratio(total, delays.len() as f64);
    launches
}
