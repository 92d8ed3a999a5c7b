//! [`Reduction`]: finds the parts of a kernel that are needed to reproduce a difference.

use crate::kernel::Kernel;

/// Reduces a kernel that may have an error in one part, round by round. Each round provides
/// [candidates](Self::candidates), each of which omits a part. The caller runs them and reports which still differ. The
/// smallest of those is kept. The reduction ends when no candidate differs.
#[derive(Debug, Clone)]
pub struct Reduction {
    kernel: Kernel,
}

impl Reduction {
    /// Starts with a differing kernel; `step` is the first step after which its hash differs. Later steps are removed.
    pub fn new(mut kernel: Kernel, step: usize) -> Self {
        kernel.steps.truncate(step + 1);
        Reduction { kernel }
    }

    /// Smallest kernel so far that differs.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Smaller kernels: without one of the steps or all but the last, without each half and quarter of the statements
    /// of a step, and without each statement.
    pub fn candidates(&self) -> Vec<Kernel> {
        let mut all: Vec<Kernel> = Vec::new();
        let steps = self.kernel.steps.len();
        if steps > 2 {
            all.push(self.without_steps(|step| step + 1 < steps));
        }
        if steps > 1 {
            all.extend((0..steps).map(|left_out| self.without_steps(|step| step == left_out)));
        }
        for (index, step) in self.kernel.steps.iter().enumerate() {
            let free: Vec<usize> =
                (0..step.lines.len()).filter(|line| !step.lines[*line].is_needed).collect();
            let mut size = free.len();
            while size > 0 {
                all.extend(free.chunks(size).map(|lines| self.without_lines(index, lines)));
                size /= 2;
            }
        }
        let mut kept: Vec<Kernel> = Vec::new();
        for mut candidate in all {
            candidate.name = self.kernel.name.clone();
            if !kept.contains(&candidate) {
                kept.push(candidate);
            }
        }
        for (index, candidate) in kept.iter_mut().enumerate() {
            candidate.name = format!("{}_{index}", self.kernel.name);
        }
        kept
    }

    /// Keeps the smallest of the differing candidates; returns `false` when there is none.
    pub fn take(&mut self, differing: Vec<Kernel>) -> bool {
        let Some(mut smallest) =
            differing.into_iter().min_by_key(|kernel| (kernel.lines(), kernel.steps.len()))
        else {
            return false;
        };
        smallest.name = self.kernel.name.clone();
        self.kernel = smallest;
        true
    }

    fn without_steps(&self, is_left_out: impl Fn(usize) -> bool) -> Kernel {
        let mut index = 0;
        let mut kernel = self.kernel.clone();
        kernel.steps.retain(|_| {
            index += 1;
            !is_left_out(index - 1)
        });
        kernel
    }

    fn without_lines(&self, step: usize, lines: &[usize]) -> Kernel {
        let mut kernel = self.kernel.clone();
        let mut index = 0;
        kernel.steps[step].lines.retain(|_| {
            index += 1;
            !lines.contains(&(index - 1))
        });
        kernel
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Line;

    /// Returns true if a kernel has a sort after a rotation: a seeded bug that needs two statements in two steps.
    fn differs(kernel: &Kernel) -> bool {
        let source = kernel.source();
        let (first, second) = (source.find("SEEDED_ONE"), source.find("SEEDED_TWO"));
        first.is_some() && second > first
    }

    #[test]
    fn a_seeded_bug_is_all_that_is_left() {
        for seed in 0..20 {
            let mut kernel = Kernel::random(seed, 3);
            let last = kernel.steps.len() - 1;
            for (step, text) in [(0, "s.add(1); // SEEDED_ONE"), (last, "s.add(2); // SEEDED_TWO")] {
                let end = kernel.steps[step].lines.len();
                kernel.steps[step].lines.insert(end / 2, Line { text: text.to_owned(), is_needed: false });
            }
            assert!(differs(&kernel));
            let mut reduction = Reduction::new(kernel, last);
            while reduction.take(reduction.candidates().into_iter().filter(differs).collect()) {}
            let small = reduction.kernel();
            assert!(differs(small));
            assert!(small.steps.len() <= 2, "{}", small.source());
            let free = small.steps.iter().flat_map(|step| &step.lines).filter(|line| !line.is_needed);
            assert_eq!(free.count(), 2, "seed {seed}: {}", small.source());
        }
    }

    #[test]
    fn steps_after_the_first_wrong_one_are_left_out() {
        let kernel = Kernel::random(5, 0);
        assert_eq!(Reduction::new(kernel.clone(), 0).kernel().steps, kernel.steps[..1]);
    }
}
