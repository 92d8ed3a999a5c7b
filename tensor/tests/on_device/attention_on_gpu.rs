//! Tests attention of long sequences.

mod on_gpu {
    use half::{bf16, f16};
    use warpsmith_runtime::Stream;

    use crate::attention::{Case, Data, Precise};
    use crate::attention_backward::{Backward, is_correct_on, on_all_paths};
    use crate::under_test;

    fn is_correct<T: Precise>(case: &Case, repetitions: usize) {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        let data = Data::<T>::random(case, 1);
        case.on_all_paths().for_each(|case| is_repeatable(&stream, &case, &data, repetitions));
    }

    /// Checks that sampled rows are correct, and that each repetition is bit-identical.
    fn is_repeatable<T: Precise>(stream: &Stream, case: &Case, data: &Data<T>, repetitions: usize) {
        let found = data.attend(stream, case);
        let mut random = fastrand::Rng::with_seed(2);
        let samples = (0..60).map(|i| {
            let mut sequence = random.usize(..case.lengths.len());
            while case.lengths[sequence][0] == 0 {
                sequence = (sequence + 1) % case.lengths.len();
            }
            let last = case.lengths[sequence][0] - 1;
            let row = [0, last, 127.min(last), 128.min(last)].get(i).copied();
            [sequence, random.usize(..case.heads[0]), row.unwrap_or_else(|| random.usize(..=last))]
        });
        data.check(case, &found, samples);
        let bits = |out: &[T]| out.iter().map(|x| x.value().to_bits()).collect::<Vec<_>>();
        for repetition in 1..repetitions {
            let again = data.attend(stream, case);
            assert!(bits(&again.0) == bits(&found.0), "{case:?}: repetition {repetition} differs");
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn long_sequences_of_all_heads_are_correct_and_repeatable() {
        for dim in [64, 96, 128, 192, 256] {
            for lengths in [[4096, 4096], [1000, 3001], [2049, 1023]] {
                is_correct::<bf16>(&Case::new(dim, lengths).heads([4, 2]), 10);
                is_correct::<bf16>(&Case::new(dim, lengths).heads([4, 2]).causal(), 10);
                is_correct::<f16>(&Case::new(dim, lengths).heads([3, 1]).causal(), 2);
            }
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn batches_of_many_heads_are_correct_in_both_layouts() {
        for is_by_head in [false, true] {
            let case = Case { lengths: vec![[1024, 1024]; 8], is_by_head, ..Case::new(128, [1, 1]) };
            is_correct::<bf16>(&case.clone().heads([32, 8]).causal(), 5);
            is_correct::<bf16>(&case.heads([16, 16]), 5);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn packed_sequences_of_many_lengths_are_correct() {
        let mut random = fastrand::Rng::with_seed(3);
        let lengths: Vec<[usize; 2]> = (0..100).map(|_| [random.usize(..700), random.usize(..900)]).collect();
        for dim in [64, 96, 128, 192, 256] {
            let case = Case { lengths: lengths.clone(), is_packed: true, ..Case::new(dim, [1, 1]) };
            is_correct::<bf16>(&case.clone().heads([4, 2]), 10);
            is_correct::<f16>(&case.heads([2, 1]).causal(), 10);
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn gradients_of_long_sequences_are_correct() {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        for dim in [64, 96, 128, 192, 256] {
            if dim == 64 {
                is_correct_on::<bf16>(&stream, &Case::new(dim, [513, 700]));
                is_correct_on::<bf16>(&stream, &Case::new(dim, [700, 513]).causal());
            }
            let lengths = vec![[200, 150], [1, 77], [0, 5], [129, 300]];
            let case = Case { lengths, is_packed: true, ..Case::new(dim, [1, 1]) };
            is_correct_on::<f16>(&stream, &case.heads([2, 1]).causal());
        }
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn gradients_are_repeatable() {
        let stream = Stream::new(&under_test::gpu()).unwrap();
        for dim in [64, 96, 128, 192, 256] {
            // This shape has many concurrent blocks.
            let case =
                Case { lengths: vec![[1025, 2049]; 2], ..Case::new(dim, [1, 1]) }.heads([8, 4]).causal();
            let data = Data::<bf16>::random(&case, 3);
            for case in on_all_paths(&case) {
                let first = Backward::run(&stream, &case, &data).gradients;
                for repetition in 1..5 {
                    let again = Backward::run(&stream, &case, &data).gradients;
                    assert!(first == again, "{case:?}: repetition {repetition} differs");
                }
            }
        }
    }
}
