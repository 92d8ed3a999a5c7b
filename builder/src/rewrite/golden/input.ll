; ModuleID = 'llvm-link'
target triple = "nvptx64-nvidia-cuda"

@anon.1 = private unnamed_addr constant [11 x i8] c"\04bad \C0\02, \C0\00", align 1
@anon.2 = private unnamed_addr constant [25 x i8] c"n must be more than three", align 1
@anon.3 = private unnamed_addr constant [11 x i8] c"src/lib.rs\00", align 1
@anon.4 = private unnamed_addr constant <{ ptr, [16 x i8] }> <{ ptr @anon.3, [16 x i8] c"\0A\00\00\00\00\00\00\00\0D\00\00\00\0B\00\00\00" }>, align 8
@_RNvCs61_1k4TILE = internal global [1024 x i8] undef, section ".shared", align 4
@__warpsmith_dynamic_shared = global <{}> zeroinitializer, section ".shared.dynamic", align 16

; Function Attrs: cold noreturn
define void @_RNvNtCs1a_4core9panicking18panic_bounds_check(i64 noundef %0, i64 noundef %1, ptr noalias noundef readonly align 8 captures(address, read_provenance) dereferenceable(24) %2) unnamed_addr #1 {
  %4 = alloca [8 x i8], align 8
  call void @_RNvNtCs1a_4core9panicking9panic_fmt(ptr noundef nonnull %4, ptr noundef nonnull %4, ptr noundef %2) #3
  unreachable
}

; Function Attrs: cold noreturn
define void @_RNvNtCs1a_4core9panicking9panic_fmt(ptr noundef nonnull %0, ptr noundef nonnull %1, ptr noundef readonly align 8 captures(address, read_provenance) %2) unnamed_addr #1 {
  call void @_RNvCsfg_7___rustc17rust_begin_unwind(ptr %0)
  unreachable
}

declare void @_RNvCsfg_7___rustc17rust_begin_unwind(ptr)

define void @__warpsmith_panic_str(ptr %0, i64 %1, ptr %2) unnamed_addr #1 {
  unreachable
}

define internal noundef float @_RNvNtNtCs2b_4half8binary164arch19f16_to_f32_fallback29(i16 noundef %0) unnamed_addr #0 {
  %2 = and i16 %0, 32767
  ret float 0.0
}

define ptx_kernel void @k1(ptr noundef %0, i64 noundef %1) unnamed_addr #0 section ".warpsmith,256,2,90" {
  %3 = alloca [32 x i8], align 8
  %4 = call noundef ptr @add(ptr noundef @_RNvCs61_1k4TILE, i64 noundef %1) #2
  store i32 7, ptr %4, align 4
  call void asm sideeffect alignstack "bar.sync 0;", "~{memory}"(), !srcloc !38
  %5 = load i32, ptr getelementptr inbounds (i8, ptr @__warpsmith_dynamic_shared, i64 4), align 4
  %6 = call i32 %0(i32 %5) #2
  %7 = icmp ugt i64 %1, 3
  br i1 %7, label %8, label %12

8:                                                ; preds = %2
  %9 = call { ptr, ptr } @_RINvMs2_NtCs1a_4core3fmtNtB6_9Arguments3newKj11_Kj2_ECs61_1k(ptr noalias noundef readonly captures(address, read_provenance) dereferenceable(17) @anon.1, ptr noundef %3) #2
  %10 = extractvalue { ptr, ptr } %9, 0
  %11 = extractvalue { ptr, ptr } %9, 1
  call void @_RNvNtCs1a_4core9panicking9panic_fmt(ptr noundef nonnull %10, ptr noundef nonnull %11, ptr noundef readonly align 8 captures(address, read_provenance) @anon.4) #3
  unreachable

12:                                               ; preds = %2
  ret void
}

define ptx_kernel void @k2() unnamed_addr #0 {
  call void @_RNvNtCs1a_4core9panicking9panic_fmt(ptr noundef nonnull %10, ptr noundef nonnull %11, ptr noundef readonly align 8 captures(address, read_provenance) @anon.4) #3, !dbg !7
  unreachable
}

attributes #0 = { convergent nounwind "target-cpu"="sm_80" }
attributes #1 = { cold convergent noinline noreturn nounwind "target-cpu"="sm_80" "target-features"="+ptx70" }
attributes #2 = { nounwind }
attributes #3 = { noinline noreturn nounwind }

!38 = !{i64 1}
