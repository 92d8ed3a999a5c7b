//! Tests of tensors that cannot be exchanged. Each of them causes an error that names the problem, and is deleted once.

use std::ptr::null_mut;
use std::sync::Arc;

use crate::foreign::{Foreign, fixture};
use warpsmith_interop::dlpack::{
    DLDataType, DLDevice, DLPACK_FLAG_READ_ONLY, DlpackError, Element, Export, Imported,
};
use warpsmith_runtime::{DeviceBuffer, Error, Result};

/// Checks that a modified tensor of six `f32` elements is rejected with an error that contains a text.
#[track_caller]
fn refused<T>(
    change: impl FnOnce(Foreign) -> Foreign,
    import: impl FnOnce(Foreign) -> Result<T>,
    text: &str,
) {
    let mut memory = [0f32; 6];
    let (foreign, deleted) = Foreign::new(&mut memory);
    let error = import(change(foreign)).map(|_| ()).unwrap_err();
    assert!(error.downcast_ref::<DlpackError>().is_some(), "{error:?}");
    assert!(error.to_string().contains(text), "{error}");
    deleted.wait();
}

#[test]
fn malformed_tensors() {
    // SAFETY: null is rejected.
    for error in unsafe { [Imported::from_raw(null_mut()), Imported::from_raw_unversioned(null_mut())] } {
        assert_eq!(error.unwrap_err().downcast_ref(), Some(&DlpackError::NoTensor));
    }
    let all = |change: fn(Foreign) -> Foreign, text| {
        refused(change, Foreign::import, text);
        // SAFETY: the tensor is valid, except for the property that is rejected.
        refused(change, |foreign| unsafe { Imported::from_raw_unversioned(foreign.unversioned()) }, text);
    };
    all(|foreign| foreign.with(|foreign| foreign.tensor.ndim = -1), "-1 dimensions");
    all(|foreign| foreign.with(|foreign| foreign.tensor.ndim = i32::MAX), "2147483647 dimensions");
    all(|foreign| foreign.with(|foreign| foreign.tensor.shape = null_mut()), "a null shape");
    all(|foreign| foreign.with_layout(&[2, -3], None), "dimension 1 has -3 elements");
    all(|foreign| foreign.with_layout(&[2, 3], Some(&[-3, 1])), "dimension 0 has the negative stride -3");
    all(|foreign| foreign.with_layout(&[2, 3], Some(&[0, 1])), "repeats one element 2 times");
    all(|foreign| foreign.with_layout(&[2, 3], Some(&[2, 1])), "overlap");
    all(|foreign| foreign.with_layout(&[i64::MAX, 3], None), "larger than the address space");
    all(|foreign| foreign.with_layout(&[2, 2], Some(&[i64::MAX, 1])), "larger than the address space");
    all(
        |foreign| foreign.with(|foreign| foreign.tensor.data = null_mut()),
        "6 elements but a null data pointer",
    );
}

#[test]
fn other_major_versions_are_only_deleted() {
    for major in [0, 2, u32::MAX] {
        let change = |foreign: Foreign| {
            foreign.with(|foreign| {
                foreign.version.major = major;
                // No other field is read.
                foreign.tensor.ndim = 3;
                foreign.tensor.shape = std::ptr::dangling_mut();
            })
        };
        refused(change, Foreign::import, &format!("version {major}.0"));
    }
    let newer = Foreign::new(&mut [1f32]).0.with(|foreign| foreign.version.minor = 9);
    assert_eq!(newer.import().unwrap().elements(), 1);
}

#[test]
fn tensors_that_do_not_fit_the_request() {
    let (.., [stream]) = fixture();
    let as_buffer = |foreign: Foreign| foreign.import()?.into_buffer::<f32>(&stream);
    let as_tensor = |foreign: Foreign| foreign.import()?.into_tensor(&stream);
    let typed = |data_type: DLDataType| {
        move |foreign: Foreign| foreign.with(|foreign| foreign.tensor.dtype = data_type)
    };
    let f32 = <f32 as Element>::DATA_TYPE;
    for (data_type, text) in [
        (DLDataType { code: DLDataType::INT, ..f32 }, "int32, not float32"),
        (DLDataType { bits: 64, ..f32 }, "float64, not float32"),
        (DLDataType { lanes: 4, ..f32 }, "vectors (float32x4)"),
        (DLDataType { lanes: 0, ..f32 }, "vectors (float32x0)"),
        (DLDataType { code: 17, bits: 4, lanes: 1 }, "4 bits (float4_e2m1fn)"),
        (DLDataType { code: 15, bits: 6, lanes: 1 }, "6 bits (float6_e2m3fn)"),
        (DLDataType { code: 99, bits: 32, lanes: 1 }, "type 99 of 32 bits"),
    ] {
        refused(typed(data_type), as_buffer, text);
        refused(typed(data_type), |foreign| as_tensor(foreign)?.as_slice::<f32>().map(|_| ()), text);
    }
    let read_only = |foreign: Foreign| foreign.with(|foreign| foreign.flags = DLPACK_FLAG_READ_ONLY);
    refused(read_only, as_buffer, "read-only");
    refused(read_only, |foreign| as_tensor(foreign)?.as_mut_slice::<f32>().map(|_| ()), "read-only");
    refused(read_only, |foreign| as_tensor(foreign)?.into_buffer::<f32>(), "read-only");
    let matrix = |foreign: Foreign| read_only(foreign).with_layout(&[2, 3], None);
    refused(matrix, |foreign| as_tensor(foreign)?.as_2d_mut::<f32>().map(|_| ()), "read-only");
    refused(matrix, |foreign| as_tensor(foreign)?.as_3d_mut::<f32>().map(|_| ()), "read-only");
    refused(
        matrix,
        |foreign| as_tensor(foreign)?.as_3d::<f32>().map(|_| ()),
        "a 3-D view was requested of a tensor with 2",
    );

    let transposed = |foreign: Foreign| foreign.with_layout(&[3, 2], Some(&[1, 3]));
    refused(transposed, as_buffer, "not contiguous");
    refused(transposed, |foreign| as_tensor(foreign)?.into_buffer::<f32>(), "not contiguous");
    refused(transposed, |foreign| as_tensor(foreign)?.as_slice::<f32>().map(|_| ()), "not contiguous");
    refused(
        transposed,
        |foreign| as_tensor(foreign)?.as_2d::<f32>().map(|_| ()),
        "the last dimension has stride 3",
    );

    for device_type in [DLDevice::CUDA, DLDevice::CUDA_HOST, DLDevice::CUDA_MANAGED, 8, 0, -1] {
        let on = |foreign: Foreign| foreign.with(|foreign| foreign.tensor.device.device_type = device_type);
        refused(on, as_buffer, &format!("DLPack device {device_type}:0"));
        refused(on, as_tensor, &format!("DLPack device {device_type}:0"));
    }
    let beyond = |foreign: Foreign| foreign.with(|foreign| foreign.tensor.byte_offset = u64::MAX - 3);
    refused(beyond, as_buffer, "beyond the last address");
    let odd =
        |foreign: Foreign| foreign.with_layout(&[5], None).with(|foreign| foreign.tensor.byte_offset = 2);
    refused(odd, as_buffer, "not a multiple of 4");
}

#[test]
fn the_runtimes_own_refusals_delete_too() {
    let (driver, _, [stream]) = fixture();
    let mut memory = [0f32; 2];
    let (foreign, deleted) = Foreign::new(&mut memory);
    let many = foreign.with_layout(&[i64::MAX / 2], None).import().unwrap();
    assert!(matches!(many.into_buffer::<f32>(&stream).unwrap_err(), Error::TooManyElements { .. }));
    deleted.wait();
    for call in
        [warpsmith_runtime::emulated::Call::HostExpose, warpsmith_runtime::emulated::Call::MemoryDevice]
    {
        let (foreign, deleted) = Foreign::new(&mut memory);
        driver.fail_call(call, 0);
        foreign.import().unwrap().into_buffer::<f32>(&stream).unwrap_err();
        deleted.wait();
    }
    assert_eq!(driver.live_registered(), 0);
}

#[test]
fn exports_that_do_not_fit_the_buffer() {
    let (.., [stream]) = fixture();
    let export = || Export::new(DeviceBuffer::<f32>::zeros(&stream, 6).unwrap());
    let error = |export: Result<Export>| {
        let error = export.map(|_| ()).unwrap_err();
        error.downcast_ref::<DlpackError>().unwrap_or_else(|| panic!("{error}")).clone()
    };
    for (shape, needed) in [(vec![2, 2], 4), (vec![7], 7), (vec![usize::MAX, 2], usize::MAX)] {
        let found = error(export().with_shape(&shape));
        assert_eq!(found, DlpackError::Shape { shape, offset: 0, needed, len: 6 });
    }
    let found = error(export().with_strides(1, &[2, 3], &[3, 1]));
    assert_eq!(found, DlpackError::Shape { shape: vec![2, 3], offset: 1, needed: 6, len: 6 });
    let found = error(export().with_strides(usize::MAX, &[1], &[1]));
    assert!(matches!(found, DlpackError::Shape { .. }));
    let found = error(export().with_strides(0, &[1, 2], &[1]));
    assert_eq!(found, DlpackError::Strides { shape: 2, strides: 1 });
    let found = error(export().with_strides(0, &[2, 3], &[0, 1]));
    assert_eq!(found, DlpackError::Broadcast { dimension: 0, extent: 2 });
    assert!(matches!(error(export().with_strides(0, &[3, 2], &[1, 1])), DlpackError::Overlap { .. }));
    assert!(matches!(error(export().with_strides(0, &[usize::MAX], &[2])), DlpackError::TooLarge { .. }));
    assert_eq!(error(export().with_strides(0, &[1; 65], &[1; 65])), DlpackError::Dimensions { ndim: 65 });
    let shared = Export::shared(Arc::new(DeviceBuffer::<f32>::zeros(&stream, 6).unwrap()));
    let found = shared.into_raw_unversioned().map(|_| ()).unwrap_err();
    assert_eq!(found.downcast_ref(), Some(&DlpackError::ReadOnlyUnversioned));
}
