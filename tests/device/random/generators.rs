//! Seeds, offsets and states.

use std::collections::HashSet;

use warpsmith::prelude::*;
use warpsmith::random::{self, DEFAULT_SEED, Generator, Layout, default_generator};

use super::model::filled;
use crate::common::{device, stream};

#[test]
fn new_generators_begin_where_pytorchs_do() {
    let generator = Generator::new(&device());
    assert_eq!((generator.initial_seed(), generator.offset().unwrap()), (DEFAULT_SEED, 0));
    assert_eq!(DEFAULT_SEED, 67_280_421_310_721);
    let layout = generator.layout();
    if device().is_emulated() {
        assert_eq!((layout.multiprocessors(), layout.threads_per_multiprocessor()), (132, 2048));
    } else {
        assert_eq!(layout.multiprocessors(), device().properties().multiprocessors);
    }
}

#[test]
fn states_are_16_bytes_and_restore_numbers() {
    let stream = stream();
    let generator = Generator::new(&device());
    generator.manual_seed(0x0102_0304_0506_0708).unwrap();
    let draw = || filled::<f32>(&stream, 1000, |out| random::uniform(&stream, &generator, out));
    draw();
    let state = generator.state().unwrap();
    assert_eq!(state, [8, 7, 6, 5, 4, 3, 2, 1, 4, 0, 0, 0, 0, 0, 0, 0]);
    let (first, second) = (draw(), draw());
    assert_ne!(first, second);
    generator.seed().unwrap();
    assert_ne!(draw(), first);
    generator.set_state(&state).unwrap();
    assert_eq!((draw(), draw()), (first.clone(), second));
    // With the seed only, the state is the start of the sequence.
    generator.set_state(&state[..8]).unwrap();
    assert_eq!((generator.initial_seed(), generator.offset().unwrap()), (0x0102_0304_0506_0708, 0));
    draw();
    assert_eq!(draw(), first);
}

#[test]
fn clones_share_their_state_and_others_do_not() {
    let stream = stream();
    let generator = Generator::new(&device());
    let (clone, other) = (generator.clone(), Generator::new(&device()));
    let draw = |from: &Generator| filled::<f32>(&stream, 10, |out| random::uniform(&stream, from, out));
    let (first, second) = (draw(&generator), draw(&clone));
    assert_ne!(first, second);
    assert_eq!((draw(&other), draw(&other)), (first, second));
}

#[test]
fn threads_draw_numbers_of_their_own() {
    let generator = Generator::new(&device());
    let drawn: Vec<Vec<u32>> = std::thread::scope(|scope| {
        let draw = || {
            let stream = stream();
            let draw = |_| filled::<f32>(&stream, 300, |out| random::uniform(&stream, &generator, out));
            (0..10).map(draw).map(|x| x.into_iter().map(f32::to_bits).collect()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(generator.offset().unwrap(), 4 * 40);
    assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 40);
}

#[test]
fn one_layout_gives_the_same_numbers_everywhere() {
    // On a GPU, this compares it with the emulated device.
    let (stream, emulated) = (stream(), Stream::new(&Device::emulated(0).unwrap()).unwrap());
    let layout = Layout::new(5, 1536).unwrap();
    let draw = |stream: &Stream| {
        let generator = Generator::new(stream.device());
        generator.set_layout(layout).unwrap();
        let uniform = filled::<f32>(stream, 50_000, |out| random::uniform(stream, &generator, out));
        let wide = filled::<f64>(stream, 50_000, |out| random::uniform(stream, &generator, out));
        let integers =
            filled::<u64>(stream, 50_000, |out| random::integers(stream, &generator, 3..1 << 60, out));
        let order = filled::<u32>(stream, 50_000, |out| random::permutation(stream, &generator, out));
        (uniform, wide, integers, order, generator.state().unwrap())
    };
    assert!(draw(&stream) == draw(&emulated));
}

#[test]
fn default_generators_are_seeded_together() {
    // The only test that uses the default generators.
    let generator = default_generator(&device());
    assert_eq!(generator.initial_seed(), DEFAULT_SEED);
    random::manual_seed_all(99).unwrap();
    assert_eq!(generator.initial_seed(), 99);
    generator.set_offset(8).unwrap();
    assert_eq!(default_generator(&device()).offset().unwrap(), 8);
    // A device that is opened later, with a separate driver.
    let driver = warpsmith::emulated::EmulatedDriver::builder().devices(2).build();
    let later = Device::with_driver(driver, 1).unwrap();
    assert_eq!(default_generator(&later).initial_seed(), 99);
    random::manual_seed_all(7).unwrap();
    let states = [&device(), &later].map(|device| default_generator(device).state().unwrap());
    assert_eq!(states, [[7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]; 2]);
    let both = [device(), later];
    assert_eq!(random::states(&both).unwrap(), states);
    let seed = random::seed_all().unwrap();
    assert!(both.iter().all(|device| default_generator(device).initial_seed() == seed));
    let states = [[1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0], [2; 16]];
    let outcome = random::set_states(&both, &states).unwrap_err().to_string();
    assert!(outcome.contains("multiple of 4"), "{outcome}");
    assert_eq!(default_generator(&both[0]).initial_seed(), seed, "none is set when one cannot be");
    let states = [states[0], [0; 16]];
    random::set_states(&both, &states).unwrap();
    assert_eq!(random::states(&both).unwrap(), states);
    let [device, later] = both;
    for (devices, word) in [(vec![later.clone(), later], "twice"), (vec![device], "number of devices is 1")] {
        let outcome = random::set_states(&devices, &states).unwrap_err().to_string();
        assert!(outcome.contains(word), "{outcome}");
    }
}
