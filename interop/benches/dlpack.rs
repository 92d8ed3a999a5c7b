//! Benchmark of a round trip in Rust: a buffer is exported as a DLPack tensor and imported again, on an emulated
//! device.

use criterion::Criterion;
use warpsmith_interop::dlpack::{Export, Imported};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

fn main() {
    let stream = Stream::new(&Device::emulated(0).expect("the emulated device")).expect("a stream");
    let mut criterion = Criterion::default().without_plots().configure_from_args();
    criterion.bench_function("dlpack/round trip", |bench| {
        let mut buffer = Some(DeviceBuffer::from_host(&stream, &[1.0f32, 2.0]).expect("two elements"));
        bench.iter(|| {
            let tensor = Export::new(buffer.take().expect("the buffer of the last trip")).into_raw();
            // SAFETY: the tensor was just exported, and all work on it is on one stream.
            let imported = unsafe { Imported::from_raw(tensor.as_ptr()) }.expect("a valid tensor");
            buffer = Some(imported.into_buffer(&stream).expect("a buffer of `f32`"));
        });
    });
    criterion.final_summary();
}
