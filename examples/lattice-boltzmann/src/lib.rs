//! A D3Q19 lattice Boltzmann fluid on one or several devices. All quantities are in lattice units: cells and steps.

use std::path::PathBuf;

use lattice_boltzmann_kernels::{
    FLUID, Fluid, INFLOW, LID, OUTFLOW, POPULATIONS, Part, SCALE, VERTICAL, WALL, collide, moments, step,
    velocity,
};
use warpsmith::gpu_std::scalar::Scalar;
use warpsmith::prelude::{Device, DeviceBuffer, GpuImage, Instance, Launch, SharedLen, Stream};

pub mod picture;

/// The GPU image that build.rs built from `kernels/`.
pub static KERNELS: GpuImage = warpsmith::include_image!("lattice_boltzmann_kernels");

/// Words of each plane per thread, as `benches/tune.rs` found it.
pub const WORDS: usize = 2;
/// Maximum length of a row, which one block updates.
pub const MAX_ROW: usize = 1024;
/// Maximum number of cells per device.
pub const MAX_CELLS: usize = 1 << 29;
/// Maximum velocity. The method is accurate far below the velocity of sound, 0.577.
pub const MAX_VELOCITY: f32 = 0.3;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the lattice cannot have {0:?} cells: {1}")]
    Size([usize; 3], String),
    #[error("the viscosity {0} is not between 0.0001 and 1: change the size or the velocity")]
    Viscosity(f32),
    #[error("the velocity {0} is not at most {MAX_VELOCITY}: reduce it, and simulate more steps")]
    Velocity(f32),
    #[error("cannot write the picture {0}: {1}")]
    Picture(PathBuf, png::EncodingError),
    #[error(transparent)]
    Device(#[from] warpsmith::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

/// Parameters of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Size of the lattice, which is periodic.
    pub size: [usize; 3],
    pub viscosity: f32,
    /// Velocity of lids and inflows.
    pub velocity: [f32; 3],
    pub acceleration: [f32; 3],
}

impl Settings {
    pub fn new(size: [usize; 3], viscosity: f32) -> Self {
        Self { size, viscosity, velocity: [0.0; 3], acceleration: [0.0; 3] }
    }

    fn check(&self, devices: usize) -> Result<Fluid> {
        let [x, y, z] = self.size;
        let error = |problem: String| Err(Error::Size(self.size, problem));
        if x == 0 || !x.is_multiple_of(4) || x > MAX_ROW {
            return error(format!("x must be a multiple of 4 from 4 to {MAX_ROW}"));
        }
        if y == 0 || z < devices.max(1) || y.max(z) >= 1 << 20 {
            return error(format!(
                "y must be from 1 to 1048575, and z from {devices}, 1 per device, to 1048575"
            ));
        }
        let cells = z.div_ceil(devices).checked_mul(y).and_then(|rows| rows.checked_mul(x));
        if cells.is_none_or(|cells| cells > MAX_CELLS) {
            return error(format!("a device can have at most {MAX_CELLS} cells"));
        }
        if !(1e-4..=1.0).contains(&self.viscosity) {
            return Err(Error::Viscosity(self.viscosity));
        }
        check_velocity(self.velocity)?;
        // The product of both times puts walls exactly in the middle between two cells.
        let time = 3.0 * self.viscosity;
        let rates = [time, 3.0 / 16.0 / time].map(|time| 1.0 / (time + 0.5));
        let half_force = self.acceleration.map(|a| 0.5 * a);
        let push = half_force.map(|half| half * (2.0 / rates[1] - 1.0));
        Ok(Fluid { rates, half_force, push, velocity: self.velocity })
    }
}

fn check_velocity(velocity: [f32; 3]) -> Result<()> {
    let speed = velocity.iter().map(|v| v * v).sum::<f32>().sqrt();
    if speed <= MAX_VELOCITY { Ok(()) } else { Err(Error::Velocity(speed)) }
}

/// A simulation whose lattice has the type `T`: `f32`, or `f16` for half the memory and almost twice the speed.
pub struct Simulation<T: Scalar> {
    fluid: Fluid,
    steps: usize,
    slabs: Vec<Slab<T>>,
    /// Populations that enter each slab upward and downward.
    entering: Vec<[DeviceBuffer<T>; 2]>,
}

/// Layers of one device.
struct Slab<T: Scalar> {
    stream: Stream,
    /// Stream of the copies to other devices.
    copies: Stream,
    size: [usize; 3],
    first: usize,
    lattice: DeviceBuffer<T>,
    flags: DeviceBuffer<u8>,
    /// Populations that leave the slab upward and downward.
    leaving: [DeviceBuffer<T>; 2],
}

impl<T: Scalar> Simulation<T>
where
    step<T, WORDS>: Instance,
{
    /// Allocates a fluid at rest, in slabs of layers on the devices of the streams. `kind` returns the kind of a cell.
    pub fn new(streams: &[Stream], settings: Settings, kind: impl Fn([usize; 3]) -> u8) -> Result<Self> {
        let fluid = settings.check(streams.len())?;
        let [nx, ny, nz] = settings.size;
        let halo = |stream: &Stream| -> Result<_> {
            let len = if streams.len() > 1 { 5 * nx * ny } else { 0 };
            Ok([DeviceBuffer::zeros(stream, len)?, DeviceBuffer::zeros(stream, len)?])
        };
        let slab = |(i, stream): (usize, &Stream)| {
            let [first, end] = [i, i + 1].map(|i| i * nz / streams.len());
            let size = [nx, ny, end - first];
            let lattice = DeviceBuffer::zeros(stream, POPULATIONS * size.iter().product::<usize>())?;
            let kinds: Vec<u8> = cells(size, first).map(&kind).collect();
            let flags = DeviceBuffer::from_host(stream, &kinds)?;
            let (copies, leaving) = (Stream::new(stream.device())?, halo(stream)?);
            Ok(Slab { stream: stream.clone(), copies, size, first, lattice, flags, leaving })
        };
        let slabs = streams.iter().enumerate().map(slab).collect::<Result<_>>()?;
        let entering = streams.iter().map(halo).collect::<Result<_>>()?;
        Ok(Self { fluid, steps: 0, slabs, entering })
    }

    /// Restarts with the density 1 and these velocities.
    pub fn restart(&mut self, velocity: impl Fn([usize; 3]) -> [f32; 3]) -> Result<()> {
        self.steps = 0;
        for slab in &mut self.slabs {
            let count = slab.flags.len();
            let mut host = vec![T::ZERO; slab.lattice.len()];
            for (i, cell) in cells(slab.size, slab.first).enumerate() {
                let fluid = Fluid { velocity: velocity(cell), ..self.fluid };
                check_velocity(fluid.velocity)?;
                // An inflow is in equilibrium.
                let mut f = [0.0; POPULATIONS];
                collide(&mut f, INFLOW, &fluid);
                f.iter().enumerate().for_each(|(q, f)| host[q * count + i] = f.cast());
            }
            slab.lattice.copy_from_host(&host)?;
        }
        Ok(())
    }

    /// Enqueues steps.
    pub fn run(&mut self, steps: usize) -> Result<()> {
        for _ in 0..steps {
            match &mut self.slabs[..] {
                [slab] => slab.launch(&self.fluid, 0, slab.size[2], self.steps)?,
                _ => self.exchange()?,
            }
            self.steps += 1;
        }
        Ok(())
    }

    /// Waits for the end of all steps.
    pub fn wait(&self) -> Result<()> {
        self.slabs.iter().try_for_each(|slab| Ok(slab.stream.synchronize()?))
    }

    /// Returns density and velocity of the cells of a layer, row by row. The velocity of solid cells is 0.
    pub fn layer(&self, z: usize) -> Result<Vec<[f32; 4]>> {
        let slab = self.slabs.iter().rfind(|slab| slab.first <= z).unwrap_or(&self.slabs[0]);
        let ([nx, ny, nz], z) = (slab.size, z - slab.first);
        // The axis of a plane is rotated against its velocity.
        let place = |at: usize, n: usize, c: i32| {
            (at + n).wrapping_add_signed(-c as isize * (self.steps % n) as isize) % n
        };
        let layer_of = |q: usize| {
            let first = (q * nz + place(z, nz, velocity(q)[2])) * nx * ny;
            slab.lattice.slice(first..first + nx * ny).to_host()
        };
        let planes = (0..POPULATIONS).map(layer_of).collect::<std::result::Result<Vec<_>, _>>()?;
        let kinds = slab.flags.slice(z * nx * ny..(z + 1) * nx * ny).to_host()?;
        let cell = |(i, kind): (usize, u8)| {
            let at = |q: usize| place(i / nx, ny, velocity(q)[1]) * nx + i % nx;
            let f = std::array::from_fn(|q| planes[q][at(q)].cast());
            let (excess, [u, v, w]) = moments(&f, self.fluid.half_force);
            let moves = if kind == WALL || kind == LID { 0.0 } else { 1.0 };
            [1.0 + excess / SCALE, moves * u, moves * v, moves * w]
        };
        Ok(kinds.into_iter().enumerate().map(cell).collect())
    }

    /// Enqueues a step on several devices: first the ends of each slab, and then the inner layers, during which the
    /// populations that leave the slabs are copied.
    fn exchange(&mut self) -> Result<()> {
        let (fluid, steps, count) = (self.fluid, self.steps, self.slabs.len());
        for slab in &mut self.slabs {
            slab.launch(&fluid, slab.size[2] - 1, slab.size[2].min(2), steps)?;
            for direction in 0..2 {
                let ([first, pitch], [rows, columns]) = slab.crossing(direction, steps);
                let from = slab.lattice.slice(first..).as_2d_strided(rows, columns, pitch)?;
                slab.stream.copy_rows(from, slab.leaving[direction].as_2d_mut(rows, columns)?)?;
            }
        }
        for (i, slab) in self.slabs.iter().enumerate() {
            for (direction, to) in [(i + 1) % count, (i + count - 1) % count].into_iter().enumerate() {
                slab.copies.copy(&slab.leaving[direction], &mut self.entering[to][direction])?;
            }
        }
        for (slab, entering) in self.slabs.iter_mut().zip(&self.entering) {
            slab.launch(&fluid, 1, slab.size[2].saturating_sub(2), steps)?;
            for (direction, entering) in entering.iter().enumerate() {
                let ([first, pitch], [rows, columns]) = slab.crossing(direction, steps);
                let to = slab.lattice.slice_mut(first..).into_2d_strided(rows, columns, pitch)?;
                slab.stream.copy_rows(entering.as_2d(rows, columns)?, to)?;
            }
        }
        Ok(())
    }
}

impl<T: Scalar> Slab<T>
where
    step<T, WORDS>: Instance,
{
    /// Enqueues a step of some layers.
    fn launch(&mut self, fluid: &Fluid, first: usize, layers: usize, steps: usize) -> Result<()> {
        if layers == 0 {
            return Ok(());
        }
        let [nx, ny, nz] = self.size;
        let part = Part {
            size: self.size.map(|n| n as u32),
            rotation: [(steps % ny) as u32, (steps % nz) as u32],
            first: (first % nz) as u32,
            layers: layers as u32,
        };
        let threads = (nx * T::SIZE / (4 * WORDS)).next_multiple_of(32);
        let launch = Launch::grid_block((layers * ny) as u32, threads as u32).dependent();
        let kernel = self.stream.device().load(&KERNELS)?.kernel::<step<T, WORDS>>()?;
        let arguments = (part, *fluid, &self.flags, SharedLen(threads), &mut self.lattice);
        Ok(kernel.launch(&self.stream, launch, arguments)?)
    }

    /// Place in the lattice of the populations that leave the slab upward (0) or downward (1) in a step: first element
    /// and distance of the planes, number of planes and elements per plane.
    fn crossing(&self, direction: usize, steps: usize) -> ([usize; 2], [usize; 2]) {
        let ([nx, ny, nz], plane) = (self.size, self.flags.len());
        let layer = [nz - 1 - steps % nz, steps % nz][direction];
        ([VERTICAL[direction] * plane + layer * nx * ny, plane], [5, nx * ny])
    }
}

/// Returns the positions of the cells of a slab.
fn cells([nx, ny, nz]: [usize; 3], first: usize) -> impl Iterator<Item = [usize; 3]> {
    (0..nx * ny * nz).map(move |i| [i % nx, i / nx % ny, i / (nx * ny) + first])
}

/// Kinds of the cells of a channel along x with a cylinder, an inflow and an outflow.
pub fn cylinder([nx, ny, _]: [usize; 3], [x, y, _]: [usize; 3]) -> u8 {
    // The cylinder is not exactly in the middle, so that vortices form.
    let (dx, dy) = (x as f32 - nx as f32 / 5.0, y as f32 - ny as f32 / 2.0 + 1.25);
    match x {
        _ if dx.hypot(dy) < ny as f32 / 10.0 => WALL,
        0 => INFLOW,
        _ if x + 1 == nx => OUTFLOW,
        _ => FLUID,
    }
}

/// Opens devices by their names, separated by commas, or the best device.
pub fn open(names: Option<&str>) -> Result<Vec<Stream>> {
    let devices = match names {
        Some(names) => names.split(',').map(Device::open).collect::<std::result::Result<_, _>>()?,
        None if KERNELS.missing().is_some() => vec![Device::emulated(0)?],
        None => vec![Device::best()?],
    };
    devices.iter().map(|device| Ok(Stream::new(device)?)).collect()
}
