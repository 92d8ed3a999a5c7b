//! [`Fixture`]: the device under test with two streams, used through driver calls.
//!
//! Safety, everywhere in this file: memory of copies and of graphs is kept until the stream has been waited for, and
//! handles are not used after they are destroyed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "the argument is the same everywhere, see above")]

use std::cell::RefCell;
use std::sync::MutexGuard;

use crate::turn;
use crate::under_test::shared_device;
use warpsmith_runtime::driver::{
    CaptureMode, CaptureStatus, Context, Driver, EventHandle, GraphExecHandle, GraphHandle, NodeHandle,
    NodeInfo, NodeWork, Place, RowsCopy, StreamHandle,
};
use warpsmith_runtime::{Device, DeviceId, DevicePtr, DriverError as Error};

pub const INVALIDATED: u32 = 901;

/// A device with two streams. Other tests of the program do not use the device at the same time. It frees its blocks,
/// graphs and executables on drop.
pub struct Fixture {
    pub device: Device,
    pub stream: StreamHandle,
    pub other: StreamHandle,
    blocks: RefCell<Vec<DevicePtr>>,
    graphs: RefCell<Vec<GraphHandle>>,
    execs: RefCell<Vec<GraphExecHandle>>,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Fixture {
    pub fn new() -> Self {
        let turn = turn();
        Self::of(shared_device(), Some(turn))
    }

    /// Creates more streams on the same device.
    pub fn beside(&self) -> Self {
        Self::of(self.device.clone(), None)
    }

    /// Returns another device of the same kind, if there is one.
    pub fn peer(&self) -> Option<Self> {
        let ordinals = (0..16).filter(|ordinal| *ordinal != self.device.id().ordinal());
        let id = |ordinal| match self.device.id() {
            DeviceId::Cuda(_) => DeviceId::Cuda(ordinal),
            DeviceId::Emulated(_) => DeviceId::Emulated(ordinal),
        };
        let peer = ordinals.map(id).find_map(|id| Device::from_id(id).ok())?;
        Some(Self::of(peer, None))
    }

    fn of(device: Device, turn: Option<MutexGuard<'static, ()>>) -> Self {
        let (driver, context) = unsafe { device.driver() };
        let [stream, other] = [(); 2].map(|()| driver.stream_create(context, 0).unwrap());
        let (blocks, graphs, execs) = Default::default();
        Self { device, stream, other, blocks, graphs, execs, _turn: turn }
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

    /// Allocates a block with these bytes.
    pub fn block(&self, data: &[u8]) -> DevicePtr {
        let ptr = self.driver().memory_allocate(self.context(), data.len()).unwrap();
        self.blocks.borrow_mut().push(ptr);
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

    pub fn call(&self, function: impl FnOnce() + Send + 'static) {
        self.driver().host_function(self.context(), self.stream, Box::new(function)).unwrap();
    }

    pub fn copy_rows(&self, rows: RowsCopy) {
        unsafe { self.driver().copy_rows(self.context(), rows, self.stream) }.unwrap();
    }

    pub fn event(&self) -> EventHandle {
        self.driver().event_create(self.context(), false).unwrap()
    }

    pub fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<(), Error> {
        self.driver().event_record(self.context(), event, stream)
    }

    /// Makes later work on `stream` wait for the current work on `of`.
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
        let graph = self.driver().capture_end(self.context(), self.stream)?;
        self.graphs.borrow_mut().push(graph);
        Ok(graph)
    }

    pub fn status(&self, stream: StreamHandle) -> CaptureStatus {
        self.driver().capture_status(self.context(), stream).unwrap()
    }

    pub fn graph(&self) -> GraphHandle {
        let graph = self.driver().graph_create(self.context()).unwrap();
        self.graphs.borrow_mut().push(graph);
        graph
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

    /// Returns the edges as pairs of nodes.
    pub fn edges(&self, graph: GraphHandle) -> Vec<(NodeHandle, NodeHandle)> {
        let edges = self.driver().graph_edges(self.context(), graph).unwrap();
        assert!(edges.iter().all(|edge| !edge.early));
        edges.iter().map(|edge| (edge.from, edge.to)).collect()
    }

    pub fn instantiate(&self, graph: GraphHandle) -> GraphExecHandle {
        let exec = self.driver().graph_instantiate(self.context(), graph).unwrap();
        self.execs.borrow_mut().push(exec);
        exec
    }

    pub fn launch(&self, exec: GraphExecHandle) {
        unsafe { self.driver().graph_launch(self.context(), exec, self.stream) }.unwrap();
    }

    /// Launches a graph and waits for it.
    pub fn run(&self, graph: GraphHandle) {
        let exec = self.instantiate(graph);
        self.launch(exec);
        self.wait();
    }

    pub fn destroy(&self, graph: GraphHandle) {
        self.graphs.borrow_mut().retain(|kept| *kept != graph);
        unsafe { self.driver().graph_destroy(self.context(), graph) };
    }

    pub fn destroy_exec(&self, exec: GraphExecHandle) {
        self.execs.borrow_mut().retain(|kept| *kept != exec);
        unsafe { self.driver().graph_exec_destroy(self.context(), exec) };
    }

    /// Ends an invalidated capture, and checks that both streams work normally.
    pub fn ends_invalidated(&self) {
        assert_eq!(self.status(self.stream), CaptureStatus::Invalidated);
        assert_eq!(code(self.end()), Some(INVALIDATED));
        self.runs_again();
    }

    /// Checks that both streams run work.
    pub fn runs_again(&self) {
        for stream in [self.stream, self.other] {
            assert_eq!(self.status(stream), CaptureStatus::None);
            let block = self.block(&[1; 4]);
            self.set(stream, block, 9, 4).unwrap();
            self.driver().stream_synchronize(self.context(), stream).unwrap();
            assert_eq!(self.read(block, 4), [9; 4]);
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let (driver, context) = (self.driver(), self.context());
        let waited = [self.stream, self.other].map(|stream| driver.stream_synchronize(context, stream));
        for exec in self.execs.take() {
            unsafe { driver.graph_exec_destroy(context, exec) };
        }
        for graph in self.graphs.take() {
            unsafe { driver.graph_destroy(context, graph) };
        }
        let freed = self.blocks.take().into_iter().map(|block| unsafe { driver.memory_free(context, block) });
        let results: Vec<_> = waited.into_iter().chain(freed).collect();
        unsafe {
            driver.stream_destroy(context, self.stream);
            driver.stream_destroy(context, self.other);
        }
        if !std::thread::panicking() {
            results.into_iter().for_each(Result::unwrap);
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
