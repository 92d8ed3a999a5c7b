//! Computes [`swiglu_on_cudarc`] in memory of cudarc, converts the result to a buffer, and lends the buffer to cudarc.
//! The program needs a GPU.

use std::error::Error;

use cudarc::driver::CudaContext;
use neighbors::memory::{into_buffer, with_view};
use neighbors::swiglu::swiglu_on_cudarc;
use warpsmith::{Device, Stream, ops};

fn main() -> Result<(), Box<dyn Error>> {
    // Warpsmith is called first, because it returns an error if there is no driver, whereas cudarc panics.
    let device = Device::cuda(0)?;
    let context = CudaContext::new(0)?;
    let (stream, theirs) = (Stream::new(&device)?, context.new_stream()?);

    let gate = theirs.clone_htod(&[1.0f32; 1000])?;
    let up = theirs.clone_htod(&[2.0f32; 1000])?;
    let mut out = theirs.alloc_zeros::<f32>(1000)?;
    swiglu_on_cudarc(&stream, &theirs, gate.as_view(), up.as_view(), &mut out)?;
    let mut buffer = into_buffer(out)?;
    let sum = ops::sum(buffer.stream(), &buffer)?;
    println!("the sum of 1000 elements is {sum}");

    // SAFETY: the work is enqueued on `theirs`.
    unsafe { with_view(&theirs, &mut buffer, |mut view| theirs.memset_zeros(&mut view)) }?;
    let expected = 2000.0 / (1.0 + (-1.0f64).exp());
    let is_right = (f64::from(sum) - expected).abs() < 1e-3 && buffer.to_host()? == [0.0; 1000];
    if is_right { Ok(()) } else { Err("the result is incorrect".into()) }
}
