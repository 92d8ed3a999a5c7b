//! The caching allocator, with statistics, a private pool, a handled out-of-memory error, and snapshot files.
//!
//! `cargo run --release --example memory -- [DEVICE] [FOLDER]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the
//! best available device. The snapshots are written to FOLDER, by default the system's temporary folder. To display the
//! pickle, drop it on PyTorch's page <https://pytorch.org/memory_viz>.

use std::error::Error;
use std::path::PathBuf;

use warpsmith::MemoryPool;
use warpsmith::{Device, DeviceBuffer, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let folder = std::env::args().nth(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let memory = device.memory();
    memory.record_history(Some(10_000));
    let stream = Stream::new(&device)?;

    // Dropping a buffer neither waits nor calls a driver function, and the next buffer reuses its memory.
    let mut layers = Vec::new();
    for _ in 0..3 {
        layers =
            (0..20).map(|_| DeviceBuffer::<f32>::zeros(&stream, 300_000)).collect::<Result<Vec<_>, _>>()?;
    }
    let asked = memory.statistics().num_device_alloc;
    println!("60 buffers of 1.2 MB, 20 at a time, took {asked} requests to the driver\n");

    // A part of the program can allocate from its own pool.
    let pool = MemoryPool::new(&device)?;
    let scratch = {
        let _guard = pool.enter()?;
        DeviceBuffer::<u8>::zeros(&stream, 3 << 20)?
    };
    println!("the pool {} has {} bytes in use, {} reserved\n", pool.id(), pool.allocated(), pool.reserved());

    // This allocation exceeds the limit. The error reports the sizes, and the program continues.
    memory.on_out_of_memory(|report| println!("(the observer was called: {} bytes)", report.asked));
    let total = device.properties().total_memory as f64;
    memory.set_fraction((96 << 20) as f64 / total)?;
    match DeviceBuffer::<u8>::uninit(&stream, 100 << 20) {
        Ok(_) => return Err("100 MiB came out of 96".into()),
        Err(error) => println!("{error}\n"),
    }
    memory.set_fraction(1.0)?;
    drop(DeviceBuffer::<u8>::uninit(&stream, 100 << 20)?);

    layers.truncate(5);
    drop(scratch);
    println!("{}", memory.summary(true));
    let snapshot = memory.snapshot();
    for (name, bytes) in [
        ("reserved", snapshot.reserved()),
        ("allocated", snapshot.allocated()),
        ("requested", snapshot.requested()),
    ] {
        println!("{name:>10} {bytes:>12} bytes");
    }
    let [json, pickle] = ["memory.json", "memory.pickle"].map(|name| folder.join(name));
    snapshot.write_json(&json)?;
    snapshot.write_pickle(&pickle)?;
    println!("snapshots: {} and {}", json.display(), pickle.display());

    drop(layers);
    drop(pool);
    memory.empty_cache()?;
    println!("after dropping everything and emptying the cache: {} bytes reserved", memory.reserved());
    Ok(())
}
