//! Compares the fluid with analytic solutions and with a plain simulation, on the device that `WARPSMITH_TEST_DEVICE`
//! names (by default an emulated device per test).

use std::f32::consts::TAU;

use lattice_boltzmann::{Error, MAX_ROW, Result, Settings, Simulation, WORDS};
use lattice_boltzmann_kernels::{
    FLUID, Fluid, INFLOW, LID, OUTFLOW, POPULATIONS, SCALE, WALL, collide, step, velocity,
};
use warpsmith::emulated::EmulatedDriver;
use warpsmith::f16;
use warpsmith::gpu_std::scalar::Scalar;
use warpsmith::prelude::{Device, Instance, Stream};

#[allow(dead_code, reason = "the test runs the benchmarks itself, not by their `main`")]
#[path = "../benches/tune.rs"]
mod tune;

fn stream() -> Vec<Stream> {
    let device = match std::env::var("WARPSMITH_TEST_DEVICE") {
        Ok(name) => Device::open(&name),
        // With its own driver, a test does not fail because of a fault in another test.
        Err(_) => Device::with_driver(EmulatedDriver::from_environment(), 0),
    };
    vec![device.unwrap().default_stream()]
}

fn all<T: Scalar>(flow: &Simulation<T>, layers: usize) -> Vec<[f32; 4]>
where
    step<T, WORDS>: Instance,
{
    (0..layers).flat_map(|z| flow.layer(z).unwrap()).collect()
}

/// Returns the density of all cells.
fn mass(cells: &[[f32; 4]]) -> f64 {
    cells.iter().map(|cell| f64::from(cell[0])).sum()
}

fn poiseuille<T: Scalar>(tolerance: f32) -> Result<()>
where
    step<T, WORDS>: Instance,
{
    let (size, height) = ([4, 12, 2], 10.0);
    for viscosity in [0.05, 1.0 / 6.0] {
        let mut settings = Settings::new(size, viscosity);
        settings.acceleration[0] = 8.0 * viscosity * 0.05 / (height * height);
        let is_wall = |y: usize| y == 0 || y == 11;
        let mut flow =
            Simulation::<T>::new(&stream(), settings, |[_, y, _]| if is_wall(y) { WALL } else { FLUID })?;
        flow.run((150.0 / viscosity) as usize)?;
        let cells = all(&flow, 2);
        for (i, [_, u, v, w]) in cells.iter().enumerate() {
            let y = (i / 4 % 12) as f32 - 0.5;
            let expected = if is_wall(i / 4 % 12) { 0.0 } else { 0.2 * y * (height - y) / (height * height) };
            assert!(
                (u - expected).abs() < tolerance * 0.05,
                "{u} instead of {expected} at {y}, viscosity {viscosity}"
            );
            assert!(v.abs() + w.abs() < tolerance * 0.05);
        }
        assert!((mass(&cells) / 96.0 - 1.0).abs() < if T::SIZE == 4 { 1e-5 } else { 1e-3 });
    }
    Ok(())
}

#[test]
fn channel_flow_is_the_parabola_of_poiseuille() -> Result<()> {
    poiseuille::<f32>(1e-3)?;
    poiseuille::<f16>(5e-2)
}

/// Checks the decay of a vortex pattern in two of three axes.
fn taylor_green<T: Scalar>(axes: [usize; 2], tolerance: f64) -> Result<()>
where
    step<T, WORDS>: Instance,
{
    const SIDE: usize = 24;
    let (speed, viscosity, steps) = (0.02, 0.05, 200);
    let mut size = [4; 3];
    axes.iter().for_each(|axis| size[*axis] = SIDE);
    let wave = |cell: [usize; 3]| {
        let [a, b] = axes.map(|axis| TAU * cell[axis] as f32 / SIDE as f32);
        let mut u = [0.0; 3];
        (u[axes[0]], u[axes[1]]) = (speed * a.cos() * b.sin(), -speed * a.sin() * b.cos());
        u
    };
    let mut flow = Simulation::<T>::new(&stream(), Settings::new(size, viscosity), |_| FLUID)?;
    flow.restart(wave)?;
    let before = all(&flow, size[2]);
    flow.run(steps)?;
    let after = all(&flow, size[2]);
    let projected = |cells: &[[f32; 4]]| -> f64 {
        let at = |i: usize| [i % size[0], i / size[0] % size[1], i / size[0] / size[1]];
        let products = cells.iter().enumerate().map(|(i, [_, u, v, w])| {
            let expected = wave(at(i));
            f64::from(u * expected[0] + v * expected[1] + w * expected[2])
        });
        products.sum()
    };
    let decay = projected(&after) / projected(&before);
    let k = std::f64::consts::TAU / SIDE as f64;
    let expected = (-2.0 * f64::from(viscosity) * k * k * steps as f64).exp();
    assert!((decay / expected - 1.0).abs() < tolerance, "decay {decay} instead of {expected} in {axes:?}");
    assert!((mass(&after) / mass(&before) - 1.0).abs() < if T::SIZE == 4 { 1e-6 } else { 1e-4 });
    Ok(())
}

#[test]
fn vortices_decay_as_taylor_and_green_computed() -> Result<()> {
    taylor_green::<f32>([0, 1], 0.01)?;
    taylor_green::<f32>([1, 2], 0.01)?;
    taylor_green::<f32>([2, 0], 0.01)?;
    taylor_green::<f16>([0, 1], 0.02)
}

#[test]
fn lid_drives_a_linear_profile() -> Result<()> {
    let mut settings = Settings::new([4, 10, 1], 0.2);
    settings.velocity = [0.04, 0.0, 0.02];
    let kind = |[_, y, _]: [usize; 3]| {
        if y == 0 {
            WALL
        } else if y == 9 {
            LID
        } else {
            FLUID
        }
    };
    let mut flow = Simulation::<f32>::new(&stream(), settings, kind)?;
    flow.run(1500)?;
    for (i, [_, u, _, w]) in flow.layer(0)?.into_iter().enumerate().filter(|(i, _)| (1..9).contains(&(i / 4)))
    {
        let share = ((i / 4) as f32 - 0.5) / 8.0;
        assert!((u - 0.04 * share).abs() < 4e-5 && (w - 0.02 * share).abs() < 4e-5, "{u}, {w} at {share}");
    }
    Ok(())
}

#[test]
fn inflow_fills_a_channel_that_the_outflow_empties() -> Result<()> {
    let mut settings = Settings::new([16, 4, 1], 0.1);
    settings.velocity[0] = 0.05;
    let kind = |[x, _, _]: [usize; 3]| [INFLOW, FLUID, OUTFLOW][usize::from(x > 0) + usize::from(x == 15)];
    let mut flow = Simulation::<f32>::new(&stream(), settings, kind)?;
    flow.run(600)?;
    for [density, u, ..] in flow.layer(0)? {
        assert!((density - 1.0).abs() < 1e-3 && (u - 0.05).abs() < 5e-4, "density {density}, velocity {u}");
    }
    Ok(())
}

/// Size and steps of the comparisons: all sides differ, and the rotations wrap around.
const SIZE: [usize; 3] = [12, 5, 7];
const STEPS: usize = 17;

fn settings() -> Settings {
    let mut settings = Settings::new(SIZE, 0.03);
    (settings.velocity, settings.acceleration) = ([0.05, 0.01, -0.02], [1e-4, -2e-4, 3e-4]);
    settings
}

/// Cells of all kinds.
fn kind([x, y, z]: [usize; 3]) -> u8 {
    match (5 * x + 11 * y + 17 * z) % 23 {
        0 => WALL,
        1 => LID,
        2 => INFLOW,
        3 => OUTFLOW,
        _ => FLUID,
    }
}

fn start([x, y, z]: [usize; 3]) -> [f32; 3] {
    [x * y, y + z, x + 3 * z].map(|i| 0.05 * (i as f32).sin())
}

fn simulated<T: Scalar>(streams: &[Stream]) -> Result<Vec<[f32; 4]>>
where
    step<T, WORDS>: Instance,
{
    let mut flow = Simulation::<T>::new(streams, settings(), kind)?;
    flow.restart(start)?;
    flow.run(STEPS - 5)?;
    flow.run(5)?;
    Ok(all(&flow, SIZE[2]))
}

#[test]
fn every_cell_equals_a_plain_simulation() -> Result<()> {
    let [nx, ny, nz] = SIZE;
    let at = |i: usize| [i % nx, i / nx % ny, i / nx / ny];
    let rates = [1.0 / (0.09 + 0.5), 1.0 / (3.0 / 16.0 / 0.09 + 0.5)];
    let half_force = settings().acceleration.map(|a| 0.5 * a);
    let push = half_force.map(|half| half * (2.0 / rates[1] - 1.0));
    let fluid = Fluid { rates, half_force, push, velocity: settings().velocity };
    let mut f: Vec<[f32; POPULATIONS]> = vec![[0.0; POPULATIONS]; nx * ny * nz];
    for (i, f) in f.iter_mut().enumerate() {
        collide(f, INFLOW, &Fluid { velocity: start(at(i)), ..fluid });
    }
    for _ in 0..STEPS {
        let mut next = f.clone();
        for (i, mut cell) in f.into_iter().enumerate() {
            collide(&mut cell, kind(at(i)), &fluid);
            let to = |q: usize| {
                let [x, y, z] = std::array::from_fn(|axis| {
                    (at(i)[axis] + SIZE[axis]).wrapping_add_signed(velocity(q)[axis] as isize) % SIZE[axis]
                });
                (z * ny + y) * nx + x
            };
            (0..POPULATIONS).for_each(|q| next[to(q)][q] = cell[q]);
        }
        f = next;
    }
    let found = simulated::<f32>(&stream())?;
    let half = simulated::<f16>(&stream())?;
    for (i, f) in f.iter().enumerate() {
        let density = 1.0 + f.iter().sum::<f32>() / SCALE;
        let momentum = |axis: usize| (0..POPULATIONS).map(|q| velocity(q)[axis] as f32 * f[q]).sum::<f32>();
        let is_solid = [WALL, LID].contains(&kind(at(i)));
        let u = |axis| momentum(axis) / SCALE / density + fluid.half_force[axis];
        let u = |axis| if is_solid { 0.0 } else { u(axis) };
        for (axis, expected) in [density, u(0), u(1), u(2)].into_iter().enumerate() {
            assert!(
                (found[i][axis] - expected).abs() < 1e-5,
                "cell {:?}: {:?}, {axis} {expected}",
                at(i),
                found[i]
            );
            assert!(
                (half[i][axis] - expected).abs() < 1e-3,
                "cell {:?}: {:?}, {axis} {expected}",
                at(i),
                half[i]
            );
        }
    }
    Ok(())
}

#[test]
fn several_devices_compute_the_bits_of_one() -> Result<()> {
    for count in [2, 3, 7] {
        let driver = EmulatedDriver::builder().devices(count).build();
        let streams: Vec<_> =
            (0..count).map(|i| Device::with_driver(driver.clone(), i).unwrap().default_stream()).collect();
        let one = &streams[..1];
        assert_eq!(simulated::<f32>(&streams)?, simulated::<f32>(one)?, "{count} devices");
        assert_eq!(simulated::<f16>(&streams)?, simulated::<f16>(one)?, "{count} devices");
    }
    Ok(())
}

#[test]
fn unsuitable_settings_are_errors() {
    let new = |settings| Simulation::<f32>::new(&stream(), settings, |_| FLUID).map(drop);
    let side = usize::MAX / 2;
    for size in [
        [0, 4, 4],
        [4, 0, 4],
        [4, 4, 0],
        [3, 4, 4],
        [MAX_ROW + 4, 4, 4],
        [4, side, side],
        [4, 1 << 20, 1],
        [4, 1 << 19, 1 << 10],
    ] {
        assert!(matches!(new(Settings::new(size, 0.1)), Err(Error::Size(..))), "{size:?}");
    }
    for viscosity in [0.0, -1.0, 1e-5, 2.0, f32::NAN, f32::INFINITY] {
        assert!(matches!(new(Settings::new([4; 3], viscosity)), Err(Error::Viscosity(_))), "{viscosity}");
    }
    for velocity in [[0.4, 0.0, 0.0], [0.2, 0.2, 0.2], [f32::NAN, 0.0, 0.0]] {
        let settings = Settings { velocity, ..Settings::new([4; 3], 0.1) };
        assert!(matches!(new(settings), Err(Error::Velocity(_))), "{velocity:?}");
        let mut flow = Simulation::<f32>::new(&stream(), Settings::new([4; 3], 0.1), |_| FLUID).unwrap();
        assert!(matches!(flow.restart(|_| velocity), Err(Error::Velocity(_))), "{velocity:?}");
    }
}

#[test]
fn lattice_larger_than_the_memory_is_an_error() {
    let driver = EmulatedDriver::builder().memory(8 << 20).build();
    let stream = Device::with_driver(driver, 0).unwrap().default_stream();
    let error =
        Simulation::<f32>::new(&[stream], Settings::new([64; 3], 0.1), |_| FLUID).map(drop).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
}

/// Runs the program on the emulated device, and returns standard output, or standard error of a failure.
fn program(arguments: &[&str]) -> std::result::Result<String, String> {
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_lattice-boltzmann"));
    let output = { program }.arg("cpu").args(arguments).output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    if output.status.success() { Ok(out) } else { Err(err) }
}

#[test]
fn program_measures_and_draws() {
    let bench = ["bench", "--size", "16", "8", "4", "--f16", "--steps", "2"];
    let document: serde_json::Value = serde_json::from_str(&program(&bench).unwrap()).unwrap();
    assert!(document["mlups"].as_f64().unwrap() > 0.0, "{document}");

    let path = std::env::temp_dir().join(format!("vortices-{}.png", std::process::id()));
    let arguments =
        ["vortex-street", "--size", "40", "20", "1", "--steps", "30", "--frames", "3", "--picture"];
    program(&[&arguments[..], &[path.to_str().unwrap()]].concat()).unwrap();
    let mut reader =
        png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap())).read_info().unwrap();
    assert_eq!(reader.info().animation_control.unwrap().num_frames, 3);
    for _ in 0..3 {
        let mut frame = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut frame).unwrap();
        // The picture has the cylinder and, at its sides, vorticity of both signs.
        let mut pixels = frame.chunks(3);
        assert!(pixels.clone().any(|pixel| pixel == [0; 3]));
        assert!(pixels.clone().any(|pixel| pixel[0] > pixel[2]) && pixels.any(|pixel| pixel[0] < pixel[2]));
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn wrong_use_of_the_program_is_one_error() {
    let cases: [(&[&str], &str); 6] = [
        (&["bench", "--size", "0", "8", "4"], "x must be a multiple"),
        (&["bench", "--size", "4000000000", "8", "4"], "x must be a multiple"),
        (&["bench", "--speed", "1"], "unexpected argument '--speed'"),
        (&["vortex-street", "--picture", "/nowhere/a.png"], "cannot write the picture /nowhere/a.png"),
        (&["vortex-street", "--velocity", "2"], "the velocity 2 is not at most"),
        (&["vortex-street", "--reynolds", "1e9"], "the viscosity"),
    ];
    for (arguments, text) in cases {
        let error = program(arguments).unwrap_err();
        assert!(error.contains(text) && !error.contains("panicked"), "{arguments:?}: {error}");
    }
}

#[test]
fn every_configuration_of_the_benchmarks_is_correct() -> std::result::Result<(), Box<dyn std::error::Error>> {
    use warpsmith::bench::benchmark::{Benchmark, Setup};
    let stream = &stream()[0];
    fn check(
        benchmark: &impl Benchmark,
        stream: &Stream,
        dtype: &'static str,
    ) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let mut case = benchmark.prepare(&Setup { stream, dtype, n: 4 * tune::ROW, copies: 1, seed: 1 })?;
        for configuration in benchmark.space(dtype, stream.device()).configurations(benchmark.name())? {
            case.select(&configuration)?;
            let check = case.check()?;
            assert!(check.correct(), "{configuration}: {:?}", check.problem());
        }
        Ok(())
    }
    check(&tune::step_f32(), stream, "f32")?;
    check(&tune::step_f16(), stream, "f16")
}
