//! Launches row operations and selects the instance, the threads per row and the number of blocks.

use std::collections::HashMap;
use std::sync::OnceLock;

use gpu_kernels::resident::{resident_elements, resident_vectors};
use gpu_spec::KernelSpec;
use warpsmith_runtime::{
    Arguments, Device, DeviceCopy, DeviceProperties, DevicePtr, DeviceSlice2, Function, Launch, Result,
    Stream,
};

use crate::IMAGE;
use crate::op_error::OpError;

/// Bytes per access.
pub(super) const VECTOR: usize = 16;

/// Returns all instances of the row kernels. They are found by type because the registry may contain kernels of another
/// package with the same names.
fn all_instances() -> Vec<&'static KernelSpec> {
    use gpu_kernels::{axis_reduce, device_reduce, norm, select, softmax, transformer};

    let mut all: Vec<&'static KernelSpec> = Vec::new();
    macro_rules! add {
        ($($module:ident: $($kernel:ident<$($argument:tt),*>)*;)*) => {
            $($(all.extend($module::$kernel::<$($argument),*>::instances());)*)*
        };
    }
    add! {
        axis_reduce:
            sum_rows<()> mean_rows<()> prod_rows<()> min_rows<()> max_rows<()> argmin_rows<()> argmax_rows<()>
            sum_columns<(), 0> mean_columns<(), 0> prod_columns<(), 0> min_columns<(), 0> max_columns<(), 0> argmin_columns<(), 0>
            argmax_columns<(), 0>;
        transformer: swiglu<()> rotary<(), ()>;
        select: top_k<()> sample<()>;
        norm: norm<(), 0> add_rms_norm<(), 0> norm_backward<(), 0> norm_backward_parameters<(), 0>;
        softmax: softmax<(), 0> softmax_backward<(), 0>;
        device_reduce: dot<()> count_if<()> vector_norm<()> variance<()>;
    }
    all
}

/// Returns the instance of a kernel for its type arguments (joined by commas) and its const argument. The const
/// argument is 0 if the kernel has no const parameter.
fn find(kernel: &str, types: &str, constant: u32) -> Option<&'static KernelSpec> {
    type Table = HashMap<&'static str, HashMap<(String, i64), &'static KernelSpec>>;
    static TABLE: OnceLock<Table> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = Table::new();
        for spec in all_instances() {
            let types: Vec<&str> = spec.types.iter().map(|argument| argument.name).collect();
            let constant = spec.consts.first().map_or(0, |argument| argument.value);
            table.entry(spec.name).or_default().insert((types.join(","), constant), spec);
        }
        table
    });
    let of_kernel = table.get(kernel)?;
    let of = |types: &str| of_kernel.get(&(types.to_owned(), i64::from(constant))).copied();
    // A kernel for which the sign makes no difference shares one instance between signed and unsigned integers.
    of(types).or_else(|| of(&types.replace('i', "u")))
}

/// Returns whether this instance of the kernel exists.
pub(super) fn has_instance(kernel: &str, types: &str, constant: u32) -> bool {
    find(kernel, types, constant).is_some()
}

/// Returns the instance of a kernel. The instance must exist.
pub(super) fn instance(kernel: &str, types: &str, constant: u32) -> &'static KernelSpec {
    find(kernel, types, constant)
        .unwrap_or_else(|| panic!("{kernel} is not compiled for {types} with the constant {constant}"))
}

/// A kernel and the stream on which it is launched.
pub(super) struct RowKernel<'a> {
    stream: &'a Stream,
    function: Function,
}

impl<'a> RowKernel<'a> {
    pub fn new(stream: &'a Stream, kernel: &str, types: &str, constant: u32) -> Result<Self> {
        let module = stream.device().load(&IMAGE)?;
        Ok(Self { stream, function: module.function(instance(kernel, types, constant))? })
    }

    /// Enqueues the launch.
    ///
    /// # Safety
    /// `P` must be the markers of the kernel's parameters, and the kernel's conditions must hold.
    pub unsafe fn launch<P, A: Arguments<P>>(&self, shape: &Shape, arguments: A) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.enqueue::<P, A>(shape.launch(), &arguments) }
    }

    /// Like [`Self::launch`], but for kernels that are declared as dependent: the launch can start before the
    /// preceding kernel ends.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::launch`].
    pub unsafe fn launch_dependent<P, A: Arguments<P>>(&self, shape: &Shape, arguments: A) -> Result<()> {
        // Other devices run the code for compute capability 8.0, which does not wait for the preceding kernel.
        let can_start_early = self.stream.device().properties().capability.0 == 9;
        let launch = if can_start_early { shape.launch().dependent() } else { shape.launch() };
        // SAFETY: guaranteed by the caller.
        unsafe { self.enqueue::<P, A>(launch, &arguments) }
    }

    unsafe fn enqueue<P, A: Arguments<P>>(&self, launch: Launch, arguments: &A) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.function.launch_as::<P, A>(self.stream, launch, arguments)? };
        Ok(())
    }
}

/// The grid of a launch and the size (`group_size`) of the thread group that processes a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub grid: u32,
    pub block: u32,
    pub cluster: u32,
    pub group_size: u32,
}

impl Shape {
    fn launch(&self) -> Launch {
        Launch::grid_block(self.grid, self.block).cluster(self.cluster)
    }

    /// Returns the shape for groups of `group_size` lanes in blocks of `block` threads. Each group processes `rows` of
    /// the `height` rows at the same time.
    pub fn of_lanes(group_size: usize, block: u32, rows: usize, height: usize) -> Self {
        let of_block = block as usize / group_size * rows;
        let grid = height.div_ceil(of_block).clamp(1, i32::MAX as usize) as u32;
        Self { grid, block, cluster: 1, group_size: group_size as u32 }
    }

    /// Returns the shape for `cluster` blocks per row and `count` rows.
    pub fn of_blocks(block: u32, cluster: u32, count: usize) -> Self {
        let most = (i32::MAX as u32 / cluster) as usize;
        Self { grid: count.clamp(1, most) as u32 * cluster, block, cluster, group_size: block }
    }
}

/// Maximum number of threads per block, and maximum number of blocks per cluster, in a kernel with register-resident
/// rows.
const MAX_GROUP_SIZE: u32 = 512;
const MAX_CLUSTER: u32 = 8;

/// Launch shape of a kernel whose rows are register-resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResidentShape {
    pub shape: Shape,
    /// Const parameter of the instance: vectors or elements per thread.
    pub items: u32,
    /// True if rows are accessed in vectors. This requires that all rows and parameters start and end on 16-byte
    /// boundaries.
    pub in_vectors: bool,
}

impl ResidentShape {
    /// Returns the launch shape of a kernel that has two instances, whose const arguments are `few` and `many`. All
    /// views have `width` columns and `height` rows. `views` contains the address and the pitch of each view.
    pub fn new<T: DeviceCopy>(
        views: &[(DevicePtr, usize)],
        (width, height): (usize, usize),
        [few, many]: [u32; 2],
        device: &Device,
    ) -> Self {
        let has_clusters = device.is_emulated() || device.properties().capability.0 >= 9;
        Self::choose::<T>(views, (width, height), [few, many], (device.properties(), has_clusters))
    }

    fn choose<T: DeviceCopy>(
        views: &[(DevicePtr, usize)],
        (width, height): (usize, usize),
        [few, many]: [u32; 2],
        (properties, has_clusters): (&DeviceProperties, bool),
    ) -> Self {
        let size = size_of::<T>();
        let is_whole = |bytes: usize| bytes.is_multiple_of(VECTOR);
        let in_vectors = is_whole(width * size)
            && views.iter().all(|&(start, pitch)| is_whole(address(start)) && is_whole(pitch * size));
        let threads =
            properties.multiprocessors as usize * properties.max_threads_per_multiprocessor as usize;
        // Number of register-resident elements per thread, for each of the two instances.
        let [of_few, of_many] = [few, many].map(|items| match in_vectors {
            true => resident_vectors::<T>(items as usize) * (VECTOR / size),
            false => resident_elements(items as usize),
        });
        let shape = |shape, items| Self { shape, items, in_vectors };
        let group_size = |resident: usize| width.div_ceil(resident).next_power_of_two();
        let of_block = |resident: usize| (group_size(resident).clamp(64, MAX_GROUP_SIZE as usize)) as u32;
        // True if the rows fill half of the threads that can be resident with this instance's register count.
        let is_filled =
            height.saturating_mul(group_size(of_many).min(MAX_GROUP_SIZE as usize)) >= threads / 4;
        // A group has at least four lanes, which together load 64 contiguous bytes.
        if in_vectors && width <= 32 * of_many && group_size(of_many) >= 4 && is_filled {
            return shape(Shape::of_lanes(group_size(of_many), 128, 1, height), many);
        }
        if width <= 32 * of_few {
            return shape(Shape::of_lanes(group_size(of_few), 256, 1, height), few);
        }
        if width <= MAX_GROUP_SIZE as usize * of_few && !is_filled {
            return shape(Shape::of_blocks(of_block(of_few), 1, height), few);
        }
        let blocks = width.div_ceil(MAX_GROUP_SIZE as usize * of_many).next_power_of_two() as u32;
        let cluster = match blocks {
            _ if !has_clusters => 1,
            ..=MAX_CLUSTER => blocks,
            // These rows are too long for one block's registers, so each row is processed by as many blocks as are
            // needed to fill the device.
            _ => (threads / MAX_GROUP_SIZE as usize)
                .div_ceil(height)
                .next_power_of_two()
                .clamp(1, MAX_CLUSTER as usize) as u32,
        };
        shape(Shape::of_blocks(of_block(of_many), cluster, height), many)
    }
}

/// Returns an error unless two views, each described by its name and (rows, columns), have the same shape.
pub(super) fn same_sides(
    operation: &'static str,
    (first_name, first): (&'static str, (usize, usize)),
    (second_name, second): (&'static str, (usize, usize)),
) -> Result<()> {
    if first == second {
        return Ok(());
    }
    let sides = |(rows, columns): (usize, usize)| format!("{rows} rows of {columns}");
    let problem = format!("{first_name} has {}, but {second_name} has {}", sides(first), sides(second));
    Err(shape_error(operation, format!("{problem}; pass views of equal shape")))
}

/// Returns whether all rows of a view start at multiples of [`VECTOR`] bytes and have a length that is a multiple of
/// [`VECTOR`] bytes.
pub(super) fn has_whole_vectors<T: DeviceCopy>(x: &DeviceSlice2<'_, T>) -> bool {
    let in_vectors = |elements: usize| (elements * size_of::<T>()).is_multiple_of(VECTOR);
    address(x.as_device_ptr()).is_multiple_of(VECTOR) && in_vectors(x.row_stride()) && in_vectors(x.columns())
}

pub(super) fn address(pointer: DevicePtr) -> usize {
    pointer.0 as usize
}

/// Creates the error for mismatched shapes or lengths, with the remedy.
#[cold]
pub(super) fn shape_error(operation: &'static str, problem: String) -> warpsmith_runtime::Error {
    OpError::Shape { operation, problem }.into()
}

/// Returns an error unless an array has `expected` elements. `of` explains the number, for example `an element for each
/// row`.
pub(super) fn check_len(
    operation: &'static str,
    (name, len): (&'static str, usize),
    (expected, of): (usize, &'static str),
) -> Result<()> {
    if len == expected {
        return Ok(());
    }
    Err(shape_error(operation, format!("{name} has {len} elements, but must have {expected}: {of}")))
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    /// Returns the block size, cluster size, thread group size and vectors per thread, for `height` rows of `width`
    /// elements on a device with as many SMs as an H200.
    fn of<T: DeviceCopy>(width: usize, height: usize) -> (u32, u32, u32, u32) {
        let mut properties = Device::emulated(0).unwrap().properties().clone();
        (properties.multiprocessors, properties.max_threads_per_multiprocessor) = (132, 2048);
        let views = [(DevicePtr(1 << 20), width), (DevicePtr(1 << 30), width)];
        let chosen = ResidentShape::choose::<T>(&views, (width, height), [2, 8], (&properties, true));
        assert_eq!(chosen.in_vectors, (width * size_of::<T>()).is_multiple_of(VECTOR));
        (chosen.shape.block, chosen.shape.cluster, chosen.shape.group_size, chosen.items)
    }

    #[test]
    fn longer_rows_have_larger_groups() {
        assert_eq!(of::<f32>(4, 1 << 20), (256, 1, 1, 2));
        assert_eq!(of::<f32>(64, 1 << 20), (256, 1, 8, 2));
        assert_eq!(of::<f32>(128, 1 << 20), (128, 1, 4, 8));
        assert_eq!(of::<f32>(1024, 65_536), (128, 1, 32, 8));
        assert_eq!(of::<bf16>(1024, 65_536), (128, 1, 16, 8), "twice as many elements a lane");
        assert_eq!(of::<f32>(4096, 4096), (128, 1, 128, 8));
        assert_eq!(of::<f32>(16_384, 16_384), (512, 1, 512, 8));
        assert_eq!(of::<f32>(131_072, 2048), (512, 8, 512, 8));
        assert_eq!(of::<bf16>(32_768, 8192), (512, 1, 512, 8), "two elements are one register");
        assert_eq!(of::<bf16>(131_072, 2048), (512, 4, 512, 8));
        assert_eq!(of::<f64>(16_384, 2048), (512, 4, 512, 8));
        assert_eq!(of::<f32>(1 << 20, 128), (512, 8, 512, 8), "read twice");
        assert_eq!(of::<f32>(1 << 20, 4096).1, 1, "enough rows without clusters");
        assert_eq!(of::<f32>(1024, 100), (128, 1, 128, 2), "few rows have more threads");
        assert_eq!(of::<f32>(255, 1 << 20), (256, 1, 32, 2), "not of whole vectors");
        assert_eq!(
            of::<f32>(4095, 4096),
            (512, 1, 512, 8),
            "fewer elements a thread where they are taken one by one"
        );
    }

    #[test]
    fn unaligned_rows_are_taken_in_elements() {
        let properties = Device::emulated(0).unwrap().properties().clone();
        let choose = |views: [(usize, usize); 2]| {
            let views = views.map(|(start, pitch)| (DevicePtr(start as u64), pitch));
            ResidentShape::choose::<f32>(&views, (100, 10), [2, 8], (&properties, false))
        };
        assert!(choose([(1 << 20, 100), (1 << 30, 104)]).in_vectors);
        assert!(!choose([(4, 100), (20, 104)]).in_vectors);
        assert!(!choose([(1 << 20, 101), (1 << 30, 101)]).in_vectors);
    }

    #[test]
    fn every_kernel_is_known_once() {
        let all = all_instances();
        assert!(all.iter().all(|spec| std::ptr::eq(
            *spec,
            instance(
                spec.name,
                &spec.types.iter().map(|argument| argument.name).collect::<Vec<_>>().join(","),
                spec.consts.first().map_or(0, |argument| argument.value as u32),
            )
        )));
    }
}
