//! LLVM's intrinsics for NVIDIA GPUs, CUDA's libdevice functions, and functions that the driver links.
//!
//! All convergent operations are declared here as LLVM intrinsics and used only in this form. LLVM may move or
//! duplicate inline assembly, but not these intrinsics.

use core::ffi::c_void;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.x"]
    pub safe fn tid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.y"]
    pub safe fn tid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.tid.z"]
    pub safe fn tid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.x"]
    pub safe fn ntid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.y"]
    pub safe fn ntid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ntid.z"]
    pub safe fn ntid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.x"]
    pub safe fn ctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.y"]
    pub safe fn ctaid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.ctaid.z"]
    pub safe fn ctaid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.x"]
    pub safe fn nctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.y"]
    pub safe fn nctaid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.nctaid.z"]
    pub safe fn nctaid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.laneid"]
    pub safe fn laneid() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.dynamic_smem_size"]
    pub safe fn dynamic_smem_size() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.clock64"]
    pub safe fn clock64() -> u64;
    #[link_name = "llvm.nvvm.read.ptx.sreg.globaltimer"]
    pub safe fn globaltimer() -> u64;
    /// High half of the workspace address in a cooperative launch.
    #[link_name = "llvm.nvvm.read.ptx.sreg.envreg1"]
    pub safe fn envreg1() -> u32;
    /// Low half of the workspace address in a cooperative launch.
    #[link_name = "llvm.nvvm.read.ptx.sreg.envreg2"]
    pub safe fn envreg2() -> u32;

    // These intrinsics require compute capability 9.0.
    #[link_name = "llvm.nvvm.read.ptx.sreg.clusterid.x"]
    pub safe fn clusterid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.clusterid.y"]
    pub safe fn clusterid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.clusterid.z"]
    pub safe fn clusterid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.ctaid.x"]
    pub safe fn cluster_ctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.ctaid.y"]
    pub safe fn cluster_ctaid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.ctaid.z"]
    pub safe fn cluster_ctaid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.nctaid.x"]
    pub safe fn cluster_nctaid_x() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.nctaid.y"]
    pub safe fn cluster_nctaid_y() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.nctaid.z"]
    pub safe fn cluster_nctaid_z() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.ctarank"]
    pub safe fn cluster_ctarank() -> u32;
    #[link_name = "llvm.nvvm.read.ptx.sreg.cluster.nctarank"]
    pub safe fn cluster_nctarank() -> u32;
    #[link_name = "llvm.nvvm.barrier.cluster.arrive"]
    pub safe fn cluster_arrive();
    #[link_name = "llvm.nvvm.barrier.cluster.arrive.relaxed"]
    pub safe fn cluster_arrive_relaxed();
    #[link_name = "llvm.nvvm.barrier.cluster.wait"]
    pub safe fn cluster_wait();
    #[link_name = "llvm.nvvm.mapa"]
    pub fn mapa(pointer: *mut c_void, rank: u32) -> *mut c_void;
    #[link_name = "llvm.nvvm.getctarank"]
    pub fn getctarank(pointer: *const c_void) -> u32;
    #[link_name = "llvm.nvvm.griddepcontrol.launch.dependents"]
    pub safe fn launch_dependents();
    #[link_name = "llvm.nvvm.griddepcontrol.wait"]
    pub safe fn dependency_wait();

    #[link_name = "llvm.nvvm.barrier.cta.sync.all"]
    pub safe fn barrier(id: u32);
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.all"]
    pub safe fn barrier_count(id: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.barrier.cta.red.and.all"]
    pub safe fn barrier_and(id: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.red.or.all"]
    pub safe fn barrier_or(id: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    pub safe fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.nanosleep"]
    pub safe fn nanosleep(nanoseconds: u32);
    #[link_name = "llvm.nvvm.activemask"]
    pub safe fn activemask() -> u32;

    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    pub safe fn shfl_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.up.i32"]
    pub safe fn shfl_up(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.down.i32"]
    pub safe fn shfl_down(mask: u32, value: u32, delta: u32, clamp: u32) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    pub safe fn shfl_bfly(mask: u32, value: u32, lane_mask: u32, clamp: u32) -> u32;

    #[link_name = "llvm.nvvm.vote.all.sync"]
    pub safe fn vote_all(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.any.sync"]
    pub safe fn vote_any(mask: u32, predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    pub safe fn vote_ballot(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i32"]
    pub safe fn match_any_32(mask: u32, value: u32) -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    pub safe fn match_any_64(mask: u32, value: u64) -> u32;

    #[link_name = "llvm.nvvm.redux.sync.add"]
    pub safe fn redux_add(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.min"]
    pub safe fn redux_min(value: i32, mask: u32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.max"]
    pub safe fn redux_max(value: i32, mask: u32) -> i32;
    #[link_name = "llvm.nvvm.redux.sync.umin"]
    pub safe fn redux_umin(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.umax"]
    pub safe fn redux_umax(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.and"]
    pub safe fn redux_and(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.or"]
    pub safe fn redux_or(value: u32, mask: u32) -> u32;
    #[link_name = "llvm.nvvm.redux.sync.xor"]
    pub safe fn redux_xor(value: u32, mask: u32) -> u32;

    #[link_name = "llvm.nvvm.ex2.approx.ftz.f32"]
    pub safe fn ex2_approx(x: f32) -> f32;
    #[link_name = "llvm.nvvm.lg2.approx.ftz.f"]
    pub safe fn lg2_approx(x: f32) -> f32;
    #[link_name = "llvm.nvvm.sin.approx.ftz.f"]
    pub safe fn sin_approx(x: f32) -> f32;
    #[link_name = "llvm.nvvm.cos.approx.ftz.f"]
    pub safe fn cos_approx(x: f32) -> f32;
    #[link_name = "llvm.nvvm.rcp.approx.ftz.f"]
    pub safe fn rcp_approx(x: f32) -> f32;
    #[link_name = "llvm.nvvm.rsqrt.approx.ftz.f"]
    pub safe fn rsqrt_approx(x: f32) -> f32;
    #[link_name = "llvm.nvvm.sqrt.approx.ftz.f"]
    pub safe fn sqrt_approx(x: f32) -> f32;
    #[link_name = "llvm.nvvm.div.approx.ftz.f"]
    pub safe fn div_approx(x: f32, y: f32) -> f32;

    #[link_name = "llvm.minimum.f32"]
    pub safe fn minimum_f32(a: f32, b: f32) -> f32;
    #[link_name = "llvm.maximum.f32"]
    pub safe fn maximum_f32(a: f32, b: f32) -> f32;

    /// Resolved by LLVM's NVVMReflect pass.
    pub fn __nvvm_reflect(name: *const u8) -> i32;
    /// Prints from the GPU. The driver links this function.
    pub fn vprintf(format: *const u8, arguments: *const c_void) -> i32;
    /// Prints the message and stops the context. The driver links this function.
    pub fn __assertfail(
        message: *const u8,
        file: *const u8,
        line: u32,
        function: *const u8,
        char_size: usize,
    ) -> !;
}
