//! Tests of `__cuda_array_interface__`, as plain data.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use half::bf16;

use crate::foreign::fixture;
use warpsmith_interop::cuda_array::CudaArrayInterface;
use warpsmith_interop::dlpack::{DlpackError, Export};
use warpsmith_runtime::{DeviceBuffer, Error};

#[test]
fn an_array_goes_and_comes_back_in_place() {
    let (.., [stream]) = fixture();
    let buffer = DeviceBuffer::from_host(&stream, &[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let address = buffer.as_device_ptr().0 + 8;
    let mut export = Export::new(buffer).with_strides(1, &[2, 2], &[3, 1]).unwrap();
    let interface = CudaArrayInterface::of(&mut export).unwrap();
    let strides = Some(vec![24, 8]);
    let (shape, typestr) = (vec![2, 2], "<f8".to_owned());
    let expected = CudaArrayInterface { shape, typestr, address, is_read_only: false, strides, stream: None };
    assert_eq!(interface, expected);

    let (owner, dropped) = channel::<()>();
    // SAFETY: the export, which owns the memory, outlives the tensor.
    let imported = unsafe { interface.import(&stream, owner) }.unwrap();
    let tensor = imported.into_tensor(&stream).unwrap();
    let mut rows = DeviceBuffer::<f64>::zeros(&stream, 4).unwrap();
    stream.copy_rows(tensor.as_2d().unwrap(), rows.as_2d_mut(2, 2).unwrap()).unwrap();
    assert_eq!(rows.to_host().unwrap(), [2.0, 3.0, 5.0, 6.0]);
    drop(tensor);
    assert_eq!(dropped.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected));
}

#[test]
fn types_and_strides_that_it_cannot_have() {
    let (.., [stream]) = fixture();
    let mut export = Export::new(DeviceBuffer::<bf16>::zeros(&stream, 2).unwrap());
    let error = CudaArrayInterface::of(&mut export).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`__cuda_array_interface__` does not support the type bfloat16; use DLPack"
    );

    let mut export = Export::new(DeviceBuffer::<u32>::zeros(&stream, 4).unwrap());
    let valid = CudaArrayInterface::of(&mut export).unwrap();
    let refused = |change: fn(&mut CudaArrayInterface)| -> Error {
        let mut array = valid.clone();
        change(&mut array);
        let (owner, dropped) = channel::<()>();
        // SAFETY: it is rejected.
        let error = unsafe { array.import(&stream, owner) }.unwrap_err();
        assert_eq!(dropped.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
        assert!(error.downcast_ref::<DlpackError>().is_some());
        error
    };
    assert!(refused(|array| array.typestr = ">u4".to_owned()).to_string().contains("the type `>u4`"));
    assert!(
        refused(|array| array.strides = Some(vec![6])).to_string().contains("[6] bytes for elements of 4")
    );
    assert!(refused(|array| array.strides = Some(vec![])).to_string().contains("0 strides for 1 extents"));
    assert!(refused(|array| array.strides = Some(vec![-4])).to_string().contains("stride -1"));
    assert!(refused(|array| array.address = 0).to_string().contains("a null data pointer"));
}
