//! [`Plan`]: a finalized engine configuration for a geometry. [`Request::run`] finds a plan and enqueues it.

use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cudnn::sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind, cudnnDataType_t,
};

use super::call::{self, Place};
use super::descriptor::{Descriptor, RawHandle, check};
use super::element::data;
use super::functions;
use super::geometry::{Epilogue, Geometry, Key, Operation};
use super::graph::{Candidates, Graph, IDS};
use super::options::{Handle, Options, State};
use crate::element::FloatType;
use crate::error::LibraryError;
use crate::on_device::OnDevice;
use warpsmith_runtime::extension::BufferUse;
use warpsmith_runtime::{DeviceBuffer, DevicePtr, Error, Result, Stream};

/// A finalized execution plan.
#[derive(Debug)]
pub(super) struct Plan {
    /// Locked during execution so that only one thread executes the plan at a time.
    ready: Mutex<Ready>,
    /// Workspace in bytes.
    workspace: u64,
}

#[derive(Debug)]
struct Ready {
    plan: Descriptor,
    /// The configuration to which the plan refers. The graph is added when the plan is cached.
    _config: Descriptor,
    _graph: Option<Graph>,
}

impl Plan {
    fn new(handle: &RawHandle, config: Descriptor) -> Result<Self> {
        let mut plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle.get()])?;
        plan.set_descriptors(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[&config])?;
        let plan = plan.finalize()?;
        let workspace = plan.int(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)?;
        let ready = Ready { plan, _config: config, _graph: None };
        Ok(Self { ready: Mutex::new(ready), workspace: u64::try_from(workspace).unwrap_or(0) })
    }

    fn ready(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues the plan on the handle's stream.
    ///
    /// # Safety
    /// The addresses must refer to tensors of the plan's shapes and to a workspace of the size that the plan requires.
    /// Nothing else may use the workspace while the stream executes the plan.
    unsafe fn execute(
        &self,
        handle: &RawHandle,
        addresses: &[DevicePtr],
        workspace: DevicePtr,
    ) -> Result<()> {
        let mut pointers = [std::ptr::null_mut::<c_void>(); IDS.len()];
        for (pointer, address) in pointers.iter_mut().zip(addresses) {
            *pointer = address.0 as usize as *mut c_void;
        }
        let mut pack = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        pack.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &IDS[..addresses.len()])?;
        // SAFETY: guaranteed by the caller.
        unsafe {
            pack.set_pointers(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &pointers[..addresses.len()])?;
            let workspace = workspace.0 as usize as *mut c_void;
            pack.set_pointers(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[workspace])?;
        }
        let pack = pack.finalize()?;
        let ready = self.ready();
        // SAFETY: handle, plan and pack are alive and finalized, and the caller guarantees the addresses.
        check("cudnnBackendExecute", unsafe {
            functions::cudnnBackendExecute(handle.get(), ready.plan.get(), pack.get())
        })
    }
}

/// A convolution to enqueue on a GPU.
pub(super) struct Request<'a, 'p> {
    /// Name of the operation in error messages.
    name: &'static str,
    stream: &'a Stream,
    key: Key,
    data: cudnnDataType_t,
    geometry: &'a Geometry,
    /// Buffer parts of x, w, y and, if present, the bias.
    parts: &'a [BufferUse<'p>],
    addresses: Vec<DevicePtr>,
}

/// Result of the search for a plan.
#[derive(Debug)]
pub(super) enum Outcome {
    Enqueued,
    /// The library has no plan for this geometry. Contains the error that the library reported, if any.
    NoPlan(Option<Error>),
}

/// Cached value that records that no plan exists.
const NONE: usize = usize::MAX;

impl<'a, 'p> Request<'a, 'p> {
    /// Creates a request from the buffer parts and addresses of x, w, y and, if present, the bias.
    pub fn new<T: FloatType>(
        name: &'static str,
        stream: &'a Stream,
        (operation, epilogue): (Operation, Epilogue),
        geometry: &'a Geometry,
        options: Options,
        (parts, places): (&'a [BufferUse<'p>], &[Place]),
    ) -> Self {
        let addresses: Vec<DevicePtr> = places.iter().map(|place| DevicePtr(place.address)).collect();
        let key = Key::new::<T>(operation, epilogue, geometry, options, &addresses);
        Self { name, stream, key, data: data::<T>(), geometry, parts, addresses }
    }

    /// Enqueues the convolution with the cached plan for its geometry, or with a new plan.
    ///
    /// # Safety
    /// The parts and addresses must refer to tensors of the geometry's shapes.
    pub unsafe fn run(mut self) -> Result<Outcome> {
        let state = crate::dnn::State::of(self.stream.device());
        let mut handle = call::acquire(self.stream)?;
        state.refresh(&mut handle);
        let Handle { plans, raw, .. } = &mut *handle;
        let is_capturing = self.stream.is_capturing();
        if is_capturing && self.key.options.benchmark && !self.is_chosen(state) {
            self.key.options.benchmark = false;
        }
        let mut limit = self.key.options.workspace_limit.unwrap_or(u64::MAX);
        let mut lost = None;
        if let Some(plan) = plans.get(&self.key) {
            state.hits.fetch_add(1, Ordering::Relaxed);
            match self.execute(raw, plan) {
                // The plan is valid but there is currently not enough memory for it, so a smaller plan is used without
                // being cached.
                Err(error @ Error::OutOfMemory(_)) if plan.workspace > 0 => {
                    (limit, lost) = (plan.workspace - 1, Some(error));
                }
                done => return done.map(|()| Outcome::Enqueued),
            }
        } else {
            state.misses.fetch_add(1, Ordering::Relaxed);
        }
        let keep = lost.is_none();
        match self.search(state, raw, limit, lost)? {
            Found::Plan(plan) => {
                if keep {
                    drop(plans.insert(self.key, plan));
                }
                Ok(Outcome::Enqueued)
            }
            Found::None(error) => Ok(Outcome::NoPlan(error)),
        }
    }

    fn is_chosen(&self, state: &State) -> bool {
        state.choices().get(&self.key).is_some()
    }

    /// Finds a plan that needs at most `limit` bytes of workspace, and enqueues it. `lost` is the error that makes the
    /// cached plan unusable, if any. If `lost` is set, the new plan is not cached, and `lost` is returned if no other
    /// plan exists.
    fn search(&self, state: &State, handle: &RawHandle, limit: u64, lost: Option<Error>) -> Result<Found> {
        let keep = lost.is_none();
        let chosen = if keep { state.choices().get(&self.key).copied() } else { None };
        if chosen == Some(NONE) {
            return Ok(Found::None(None));
        }
        let graph = Graph::new(handle, self.data, self.geometry, &self.key);
        let candidates = graph.and_then(|graph| {
            let candidates = graph.candidates(self.data, &self.key.options)?;
            Ok((graph, candidates))
        });
        let (graph, Candidates { configs, failed }) = match candidates {
            Ok(candidates) => candidates,
            Err(error) => return lost.map_or_else(|| self.none(state, Some(error)), Err),
        };
        let mut candidates: Vec<(usize, Descriptor)> = configs.into_iter().enumerate().collect();
        if let Some(chosen) = chosen {
            // Another handle has chosen this plan, so it is tried first and is not timed again.
            candidates.sort_by_key(|(index, _)| *index != chosen);
        }
        let timed = self.key.options.benchmark && chosen.is_none() && keep;
        let mut search = Search { request: self, handle, limit, minimum: None, failed: Failure(lost) };
        failed.into_iter().for_each(|error| search.failed.note(error));
        let found = if timed { search.fastest(candidates)? } else { search.first(candidates)? };
        let Search { minimum, failed, .. } = search;
        match (found, minimum, failed.0) {
            (Some((index, plan)), ..) => {
                plan.ready()._graph = Some(graph);
                if keep {
                    state.choices().insert(self.key, index);
                }
                Ok(Found::Plan(plan))
            }
            (None, _, Some(error @ Error::OutOfMemory(_))) => Err(error),
            (None, Some(minimum), _) => {
                Err(LibraryError::WorkspaceTooSmall { operation: self.name, limit, minimum }.into())
            }
            (None, None, failed) => self.none(state, failed),
        }
    }

    /// Records in the cache that no plan exists, but only if the library does not support the geometry.
    fn none(&self, state: &State, error: Option<Error>) -> Result<Found> {
        match error {
            Some(error) if !is_unsupported(&error) => Err(error),
            error => {
                state.choices().insert(self.key, NONE);
                Ok(Found::None(error))
            }
        }
    }

    /// Enqueues a plan with its own workspace.
    fn execute(&self, handle: &RawHandle, plan: &Arc<OnDevice<Plan>>) -> Result<()> {
        self.execute_in(handle, plan, &self.addresses, self.workspace(plan)?.as_mut())
    }

    fn workspace(&self, plan: &Plan) -> Result<Option<DeviceBuffer<u8>>> {
        match usize::try_from(plan.workspace).unwrap_or(usize::MAX) {
            0 => Ok(None),
            bytes => DeviceBuffer::uninit(self.stream, bytes).map(Some),
        }
    }

    fn execute_in(
        &self,
        handle: &RawHandle,
        plan: &Arc<OnDevice<Plan>>,
        addresses: &[DevicePtr],
        workspace: Option<&mut DeviceBuffer<u8>>,
    ) -> Result<()> {
        let mut parts = Vec::with_capacity(self.parts.len() + 1);
        parts.extend_from_slice(self.parts);
        let mut address = DevicePtr::NULL;
        if let Some(workspace) = workspace {
            address = workspace.as_device_ptr();
            parts.push(workspace.as_mut_slice().used());
        }
        self.stream.with_stable_capture_state(|| {
            // A captured graph may run code that the plan owns. The plan's handle lives until the device is dropped.
            self.stream.keep_in_capture(|| Arc::new((Arc::clone(plan), self.stream.device().clone())));
            // SAFETY: `parts` are the operands, and no written operand overlaps another one. As the caller of `run`
            // guarantees, the addresses belong to the parts and have the shapes for which the plan was created. The
            // workspace has the size that the plan needs.
            unsafe {
                self.stream.enqueue_named(self.name, &parts, |_| plan.execute(handle, addresses, address))
            }
        })
    }

    /// Returns the index of the address to which the operation writes.
    fn target(&self) -> usize {
        match self.key.operation {
            Operation::BackwardData => 0,
            Operation::BackwardWeights => 1,
            Operation::Forward => 2,
        }
    }
}

/// Returns true if the library reports that it does not support the operation at all.
fn is_unsupported(error: &Error) -> bool {
    match error.downcast_ref() {
        Some(LibraryError::Call { status, .. }) => status.starts_with("CUDNN_STATUS_NOT_SUPPORTED"),
        _ => false,
    }
}

/// Returns true if a different plan may succeed after this error.
fn is_of_plan(error: &Error) -> bool {
    matches!(error, Error::OutOfMemory(_)) || error.downcast_ref::<LibraryError>().is_some()
}

enum Found {
    Plan(Arc<OnDevice<Plan>>),
    None(Option<Error>),
}

/// State of the search for a plan.
struct Search<'s, 'a, 'p> {
    request: &'s Request<'a, 'p>,
    handle: &'s RawHandle,
    limit: u64,
    /// Smallest workspace, in bytes, among the plans whose workspace exceeds the limit.
    minimum: Option<u64>,
    failed: Failure,
}

/// The most informative error of a search. Out-of-memory errors take precedence over all other errors, and
/// unsupported-operation errors have the lowest rank. Among errors of the same rank, the latest is kept.
#[derive(Debug)]
struct Failure(Option<Error>);

impl Failure {
    fn note(&mut self, error: Error) {
        let weight = |error: &Error| match error {
            Error::OutOfMemory(_) => 2,
            error => u8::from(!is_unsupported(error)),
        };
        if self.0.as_ref().is_none_or(|failed| weight(failed) <= weight(&error)) {
            self.0 = Some(error);
        }
    }
}

impl Search<'_, '_, '_> {
    /// Returns the plan of a configuration if the library can create it and its workspace is within the limit.
    fn ready(&mut self, config: Descriptor) -> Option<Arc<OnDevice<Plan>>> {
        match Plan::new(self.handle, config) {
            Ok(plan) if plan.workspace <= self.limit => {
                Some(Arc::new(OnDevice::new(self.request.stream.device(), plan)))
            }
            Ok(plan) => {
                self.minimum =
                    Some(self.minimum.map_or(plan.workspace, |minimum| minimum.min(plan.workspace)));
                None
            }
            Err(error) => {
                self.failed.note(error);
                None
            }
        }
    }

    /// Enqueues the first plan that can be enqueued and returns it.
    fn first(
        &mut self,
        candidates: Vec<(usize, Descriptor)>,
    ) -> Result<Option<(usize, Arc<OnDevice<Plan>>)>> {
        for (index, config) in candidates {
            let Some(plan) = self.ready(config) else { continue };
            match self.request.execute(self.handle, &plan) {
                Ok(()) => return Ok(Some((index, plan))),
                Err(error) if is_of_plan(&error) => self.failed.note(error),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Times the plans that the options allow, enqueues the fastest one, and returns that plan.
    fn fastest(
        &mut self,
        candidates: Vec<(usize, Descriptor)>,
    ) -> Result<Option<(usize, Arc<OnDevice<Plan>>)>> {
        let request = self.request;
        let most = match request.key.options.benchmark_limit {
            0 => usize::MAX,
            limit => limit as usize,
        };
        // The timed runs must not add to the target repeatedly.
        let mut addresses = request.addresses.clone();
        let target = request.target();
        let spare = match request.geometry.beta == 0.0 {
            true => None,
            false => {
                let bytes = request.parts[target].bytes();
                match DeviceBuffer::<u8>::zeros(request.stream, bytes + 16) {
                    Ok(spare) => Some(spare),
                    Err(Error::OutOfMemory(_)) => return self.first(candidates),
                    Err(error) => return Err(error),
                }
            }
        };
        if let Some(spare) = &spare {
            // The spare buffer has exactly the same alignment as the target, for which the plans were created.
            let address = spare.as_device_ptr().0;
            addresses[target] = DevicePtr(address + request.addresses[target].0 % 16);
        }
        let mut timed: Vec<(f64, usize, Arc<OnDevice<Plan>>)> = Vec::new();
        for (index, config) in candidates {
            if timed.len() == most {
                break;
            }
            let Some(plan) = self.ready(config) else { continue };
            match self.time(&plan, &addresses) {
                Ok(time) => timed.push((time, index, plan)),
                Err(error) if is_of_plan(&error) => self.failed.note(error),
                Err(error) => return Err(error),
            }
        }
        timed.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        // Selects the fastest plan whose memory is still available.
        for (_, index, plan) in timed {
            match request.execute(self.handle, &plan) {
                Ok(()) => return Ok(Some((index, plan))),
                Err(error) if is_of_plan(&error) => self.failed.note(error),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Measures a plan's execution time on the device, in microseconds.
    fn time(&self, plan: &Arc<OnDevice<Plan>>, addresses: &[DevicePtr]) -> Result<f64> {
        const ROUNDS: u32 = 4;
        let request = self.request;
        let mut workspace = request.workspace(plan)?;
        let mut run = || request.execute_in(self.handle, plan, addresses, workspace.as_mut());
        // The first run loads the plan's kernels and keeps the device busy while the other runs are enqueued.
        run()?;
        let before = request.stream.record_timed_event()?;
        (0..ROUNDS).try_for_each(|_| run())?;
        let after = request.stream.record_timed_event()?;
        after.synchronize()?;
        Ok(after.elapsed_us(&before)? / f64::from(ROUNDS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith_runtime::device::Device;

    fn of_library(status: &str) -> Error {
        let status = status.to_owned();
        LibraryError::Call { library: "cuDNN", call: "cudnnBackendFinalize", status, context: None }.into()
    }

    #[test]
    fn an_out_of_memory_error_hides_other_failures() {
        let stream = Device::emulated(0).unwrap().default_stream();
        let full = || DeviceBuffer::<u8>::uninit(&stream, 1 << 50).unwrap_err();
        let noted = |errors: [Error; 3]| {
            let mut failed = Failure(None);
            errors.into_iter().for_each(|error| failed.note(error));
            failed.0.unwrap()
        };
        let unsupported = || of_library("CUDNN_STATUS_NOT_SUPPORTED_LAYOUT");
        let broken = || of_library("CUDNN_STATUS_INTERNAL_ERROR");
        assert!(matches!(noted([full(), broken(), unsupported()]), Error::OutOfMemory(_)));
        assert!(matches!(noted([unsupported(), broken(), full()]), Error::OutOfMemory(_)));
        // Listing the engines has failed, which does not mean that no engine exists.
        assert!(!is_unsupported(&noted([broken(), unsupported(), unsupported()])));
        assert!(is_unsupported(&noted([unsupported(), unsupported(), unsupported()])));
    }
}
