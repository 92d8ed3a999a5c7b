//! Tests of kernels whose launches an active capture cannot order with its own.

use crate::common::*;
use warpsmith_runtime::{DeviceBuffer, Graph, Launch, Stream};

#[test]
fn a_launch_beside_the_capture_is_refused() {
    let (_, device) = device();
    let kernel = module(&device).kernel::<Axpy>().unwrap();
    let [home, captured] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let x = DeviceBuffer::from_host(&home, &[1.0f32; 4]).unwrap();
    let [mut y, mut z] = [(); 2].map(|()| DeviceBuffer::from_host(&home, &[1.0f32; 4]).unwrap());
    let graph = Graph::capture(&captured, || {
        kernel.launch(&captured, Launch::auto(4), (2.0, &x, &mut y))?;
        let error = kernel.launch(&home, Launch::auto(4), (2.0, &y, &mut z)).unwrap_err();
        assert!(error.to_string().starts_with("TypedKernel::launch: "), "{error}");
        // Both kernels only read `x`.
        kernel.launch(&home, Launch::auto(4), (2.0, &x, &mut z))
    })
    .unwrap();
    assert_eq!(z.to_host().unwrap(), [3.0; 4]);
    graph.instantiate().unwrap().launch(&captured).unwrap();
    kernel.launch(&home, Launch::auto(4), (2.0, &y, &mut z)).unwrap();
    assert_eq!((y.to_host().unwrap(), z.to_host().unwrap()), (vec![3.0; 4], vec![9.0; 4]));
}
