//! [`Content`]: the memory that a graph uses, and the objects that it keeps alive.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::driver::GraphFunction;
use crate::error::{Error, GraphError, Result};
use crate::memory::MemoryPool;
use crate::memory::capturing::{Captured, Launched, PrivateMemory};
use crate::memory::graph_resource::{GraphResource, Resources};
use crate::memory::statistics::PoolId;
use crate::memory::usage::{Access, Usage};
use crate::stream::Stream;
use crate::stream::captures::Invalidation;
use crate::stream::launch_hook::LaunchHooks;

/// Maximum number of kernels stored per graph, for error messages.
const NAMED_KERNELS: usize = 64;

/// Memory that a graph uses, and objects that it keeps alive. Cheap to clone.
#[derive(Default, Clone)]
pub(super) struct Content {
    pub resources: Resources,
    captured: Vec<Arc<CapturedResources>>,
    functions: Vec<Arc<GraphFunction>>,
    shared: Vec<Arc<dyn Any + Send + Sync>>,
    /// Hooks that are called before each launch.
    pub hooks: LaunchHooks,
    /// Kernels that the graph launches, for fault messages.
    pub kernels: Vec<Launched>,
}

/// Resources of a captured graph, dropped when no graph or executable refers to them and no launch is running.
#[derive(Debug)]
struct CapturedResources {
    // Declared first, because the memory must be dropped before its pool.
    _memory: Vec<PrivateMemory>,
    pool: MemoryPool,
    _functions: Vec<Arc<GraphFunction>>,
    invalidation: Invalidation,
}

impl Content {
    /// Creates the content of a graph that was captured on a stream.
    pub fn of_capture(captured: Captured, stream: &Stream) -> Self {
        let Captured {
            pool,
            resources: used,
            memory,
            functions,
            kept: shared,
            hooks,
            kernels,
            invalidation,
            ..
        } = captured;
        let mut resources = Resources::default();
        for (tracked, range, access) in used {
            resources.add(&tracked, range, access);
        }
        // Every launch writes to memory that was allocated and freed within the capture.
        let private = GraphResource::new(stream, 1, Some(pool.id()), Usage::unused());
        resources.add(&private, 0..1, Access::Write);
        let own = CapturedResources { _memory: memory, pool, _functions: functions, invalidation };
        let captured = vec![Arc::new(own)];
        let mut content =
            Self { resources, captured, functions: Vec::new(), shared, hooks, kernels: Vec::new() };
        kernels.into_iter().for_each(|kernel| content.add_kernel(kernel));
        content
    }

    /// Adds the memory and the objects of another graph.
    pub fn add(&mut self, other: &Content) {
        self.resources.add_all(&other.resources);
        self.captured.extend(other.captured.iter().cloned());
        self.functions.extend(other.functions.iter().cloned());
        self.shared.extend(other.shared.iter().cloned());
        self.hooks.add_all(&other.hooks);
        other.kernels.iter().for_each(|kernel| self.add_kernel(*kernel));
    }

    pub fn add_function(&mut self, function: Arc<GraphFunction>) {
        self.functions.push(function);
    }

    pub fn add_kernel(&mut self, kernel: Launched) {
        let known = |(spec, config): &Launched| std::ptr::eq(*spec, kernel.0) && *config == kernel.1;
        if self.kernels.len() < NAMED_KERNELS && !self.kernels.iter().any(known) {
            self.kernels.push(kernel);
        }
    }

    /// Returns the private pools whose memory the graph uses.
    pub fn pools(&self) -> Vec<PoolId> {
        self.captured.iter().map(|captured| captured.pool.id()).collect()
    }

    /// Returns an error if the graph may contain work that the runtime did not record.
    pub fn check(&self) -> Result<()> {
        let invalidated = self.captured.iter().any(|captured| captured.invalidation.load(Ordering::Acquire));
        if invalidated { Err(Error::Graph(GraphError::Invalidated)) } else { Ok(()) }
    }

    /// Simulates that foreign work has entered the capture.
    #[cfg(test)]
    pub fn invalidate(&self) {
        self.captured.iter().for_each(|captured| captured.invalidation.store(true, Ordering::Release));
    }
}
