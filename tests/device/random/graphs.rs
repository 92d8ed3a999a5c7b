//! Graphs draw new numbers at each launch: the numbers that the operations would have drawn outside of the graph.

use warpsmith::graph::Graph;
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator, Layout};

use crate::common::{device, stream};

const N: usize = 5_000;

/// Buffers filled by two operations and a permutation.
struct Buffers {
    x: DeviceBuffer<f32>,
    y: DeviceBuffer<f64>,
    order: DeviceBuffer<u32>,
}

impl Buffers {
    fn new(stream: &Stream) -> Self {
        Self {
            x: DeviceBuffer::zeros(stream, N).unwrap(),
            y: DeviceBuffer::zeros(stream, N).unwrap(),
            order: DeviceBuffer::zeros(stream, N).unwrap(),
        }
    }

    fn fill(&mut self, stream: &Stream, generator: &Generator) -> warpsmith::Result<()> {
        random::uniform(stream, generator, &mut self.x)?;
        random::normal(stream, generator, 0.0, 1.0, &mut self.y)?;
        random::permutation(stream, generator, &mut self.order)
    }

    fn read(&self) -> (Vec<f32>, Vec<f64>, Vec<u32>) {
        (self.x.to_host().unwrap(), self.y.to_host().unwrap(), self.order.to_host().unwrap())
    }
}

fn small_generator(seed: u64) -> Generator {
    let generator = Generator::new(&device());
    generator.set_layout(Layout::new(1, 512).unwrap()).unwrap();
    generator.manual_seed(seed).unwrap();
    generator
}

#[test]
fn launches_give_what_the_operations_give_outside() {
    let (stream, other) = (stream(), stream());
    let (captured, eager) = (small_generator(3), small_generator(3));
    let (mut in_graph, mut outside) = (Buffers::new(&stream), Buffers::new(&stream));
    let graph = Graph::capture(&stream, || in_graph.fill(&stream, &captured)).unwrap();
    let exec = graph.instantiate().unwrap();
    assert_eq!(captured.offset().unwrap(), 0, "a capture takes nothing");
    let mut last = None;
    for round in 0..6 {
        // On two streams alternately, with other work on the generator in between, and with other seeds.
        exec.launch(if round % 2 == 0 { &stream } else { &other }).unwrap();
        outside.fill(&stream, &eager).unwrap();
        let found = in_graph.read();
        assert!(found == outside.read(), "round {round}");
        assert!(last.as_ref() != Some(&found), "two launches gave the same");
        last = Some(found);
        assert_eq!(captured.state().unwrap(), eager.state().unwrap(), "round {round}");
        if round == 2 {
            let mut between = DeviceBuffer::<f32>::zeros(&stream, 77).unwrap();
            for each in [&captured, &eager] {
                random::uniform(&stream, each, &mut between).unwrap();
            }
        }
        if round == 3 {
            for each in [&captured, &eager] {
                each.manual_seed(12345).unwrap();
            }
        }
    }
}

#[test]
fn executables_of_one_graph_share_no_numbers() {
    let (captured, eager) = (small_generator(5), small_generator(5));
    let stream = stream();
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 100).unwrap();
    let graph = Graph::capture(&stream, || random::uniform(&stream, &captured, &mut x)).unwrap();
    let copy = graph.try_clone().unwrap();
    let mut parent = Graph::new(stream.device()).unwrap();
    parent.add_child(&graph, &[]).unwrap();
    let execs = [&graph, &graph, &copy, &parent].map(|graph| graph.instantiate().unwrap());
    drop((graph, copy, parent));
    for exec in execs.iter().cycle().take(9) {
        exec.launch(&stream).unwrap();
        let mut own = DeviceBuffer::<f32>::zeros(&stream, 100).unwrap();
        random::uniform(&stream, &eager, &mut own).unwrap();
        assert_eq!(x.to_host().unwrap(), own.to_host().unwrap());
    }
    assert_eq!(captured.state().unwrap(), eager.state().unwrap());
}

#[test]
fn generators_that_are_captured_cannot_be_set() {
    let stream = stream();
    let (generator, other) = (small_generator(8), small_generator(9));
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 100).unwrap();
    let graph = Graph::capture(&stream, || {
        generator.manual_seed(1)?; // not used yet
        random::uniform(&stream, &generator, &mut x)?;
        let refused = [
            generator.manual_seed(2),
            generator.seed().map(drop),
            generator.offset().map(drop),
            generator.set_offset(0),
            generator.state().map(drop),
            generator.set_state(&[0; 16]),
            generator.set_layout(Layout::H200),
        ];
        for outcome in refused {
            let text = outcome.unwrap_err().to_string();
            assert!(text.contains("captured") && text.contains("after it ends"), "{text}");
        }
        other.manual_seed(3)
    });
    let exec = graph.unwrap().instantiate().unwrap();
    generator.manual_seed(10).unwrap();
    exec.launch(&stream).unwrap();
    let found = x.to_host().unwrap();
    let eager = small_generator(10);
    random::uniform(&stream, &eager, &mut x).unwrap();
    assert_eq!(found, x.to_host().unwrap());
}

#[test]
fn a_failed_capture_leaves_the_generator() {
    let stream = stream();
    let generator = small_generator(11);
    generator.set_offset(400).unwrap();
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 100).unwrap();
    let failed = Graph::capture(&stream, || {
        random::uniform(&stream, &generator, &mut x)?;
        random::normal(&stream, &generator, 0.0, -1.0, &mut x)
    });
    assert!(failed.unwrap_err().to_string().contains("std"));
    assert_eq!(generator.offset().unwrap(), 400);
    random::uniform(&stream, &generator, &mut x).unwrap();
    assert_eq!(generator.offset().unwrap(), 404);
}
