; ModuleID = 'llvm-link'
target triple = "nvptx64-nvidia-cuda"

@anon.1 = private unnamed_addr constant [11 x i8] c"\04bad \C0\02, \C0\00", align 1
@anon.2 = private unnamed_addr constant [26 x i8] c"n must be more than three\00", align 1
@anon.3 = private unnamed_addr constant [11 x i8] c"src/lib.rs\00", align 1
@anon.4 = private unnamed_addr constant <{ ptr, [16 x i8] }> <{ ptr @anon.3, [16 x i8] c"\0A\00\00\00\00\00\00\00\0D\00\00\00\0B\00\00\00" }>, align 8
@_RNvCs61_1k4TILE = internal addrspace(3) global [1024 x i8] poison, align 4
@__warpsmith_dynamic_shared = external addrspace(3) global [0 x i8], align 16

; Function Attrs: cold noreturn
define internal void @_RNvNtCs1a_4core9panicking18panic_bounds_check(i64 %p0, i64 %p1, ptr %p2) cold noinline convergent noreturn nounwind {
  call void @__warpsmith_panic_bounds_check(i64 %p0, i64 %p1, ptr %p2)
  unreachable
}

; Function Attrs: cold noreturn
define internal void @_RNvNtCs1a_4core9panicking9panic_fmt(ptr %p0, ptr %p1, ptr %p2) alwaysinline convergent noreturn nounwind {
  %present = icmp ne ptr %p0, null
  %word = freeze ptr %p1
  %bits = ptrtoint ptr %word to i64
  %odd = trunc i64 %bits to i1
  %literal = select i1 %present, i1 %odd, i1 false
  %bytes = lshr i64 %bits, 1
  %text = select i1 %literal, ptr %p0, ptr @__warpsmith_text_formatted
  %length = select i1 %literal, i64 %bytes, i64 30
  call void @__warpsmith_panic_str(ptr %text, i64 %length, ptr %p2)
  unreachable
}

declare void @_RNvCsfg_7___rustc17rust_begin_unwind(ptr)

define linkonce_odr void @__warpsmith_panic_str(ptr %0, i64 %1, ptr %2) unnamed_addr #1 {
  unreachable
}

define internal float @_RNvNtNtCs2b_4half8binary164arch19f16_to_f32_fallback29(i16 %bits) alwaysinline nounwind {
  %narrow = bitcast i16 %bits to half
  %wide = fpext half %narrow to float
  ret float %wide
}

define ptx_kernel void @k1(ptr noundef %0, i64 noundef %1) unnamed_addr #0 "nvvm.maxntid"="256" "nvvm.minctasm"="2" {
  %3 = alloca [32 x i8], align 8
  %4 = call noundef ptr @add(ptr noundef addrspacecast (ptr addrspace(3) @_RNvCs61_1k4TILE to ptr), i64 noundef %1) #2
  store i32 7, ptr %4, align 4
  call void asm sideeffect alignstack "bar.sync 0;", "~{memory}"() convergent, !srcloc !38
  %5 = load i32, ptr getelementptr inbounds (i8, ptr addrspacecast (ptr addrspace(3) @__warpsmith_dynamic_shared to ptr), i64 4), align 4
  %6 = call i32 %0(i32 %5) convergent #2
  %7 = icmp ugt i64 %1, 3
  br i1 %7, label %8, label %12

8:                                                ; preds = %2
  %9 = call { ptr, ptr } @_RINvMs2_NtCs1a_4core3fmtNtB6_9Arguments3newKj11_Kj2_ECs61_1k(ptr noalias noundef readonly captures(address, read_provenance) dereferenceable(17) @anon.1, ptr noundef %3) #2
  %10 = extractvalue { ptr, ptr } %9, 0
  %11 = extractvalue { ptr, ptr } %9, 1
  call void @_RNvNtCs1a_4core9panicking9panic_fmt(ptr @__warpsmith_text_0, ptr inttoptr (i64 85 to ptr), ptr noundef readonly align 8 captures(address, read_provenance) @anon.4) noreturn nounwind
  unreachable

12:                                               ; preds = %2
  ret void
}

define ptx_kernel void @k2() unnamed_addr #0 {
  call void @_RNvNtCs1a_4core9panicking9panic_fmt(ptr noundef nonnull %10, ptr noundef nonnull %11, ptr noundef readonly align 8 captures(address, read_provenance) @anon.4) noreturn nounwind, !dbg !7
  unreachable
}

attributes #0 = { convergent nounwind }
attributes #1 = { cold convergent noinline noreturn nounwind }
attributes #2 = { nounwind }
attributes #3 = { noinline noreturn nounwind }

!38 = !{i64 1}
@__warpsmith_text_assert_eq = private unnamed_addr constant [33 x i8] c"assertion `left == right` failed\00", align 1
@__warpsmith_text_assert_ne = private unnamed_addr constant [33 x i8] c"assertion `left != right` failed\00", align 1
@__warpsmith_text_assert_matches = private unnamed_addr constant [38 x i8] c"assertion `left matches right` failed\00", align 1
@__warpsmith_text_formatted = private unnamed_addr constant [31 x i8] c"panic with a formatted message\00", align 1
@__warpsmith_text_0 = private unnamed_addr constant [43 x i8] c"panic with a formatted message: bad {}, {}\00", align 1
declare void @__warpsmith_panic_bounds_check(i64, i64, ptr)
declare void @__warpsmith_panic_slice(i32, i64, i64, i64, ptr)
