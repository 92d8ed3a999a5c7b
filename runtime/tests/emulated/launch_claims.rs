//! Tests of every way to specify a launch, for kernels with every kind of claim. A launch whose threads could have the
//! same index must never be accepted.
//!
//! The kernels are hand-written, under the same conditions as those of `common`.
#![allow(clippy::undocumented_unsafe_blocks, reason = "see above")]

use std::ffi::c_void;

use crate::common::*;
use gpu_spec::{Claims, Kernel, KernelInfo, KernelSpec, SafeKernel};
use warpsmith_runtime::launch::Source;
use warpsmith_runtime::store::{LaunchStore, TunedConfiguration, TuningKey};
use warpsmith_runtime::{Device, Graph, Launch, LaunchConfig, Stream};

/// Maximum launch size in threads that the tests run.
const MAX_RUN: u64 = 1 << 14;

unsafe fn nothing(_: *const *const c_void) {}

macro_rules! kernels {
    ($($name:ident: $claims:ident $(, $field:ident: $value:expr)*;)*) => {
        $(
            struct $name;
            unsafe impl Kernel for $name {
                type Params = ();
                fn spec() -> &'static KernelSpec {
                    static SPEC: KernelSpec = KernelSpec {
                        info: KernelInfo {
                            claims: Claims::$claims,
                            $($field: $value,)*
                            ..KernelInfo::new("test-kernels", "0.0.0", stringify!($name), &[])
                        },
                        entry: nothing,
                        bytes: None,
                        lengths: None,
                    };
                    &SPEC
                }
            }
            unsafe impl SafeKernel for $name {}
        )*
        const SYMBOLS: &[&str] = &[$(stringify!($name)),*];

        /// Checks launches of all kernels.
        fn check_all(fixture: &Fixture, launches: &[(String, Launch)]) {
            $(fixture.check::<$name>(launches);)*
        }
    };
}

kernels! {
    AnyClaims: Any;
    Line: Linear;
    Plane: Plane;
    Volume: Volume;
    AnyBlocks: Any, block: Some([64, 1, 1]);
    LineBlocks: Linear, block: Some([64, 1, 1]);
    PlaneBlocks: Plane, block: Some([64, 1, 1]);
    PlaneTiles: Plane, block: Some([16, 4, 1]);
    VolumeBlocks: Volume, block: Some([64, 1, 1]);
    LineClusters: Linear, cluster: Some([2, 1, 1]);
    PlaneClusters: Plane, cluster: Some([2, 1, 1]);
    VolumeClusters: Volume, cluster: Some([2, 1, 1]);
    PlaneTogether: Plane, cooperative: true;
    PlaneDependent: Plane, dependent: true;
}

/// Returns true if threads have distinct indices, of 32 bits each, in as many dimensions as the claims have.
fn are_apart(claims: Claims, config: &LaunchConfig) -> bool {
    let sides = [0, 1, 2].map(|axis| u128::from(config.grid[axis]) * u128::from(config.block[axis]));
    let are_short = |axes: usize| sides[..axes].iter().all(|side| *side <= 1 << 32);
    match claims {
        Claims::Any => true,
        Claims::Linear => sides[1..] == [1, 1],
        Claims::Plane => sides[2] == 1 && are_short(2),
        Claims::Volume => are_short(3),
    }
}

struct Fixture {
    device: Device,
    stream: Stream,
}

impl Fixture {
    fn check<K: SafeKernel<Params = ()>>(&self, launches: &[(String, Launch)]) {
        let kernel = module(&self.device).kernel::<K>().unwrap();
        let function = kernel.function();
        let claims = K::spec().claims;
        for (text, launch) in launches {
            let what = format!("{text} of `{}`", K::spec().symbol);
            let found = function.configure(*launch);
            let config = found.as_ref().ok().copied().flatten();
            if let Some(config) = &config {
                assert!(are_apart(claims, config), "{what}: accepted as {config}");
                // The exact configuration passes the whole check.
                let checked = function.configure(Launch::from(*config));
                assert_eq!(
                    checked.unwrap_or_else(|error| panic!("{what}: {error}")),
                    Some(*config),
                    "{what}"
                );
            }
            // The second call uses the cached result.
            assert_eq!(function.configure(*launch).ok(), found.as_ref().ok().copied(), "{what}");
            let prepared = kernel.prepare(*launch);
            assert_eq!(
                prepared.as_ref().ok().map(|prepared| prepared.config()),
                found.as_ref().ok().copied()
            );
            assert_eq!(function.explain(*launch).is_ok(), found.is_ok(), "{what}");

            // The same as a node, which cannot have zero threads.
            let mut graph = Graph::new(&self.device).unwrap();
            let small = kernel.function().spec().block.unwrap_or([32, 1, 1]);
            let small = graph.add_kernel(&kernel, Launch::grid_block(2, small), (), &[]).unwrap();
            let mut exec = graph.instantiate().unwrap();
            let is_node = graph.add_kernel(&kernel, *launch, (), &[]).is_ok();
            assert_eq!(is_node, config.is_some(), "{what}");
            // A node keeps all attributes except the grid, the block and the shared memory.
            let set = exec.set_kernel(&small, &kernel, *launch, ());
            assert!(config.is_some() || set.is_err(), "{what}");

            let threads = config.map_or(0, |config| {
                config
                    .grid
                    .iter()
                    .chain(&config.block)
                    .map(|side| u64::from(*side))
                    .fold(1, u64::saturating_mul)
            });
            if found.is_err() || threads <= MAX_RUN {
                assert_eq!(kernel.launch(&self.stream, *launch, ()).is_ok(), found.is_ok(), "{what}");
                if let Ok(prepared) = &prepared {
                    prepared.launch(&self.stream, ()).unwrap();
                }
            }
        }
        self.stream.synchronize().unwrap();
    }
}

/// Sizes at which a check may end too early.
const SIDES: [usize; 15] = [
    0,
    1,
    33,
    1000,
    65535,
    65536,
    1 << 22,
    (1 << 22) + 1,
    i32::MAX as usize,
    u32::MAX as usize,
    1 << 32,
    (1 << 32) + 1,
    (1 << 32) + 1024,
    1 << 33,
    1 << 41,
];

/// Returns the launches with every modifier.
fn modified(launches: Vec<(String, Launch)>) -> Vec<(String, Launch)> {
    let mut all = Vec::new();
    for (text, launch) in launches {
        all.extend([
            (text.clone(), launch),
            (format!("{text}.shared(16)"), launch.shared(16)),
            (format!("{text}.waves(1)"), launch.waves(1)),
            (format!("{text}.cluster(2)"), launch.cluster(2)),
            (format!("{text}.cooperative()"), launch.cooperative()),
            (format!("{text}.dependent()"), launch.dependent()),
        ]);
    }
    all
}

/// Returns launches of these sizes from every constructor function.
fn launches_of(x: usize, y: usize, z: usize, block: u32) -> Vec<(String, Launch)> {
    let exact = [x, y, z].map(|side| u32::try_from(side).unwrap_or(u32::MAX));
    let config = LaunchConfig::new(exact, [block, 1, 1], 0);
    modified(vec![
        (format!("auto({x})"), Launch::auto(x)),
        (format!("for_occupancy({x})"), Launch::for_occupancy(x)),
        (format!("for_bandwidth({x}, 8)"), Launch::for_bandwidth(x, 8)),
        (format!("for_bandwidth({x}, 8).in_flight(64)"), Launch::for_bandwidth(x, 8).in_flight(64)),
        (format!("linear({x}, {block})"), Launch::linear(x, block)),
        (format!("grid_block({x}, {block})"), Launch::grid_block(x, block)),
        (format!("grid_block({exact:?}, {block})"), Launch::grid_block(exact, block)),
        (format!("grid_block({exact:?}, [16, 4])"), Launch::grid_block(exact, [16u32, 4])),
        (format!("cover({x})"), Launch::cover(x)),
        (format!("cover({exact:?})"), Launch::cover(exact)),
        (format!("cover({exact:?}).block({block})"), Launch::cover(exact).block(block)),
        (format!("cover({exact:?}).block([16, 4])"), Launch::cover(exact).block([16u32, 4])),
        (format!("cover({exact:?}).tile([32, 2])"), Launch::cover(exact).tile([32u32, 2])),
        (format!("from {config}"), Launch::from(config)),
        (format!("from {config} in clusters"), Launch::from(LaunchConfig { cluster: [2, 1, 1], ..config })),
    ])
}

fn fixture() -> Fixture {
    let (_, device) = device();
    let stream = Stream::new(&device).unwrap();
    Fixture { device, stream }
}

#[test]
fn no_way_to_launch_skips_the_check_of_claims() {
    let fixture = fixture();
    for (index, x) in SIDES.into_iter().enumerate() {
        // Each size is combined with some of the others.
        let (y, z) = (SIDES[(index * 7 + 1) % SIDES.len()], SIDES[(index * 4 + 3) % SIDES.len()]);
        for block in [64, 1024] {
            check_all(&fixture, &launches_of(x, 1, 1, block));
            check_all(&fixture, &launches_of(x, y.min(65536), 1, block));
        }
        check_all(&fixture, &launches_of(x, y.min(65536), z.min(3), 64));
    }
}

#[test]
fn no_random_launch_skips_the_check_of_claims() {
    let (fixture, mut random) = (fixture(), random());
    let mut size = |most: u32| (random.u64(..) >> random.u32(63 - most..64)) as usize;
    for _ in 0..20 {
        let (x, y, z) = (size(42), size(17), size(3));
        let block = [1, 32, 64, 96, 1000, 1024][size(5) % 6];
        check_all(&fixture, &launches_of(x, y, z, block));
    }
}

/// Checks winners as registered by the store of tuned launches.
#[test]
fn no_known_winner_skips_the_check_of_claims() {
    let fixture = fixture();
    let kernel = module(&fixture.device).kernel::<AnyClaims>().unwrap();
    for (block, grid) in [("1024", "auto"), ("64", "waves:2"), ("1", "blocks:7")] {
        let store = LaunchStore::in_memory();
        for (kernel, n) in SYMBOLS.iter().flat_map(|symbol| SIDES.map(|n| (*symbol, n as u64))) {
            let (device, package, types) = (fixture.device.properties(), "test-kernels", "");
            let key = TuningKey { device, package, kernel, types, image: 0, n, alignment: 16 };
            let tuned = TunedConfiguration {
                values: [("block", block), ("grid", grid)]
                    .map(|(axis, value)| (axis.to_owned(), value.to_owned()))
                    .into(),
                symbol: Some(kernel.to_owned()),
                threads: None,
                median_us: 1.0,
                toolchain: String::new(),
            };
            store.store_tuned(&key, tuned).unwrap();
        }
        store.install(&fixture.device);
        let found = Launch::for_bandwidth(1000, 8).explain(kernel.function()).unwrap();
        assert_eq!(found.source, Source::Tuned);
        for x in SIDES {
            check_all(&fixture, &launches_of(x, 1, 1, 64));
        }
    }
}

/// Regression case: a linear launch of more than 2^32 threads, for a plane kernel.
#[test]
fn a_long_line_of_a_plane_is_refused() {
    let fixture = fixture();
    let kernel = module(&fixture.device).kernel::<Plane>().unwrap();
    for threads in [(1 << 32) + 1, 1 << 33, 1 << 40] {
        let launch = Launch::linear(threads, 1024);
        let error = kernel.launch(&fixture.stream, launch, ()).unwrap_err();
        assert!(error.to_string().contains("2^32 threads"), "{error}");
    }
    assert!(kernel.function().configure(Launch::linear(1 << 32, 1024)).unwrap().is_some());
}
