//! [`Rig`]: the device under test with two streams, used through the driver's calls about captures and graphs.
//!
//! Safety, everywhere here: memory that graphs name is kept until the stream was waited for, and handles are used
//! until they are destroyed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use crate::under_test::shared_device;
use warpsmith_runtime::driver::{
    CaptureMode, CaptureStatus, Context, DevicePtr, Driver, EventHandle, GraphExecHandle, GraphHandle,
    NodeHandle, NodeInfo, NodeWork, Place, StreamHandle,
};
use warpsmith_runtime::{Device, DriverError as Error};

pub const INVALIDATED: u32 = 901;

/// A device with two streams that are destroyed with it.
pub struct Rig {
    pub device: Device,
    pub stream: StreamHandle,
    pub other: StreamHandle,
}

impl Rig {
    pub fn new() -> Self {
        let device = shared_device();
        let (driver, context) = unsafe { device.driver() };
        let [stream, other] = [(); 2].map(|()| driver.stream_create(context, 0).unwrap());
        Self { device, stream, other }
    }

    pub fn driver(&self) -> &dyn Driver {
        &**unsafe { self.device.driver() }.0
    }

    pub fn context(&self) -> Context {
        unsafe { self.device.driver() }.1
    }

    pub fn wait(&self) {
        self.driver().stream_synchronize(self.context(), self.stream).unwrap();
    }

    /// A block with these bytes.
    pub fn block(&self, data: &[u8]) -> DevicePtr {
        let ptr = self.driver().memory_allocate(self.context(), data.len()).unwrap();
        let src = data.as_ptr().cast();
        unsafe { self.driver().copy_to_device(self.context(), ptr, src, data.len(), self.stream) }.unwrap();
        self.wait();
        ptr
    }

    pub fn read(&self, ptr: DevicePtr, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        let dst = data.as_mut_ptr().cast();
        unsafe { self.driver().copy_to_host(self.context(), dst, ptr, bytes, self.stream) }.unwrap();
        self.wait();
        data
    }

    pub fn free(&self, ptr: DevicePtr) {
        unsafe { self.driver().memory_free(self.context(), ptr) }.unwrap();
    }

    pub fn event(&self) -> EventHandle {
        self.driver().event_create(self.context(), false).unwrap()
    }

    pub fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<(), Error> {
        self.driver().event_record(self.context(), event, stream)
    }

    /// Later work on `stream` waits for what is on `of` now.
    pub fn order(&self, of: StreamHandle, stream: StreamHandle) {
        let event = self.event();
        self.record(event, of).unwrap();
        self.driver().stream_wait_event(self.context(), stream, event).unwrap();
        unsafe { self.driver().event_destroy(self.context(), event) };
    }

    pub fn set(&self, stream: StreamHandle, dst: DevicePtr, value: u8, bytes: usize) -> Result<(), Error> {
        unsafe { self.driver().memset(self.context(), dst, value, bytes, stream) }
    }

    pub fn copy(&self, stream: StreamHandle, dst: DevicePtr, src: DevicePtr, bytes: usize) {
        unsafe { self.driver().copy_device(self.context(), dst, src, bytes, stream) }.unwrap();
    }

    pub fn begin(&self, mode: CaptureMode) {
        self.driver().capture_begin(self.context(), self.stream, mode).unwrap();
    }

    pub fn end(&self) -> Result<GraphHandle, Error> {
        self.driver().capture_end(self.context(), self.stream)
    }

    pub fn status(&self, stream: StreamHandle) -> CaptureStatus {
        self.driver().capture_status(self.context(), stream).unwrap()
    }

    pub fn graph(&self) -> GraphHandle {
        self.driver().graph_create(self.context()).unwrap()
    }

    pub fn add(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        work: NodeWork<'_>,
    ) -> Result<NodeHandle, Error> {
        unsafe { self.driver().graph_add(self.context(), graph, after, work) }
    }

    pub fn nodes(&self, graph: GraphHandle) -> Vec<NodeHandle> {
        self.driver().graph_nodes(self.context(), graph).unwrap()
    }

    pub fn info(&self, node: NodeHandle) -> NodeInfo {
        self.driver().graph_node(self.context(), node).unwrap()
    }

    /// The edges as pairs.
    pub fn edges(&self, graph: GraphHandle) -> Vec<(NodeHandle, NodeHandle)> {
        let edges = self.driver().graph_edges(self.context(), graph).unwrap();
        assert!(edges.iter().all(|edge| !edge.early));
        edges.iter().map(|edge| (edge.from, edge.to)).collect()
    }

    pub fn instantiate(&self, graph: GraphHandle) -> GraphExecHandle {
        self.driver().graph_instantiate(self.context(), graph).unwrap()
    }

    pub fn launch(&self, exec: GraphExecHandle) {
        unsafe { self.driver().graph_launch(self.context(), exec, self.stream) }.unwrap();
    }

    /// Launches a graph and waits for it.
    pub fn run(&self, graph: GraphHandle) {
        let exec = self.instantiate(graph);
        self.launch(exec);
        self.wait();
        self.destroy_exec(exec);
    }

    pub fn destroy(&self, graph: GraphHandle) {
        unsafe { self.driver().graph_destroy(self.context(), graph) };
    }

    pub fn destroy_exec(&self, exec: GraphExecHandle) {
        unsafe { self.driver().graph_exec_destroy(self.context(), exec) };
    }

    /// Ends a capture that was spoilt, and sees that both streams are as before.
    pub fn ends_spoilt(&self) {
        assert_eq!(self.status(self.stream), CaptureStatus::Invalidated);
        assert_eq!(code(self.end()), Some(INVALIDATED));
        self.runs_again();
    }

    /// Sees that both streams run work.
    pub fn runs_again(&self) {
        for stream in [self.stream, self.other] {
            assert_eq!(self.status(stream), CaptureStatus::None);
            let block = self.block(&[1; 4]);
            self.set(stream, block, 9, 4).unwrap();
            self.driver().stream_synchronize(self.context(), stream).unwrap();
            assert_eq!(self.read(block, 4), [9; 4]);
            self.free(block);
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        unsafe {
            self.driver().stream_destroy(self.context(), self.stream);
            self.driver().stream_destroy(self.context(), self.other);
        }
    }
}

pub fn code<T>(result: Result<T, Error>) -> Option<u32> {
    result.err().and_then(|error| error.code())
}

pub fn set(dst: DevicePtr, value: u8, bytes: usize) -> NodeWork<'static> {
    NodeWork::Set { dst, value, bytes }
}

pub fn copy(dst: DevicePtr, src: DevicePtr, bytes: usize) -> NodeWork<'static> {
    NodeWork::Copy { dst: Place::Device(dst), src: Place::Device(src), bytes }
}
