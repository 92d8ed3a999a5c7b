//! Generated kernels as plain Rust: step by step, for all threads of a block.

use difftest_support::{Atomic, Input, State, WORDS};

use crate::case::Step;

/// Output words of all threads, and the atomics.
pub fn run(threads: usize, grid: usize, steps: &[Step]) -> Vec<u64> {
    let data = crate::data();
    let mut atomics = crate::atomics();
    // SAFETY: an `Atomic` has the layout of its value, and nothing else uses the memory while the slice is in use.
    let shared =
        unsafe { std::slice::from_raw_parts(atomics.as_mut_ptr().cast::<Atomic<u64>>(), atomics.len()) };
    // The kernel's zero is not a constant, either.
    let zero = std::hint::black_box(0);
    let mut words = vec![0; threads * grid * WORDS];
    for block in 0..grid {
        let first = block * threads;
        let inputs: Vec<Input> = (first..first + threads)
            .map(|thread| Input { data: &data, atomics: shared, zero, thread: thread as u64 })
            .collect();
        let mut states: Vec<State> = inputs.iter().map(|input| State::new(input.thread)).collect();
        for (index, step) in steps.iter().enumerate() {
            let both = inputs.iter().zip(&mut states);
            match step {
                Step::Own(function) => both.for_each(|(input, state)| function(input, state)),
                Step::Collective(function, model, number) => {
                    let values: Vec<u64> = both.map(|(input, state)| function(input, state)).collect();
                    let results = model(&values, *number);
                    states.iter_mut().zip(results).for_each(|(state, result)| state.add(result));
                }
            }
            for (thread, state) in states.iter().enumerate() {
                words[(first + thread) * WORDS + index] = state.h;
            }
        }
    }
    words.extend(atomics);
    words
}
