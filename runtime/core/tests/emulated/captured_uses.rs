//! Kernels, whose launches an active capture cannot order with its own.

use crate::common::*;
use warpsmith_runtime::{DeviceBuffer, Error, Graph, GraphError, Launch, Stream};

/// A step that reads its result, by a kernel on another stream than the result's home.
#[test]
fn a_step_that_reads_its_result_is_not_captured() {
    let (_, device) = device();
    let kernel = module(&device).kernel::<Axpy>().unwrap();
    let [home, captured] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let x = DeviceBuffer::from_host(&home, &[1.0f32; 4]).unwrap();
    let mut y = DeviceBuffer::from_host(&home, &[1.0f32; 4]).unwrap();
    let mut step = || -> Result<Vec<f32>, Error> {
        kernel.launch(&captured, Launch::auto(4), (2.0, &x, &mut y))?;
        y.to_host()
    };
    assert_eq!(step().unwrap(), [3.0; 4]);
    let error = Graph::capture(&captured, || step().map(drop)).unwrap_err();
    assert!(matches!(error, Error::Graph(GraphError::UsedInCapture { .. })), "{error}");
    assert!(error.to_string().starts_with("DeviceBuffer::to_host: "), "{error}");
    assert_eq!(step().unwrap(), [5.0; 4], "the capture has left nothing behind");
}

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
        // Both only read `x`.
        kernel.launch(&home, Launch::auto(4), (2.0, &x, &mut z))
    })
    .unwrap();
    assert_eq!(z.to_host().unwrap(), [3.0; 4]);
    graph.instantiate().unwrap().launch(&captured).unwrap();
    kernel.launch(&home, Launch::auto(4), (2.0, &y, &mut z)).unwrap();
    assert_eq!((y.to_host().unwrap(), z.to_host().unwrap()), (vec![3.0; 4], vec![9.0; 4]));
}
