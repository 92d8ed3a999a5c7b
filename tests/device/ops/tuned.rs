//! Operations use their tuned configuration, and skip configurations that cannot be launched.
//!
//! The tests use a separate emulated device, so that they neither count other tests' launches nor disturb other tests.

use warpsmith::emulated::EmulatedDriver;
use warpsmith::ops::{self, Config, GridRule, tuned_config};
use warpsmith::prelude::*;
use warpsmith::store::{LaunchStore, TunedConfiguration, TuningKey};
use warpsmith::{Graph, IMAGE};

const N: usize = 20_011;

fn device() -> Device {
    Device::with_driver(EmulatedDriver::builder().memory(1 << 28).build(), 0).unwrap()
}

/// A configuration as the tuner stores it.
fn values(config: Config) -> TunedConfiguration {
    let Config { block, grid, items, vector } = config;
    let values = [
        ("block", block.to_string()),
        ("grid", grid.to_string()),
        ("items", items.to_string()),
        ("vector", vector.to_string()),
    ];
    TunedConfiguration {
        values: values.map(|(axis, value)| (axis.to_owned(), value)).into(),
        symbol: None,
        threads: None,
        median_us: 1.0,
        toolchain: "a test".to_owned(),
    }
}

/// Stores a configuration for `N` elements.
fn keep(device: &Device, kernel: &str, types: &str, alignment: u32, configuration: TunedConfiguration) {
    let image = device.load(&IMAGE).unwrap().image_hash();
    let (package, n) = ("warpsmith-gpu-kernels", N as u64);
    let subject = TuningKey { device: device.properties(), package, kernel, types, image, n, alignment };
    LaunchStore::of(device).store_tuned(&subject, configuration).unwrap();
}

/// Symbol, grid and block of the kernel that `operation` launches, read from a graph of it.
fn launched(stream: &Stream, operation: impl FnOnce() -> warpsmith::Result<()>) -> String {
    let dot = Graph::capture(stream, operation).unwrap().to_dot().unwrap();
    let labels =
        dot.split("[label=\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(label, _)| label);
    let mut kernels = labels.filter(|label| label.contains("] x ["));
    kernels.next().unwrap_or_else(|| panic!("no kernel in {dot}")).to_owned()
}

fn label(symbol: &str, blocks: u32, block: u32) -> String {
    format!("{symbol}\\n[{blocks}, 1, 1] x [{block}, 1, 1]")
}

/// Symbol of a kernel instance for f32 with these items and vector bytes.
fn symbol(kernel: &str, types: &str, items: u32, vector: u32) -> &'static str {
    let number = |value: u32| Some(i64::from(value));
    let mut all = warpsmith::gpu_std::registry::kernels();
    all.find(|spec| {
        let names: Vec<&str> = spec.types.iter().map(|argument| argument.name).collect();
        spec.name == kernel
            && names.join(",") == types
            && spec.const_argument("ITEMS") == number(items)
            && spec.const_argument("VECTOR") == number(vector)
    })
    .unwrap_or_else(|| panic!("no {kernel} for {types} with {items} of {vector}"))
    .symbol
}

/// A configuration that differs from all defaults.
const TUNED: Config = Config { block: 96, grid: GridRule::Blocks(5), items: 2, vector: 4 };

#[test]
fn an_operation_takes_its_tuned_configuration() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let x = DeviceBuffer::from_host(&stream, &vec![1.0f32; N + 1]).unwrap();
    let mut y = DeviceBuffer::from_host(&stream, &vec![2.0f32; N + 1]).unwrap();
    let mut axpy = |from: usize, len: usize| {
        launched(&stream, || ops::axpy(&stream, x.slice(from..from + len), 3.0, y.slice_mut(..len)))
    };
    let default = axpy(0, N);
    assert_eq!(tuned_config("axpy", "f32", N, 16, &device), None);
    keep(&device, "axpy", "f32", 16, values(TUNED));
    assert_eq!(tuned_config("axpy", "f32", N, 256, &device), Some(TUNED));
    let expected = label(symbol("axpy", "f32", 2, 4), 5, 96);
    assert_ne!(default, expected);
    assert_eq!(axpy(0, N), expected, "a launch before it was tuned makes no difference");
    assert_eq!(axpy(0, N + 1), expected, "of about the same size");
    // Launches that do not match the stored key keep the default.
    assert_ne!(axpy(1, N), expected, "one of the arrays is not aligned to 16 bytes");
    assert_ne!(axpy(0, N / 2), expected, "of another size");
    for (kernel, dtype, n, alignment) in
        [("axpy", "f64", N, 16), ("copy", "f32", N, 16), ("axpy", "f32", N / 2, 16), ("axpy", "f32", N, 4)]
    {
        assert_eq!(
            tuned_config(kernel, dtype, n, alignment, &device),
            None,
            "{kernel} {dtype} {n} {alignment}"
        );
    }
    keep(&device, "axpy", "f32", 4, values(Config { block: 32, ..TUNED }));
    assert_eq!(axpy(1, N), label(symbol("axpy", "f32", 2, 4), 5, 32));
    LaunchStore::in_memory().install(&device);
    assert_eq!(axpy(0, N), default, "the store was taken away");
}

#[test]
fn a_given_configuration_overrides_the_tuned_one() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let mut x = DeviceBuffer::from_host(&stream, &vec![1.0f32; N]).unwrap();
    keep(&device, "fill", "u32", 16, values(Config { items: 1, vector: 16, ..TUNED }));
    let given = Config { block: 64, grid: GridRule::Blocks(3), items: 4, vector: 16 };
    let found = launched(&stream, || ops::with_config(given, || ops::fill(&stream, 1.0, &mut x)));
    assert_eq!(found, label(symbol("fill", "u32", 4, 16), 3, 64));
    let tuned = label(symbol("fill", "u32", 1, 16), 5, 96);
    let found = ops::with_config(given, || {
        ops::fill(&stream, 2.0, &mut x).unwrap();
        launched(&stream, || ops::fill(&stream, 1.0, &mut x))
    });
    assert_eq!(found, tuned, "only the first launch has the given configuration; f32 is filled as u32");
    ops::with_config(given, || ());
    let found = launched(&stream, || ops::fill(&stream, 1.0, &mut x));
    assert_eq!(found, tuned, "the configuration ends with the closure");
}

#[test]
fn what_cannot_be_launched_is_passed_over() {
    let device = device();
    let stream = Stream::new(&device).unwrap();
    let x = DeviceBuffer::from_host(&stream, &vec![1u32; N]).unwrap();
    let mut sum = DeviceBuffer::zeros(&stream, 1).unwrap();
    let mut summed = || launched(&stream, || ops::sum_into(&stream, &x, &mut sum));
    let default = summed();
    let good = values(Config { items: 4, vector: 16, ..TUNED });
    keep(&device, "reduce_sum", "u32", 16, good.clone());
    let expected = label(symbol("reduce_sum", "u32", 4, 16), 5, 96);
    assert_eq!(summed(), expected);
    let with = |axis: &str, value: &str| {
        let mut values = good.values.clone();
        values.retain(|(name, _)| name != axis);
        values.push((axis.to_owned(), value.to_owned()));
        TunedConfiguration { values, ..good.clone() }
    };
    let without = |axis: &str| {
        let mut values = good.values.clone();
        values.retain(|(name, _)| name != axis);
        TunedConfiguration { values, ..good.clone() }
    };
    let impossible = [
        with("block", "0"),
        with("block", "513"),
        with("block", "4294967296"),
        with("block", "many"),
        with("grid", "blocks:0"),
        with("grid", "blocks:4294967295"),
        with("grid", "waves:4294967295"),
        with("grid", "balanced"),
        with("items", "3"),
        with("vector", "5"),
        with("cluster", "2"),
        without("block"),
        without("grid"),
        without("items"),
        without("vector"),
        TunedConfiguration { symbol: Some("reduce_sum__f64_4_16".to_owned()), ..good.clone() },
    ];
    for configuration in impossible {
        let what = format!("{configuration:?}");
        keep(&device, "reduce_sum", "u32", 16, configuration);
        assert_eq!(tuned_config("reduce_sum", "u32", N, 16, &device), None, "{what}");
        assert_eq!(summed(), default, "{what}");
        assert_eq!(ops::sum(&stream, &x).unwrap(), N as u64, "{what}");
    }
    let named = Some(symbol("reduce_sum", "u32", 4, 16).to_owned());
    keep(&device, "reduce_sum", "u32", 16, TunedConfiguration { symbol: named, ..good.clone() });
    assert_eq!(summed(), expected);
}
