//! Gravitational n-body simulation. Positions and velocities are glam vectors, and the kernel loads tiles of bodies
//! into shared memory.
//!
//! `cargo run --release --example nbody -- [DEVICE] [BODIES]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the
//! best available device. The kernel is `test_kernels::nbody`.

use std::error::Error;
use std::time::Instant;

use glam::{DVec3, Vec3A};
use test_kernels::IMAGE;
use test_kernels::nbody::{TILE, nbody};
use warpsmith::{Device, DeviceBuffer, Launch};

const DT: f32 = 0.001;
const SOFTENING: f32 = 0.05;
const STEPS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let bodies = match std::env::args().nth(2) {
        Some(bodies) => bodies.parse()?,
        None if device.is_emulated() => 1_000,
        None => 100_000,
    };
    let stream = device.default_stream();
    let (start, masses) = cloud(bodies);

    let masses_device = DeviceBuffer::from_host(&stream, &masses)?;
    let mut positions = DeviceBuffer::from_host(&stream, &start)?;
    let mut velocities = DeviceBuffer::from_host(&stream, &vec![Vec3A::ZERO; bodies])?;
    let mut moved = DeviceBuffer::uninit(&stream, bodies)?;

    let kernel = device.load(&IMAGE)?.kernel::<nbody>()?;
    let mut seconds = 0.0;
    for step in 0..STEPS {
        let clock = Instant::now();
        let arguments = (DT, SOFTENING, &positions, &masses_device, &mut velocities, &mut moved);
        kernel.launch(&stream, Launch::linear(bodies, TILE as u32), arguments)?;
        std::mem::swap(&mut positions, &mut moved);
        stream.synchronize()?;
        // The first launch also loads the kernel, so it is not timed.
        if step > 0 {
            seconds += clock.elapsed().as_secs_f64();
        } else {
            check_first_step(&start, &masses, &velocities.to_host()?)?;
        }
    }
    check_momentum(&masses, &velocities.to_host()?)?;

    let pairs = (STEPS - 1) as f64 * (bodies as f64).powi(2);
    println!("{STEPS} steps of {bodies} bodies on {}: correct", device.name());
    println!("{:.2} billion interactions a second", pairs / seconds / 1e9);
    Ok(())
}

/// Creates bodies at rest, distributed over a spiral, with different masses whose sum is about 1.
fn cloud(bodies: usize) -> (Vec<Vec3A>, Vec<f32>) {
    let position = |i: usize| {
        let (turn, height) = (i as f32 * 2.399_963, (i as f32 * 0.754_878).fract() - 0.5);
        let radius = ((i as f32 + 0.5) / bodies as f32).sqrt();
        Vec3A::new(radius * turn.cos(), radius * turn.sin(), height)
    };
    let mass = |i: usize| (1.0 + (i % 7) as f32) / (4.0 * bodies as f32);
    ((0..bodies).map(position).collect(), (0..bodies).map(mass).collect())
}

/// For some of the bodies, compares the velocities after one step from rest with double precision on the CPU.
fn check_first_step(start: &[Vec3A], masses: &[f32], velocities: &[Vec3A]) -> Result<(), String> {
    let softening = f64::from(SOFTENING).powi(2);
    for i in (0..start.len()).step_by(1 + start.len() / 100) {
        let mut pull = DVec3::ZERO;
        for (other, mass) in start.iter().zip(masses) {
            let offset = other.as_dvec3() - start[i].as_dvec3();
            pull += offset * f64::from(*mass) / (offset.length_squared() + softening).powf(1.5);
        }
        let (exact, found) = (pull * f64::from(DT), velocities[i].as_dvec3());
        let error = exact.distance(found);
        if error.is_nan() || error > 1e-4 * exact.length() {
            return Err(format!("body {i} moves at {found}, not {exact}"));
        }
    }
    Ok(())
}

/// Checks that the bodies' momenta cancel out.
fn check_momentum(masses: &[f32], velocities: &[Vec3A]) -> Result<(), String> {
    let momenta =
        masses.iter().zip(velocities).map(|(mass, velocity)| velocity.as_dvec3() * f64::from(*mass));
    let (total, sizes) = momenta.fold((DVec3::ZERO, 0.0), |(sum, sizes), p| (sum + p, sizes + p.length()));
    if total.length() <= 1e-4 * sizes { Ok(()) } else { Err(format!("momentum {total} came out of nothing")) }
}
