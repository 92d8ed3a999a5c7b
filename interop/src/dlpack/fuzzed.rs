//! Properties that hold for every tensor. The fuzz target checks them, and so does the test that replays its corpus.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use gpu_std::Checked;
use warpsmith_runtime::{Device, Stream};

use super::layout::MAX_DIMENSIONS;
use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor, Element,
    Imported,
};

/// Memory of the tensors, which is never accessed. It is aligned, so the alignment of a tensor depends only on the
/// input.
#[repr(align(256))]
struct Memory(#[allow(dead_code, reason = "only its address is used")] [u8; 4096]);
static MEMORY: Memory = Memory([0; 4096]);

/// Imports a tensor built from the bytes, converts it, and checks that its deleter is called once.
pub fn reader(bytes: &[u8]) {
    static STREAM: OnceLock<Stream> = OnceLock::new();
    let stream = STREAM.get_or_init(|| {
        let device = Device::emulated(0).expect("there is an emulated device");
        Stream::new(&device).expect("it has streams")
    });
    let mut bytes = bytes.iter().copied();
    let mut byte = || bytes.next().unwrap_or_default();
    let [form, major, flags, device_type, code, bits, lanes, data, offset] = std::array::from_fn(|_| byte());
    // The import must not read more than `MAX_DIMENSIONS` numbers, regardless of `ndim`.
    let ndim = match byte() {
        ndim @ ..=64 => i32::from(ndim),
        other => i32::from_ne_bytes([other, byte(), byte(), byte()]),
    };
    let mut numbers = || -> Vec<i64> {
        let number = |_| match byte() {
            small @ ..200 => i64::from(small),
            _ => i64::from_ne_bytes(std::array::from_fn(|_| byte())),
        };
        (0..MAX_DIMENSIONS).map(number).collect()
    };
    let (sender, deleted) = channel();
    let mut held = Box::new(Held { shape: numbers(), strides: numbers(), sender });
    let pick = |numbers: &mut Vec<i64>, is_null| if is_null { null_mut() } else { numbers.as_mut_ptr() };
    let dl_tensor = DLTensor {
        data: match data {
            0 => null_mut(),
            1 => std::ptr::without_provenance_mut(usize::MAX),
            _ => (&raw const MEMORY).cast::<c_void>().cast_mut(),
        },
        device: DLDevice { device_type: i32::from(device_type), device_id: 0 },
        ndim,
        dtype: DLDataType { code, bits, lanes: u16::from(lanes) },
        shape: pick(&mut held.shape, form & 2 != 0),
        strides: pick(&mut held.strides, form & 4 != 0),
        byte_offset: if offset < 250 { u64::from(offset) } else { u64::MAX },
    };
    let manager_ctx = Box::into_raw(held).cast();
    // SAFETY: the fields of the tensor are valid until its deleter is called, and nothing accesses its memory.
    let imported = unsafe {
        if form & 1 == 0 {
            let version = DLPackVersion { major: u32::from(major), minor: 0 };
            let (deleter, flags) = (Some(delete as _), u64::from(flags));
            Imported::from_raw(Box::into_raw(Box::new(DLManagedTensorVersioned {
                version,
                manager_ctx,
                deleter,
                flags,
                dl_tensor,
            })))
        } else {
            let deleter = Some(delete_unversioned as _);
            let tensor = DLManagedTensor { dl_tensor, manager_ctx, deleter };
            Imported::from_raw_unversioned(Box::into_raw(Box::new(tensor)))
        }
    };
    if let Ok(imported) = imported {
        let elements = imported.elements();
        assert_eq!(product(imported.shape().iter().map(|extent| *extent as usize)), elements);
        match form >> 3 & 3 {
            0 => convert::<u8>(imported, stream, form & 32 != 0),
            1 => convert::<f32>(imported, stream, form & 32 != 0),
            2 => convert::<f64>(imported, stream, form & 32 != 0),
            _ => convert::<Checked<bool>>(imported, stream, form & 32 != 0),
        }
    }
    assert_eq!(deleted.recv_timeout(Duration::from_secs(60)), Ok(()), "deleted");
    assert_eq!(deleted.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Disconnected), "once");
}

/// Returns the product of the extents. If the product of the nonzero extents overflows, another extent is zero.
fn product(extents: impl Iterator<Item = usize>) -> usize {
    extents.fold(1, usize::wrapping_mul)
}

/// Converts the imported tensor to a buffer or to a tensor with strides.
fn convert<T: Element>(imported: Imported, stream: &Stream, as_buffer: bool) {
    let elements = imported.elements();
    if as_buffer {
        if let Ok(buffer) = imported.into_buffer::<T>(stream) {
            assert_eq!(buffer.len(), elements);
        }
    } else if let Ok(mut tensor) = imported.into_tensor(stream) {
        assert_eq!(product(tensor.shape().iter().copied()), elements);
        assert!(tensor.as_slice::<T>().map_or(true, |slice| slice.len() == elements));
        assert!(tensor.as_2d::<T>().map_or(true, |view| view.rows() * view.columns() == elements));
        let is_read_only = tensor.is_read_only();
        assert!(tensor.as_3d_mut::<T>().map_or(true, |view| {
            !is_read_only && view.planes() * view.rows() * view.columns() == elements
        }));
    }
}

/// Shape and strides of a tensor and the sender that reports its deletion.
struct Held {
    shape: Vec<i64>,
    strides: Vec<i64>,
    sender: Sender<()>,
}

unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: both boxes were leaked by `reader`.
    let (held, tensor) =
        unsafe { (Box::from_raw((*tensor).manager_ctx.cast::<Held>()), Box::from_raw(tensor)) };
    let _ = held.sender.send(());
    drop(tensor);
}

unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: as above.
    let (held, tensor) =
        unsafe { (Box::from_raw((*tensor).manager_ctx.cast::<Held>()), Box::from_raw(tensor)) };
    let _ = held.sender.send(());
    drop(tensor);
}
