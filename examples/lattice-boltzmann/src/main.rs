//! Measures the fluid, draws a vortex street or, without a command, checks a flow: `lattice-boltzmann --help`.

use std::f32::consts::TAU;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Parser, Subcommand, ValueEnum};
use lattice_boltzmann::picture::Picture;
use lattice_boltzmann::{CELLS, Error, Settings, Simulation, cylinder, open};
use lattice_boltzmann_kernels::{FLUID, POPULATIONS, observe, step};
use warpsmith::f16;
use warpsmith::gpu_std::scalar::Scalar;
use warpsmith::prelude::{Instance, Stream};

#[derive(Parser)]
#[command(about = "A fluid by the lattice Boltzmann method (D3Q19)")]
struct Arguments {
    /// Devices: `cpu`, `cuda:0`, or several, such as `cuda:0,cuda:1` [default: the best device]
    #[arg(value_delimiter = ',')]
    devices: Vec<String>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the updates per second
    Bench {
        /// Cells along x, y and z
        #[arg(long, num_args = 3, default_values_t = [256, 256, 256])]
        size: Vec<usize>,
        #[arg(long, value_enum, default_value = "f32")]
        storage: Stored,
        /// Steps per run, of which there are five
        #[arg(long, default_value_t = 100)]
        steps: usize,
        /// Steps that are computed part by part in the L2 cache, and layers per part
        #[arg(long, num_args = 2, default_values_t = [1, 1 << 20])]
        blocking: Vec<usize>,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Draw the vorticity behind a cylinder
    VortexStreet {
        /// Cells along x, y and z
        #[arg(long, num_args = 3, default_values_t = [512, 160, 1])]
        size: Vec<usize>,
        #[arg(long, default_value_t = 150.0)]
        reynolds: f32,
        #[arg(long, default_value_t = 0.1)]
        velocity: f32,
        #[arg(long, default_value_t = 20000)]
        steps: usize,
        /// Pictures of the time-lapse, at equal distances; one picture shows the last step
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        frames: u32,
        #[arg(long, default_value = "vortex-street.png")]
        picture: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Stored {
    F32,
    F16,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let streams = open(&arguments.devices)?;
    match arguments.command {
        None => check(&streams),
        Some(Command::Bench { size, storage, steps, blocking, json }) => {
            let mut settings = Settings::new([size[0], size[1], size[2]], 0.01);
            settings.velocity[0] = 0.05;
            settings.blocking = [blocking[0], blocking[1]];
            match storage {
                Stored::F32 => bench::<f32>(&streams, settings, steps, json),
                Stored::F16 => bench::<f16>(&streams, settings, steps, json),
            }
        }
        Some(Command::VortexStreet { size, reynolds, velocity, steps, frames, picture }) => {
            let size = [size[0], size[1], size[2]];
            let mut settings = Settings::new(size, velocity * size[1] as f32 / 5.0 / reynolds);
            settings.velocity[0] = velocity;
            let failed = |error| Error::Picture(picture.clone(), error);
            // The file comes first, so that a wrong path does not cost the whole simulation.
            let mut file = Picture::create(&picture, [size[0], size[1]], frames).map_err(failed)?;
            let mut flow = Simulation::<f32>::new(&streams, settings, |at| cylinder(size, at))?;
            flow.restart(|_| settings.velocity)?;
            for frame in 0..frames as usize {
                let until = |frame| steps * frame / frames as usize;
                flow.run(until(frame + 1) - until(frame))?;
                let layer = flow.layer(size[2] / 2)?;
                file.add(size[0], &layer, 20.0 * velocity / size[1] as f32).map_err(failed)?;
            }
            Ok(file.finish().map_err(failed)?)
        }
    }
}

/// Compares a decaying shear flow with the analytic solution.
fn check(streams: &[Stream]) -> Result<(), Box<dyn std::error::Error>> {
    let (n, steps, viscosity, speed) = (16, 100, 0.02, 0.05);
    let profile = |y: usize| (TAU * y as f32 / n as f32).sin();
    let settings = Settings::new([8, n, streams.len().max(4)], viscosity);
    let mut flow = Simulation::<f32>::new(streams, settings, |_| FLUID)?;
    flow.restart(|[_, y, _]| [speed * profile(y), 0.0, 0.0])?;
    flow.run(steps)?;
    let layer = flow.layer(0)?;
    let amplitude = (0..n).map(|y| layer[8 * y][1] * profile(y)).sum::<f32>() * 2.0 / n as f32;
    let expected = speed * (-viscosity * (TAU / n as f32).powi(2) * steps as f32).exp();
    println!("amplitude of a shear flow after {steps} steps: {amplitude:.6}, analytic {expected:.6}");
    if (amplitude / expected - 1.0).abs() > 0.01 {
        return Err("the flow decays at a wrong rate".into());
    }
    Ok(())
}

fn bench<T: Scalar>(
    streams: &[Stream],
    settings: Settings,
    steps: usize,
    json: bool,
) -> Result<(), Box<dyn std::error::Error>>
where
    step<T, CELLS>: Instance,
    observe<T>: Instance,
{
    let size = settings.size;
    let blocking = settings.blocking;
    let mut flow = Simulation::<T>::new(streams, settings, |at| cylinder(size, at))?;
    flow.run(steps.min(10))?;
    flow.wait()?;
    let mut seconds = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        flow.run(steps)?;
        flow.wait()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let updates = size.iter().product::<usize>() as f64 * steps as f64 / seconds[2];
    let bytes = 2 * POPULATIONS * size_of::<T>() + 1;
    let (mlups, rate) = (updates / 1e6, updates * bytes as f64 / 1e9);
    if json {
        let document = serde_json::json!({
            "device": streams[0].device().name(), "devices": streams.len(), "size": size,
            "bytes_per_population": size_of::<T>(), "blocking": blocking,
            "mlups": mlups, "gb_per_s": rate,
        });
        println!("{document}");
    } else {
        println!("{mlups:.0} MLUPs/s, {rate:.0} GB/s without the cache");
    }
    Ok(())
}
