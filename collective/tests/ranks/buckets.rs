//! Gradients in buckets.

use std::time::Duration;

use warpsmith_collective::{Buckets, CollectiveError, Communicator, CommunicatorOptions};

use crate::peer::peer;
use crate::support::{LONG, failure, on_ranks, timeout};

/// Lengths of the gradients, in layer order.
const LENS: [usize; 7] = [5000, 3, 0, 100, 257, 900, 1];

/// Runs steps in which gradients are written and marked ready in this order. Returns the number of buckets.
fn steps(ranks: &mut Communicator, order: &[usize], bucket_bytes: usize) -> usize {
    let (rank, world) = (ranks.rank(), ranks.world_size());
    let mut gradients = Buckets::<f32>::new(ranks.stream(), &LENS, bucket_bytes).expect("memory");
    let value = |rank: usize, gradient: usize, step: usize| (rank * 100 + gradient * 10 + step) as f32;
    for step in 0..3 {
        for &gradient in order {
            assert_eq!(gradients.len_of(gradient), LENS[gradient]);
            let own = vec![value(rank, gradient, step); LENS[gradient]];
            gradients.gradient_mut(gradient).copy_from_host(&own).expect("copied");
            gradients.ready(ranks, gradient).expect("enqueued");
        }
        for (gradient, &len) in LENS.iter().enumerate() {
            let mean = (0..world).map(|rank| value(rank, gradient, step)).sum::<f32>() / world as f32;
            assert_eq!(gradients.gradient(gradient).to_host().expect("a mean"), vec![mean; len]);
        }
    }
    gradients.bucket_count()
}

fn reductions(ranks: &Communicator) -> usize {
    ranks.dump().operations.iter().filter(|recorded| recorded.operation.operation == "all_reduce").count()
}

#[test]
fn gradients_become_means_in_any_order() {
    let options: [CommunicatorOptions; 2] = [timeout(60_000), peer()];
    for (options, (bytes, buckets)) in options.iter().flat_map(|options| {
        // These sizes lead to one bucket per gradient, several gradients per bucket, and one bucket for all gradients.
        [(0, 7), (5000, 3), (1 << 20, 1)].map(|expected| (options, expected))
    }) {
        for order in [[6, 5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5, 6], [3, 0, 6, 2, 5, 1, 4]] {
            on_ranks(2, options, |mut ranks| {
                assert_eq!(steps(&mut ranks, &order, bytes), buckets, "{bytes}");
                assert_eq!(reductions(&ranks), 3 * buckets);
                ranks.finish().expect("the end in common");
            });
        }
    }
}

#[test]
fn ranks_may_compute_in_other_orders() {
    on_ranks(3, &timeout(60_000), |mut ranks| {
        let order = [[6, 5, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5, 6], [3, 0, 6, 2, 5, 1, 4]][ranks.rank()];
        steps(&mut ranks, &order, 5000);
        ranks.finish().expect("the end in common");
    });
}

#[test]
fn buckets_are_reduced_before_all_gradients_are_there() {
    on_ranks(2, &timeout(60_000), |mut ranks| {
        let mut gradients = Buckets::<f32>::new(ranks.stream(), &[10, 10, 10], 0).expect("memory");
        gradients.ready(&mut ranks, 1).expect("it waits for the last");
        assert_eq!(reductions(&ranks), 0);
        gradients.ready(&mut ranks, 2).expect("enqueued");
        assert_eq!(reductions(&ranks), 2);
        gradients.ready(&mut ranks, 0).expect("enqueued");
        ranks.finish().expect("the end in common");
    });
}

#[test]
fn a_gradient_is_ready_once_in_a_step() {
    on_ranks(1, &timeout(60_000), |mut ranks| {
        let mut gradients = Buckets::<f32>::new(ranks.stream(), &[10, 10], 1000).expect("memory");
        gradients.ready(&mut ranks, 1).expect("counted");
        let error = gradients.ready(&mut ranks, 1).expect_err("twice");
        assert!(matches!(error.downcast_ref(), Some(CollectiveError::Argument { .. })), "{error}");
        assert!(error.to_string().contains("gradient 1 was already marked ready in this step"), "{error}");
        gradients.ready(&mut ranks, 0).expect("enqueued");
        gradients.ready(&mut ranks, 1).expect("the next step");
    });
}

#[test]
fn other_models_on_other_ranks_are_named() {
    on_ranks(2, &timeout(60_000).checked(true).timeout(Duration::from_secs(20)), |mut ranks| {
        let mut gradients = Buckets::<f32>::new(ranks.stream(), &[10 + ranks.rank()], 0).expect("memory");
        gradients.ready(&mut ranks, 0).expect("enqueued");
        let ended = ranks.barrier().and_then(|work| work.wait(LONG));
        let text = failure(ended).to_string();
        assert!(text.contains("10 elements") && text.contains("11 elements"), "{text}");
    });
}
