//! `c = a * b^T`: checks the matrices, chooses the cluster, and launches.

use gpu_std::Instance;
use gpu_std::tensor::Operand;
use half::{bf16, f16};
use warpsmith_core::{
    Device, DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSliceMut2, Launch, Result, Stream, Swizzle,
    TensorLayout,
};
use warpsmith_tensor_kernels::matmul::{
    self as kernels, GROUP_ROWS, SHARED_BYTES, THREADS, TILE_K, TILE_M, TILE_N,
};

use crate::IMAGE;
use crate::error::TensorError;

const OPERATION: &str = "matmul_tn";
/// Blocks of a cluster, where C has rows for several.
const CLUSTER: u32 = 2;
/// Rows of tiles from which on an odd one costs less than clusters save.
const MANY_ROWS: u32 = 16;

/// The types of matrices.
pub trait Element: Operand + DeviceCopy {
    /// Enqueues the product.
    #[doc(hidden)]
    fn matmul_tn(product: Product<'_, '_, Self>) -> Result<()>;
}

macro_rules! elements {
    ($($ty:ty),*) => { $(
        impl Element for $ty {
            fn matmul_tn(product: Product<'_, '_, Self>) -> Result<()> {
                match product.cluster() {
                    1 => product.launch::<1>(),
                    _ => product.launch::<CLUSTER>(),
                }
            }
        }
    )* };
}
elements!(bf16, f16);

/// `c = a * b^T`, with `a` of m rows of k, `b` of n rows of k and `c` of m rows of n elements, in sums of `f32` that are
/// rounded once. The order of the sums depends on k alone. With k = 0, `c` becomes zero.
///
/// # Errors
/// [`TensorError::Shape`]; [`TensorError::Alignment`] for a matrix whose address or pitch is no multiple of 16 bytes;
/// [`TensorError::Device`] on a device of another compute capability than 9.0; whatever the runtime reports.
pub fn matmul_tn<T: Element>(
    stream: &Stream,
    a: &DeviceSlice2<'_, T>,
    b: &DeviceSlice2<'_, T>,
    c: &mut DeviceSliceMut2<'_, T>,
) -> Result<()> {
    let (m, n, k) = (c.height(), c.width(), a.width());
    if (a.height(), b.height(), b.width()) != (m, n, k) {
        let sides = |name: &str, rows, columns| format!("{name} is {rows} x {columns}");
        let what =
            [sides("a", a.height(), k), sides("b", b.height(), b.width()), sides("c", m, n)].join(", ");
        return Err(TensorError::Shape { operation: OPERATION, what }.into());
    }
    check_device(stream.device())?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    if k == 0 {
        return zero(stream, c);
    }
    check_rows("a", a.elements(), a.pitch(), m)?;
    check_rows("b", b.elements(), b.pitch(), n)?;
    check_rows("c", c.as_slice().elements(), c.pitch(), m)?;
    T::matmul_tn(Product { stream, a, b, c: c.reborrow() })
}

/// Fails on a device that has other tensor cores.
fn check_device(device: &Device) -> Result<()> {
    let capability = device.properties().capability;
    if device.is_emulated() || capability == (9, 0) {
        return Ok(());
    }
    Err(TensorError::Device { operation: OPERATION, device: device.id().to_string(), capability }.into())
}

/// Fails for rows that begin where a tensor copy cannot.
fn check_rows<T: DeviceCopy>(
    matrix: &'static str,
    elements: DeviceSlice<'_, T>,
    pitch: usize,
    rows: usize,
) -> Result<()> {
    let (address, bytes) = (elements.as_device_ptr().0, pitch * size_of::<T>());
    if address.is_multiple_of(16) && (bytes.is_multiple_of(16) || rows == 1) {
        return Ok(());
    }
    Err(TensorError::Alignment { operation: OPERATION, matrix, bytes, address }.into())
}

/// Sums of nothing.
fn zero<T: DeviceCopy>(stream: &Stream, c: &mut DeviceSliceMut2<'_, T>) -> Result<()> {
    let (width, height, pitch) = (c.width(), c.height(), c.pitch());
    let mut elements = c.reborrow().into_elements();
    for row in 0..height {
        stream.memset(elements.slice_mut(row * pitch..row * pitch + width), 0)?;
    }
    Ok(())
}

/// A product that was checked.
#[doc(hidden)]
pub struct Product<'a, 'c, T: DeviceCopy> {
    stream: &'a Stream,
    a: &'a DeviceSlice2<'a, T>,
    b: &'a DeviceSlice2<'a, T>,
    c: DeviceSliceMut2<'c, T>,
}

impl<T: Element> Product<'_, '_, T> {
    /// Blocks of a cluster, which share the tiles of B: not where that leaves a row of tiles without work, and is not
    /// outweighed by many others.
    fn cluster(&self) -> u32 {
        let rows = (self.c.height() as u32).div_ceil(TILE_M);
        if rows.is_multiple_of(CLUSTER) || rows >= MANY_ROWS { CLUSTER } else { 1 }
    }

    fn launch<const CLUSTER: u32>(self) -> Result<()>
    where
        kernels::matmul_tn<T, CLUSTER>: Instance,
    {
        let Self { stream, a, b, c } = self;
        let (m, n, k) = (c.height(), c.width(), a.width());
        let map = |matrix: &DeviceSlice2<'_, T>, tile: [u32; 2]| TensorLayout {
            dims: [matrix.width(), matrix.height()],
            strides: [1, row_stride::<T>(matrix.pitch())],
            tile,
            swizzle: Swizzle::Bytes128,
        };
        let c_layout = map(&c.as_slice(), [64, GROUP_ROWS]);
        let a = a.elements().tensor_map(&map(a, [TILE_K, TILE_M]))?;
        let b = b.elements().tensor_map(&map(b, [TILE_K, TILE_N / CLUSTER]))?;
        let c = c.into_elements().tensor_map_mut(&c_layout)?;

        let device = stream.device();
        let (m, n, k) = (m as u32, n as u32, k as u32);
        let tiles = m.div_ceil(TILE_M * CLUSTER) * n.div_ceil(TILE_N);
        // The shared memory of a multiprocessor is enough for one block.
        let resident = device.properties().multiprocessors / CLUSTER;
        let grid = tiles.min(resident.max(1)) * CLUSTER;
        let launch = Launch::grid_block(grid, THREADS).shared(SHARED_BYTES).cluster(CLUSTER);
        let kernel = device.load(&IMAGE)?.kernel::<kernels::matmul_tn<T, CLUSTER>>()?;
        // SAFETY: the maps have the boxes that the kernel requires, of matrices of these sizes, which the views check to be
        // below 2^31; c is borrowed exclusively.
        unsafe { kernel.launch_unsafe(stream, launch, (a, b, c, m, n, k)) }
    }
}

/// The stride of rows, which one row alone need not have.
fn row_stride<T>(pitch: usize) -> usize {
    pitch.next_multiple_of(16 / size_of::<T>())
}
