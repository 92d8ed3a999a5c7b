//! Tests the routing of mixture-of-experts layers.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, Graph, Stream};
use warpsmith_tensor::{Matrix, Routing, RoutingElement, TensorError};

use crate::number::{TestNumber, random, random_integers};
use crate::under_test;

/// Returns the selected experts of a token and their weights.
fn selected(logits: &[f64], k: usize, normalizes: bool) -> (Vec<u32>, Vec<f64>) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let key = |i: usize| if logits[i].is_nan() { (1, 0.0) } else { (0, logits[i]) };
    // The sort is stable.
    order.sort_by(|&x, &y| key(y).partial_cmp(&key(x)).unwrap());
    order.truncate(k);
    let weight = |i: usize| (logits[i] - logits[order[0]]).exp();
    let sum: f64 = if normalizes {
        order.iter().copied().map(weight).sum()
    } else {
        (0..logits.len()).map(weight).sum()
    };
    (order.iter().map(|&i| i as u32).collect(), order.iter().map(|&i| weight(i) / sum).collect())
}

/// Compares the routing of `logits` with a reference, and the rows that are moved by it.
fn check<T: TestNumber<Output = T> + RoutingElement>(
    [tokens, experts, k]: [usize; 3],
    logits: &[T],
    normalizes: bool,
) {
    const COLUMNS: usize = 24;
    let case = format!("{tokens} tokens, {k} of {experts} experts, {normalizes}");
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut routing = Routing::new(&stream, tokens, experts, k).unwrap();
    let on_logits = DeviceBuffer::from_host(&stream, logits).unwrap();
    routing.route(&stream, on_logits.as_2d(tokens, experts).unwrap(), normalizes).unwrap();
    let (chosen, weights) = (routing.experts().to_host().unwrap(), routing.weights().to_host().unwrap());
    for token in 0..tokens {
        let of_token: Vec<f64> = logits[token * experts..][..experts].iter().map(|x| x.value()).collect();
        let (expected, expected_weights) = selected(&of_token, k, normalizes);
        assert_eq!(chosen[token * k..][..k], expected, "{case}, {token}");
        for (weight, expected) in weights[token * k..][..k].iter().zip(expected_weights) {
            let is_close = (f64::from(*weight) - expected).abs() <= 1e-5 * expected + 1e-9;
            assert!(
                is_close || weight.is_nan() && expected.is_nan(),
                "{case}, {token}: {weight}, {expected}"
            );
        }
    }
    // Entries by expert, in the order of the tokens.
    let mut entries: Vec<usize> = (0..tokens * k).collect();
    entries.sort_by_key(|&entry| chosen[entry]);
    let offsets: Vec<u32> = (0..=experts as u32)
        .map(|expert| chosen.iter().filter(|&&chosen| chosen < expert).count() as u32)
        .collect();
    assert_eq!(routing.offsets().to_host().unwrap(), offsets, "{case}");

    let rows = random_integers::<T>(3, tokens * COLUMNS);
    let on_rows = DeviceBuffer::from_host(&stream, &rows).unwrap();
    let mut sorted = DeviceBuffer::from_host(&stream, &vec![T::POISON; tokens * k * COLUMNS]).unwrap();
    let from = on_rows.as_2d(tokens, COLUMNS).unwrap();
    routing.dispatch(&stream, from, sorted.as_2d_mut(tokens * k, COLUMNS).unwrap()).unwrap();
    let found = sorted.to_host().unwrap();
    for (row, entry) in entries.iter().enumerate() {
        let expected = &rows[entry / k * COLUMNS..][..COLUMNS];
        let same =
            found[row * COLUMNS..][..COLUMNS].iter().zip(expected).all(|(x, y)| x.value() == y.value());
        assert!(same, "{case}, row {row}");
    }
    for accumulate in [false, true] {
        let before = random_integers::<T>(4, tokens * COLUMNS);
        let mut sums = DeviceBuffer::from_host(&stream, &before).unwrap();
        let from = sorted.as_2d(tokens * k, COLUMNS).unwrap();
        routing.combine(&stream, from, accumulate, sums.as_2d_mut(tokens, COLUMNS).unwrap()).unwrap();
        for (i, sum) in sums.to_host().unwrap().into_iter().enumerate() {
            let token = i / COLUMNS;
            let total: f64 = weights[token * k..][..k].iter().map(|x| f64::from(*x)).sum();
            let expected = total * rows[i].value() + if accumulate { before[i].value() } else { 0.0 };
            let is_close = (sum.value() - expected).abs() <= expected.abs() / 200.0 + 1e-4;
            assert!(
                is_close || sum.value().is_nan() && expected.is_nan(),
                "{case}, {i}: {sum:?}, {expected}"
            );
        }
    }
}

#[test]
fn tokens_are_routed_to_the_experts_with_the_largest_logits() {
    for [tokens, experts, k] in [[1, 1, 1], [3, 8, 2], [9, 33, 32], [70, 128, 8], [300, 512, 1], [17, 40, 7]]
    {
        for normalizes in [false, true] {
            check::<bf16>([tokens, experts, k], &random(1, tokens * experts), normalizes);
            check::<f16>([tokens, experts, k], &random(2, tokens * experts), normalizes);
            // Many logits are equal.
            check::<bf16>([tokens, experts, k], &random_integers(2, tokens * experts), normalizes);
        }
    }
}

#[test]
fn nan_is_the_largest_logit() {
    let logits = [1.0, f32::NAN, 3.0, -f32::NAN, f32::NEG_INFINITY, 2.0, 0.0, f32::NEG_INFINITY];
    check::<bf16>([2, 4, 3], &logits.map(bf16::from_f32), true);
    check::<f16>([1, 8, 7], &logits.map(f16::from_f32), false);
}

#[test]
fn graphs_route_tokens() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut routing = Routing::new(&stream, 2, 4, 1).unwrap();
    let numbers = |at: [usize; 2]| {
        let mut logits = [bf16::ZERO; 8];
        at.into_iter().enumerate().for_each(|(token, expert)| logits[4 * token + expert] = bf16::ONE);
        logits
    };
    let mut logits = DeviceBuffer::from_host(&stream, &numbers([3, 1])).unwrap();
    let graph = Graph::capture(&stream, || routing.route(&stream, logits.as_2d(2, 4)?, true)).unwrap();
    let graph = graph.instantiate().unwrap();
    for experts in [[3, 1], [2, 2]] {
        logits.copy_from_host(&numbers(experts)).unwrap();
        graph.launch(&stream).unwrap();
        assert_eq!(routing.experts().to_host().unwrap(), experts.map(|expert| expert as u32));
    }
}

#[test]
fn no_tokens_are_routed() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let mut routing = Routing::new(&stream, 0, 4, 2).unwrap();
    let mut nothing = DeviceBuffer::<bf16>::zeros(&stream, 0).unwrap();
    routing.route(&stream, nothing.as_2d(0, 4).unwrap(), true).unwrap();
    assert_eq!(routing.offsets().to_host().unwrap(), [0; 5]);
    let from = DeviceBuffer::<bf16>::zeros(&stream, 0).unwrap();
    routing.dispatch(&stream, from.as_2d(0, 8).unwrap(), nothing.as_2d_mut(0, 8).unwrap()).unwrap();
    routing.combine(&stream, from.as_2d(0, 8).unwrap(), true, nothing.as_2d_mut(0, 8).unwrap()).unwrap();
}

#[test]
fn impossible_routings_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for ([tokens, experts, k], expected) in [
        ([1, 8, 0], "k is 0, but must be between 1 and 8"),
        ([1, 8, 9], "k is 9, but must be between 1 and 8"),
        ([1, 64, 33], "k is 33, but must be between 1 and 32"),
        ([1, 513, 2], "there are 513 experts, more than the maximum of 512"),
        ([1 << 30, 8, 2], "1073741824 tokens with 2 experts each are more than 2147483647 rows"),
        ([usize::MAX, 8, 2], "tokens with 2 experts each are more than 2147483647 rows"),
    ] {
        let error = Routing::new(&stream, tokens, experts, k).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut routing = Routing::new(&stream, 2, 8, 2).unwrap();
    let numbers = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let mut to = DeviceBuffer::<bf16>::zeros(&stream, 64).unwrap();
    let logits = numbers.slice(..16).as_2d(2, 8).unwrap();
    let error = routing.route(&stream, numbers.slice(..14).as_2d(2, 7).unwrap(), true).unwrap_err();
    assert!(error.to_string().contains("logits is a matrix of 2 x 7, but must be one of 2 x 8"), "{error}");
    let error = routing.route(&stream, numbers.as_3d(4, 2, 8).unwrap(), true).unwrap_err();
    assert!(error.to_string().contains("logits is a batch of matrices of 2 x 8"), "{error}");
    let transposed = Matrix::from(numbers.slice(..16).as_2d(8, 2).unwrap()).transposed();
    let error = routing.route(&stream, transposed, true).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(TensorError::Layout { matrix: "logits", .. })), "{error}");
    let error = routing.dispatch(&stream, logits, to.slice_mut(..24).as_2d_mut(3, 8).unwrap()).unwrap_err();
    assert!(error.to_string().contains("to is a matrix of 3 x 8, but must be one of 4 x 8"), "{error}");
    let rows = numbers.slice(..16).as_2d(4, 4).unwrap();
    let error =
        routing.combine(&stream, rows, false, to.slice_mut(..8).as_2d_mut(2, 4).unwrap()).unwrap_err();
    assert!(error.to_string().contains("the rows have 4 elements, which must be a multiple of 8"), "{error}");
    let from = numbers.slice(1..17).as_2d(2, 8).unwrap();
    let error = routing.dispatch(&stream, from, to.slice_mut(..32).as_2d_mut(4, 8).unwrap()).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(TensorError::Alignment { matrix: "from", .. })), "{error}");
}
