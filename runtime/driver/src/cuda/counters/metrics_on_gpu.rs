//! Tests of the chips' metrics with the real CUPTI, which need no device.

use super::calls::Calls;
use super::library;
use super::metrics::Metrics;
use crate::counters::{CounterError, CounterKind, Obstacle};

fn calls() -> Calls {
    let (cupti, functions) = library::loaded(13_000).unwrap();
    Calls { cupti, functions, device: 0 }
}

#[test]
#[ignore = "needs a GPU"]
fn chips_have_their_metrics_in_few_passes() {
    let calls = calls();
    for (chip, kinds, stalls) in [(c"GH100", 6, 19), (c"GA100", 6, 16), (c"GB202", 6, 16), (c"GA10B", 4, 16)]
    {
        let metrics = Metrics::of(calls, chip, &[]).unwrap();
        let is_stall = |kind: &CounterKind| matches!(kind, CounterKind::Stall(_));
        let found = metrics.counters.iter().filter(|counter| is_stall(&counter.kind)).count();
        assert_eq!(
            (metrics.counters.len() - found, found >= stalls),
            (kinds, true),
            "{chip:?}: {:?}",
            metrics.counters
        );
        assert!((2..=12).contains(&metrics.passes), "{chip:?}: {} passes", metrics.passes);
        println!("{chip:?}: {} counters in {} passes", metrics.counters.len(), metrics.passes);
        assert!(!metrics.config.is_empty());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn an_unknown_chip_is_named() {
    let error = Metrics::of(calls(), c"GX999", &[]).unwrap_err();
    assert_eq!(error, CounterError::Device { device: 0, obstacle: Obstacle::Chip("GX999".to_owned()) });
}
