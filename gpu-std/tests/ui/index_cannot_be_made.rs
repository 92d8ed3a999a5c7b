use gpu_std::prelude::*;

fn forge() -> thread::UniqueIndex {
    thread::UniqueIndex { index: 3 }
}

fn send(index: thread::UniqueIndex) -> impl Send {
    index
}

fn main() {}
