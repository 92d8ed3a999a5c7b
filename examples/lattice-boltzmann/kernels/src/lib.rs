//! Kernels of a D3Q19 lattice Boltzmann fluid, whose only lattice each step updates in place.
//!
//! The lattice has 19 planes, one per population, with one element per cell: the population minus its weight, times
//! [`SCALE`]. Zeros are therefore a fluid at rest.
//!
//! Populations do not move in y and z. Instead, the plane of velocity c is rotated: in step t, cell (x, y, z) finds its
//! population at (x, y - t * c.y, z - t * c.z), modulo the size. It overwrites this element. In step t + 1, the element
//! belongs to the neighbor of the cell in direction c. Along x, the threads of a row exchange populations in shared
//! memory, so that every access to the lattice is an aligned vector.
#![no_std]

use gpu_std::math::fast;
use gpu_std::prelude::*;
use gpu_std::scalar::Scalar;
use gpu_std::tensor::Half;
use gpu_std::vectorized::{each, opaque};

/// Number of populations per cell.
pub const POPULATIONS: usize = 19;
/// Factor of the stored populations. With it, the numbers of a slow fluid are in the range of f16.
pub const SCALE: f32 = 32768.0;
/// First of the five adjacent planes whose velocities point upward (in z), and of those that point downward.
pub const VERTICAL: [usize; 2] = [1, 10];
/// Populations that move along x, and their opposites.
const EAST: [usize; 5] = [2, 6, 8, 9, 12];
const WEST: [usize; 5] = [11, 15, 17, 18, 3];

/// Index of a population in one of these arrays.
const fn slot(of: &[usize; 5], q: usize) -> usize {
    let mut i = 0;
    while i < 4 && of[i] != q {
        i += 1;
    }
    i
}

// Kinds of cells.
pub const FLUID: u8 = 1;
/// Solid at rest.
pub const WALL: u8 = 2;
/// Solid that moves with [`Fluid::velocity`].
pub const LID: u8 = 3;
/// Fluid of density 1 with [`Fluid::velocity`].
pub const INFLOW: u8 = 4;
/// Fluid of density 1 that keeps its velocity.
pub const OUTFLOW: u8 = 5;

/// Properties of the fluid, in lattice units.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Fluid {
    /// Relaxation rates of the even and odd parts of the populations.
    pub rates: [f32; 2],
    /// Half the body force per mass, and the force divided by the second rate.
    pub half_force: [f32; 3],
    pub push: [f32; 3],
    /// Velocity of lids and inflows.
    pub velocity: [f32; 3],
}

/// Velocity of a population. Population q + 9 has the opposite velocity of population q.
pub const fn velocity(q: usize) -> [i32; 3] {
    #[rustfmt::skip]
    let of_half = [
        [0, 0, 0], [0, 0, 1], [1, 0, 1], [-1, 0, 1], [0, 1, 1], [0, -1, 1], [1, 0, 0], [0, 1, 0], [1, 1, 0], [1, -1, 0],
    ];
    let [x, y, z] = of_half[if q < 10 { q } else { q - 9 }];
    if q < 10 { [x, y, z] } else { [-x, -y, -z] }
}

const fn weight(q: usize) -> f32 {
    let [x, y, z] = velocity(q);
    [1.0 / 3.0, 1.0 / 18.0, 1.0 / 36.0][(x * x + y * y + z * z) as usize]
}

#[inline(always)]
fn dot(q: usize, u: [f32; 3]) -> f32 {
    let mut sum = 0.0;
    each::<3>(|axis| match velocity(q)[axis] {
        0 => {}
        c => sum += c as f32 * u[axis],
    });
    sum
}

/// Density minus 1, times [`SCALE`], and velocity of a cell.
#[inline(always)]
pub fn moments(f: &[f32; POPULATIONS], half_force: [f32; 3]) -> (f32, [f32; 3]) {
    let (mut excess, mut momentum) = (f[0], [0.0; 3]);
    each::<9>(|i| {
        let (sum, difference) = (f[i + 1] + f[i + 10], f[i + 1] - f[i + 10]);
        excess += sum;
        each::<3>(|axis| match velocity(i + 1)[axis] {
            0 => {}
            c => momentum[axis] += c as f32 * difference,
        });
    });
    let factor = fast::recip(SCALE + excess);
    let mut u = [0.0; 3];
    each::<3>(|axis| u[axis] = momentum[axis] * factor + half_force[axis]);
    (excess, u)
}

/// Collides the populations of a cell. The sums of opposite populations have one relaxation rate, and their differences
/// have another.
#[inline(always)]
pub fn collide(f: &mut [f32; POPULATIONS], kind: u8, fluid: &Fluid) {
    let (mut excess, mut u) = moments(f, fluid.half_force);
    // The differences relax toward a velocity shifted by `push`. The shift applies the force.
    let mut pushed = [0.0; 3];
    each::<3>(|axis| pushed[axis] = u[axis] + fluid.push[axis]);
    let mut rates = fluid.rates;
    if (WALL..=OUTFLOW).contains(&kind) {
        excess = 0.0;
        pushed = match kind {
            WALL => [0.0; 3],
            OUTFLOW => u,
            _ => fluid.velocity,
        };
        u = pushed;
        // The first rates exchange opposite populations, and the second ones result in the equilibrium.
        rates = if kind <= LID { [0.0, 2.0] } else { [1.0, 1.0] };
    }
    let density = SCALE + excess;
    let energy = 1.5 * (u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
    let [sums, differences] = rates.map(|rate| 0.5 * rate);
    f[0] += rates[0] * (weight(0) * (excess - density * energy) - f[0]);
    each::<9>(|i| {
        let (a, b, along) = (f[i + 1], f[i + 10], dot(i + 1, u));
        let target = excess + density * (4.5 * along * along - energy);
        let even = 2.0 * weight(i + 1) * target - (a + b);
        let odd = 6.0 * weight(i + 1) * density * dot(i + 1, pushed) - (a - b);
        (f[i + 1], f[i + 10]) = (a + differences * odd + sums * even, b - differences * odd + sums * even);
    });
}

/// Part of the lattice that a launch updates.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Part {
    /// Size of the lattice.
    pub size: [u32; 3],
    /// Rotation of the planes: the number of earlier steps, modulo the size in y and z.
    pub rotation: [u32; 2],
    /// First layer in z. After the last layer of the lattice, the part continues with layer 0.
    pub first: u32,
    pub layers: u32,
}

impl Part {
    /// Checks that the rows of the part are in the planes.
    fn check(&self, plane: usize) {
        let ([nx, ny, nz], [y, z]) = (self.size, self.rotation);
        let is_valid = self.size.iter().all(|n| (1..1 << 20).contains(n)) && y < ny && z < nz;
        let cells = u64::from(nx) * u64::from(ny) * u64::from(nz);
        assert!(is_valid && cells <= plane.min(u32::MAX as usize) as u64, "the planes are too short");
        assert!(self.first < nz && self.layers <= nz, "the part is not in the lattice");
    }

    /// Index of the first cell of a row in a plane, by the signs of its velocity in z and y (plus 1).
    #[inline(always)]
    fn row(&self, y: u32, layer: u32) -> [[u32; 3]; 3] {
        let [nx, ny, nz] = self.size;
        let wrapped = |at: u32, n: u32| if at >= n { at - n } else { at };
        let rotated = |at: u32, by: u32, n: u32| [wrapped(at + by, n), at, wrapped(at + n - by, n)];
        let y = rotated(y, self.rotation[0], ny);
        rotated(wrapped(self.first + layer, nz), self.rotation[1], nz).map(|z| y.map(|y| (z * ny + y) * nx))
    }
}

/// Returns population `i` of a word, which has one `f32` or two `f16`.
#[inline(always)]
fn unpack<T: Scalar>(word: u32, i: usize) -> f32 {
    if T::SIZE == 4 { f32::from_bits(word) } else { f16::from_bits((word >> (16 * i)) as u16).to_f32() }
}

/// Returns the word of one `f32` or two `f16`.
#[inline(always)]
fn pack<T: Scalar>(low: f32, high: f32) -> u32 {
    if T::SIZE == 4 { low.to_bits() } else { f16::pack(low, high) }
}

/// Words that a thread passes to the next and to the previous thread of its row.
#[derive(Clone, Copy, KernelType)]
#[repr(C)]
pub struct Edges([u32; 5], [u32; 5]);

/// One step of a part, with a block per row. A thread has `WORDS` words of each plane.
#[kernel(types(T = f32, f16), consts(WORDS = 1, 2), launch_bounds(512), dependent)]
pub fn step<T: Scalar, const WORDS: usize>(
    part: Part,
    fluid: Fluid,
    flags: &[u8],
    mut edges: Shared<[Edges]>,
    mut lattice: DisjointMut<T>,
) {
    // The blocks of the next step can already wait on the SMs.
    grid::launch_dependents();
    let (per_word, plane) = (4 / T::SIZE, flags.len());
    let cells = WORDS * per_word;
    let (own, columns) = (thread::linear_in_block() as usize, part.size[0] as usize / cells);
    let pointer = lattice.as_mut_ptr();
    part.check(plane);
    assert!(lattice.len() / POPULATIONS >= plane, "the lattice is shorter than its planes");
    assert!((1..=block::threads() as usize).contains(&columns), "a row does not fit a block");
    let is_aligned = pointer.addr().is_multiple_of(4 * WORDS)
        && (flags.as_ptr().addr() | part.size[0] as usize | plane).is_multiple_of(cells);
    assert!(is_aligned, "the rows do not consist of aligned vectors");

    // Threads without cells take part in the barrier.
    let (y, layer) = (thread::block_idx_x() % part.size[1], thread::block_idx_x() / part.size[1]);
    let has_cells = own < columns && layer < part.layers;
    let row = part.row(y, layer);
    let place = |q: usize, plane: usize| {
        let [_, y, z] = velocity(q);
        let cell = row[(z + 1) as usize][(y + 1) as usize] + (own * cells) as u32;
        pointer.wrapping_add(q * plane).wrapping_add(cell as usize).cast::<u32>()
    };
    let mut f = [[0; WORDS]; POPULATIONS];
    if has_cells {
        // SAFETY: the checks above imply that the vectors are in the flags and in the planes, and aligned. No other
        // thread accesses these elements: only this block has the row, and a plane has each row at another place,
        // because the whole launch rotates it by the same distance.
        let kinds = unsafe {
            each::<POPULATIONS>(|q| f[q] = Vector::<u32, WORDS>::load(place(q, plane)).to_array());
            let kinds = flags.as_ptr().add(row[1][1] as usize + own * cells);
            match cells {
                1 => u64::from(kinds.read()),
                2 => u64::from(kinds.cast::<u16>().read()),
                4 => u64::from(kinds.cast::<u32>().read()),
                _ => kinds.cast::<u64>().read(),
            }
        };
        each::<WORDS>(|word| {
            let mut of_cells = [[0.0; POPULATIONS]; 2];
            each::<2>(|i| {
                if i < per_word {
                    each::<POPULATIONS>(|q| of_cells[i][q] = unpack::<T>(f[q][word], i));
                    collide(&mut of_cells[i], (kinds >> (8 * (word * per_word + i))) as u8, &fluid);
                }
            });
            each::<POPULATIONS>(|q| f[q][word] = pack::<T>(of_cells[0][q], of_cells[1][q]));
        });
    }
    let mut passed = Edges([0; 5], [0; 5]);
    each::<5>(|i| (passed.0[i], passed.1[i]) = (f[EAST[i]][WORDS - 1], f[WEST[i]][0]));
    let edges = edges.fill(|[_]| passed);
    if has_cells {
        let from_left = edges[if own == 0 { columns - 1 } else { own - 1 }].0;
        let from_right = edges[if own + 1 == columns { 0 } else { own + 1 }].1;
        // Without `opaque`, the addresses would occupy registers during the collision.
        let plane = opaque(plane);
        each::<POPULATIONS>(|q| {
            let mut out = f[q];
            each::<WORDS>(|i| {
                // The bits of two words, moved by one population.
                let moved = |high: u32, low: u32, bits: usize| {
                    ((u64::from(high) << 32 | u64::from(low)) >> bits) as u32
                };
                match velocity(q)[0] {
                    1 if i == 0 => out[i] = moved(f[q][i], from_left[slot(&EAST, q)], 32 - 8 * T::SIZE),
                    1 => out[i] = moved(f[q][i], f[q][i - 1], 32 - 8 * T::SIZE),
                    -1 if i + 1 == WORDS => out[i] = moved(from_right[slot(&WEST, q)], f[q][i], 8 * T::SIZE),
                    -1 => out[i] = moved(f[q][i + 1], f[q][i], 8 * T::SIZE),
                    _ => {}
                }
            });
            // SAFETY: as above.
            unsafe { Vector::from_array(out).store(place(q, plane)) };
        });
    }
}
