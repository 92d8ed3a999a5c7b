//! Tests the exchange of memory and streams with cudarc on the first GPU: `cargo test -- --ignored on_gpu::`.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use neighbors::memory::{adopt, into_buffer, with_view};
use neighbors::swiglu::swiglu_on_cudarc;
use warpsmith::{Device, DeviceBuffer, Error, Stream, ops};

const LEN: usize = 1 << 20;

/// Returns the two kinds of streams that `adopt` accepts: the legacy default stream and a stream that cudarc created.
fn streams() -> (Device, Arc<CudaContext>, [Arc<CudaStream>; 2]) {
    let device = Device::cuda(0).unwrap();
    let context = CudaContext::new(0).unwrap();
    let streams = [context.default_stream(), context.new_stream().unwrap()];
    (device, context, streams)
}

#[test]
#[ignore = "needs a GPU"]
fn memory_of_cudarc_is_a_buffer() {
    let (device, _context, streams) = streams();
    for theirs in streams {
        let slice = theirs.clone_htod(&vec![2.0f32; LEN]).unwrap();
        // The copy may still be running.
        let buffer = into_buffer(slice).unwrap();
        assert_eq!(buffer.stream(), &adopt(&theirs).unwrap());
        let other = Stream::new(&device).unwrap();
        assert_eq!(ops::sum(&other, &buffer).unwrap(), 2.0 * LEN as f32);
        // The new thread has no current context.
        std::thread::spawn(move || drop(buffer)).join().unwrap();
        theirs.synchronize().unwrap();
        theirs.context().check_err().unwrap();
    }
    assert!(device.take_drop_error().is_none());
}

#[test]
#[ignore = "needs a GPU"]
fn a_buffer_is_memory_of_cudarc() {
    let (device, _context, streams) = streams();
    for theirs in streams {
        let stream = Stream::new(&device).unwrap();
        let mut buffer = DeviceBuffer::<f32>::zeros(&stream, LEN).unwrap();
        let ones = theirs.clone_htod(&vec![1.0f32; LEN]).unwrap();
        // SAFETY: the copy is enqueued on `theirs`.
        unsafe { with_view(&theirs, &mut buffer, |mut view| theirs.memcpy_dtod(&ones, &mut view)) }.unwrap();
        assert_eq!(ops::sum(&stream, &buffer).unwrap(), LEN as f32);
    }
    assert!(device.take_drop_error().is_none());
}

#[test]
#[ignore = "needs a GPU"]
fn kernels_use_memory_of_cudarc_in_order() {
    let (device, context, [legacy, own]) = streams();
    let stream = Stream::new(&device).unwrap();
    // candle uses the per-thread default stream, which Warpsmith cannot adopt.
    let per_thread = context.per_thread_stream();
    assert!(matches!(adopt(&per_thread), Err(Error::PerThreadStream)));
    for theirs in [legacy, own, per_thread] {
        for _ in 0..20 {
            let gate = theirs.clone_htod(&vec![100.0f32; LEN]).unwrap();
            let up = theirs.clone_htod(&vec![3.0f32; LEN]).unwrap();
            let mut out = theirs.alloc_zeros::<f32>(LEN / 2).unwrap();
            let half = LEN / 2..;
            swiglu_on_cudarc(&stream, &theirs, gate.slice(half.clone()), up.slice(half), &mut out).unwrap();
            // cudarc frees the memory in stream order on `theirs`, and the next iteration reuses it.
            drop((gate, up));
            let found = theirs.clone_dtoh(&out).unwrap();
            assert!(found.iter().all(|found| *found == 300.0));
        }
    }
    assert!(device.take_drop_error().is_none());
}
