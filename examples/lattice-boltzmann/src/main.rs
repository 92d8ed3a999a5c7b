//! Checks, measures and draws the flow around a cylinder: `lattice-boltzmann --help`.

use std::f32::consts::TAU;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use lattice_boltzmann::{Error, Settings, Simulation, WORDS, cylinder, open, picture};
use lattice_boltzmann_kernels::{FLUID, POPULATIONS, step};
use warpsmith::f16;
use warpsmith::gpu_std::scalar::Scalar;
use warpsmith::prelude::{Instance, Stream};

type Result = std::result::Result<(), Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(about = "Simulates a fluid with the lattice Boltzmann method (D3Q19)")]
struct Arguments {
    /// Device, such as `cpu` or `cuda:0`, or several: `cuda:0,cuda:1` [default: the best device]
    devices: Option<String>,
    #[arg(value_enum, default_value = "check")]
    mode: Mode,
    /// Cells along x, y and z
    #[arg(long, num_args = 3, default_values_t = [512, 160, 1])]
    size: Vec<usize>,
    /// Steps of the vortex street, or of each of five measurements
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Stores the populations as f16 instead of f32
    #[arg(long)]
    f16: bool,
    /// Velocity of the inflow, in cells per step
    #[arg(long, default_value_t = 0.1)]
    velocity: f32,
    #[arg(long, default_value_t = 150.0)]
    reynolds: f32,
    /// Picture of the vortex street after the last step
    #[arg(long, default_value = "vortex-street.png")]
    picture: PathBuf,
    /// Frames of the picture, which show the time-lapse if there are several
    #[arg(long, default_value_t = 1)]
    frames: usize,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    /// Compares a small flow with its analytic solution
    Check,
    /// Measures cell updates per second, and prints a JSON document
    Bench,
    /// Draws the vorticity behind the cylinder
    VortexStreet,
}

fn main() -> ExitCode {
    let result = run(&Arguments::parse());
    if let Err(error) = &result {
        eprintln!("error: {error}");
    }
    ExitCode::from(u8::from(result.is_err()))
}

fn run(arguments: &Arguments) -> Result {
    let streams = open(arguments.devices.as_deref())?;
    match arguments.mode {
        Mode::Check => check(&streams),
        _ if arguments.f16 => flow::<f16>(arguments, &streams),
        _ => flow::<f32>(arguments, &streams),
    }
}

/// Compares the decay of a shear flow with the analytic solution.
fn check(streams: &[Stream]) -> Result {
    let (n, steps, viscosity, speed) = (32, 200, 0.02, 0.05);
    let profile = |y: usize| (TAU * y as f32 / n as f32).sin();
    let settings = Settings::new([8, n, streams.len()], viscosity);
    let mut flow = Simulation::<f32>::new(streams, settings, |_| FLUID)?;
    flow.restart(|[_, y, _]| [speed * profile(y), 0.0, 0.0])?;
    flow.run(steps)?;
    let layer = flow.layer(0)?;
    let amplitude = (0..n).map(|y| layer[8 * y][1] * profile(y)).sum::<f32>() * 2.0 / n as f32;
    let expected = speed * (-viscosity * (TAU / n as f32).powi(2) * steps as f32).exp();
    println!("amplitude of a shear flow after {steps} steps: {amplitude:.6}, analytic {expected:.6}");
    if (amplitude / expected - 1.0).abs() < 0.01 {
        Ok(())
    } else {
        Err("the flow decays at a wrong rate".into())
    }
}

/// Measures or draws the flow around the cylinder.
fn flow<T: Scalar>(arguments: &Arguments, streams: &[Stream]) -> Result
where
    step<T, WORDS>: Instance,
{
    let &Arguments { steps, velocity, .. } = arguments;
    let size = [arguments.size[0], arguments.size[1], arguments.size[2]];
    let mut settings = Settings::new(size, velocity * size[1] as f32 / 5.0 / arguments.reynolds);
    settings.velocity[0] = velocity;
    let mut flow = Simulation::<T>::new(streams, settings, |at| cylinder(size, at))?;
    if arguments.mode == Mode::VortexStreet {
        let failed = |error| Error::Picture(arguments.picture.clone(), error);
        let file = File::create(&arguments.picture).map_err(|error| failed(error.into()))?;
        flow.restart(|_| settings.velocity)?;
        let mut frames = Vec::new();
        let count = arguments.frames.max(1);
        for frame in 0..count {
            let end = |frame| steps * frame / count;
            flow.run(end(frame + 1) - end(frame))?;
            let range = 20.0 * velocity / size[1] as f32;
            frames.push(picture::vorticity(size[0], &flow.layer(size[2] / 2)?, range));
        }
        return Ok(picture::write(file, [size[0], size[1]], &frames).map_err(failed)?);
    }

    let mut measure = || {
        let start = Instant::now();
        flow.run(steps)?;
        flow.wait()?;
        Ok::<_, Error>(start.elapsed().as_secs_f64())
    };
    measure()?;
    let mut seconds = (0..5).map(|_| measure()).collect::<std::result::Result<Vec<_>, _>>()?;
    seconds.sort_by(f64::total_cmp);
    let updates = size.iter().product::<usize>() as f64 * steps as f64 / seconds[2];
    let (mlups, rate) = (updates / 1e6, updates * (2 * POPULATIONS * T::SIZE + 1) as f64 / 1e9);
    let document = serde_json::json!({
        "device": streams[0].device().name(), "devices": streams.len(), "size": size, "lattice": T::NAME,
        "mlups": mlups, "gb_per_s": rate,
    });
    println!("{document}");
    Ok(())
}
