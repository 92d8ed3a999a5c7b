//! Launches with attributes, and cluster occupancy. Every function in this module requires a current context.

use std::ffi::c_void;

use cudarc::driver::sys;
use sys::CUlaunchAttributeID as Id;
use sys::CUlaunchAttributeValue as Value;

use super::call::{self, Feature, RelaxedCapture, check, not_supported};
use super::properties;
use super::stream_of;
use crate::error::Result;
use crate::{FunctionHandle, LaunchConfig, StreamHandle};

/// Launch attributes, at most one per kind.
pub(super) struct Attributes {
    list: [sys::CUlaunchAttribute; 3],
    count: usize,
}

impl Attributes {
    fn none() -> Self {
        let ignored =
            sys::CUlaunchAttribute { id: Id::CU_LAUNCH_ATTRIBUTE_IGNORE, pad: [0; 4], value: zero() };
        Self { list: [ignored; 3], count: 0 }
    }

    /// Returns the attributes of a launch on a stream.
    pub(super) fn of_launch(config: &LaunchConfig) -> Self {
        let mut attributes = Self::of_node(config);
        if config.dependent {
            let mut value = zero();
            value.programmaticStreamSerializationAllowed = 1;
            attributes.push(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value);
        }
        attributes
    }

    /// Returns the attributes of a graph node. In a graph, programmatic dependent launch is a property of the edges,
    /// not of the node.
    pub(super) fn of_node(config: &LaunchConfig) -> Self {
        let mut attributes = Self::none();
        if config.cluster != [1; 3] {
            attributes.push(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, cluster(config.cluster));
        }
        if config.cooperative {
            let mut value = zero();
            value.cooperative = 1;
            attributes.push(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
        }
        attributes
    }

    /// Returns the cluster attribute, even for a cluster of one block.
    fn of_cluster(dimensions: [u32; 3]) -> Self {
        let mut attributes = Self::none();
        attributes.push(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, cluster(dimensions));
        attributes
    }

    fn push(&mut self, id: Id, value: Value) {
        self.list[self.count] = sys::CUlaunchAttribute { id, pad: [0; 4], value };
        self.count += 1;
    }

    pub(super) fn as_slice(&self) -> &[sys::CUlaunchAttribute] {
        &self.list[..self.count]
    }

    /// Returns the driver's launch configuration, with a pointer to these attributes.
    fn with(&mut self, config: &LaunchConfig, stream: sys::CUstream) -> sys::CUlaunchConfig {
        let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes, .. } = *config;
        sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            sharedMemBytes: shared_bytes,
            hStream: stream,
            attrs: self.list.as_mut_ptr(),
            numAttrs: self.count as u32,
        }
    }
}

/// Returns an attribute value whose unused bytes are zero, as the driver requires.
pub(super) fn zero() -> Value {
    Value { pad: [0; 64] }
}

fn cluster([x, y, z]: [u32; 3]) -> Value {
    let mut value = zero();
    value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
    value
}

/// Enqueues a plain launch.
///
/// # Safety
/// The requirements are the same as for [`CodeDriver::launch`](crate::CodeDriver::launch).
#[inline]
pub(super) unsafe fn launch_plain(
    function: FunctionHandle,
    config: &LaunchConfig,
    args: &[*const c_void],
    stream: StreamHandle,
) -> Result<()> {
    let LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared_bytes, .. } = *config;
    // The driver only reads the values; its signature takes mutable pointers.
    let params = args.as_ptr() as *mut *mut c_void;
    let function = function.0 as sys::CUfunction;
    let stream = stream_of(stream);
    // SAFETY: guaranteed by the caller.
    let result = unsafe {
        sys::cuLaunchKernel(
            function,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared_bytes,
            stream,
            params,
            std::ptr::null_mut(),
        )
    };
    check("cuLaunchKernel", result)
}

/// Enqueues a launch with attributes.
///
/// # Safety
/// The requirements are the same as for [`CodeDriver::launch`](crate::CodeDriver::launch).
pub(super) unsafe fn launch(
    function: FunctionHandle,
    config: &LaunchConfig,
    args: &[*const c_void],
    stream: StreamHandle,
) -> Result<()> {
    Feature::LaunchAttributes.need("cuLaunchKernelEx")?;
    let mut attributes = Attributes::of_launch(config);
    let config = attributes.with(config, stream_of(stream));
    // The driver only reads the values; its signature takes mutable pointers.
    let params = args.as_ptr() as *mut *mut c_void;
    let function = function.0 as sys::CUfunction;
    // SAFETY: guaranteed by the caller; the attributes are alive and their count matches.
    let result = unsafe { sys::cuLaunchKernelEx(&config, function, params, std::ptr::null_mut()) };
    check("cuLaunchKernelEx", result)
}

/// Returns an error that names `call` if device `ordinal` does not support clusters.
fn need_clusters(call: &'static str, ordinal: u32) -> Result<()> {
    Feature::Clusters.need(call)?;
    if properties::has_clusters(call::device(ordinal)?) {
        return Ok(());
    }
    let text = "the device does not support clusters, which require compute capability 9.0; launch without a cluster";
    Err(not_supported(call, text.to_owned()))
}

/// Returns the maximum cluster size in blocks for a configuration on device `ordinal`.
pub(super) fn max_cluster(ordinal: u32, function: FunctionHandle, config: &LaunchConfig) -> Result<u32> {
    const CALL: &str = "cuOccupancyMaxPotentialClusterSize";
    need_clusters(CALL, ordinal)?;
    let mut attributes = Attributes::none();
    let config = attributes.with(config, std::ptr::null_mut());
    let mut blocks = 0;
    // SAFETY: the function belongs to a loaded module, by the trait's contract; the pointers are to local variables.
    let result = unsafe {
        sys::cuOccupancyMaxPotentialClusterSize(&mut blocks, function.0 as sys::CUfunction, &config)
    };
    check(CALL, result)?;
    Ok(blocks.max(0) as u32)
}

/// Returns the number of clusters of a configuration that can be resident on device `ordinal` concurrently.
pub(super) fn resident_clusters(
    ordinal: u32,
    function: FunctionHandle,
    config: &LaunchConfig,
) -> Result<u32> {
    const CALL: &str = "cuOccupancyMaxActiveClusters";
    need_clusters(CALL, ordinal)?;
    let mut attributes = Attributes::of_cluster(config.cluster);
    let config = attributes.with(config, std::ptr::null_mut());
    let mut clusters = 0;
    // SAFETY: as in `max_cluster`; the attributes are alive and their count matches.
    let result =
        unsafe { sys::cuOccupancyMaxActiveClusters(&mut clusters, function.0 as sys::CUfunction, &config) };
    check(CALL, result)?;
    Ok(clusters.max(0) as u32)
}

/// Permits non-portable cluster sizes for a kernel.
pub(super) fn allow_large_clusters(ordinal: u32, function: FunctionHandle) -> Result<()> {
    const CALL: &str = "cuFuncSetAttribute";
    need_clusters(CALL, ordinal)?;
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: the function belongs to a loaded module, by the trait's contract.
    check(CALL, unsafe { sys::cuFuncSetAttribute(function.0 as sys::CUfunction, attribute, 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: LaunchConfig = LaunchConfig::new([8, 4, 2], [32, 2, 1], 1024);

    fn ids(attributes: &Attributes) -> Vec<Id> {
        attributes.as_slice().iter().map(|attribute| attribute.id).collect()
    }

    #[test]
    fn the_structures_have_the_sizes_of_the_drivers() {
        assert_eq!(size_of::<Value>(), 64);
        assert_eq!((size_of::<sys::CUlaunchAttribute>(), align_of::<sys::CUlaunchAttribute>()), (72, 8));
        assert_eq!(size_of::<sys::CUlaunchConfig>(), 56);
    }

    #[test]
    fn launches_have_the_requested_attributes_only() {
        assert!(Attributes::of_launch(&PLAIN).as_slice().is_empty());
        let cooperative = LaunchConfig { cooperative: true, ..PLAIN };
        assert_eq!(ids(&Attributes::of_launch(&cooperative)), [Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE]);
        let all = LaunchConfig { cluster: [2, 4, 1], dependent: true, ..cooperative };
        let attributes = Attributes::of_launch(&all);
        assert_eq!(
            ids(&attributes),
            [
                Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
                Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            ]
        );
        let [cluster, cooperative, dependent] = attributes.as_slice() else { panic!("three") };
        // SAFETY: every bit of these values was written, and only the members that were written are read.
        let values = unsafe {
            let cluster = cluster.value.clusterDim;
            let flags =
                (cooperative.value.cooperative, dependent.value.programmaticStreamSerializationAllowed);
            ([cluster.x, cluster.y, cluster.z], flags)
        };
        assert_eq!(values, ([2, 4, 1], (1, 1)));
    }

    #[test]
    fn nodes_of_graphs_start_early_by_their_edges_only() {
        let dependent = LaunchConfig { dependent: true, ..PLAIN };
        assert!(Attributes::of_node(&dependent).as_slice().is_empty());
        let clusters = LaunchConfig { cluster: [1, 1, 2], ..dependent };
        assert_eq!(ids(&Attributes::of_node(&clusters)), [Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION]);
    }

    #[test]
    fn the_driver_gets_the_whole_configuration() {
        let mut attributes = Attributes::of_cluster([1; 3]);
        let stream = std::ptr::without_provenance_mut(0x40);
        let config = attributes.with(&PLAIN, stream);
        assert_eq!((config.gridDimX, config.gridDimY, config.gridDimZ), (8, 4, 2));
        assert_eq!((config.blockDimX, config.blockDimY, config.blockDimZ), (32, 2, 1));
        assert_eq!((config.sharedMemBytes, config.hStream, config.numAttrs), (1024, stream, 1));
        assert_eq!(config.attrs, attributes.list.as_mut_ptr());
    }
}
