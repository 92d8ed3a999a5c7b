//! Measures and tunes a step with both types of the lattice:
//!
//! ```text
//! cargo bench -p lattice-boltzmann --bench tune --features tune -- tune step_f32 step_f16
//! ```

use lattice_boltzmann::KERNELS;
use lattice_boltzmann_kernels::{FLUID, Fluid, POPULATIONS, Part, collide, step, velocity};
use warpsmith::bench::data::Values;
use warpsmith::bench::kernel::ArrayKernel;
use warpsmith::bench::verify::Tolerance;
use warpsmith::f16;
use warpsmith::gpu_std::scalar::Scalar;
use warpsmith::prelude::{Instance, Launch, SharedLen};

warpsmith::bench_main!(step_f32(), step_f16());

/// Cells per row.
pub const ROW: usize = 256;
const PROPERTIES: Fluid =
    Fluid { rates: [1.8, 1.2], half_force: [0.0; 3], push: [0.0; 3], velocity: [0.0; 3] };

/// Threads of a row.
fn threads<T: Scalar>(words: u32) -> usize {
    ROW * T::SIZE / (4 * words as usize)
}

/// Returns the lattice, `arrays[1]`, after a step. `arrays[0]` has an element per cell.
fn reference<T: Scalar>(arrays: &[Vec<T>]) -> Vec<f64> {
    let cells = arrays[0].len();
    let mut next = vec![0.0; POPULATIONS * cells];
    for cell in 0..cells {
        let mut f = std::array::from_fn(|q| arrays[1][q * cells + cell].cast());
        collide(&mut f, FLUID, &PROPERTIES);
        for (q, f) in f.into_iter().enumerate() {
            let x = (cell % ROW + ROW).wrapping_add_signed(velocity(q)[0] as isize) % ROW;
            next[q * cells + cell / ROW * ROW + x] = f64::from(f);
        }
    }
    next
}

fn benchmark<T: Scalar>(name: &'static str) -> ArrayKernel<T, T>
where
    step<T, 1>: Instance,
    step<T, 2>: Instance,
{
    macro_rules! words {
        ($($words:literal)*) => {
            ArrayKernel::with_reference(name, &KERNELS, reference::<T>)
            $(.launch::<step<T, $words>>(|kernel, stream, x, lattice| {
                let cells = x[0].len();
                let part = Part { size: [ROW as u32, (cells / ROW) as u32, 1], rotation: [0; 2], first: 0, layers: 1 };
                // The bytes of small whole numbers are flags of fluid cells.
                let flags = x[0].as_slice().cast::<u8>()?.slice(..cells);
                kernel.launch(stream, (part, PROPERTIES, flags, SharedLen(threads::<T>($words)), lattice))
            }))*
        };
    }
    words!(1 2)
        .shape(|configuration, n| {
            Ok(Launch::grid_block((n / ROW) as u32, threads::<T>(configuration.number("words")?) as u32))
        })
        .inputs(1, Values::Whole)
        .output_len(|cells| POPULATIONS * cells)
        .tolerance(Tolerance { relative: 4.0, absolute: 16.0 })
        .updates()
        .over_sizes([1 << 24])
}

pub fn step_f32() -> ArrayKernel<f32, f32> {
    benchmark("step_f32")
}

pub fn step_f16() -> ArrayKernel<f16, f16> {
    benchmark("step_f16")
}
