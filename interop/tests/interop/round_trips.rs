//! Tests of the contents of tensors that were exported and imported.

use float8_types::{F8E4M3, F8E5M2};
use gpu_std::Checked;
use half::{bf16, f16};
use num_complex::Complex;

use crate::foreign::{Foreign, fixture};
use crate::heap::allocations;
use warpsmith_interop::dlpack::{
    DLDataType, DLDevice, DLPACK_FLAG_IS_COPIED, DLPACK_FLAG_READ_ONLY, Element, Export, Imported,
};
use warpsmith_runtime::{DeviceBuffer, Stream};

mod float8_types {
    pub use gpu_std::tensor::{F8E4M3, F8E5M2};
}

fn exported(export: Export) -> Imported {
    // SAFETY: the tensor was just exported, and all work on it is on one stream.
    unsafe { Imported::from_raw(export.into_raw().as_ptr()) }.unwrap()
}

/// Sends random bytes as elements of a type through both forms, whole and with strides.
fn both_forms<T: Element>(stream: &Stream, name: &str) {
    let bytes: Vec<u8> = (0..6 * 16u8).map(|byte| byte.wrapping_mul(37)).collect();
    let bytes = &bytes[..6 * size_of::<T>()];
    let buffer = || DeviceBuffer::from_host(stream, bytes).unwrap().cast::<T>().unwrap();
    let back = |buffer: DeviceBuffer<T>| buffer.cast::<u8>().unwrap().to_host().unwrap();

    let imported = exported(Export::new(buffer()).with_shape(&[2, 3]).unwrap());
    assert_eq!((imported.data_type().to_string().as_str(), imported.shape()), (name, &[2, 3][..]));
    assert_eq!(back(imported.into_buffer(stream).unwrap()), bytes, "{name}");

    let raw = Export::new(buffer()).with_shape(&[3, 2]).unwrap().into_raw_unversioned().unwrap();
    // SAFETY: as in `exported`.
    let imported = unsafe { Imported::from_raw_unversioned(raw.as_ptr()) }.unwrap();
    assert_eq!((imported.shape(), imported.strides(), imported.flags()), (&[3, 2][..], Some(&[2, 1][..]), 0));
    assert_eq!(back(imported.into_tensor(stream).unwrap().into_buffer().unwrap()), bytes, "{name}");

    let column = Export::new(buffer()).with_strides(1, &[2, 1], &[3, 1]).unwrap();
    let tensor = exported(column).into_tensor(stream).unwrap();
    let mut rows = DeviceBuffer::<T>::zeros(stream, 2).unwrap();
    stream.copy_rows(tensor.as_2d().unwrap(), rows.as_2d_mut(2, 1).unwrap()).unwrap();
    let size = size_of::<T>();
    assert_eq!(back(rows), [&bytes[size..2 * size], &bytes[4 * size..5 * size]].concat(), "{name}");
}

#[test]
fn each_type() {
    let (.., [stream]) = fixture();
    both_forms::<i8>(&stream, "int8");
    both_forms::<i16>(&stream, "int16");
    both_forms::<i32>(&stream, "int32");
    both_forms::<i64>(&stream, "int64");
    both_forms::<u8>(&stream, "uint8");
    both_forms::<u16>(&stream, "uint16");
    both_forms::<u32>(&stream, "uint32");
    both_forms::<u64>(&stream, "uint64");
    both_forms::<f16>(&stream, "float16");
    both_forms::<f32>(&stream, "float32");
    both_forms::<f64>(&stream, "float64");
    both_forms::<bf16>(&stream, "bfloat16");
    both_forms::<F8E4M3>(&stream, "float8_e4m3fn");
    both_forms::<F8E5M2>(&stream, "float8_e5m2");
    both_forms::<Complex<f32>>(&stream, "complex64");
    both_forms::<Complex<f64>>(&stream, "complex128");
    both_forms::<Checked<bool>>(&stream, "bool");
    let vector = DLDataType { lanes: 4, ..f32::DATA_TYPE };
    assert_eq!(vector.to_string(), "float32x4");
}

#[test]
fn an_own_tensor_comes_back_as_the_same_buffer_without_copies() {
    let (driver, _, [stream, other]) = fixture();
    let buffer = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0]).unwrap();
    let address = buffer.as_device_ptr();
    driver.reset_calls();
    let mut raw = None;
    assert_eq!(allocations(|| raw = Some(Export::new(buffer).into_raw())), 1);
    let mut back = None;
    assert_eq!(
        allocations(|| {
            // SAFETY: the tensor was just exported, and is ready on any stream.
            let imported = unsafe { Imported::from_raw(raw.unwrap().as_ptr()) }.unwrap();
            back = Some(imported.into_buffer::<f32>(&stream).unwrap());
        }),
        0
    );
    let back = back.unwrap();
    assert_eq!((back.as_device_ptr(), back.stream(), back.len()), (address, &stream, 3));
    use warpsmith_runtime::emulated::Call;
    assert!(
        [Call::CopyDevice, Call::MemoryDevice, Call::MemoryAllocate]
            .iter()
            .all(|call| driver.calls(*call) == 0)
    );
    // The stream of the import counts as a user.
    let back = exported(Export::new(back)).into_buffer::<f32>(&other).unwrap();
    assert_eq!((back.stream(), back.to_host().unwrap()), (&stream, vec![1.0, 2.0, 3.0]));
}

#[test]
fn host_memory_is_used_in_place_with_its_strides() {
    let (_, device, [stream]) = fixture();
    let mut memory = vec![0u32; 2 * 8];
    let (foreign, deleted) = Foreign::new(&mut memory);
    // Two rows of three in rows of eight, from the second element on.
    let foreign = foreign.with_layout(&[2, 3], Some(&[8, 1])).with(|foreign| foreign.tensor.byte_offset = 4);
    let mut tensor = foreign.import().unwrap().into_tensor(&stream).unwrap();
    assert_eq!((tensor.shape(), tensor.strides(), tensor.is_read_only()), (&[2, 3][..], &[8, 1][..], false));
    let rows = DeviceBuffer::from_host(&stream, &[1u32, 2, 3, 4, 5, 6]).unwrap();
    stream.copy_rows(rows.as_2d(2, 3).unwrap(), tensor.as_2d_mut().unwrap()).unwrap();
    drop(tensor);
    deleted.wait();
    assert_eq!(memory, [0, 1, 2, 3, 0, 0, 0, 0, 0, 4, 5, 6, 0, 0, 0, 0]);
    assert!(device.take_drop_error().is_none());

    // Two views of the same memory at once.
    let ((whole, _), (tail, _)) = (Foreign::new(&mut memory), Foreign::new(&mut memory[9..]));
    let whole = whole.import().unwrap().into_buffer::<u32>(&stream).unwrap();
    let tail = tail.import().unwrap().into_buffer::<u32>(&stream).unwrap();
    assert_eq!(
        (whole.slice(9..12).to_host().unwrap(), tail.slice(..3).to_host().unwrap()),
        (vec![4, 5, 6], vec![4, 5, 6])
    );
    drop(whole);
    assert_eq!(tail.slice(1..3).to_host().unwrap(), [5, 6]);
}

#[test]
fn planes_and_single_rows_are_views() {
    let (.., [stream]) = fixture();
    let mut memory: Vec<u16> = (0..24).collect();
    let import = |memory: &mut Vec<u16>, shape: &[i64], strides: Option<&[i64]>| {
        let foreign = Foreign::new(memory).0.with_layout(shape, strides);
        foreign.import().unwrap().into_tensor(&stream).unwrap()
    };
    let mut tensor = import(&mut memory, &[2, 3, 2], Some(&[12, 4, 1]));
    let view = tensor.as_3d::<u16>().unwrap();
    assert_eq!((view.planes(), view.rows(), view.columns()), (2, 3, 2));
    assert_eq!((view.plane_stride(), view.row_stride()), (12, 4));
    assert_eq!(view.plane(1).part(1..2, ..).to_host().unwrap(), [16, 17]);
    assert_eq!(tensor.as_3d_mut::<u16>().unwrap().columns(), 2);
    // One row, whose stride is not used.
    let tensor = import(&mut memory, &[1, 5], Some(&[1, 1]));
    assert_eq!(tensor.as_2d::<u16>().unwrap().to_host().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(tensor.as_slice::<u16>().unwrap().len(), 5);
    // Without strides; a scalar; many dimensions.
    let tensor = import(&mut memory, &[2, 3], None);
    assert_eq!((tensor.strides(), tensor.as_2d::<u16>().unwrap().row_stride()), (&[3, 1][..], 3));
    assert_eq!(import(&mut memory, &[], None).as_slice::<u16>().unwrap().to_host().unwrap(), [0]);
    let buffer = DeviceBuffer::from_host(&stream, &memory).unwrap();
    let imported = exported(Export::new(buffer).with_shape(&[1, 2, 1, 3, 2, 2]).unwrap());
    assert_eq!((imported.shape(), imported.strides().unwrap()[1]), (&[1, 2, 1, 3, 2, 2][..], 12));
    assert_eq!(imported.into_buffer::<u16>(&stream).unwrap().to_host().unwrap(), memory);
}

#[test]
fn tensors_without_elements() {
    let (.., [stream]) = fixture();
    let (foreign, deleted) = Foreign::new::<f32>(&mut []);
    let foreign = foreign.with_layout(&[3, 0, 2], Some(&[0, 0, 0])).with(|foreign| {
        foreign.tensor.data = std::ptr::null_mut();
    });
    let buffer = foreign.import().unwrap().into_buffer::<f32>(&stream).unwrap();
    assert!(buffer.is_empty() && buffer.to_host().unwrap().is_empty());
    drop(buffer);
    deleted.wait();
    let empty = DeviceBuffer::<f32>::zeros(&stream, 0).unwrap();
    let imported = exported(Export::new(empty).with_shape(&[2, 0]).unwrap());
    let tensor = imported.into_tensor(&stream).unwrap();
    assert_eq!((tensor.shape(), tensor.as_2d::<f32>().unwrap().is_empty()), (&[2, 0][..], true));
}

#[test]
fn flags_and_devices() {
    let (.., [stream]) = fixture();
    let buffer = || DeviceBuffer::from_host(&stream, &[1u8, 2]).unwrap();
    let imported = exported(Export::new(buffer()).with_flags(DLPACK_FLAG_IS_COPIED));
    assert_eq!((imported.flags(), imported.is_read_only()), (DLPACK_FLAG_IS_COPIED, false));
    assert_eq!(imported.device(), DLDevice { device_type: DLDevice::CPU, device_id: 0 });
    let shared = std::sync::Arc::new(buffer());
    let imported = exported(Export::shared(shared.clone()).with_flags(DLPACK_FLAG_IS_COPIED));
    assert_eq!(imported.flags(), DLPACK_FLAG_IS_COPIED | DLPACK_FLAG_READ_ONLY);
    let tensor = imported.into_tensor(&stream).unwrap();
    assert!(tensor.is_read_only());
    assert_eq!(tensor.as_slice::<u8>().unwrap().to_host().unwrap(), [1, 2]);
    assert_eq!(tensor.as_slice::<u8>().unwrap().as_device_ptr(), shared.as_device_ptr());
}
