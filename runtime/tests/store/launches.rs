//! Tests of launches with configurations from a store.

use crate::common::*;
use crate::{subject, tuned};
use warpsmith_runtime::launch::Source;
use warpsmith_runtime::store::{LaunchStore, StoreProblem, TunedConfiguration, TuningKey};
use warpsmith_runtime::{Device, DeviceBuffer, Function, Launch, Stream};

#[test]
fn an_invalid_configuration_is_not_kept() {
    let (store, device) = (LaunchStore::in_memory(), device().1.properties().clone());
    let good = subject(&device, 1000);
    let wrong = [
        (good, TunedConfiguration { median_us: f64::NAN, ..tuned(64, "auto") }),
        (good, TunedConfiguration { values: vec![("a".to_owned(), "b".repeat(5000))], ..tuned(64, "auto") }),
        (TuningKey { alignment: 0, ..good }, tuned(64, "auto")),
        (TuningKey { alignment: 24, ..good }, tuned(64, "auto")),
    ];
    for (subject, configuration) in wrong {
        let error = store.store_tuned(&subject, configuration).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(StoreProblem::Configuration { .. })), "{error}");
    }
    assert!(store.is_empty());
}

fn shape(function: &Function, launch: Launch) -> (Source, u32, u32) {
    let explanation = launch.explain(function).unwrap();
    let config = explanation.config.unwrap();
    (explanation.source, config.grid[0], config.block[0])
}

#[test]
fn open_launches_take_the_tuned_shape() {
    const N: usize = 5000;
    let (_, device) = device();
    let store = LaunchStore::of(&device);
    assert_eq!(store.path(), None, "what is tuned on an emulated device is not kept");
    let stream = Stream::new(&device).unwrap();
    let (axpy, module) = (module(&device).kernel::<Axpy>().unwrap(), module(&device));
    let subject = TuningKey { image: module.image_hash(), ..subject(device.properties(), N as u64) };
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; N]).unwrap();
    let mut y = DeviceBuffer::zeros(&stream, N).unwrap();
    let (auto, looped) = (Launch::auto(N), Launch::for_bandwidth(N, 12));
    let mut launch = |launch| axpy.launch(&stream, launch, (1.0, &x, &mut y)).unwrap();
    [auto, looped].into_iter().for_each(&mut launch);
    let before = [auto, looped].map(|launch| shape(axpy.function(), launch));
    assert!(before.iter().all(|(source, ..)| *source == Source::Heuristic));

    store.store_tuned(&subject, tuned(96, "auto")).unwrap();
    let tuned_shape = (Source::Tuned, 53, 96);
    assert_eq!([auto, looped].map(|launch| shape(axpy.function(), launch)), [tuned_shape; 2]);
    [auto, looped].into_iter().for_each(&mut launch);

    store.store_tuned(&subject, tuned(64, "blocks:7")).unwrap();
    assert_eq!(shape(axpy.function(), looped), (Source::Tuned, 7, 64));
    assert_eq!(shape(axpy.function(), auto), tuned_shape, "seven blocks would be too few");
    [auto, looped].into_iter().for_each(&mut launch);
    assert!(y.to_host().unwrap().iter().all(|y| *y == 6.0), "every launch did all its work");

    let given = [Launch::linear(N, 128), Launch::auto(N).waves(1), Launch::auto(8 * N)];
    for launch in given {
        assert_ne!(shape(axpy.function(), launch).0, Source::Tuned, "{launch:?}");
    }
    // The configuration has more threads than a block supports.
    store.store_tuned(&subject, tuned(4096, "auto")).unwrap();
    assert_eq!([auto, looped].map(|launch| shape(axpy.function(), launch)), before);

    store.store_tuned(&subject, tuned(96, "auto")).unwrap();
    assert_eq!(shape(axpy.function(), auto), tuned_shape);
    LaunchStore::in_memory().install(&device);
    assert_eq!(shape(axpy.function(), auto), before[0], "the store was replaced");
}

#[test]
fn every_device_of_a_store_sees_changes() {
    let driver = driver(2);
    let devices = [0, 1].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
    let store = LaunchStore::in_memory();
    devices.iter().for_each(|device| store.install(device));
    let kernels = devices.each_ref().map(|device| module(device).kernel::<Axpy>().unwrap());
    let sources = || kernels.each_ref().map(|kernel| shape(kernel.function(), Launch::auto(1000)).0);
    assert_eq!(sources(), [Source::Heuristic; 2]);
    store.store_tuned(&subject(devices[0].properties(), 1000), tuned(96, "auto")).unwrap();
    assert_eq!(sources(), [Source::Tuned; 2], "they are of one kind");
}
