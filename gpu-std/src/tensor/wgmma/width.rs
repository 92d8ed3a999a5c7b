//! [`Columns`] and [`Width`]: the registers of an accumulator, and the instructions that take these registers.

#[cfg(target_arch = "nvptx64")]
use super::major::Major;
use super::operand::Sum;

/// The number of columns of an accumulator. Valid values are 8, 16, 32, 64, 96, 128, 192 and 256.
///
/// See the [example](crate::tensor#example), whose `Accumulator<64>` has 64 columns.
pub struct Columns<const N: usize>;

macro_rules! declare {
    ($($name:ident: $sum:ty),* $(,)?) => {
        /// Properties of an accumulator that depend on its number of columns.
        ///
        /// See the [example](crate::tensor#example), which reads the registers of `Columns<64>`.
        pub trait Width {
            /// Type of one thread's registers.
            type Registers<S: Sum>: Copy + AsRef<[S]> + AsMut<[S]>;
            #[doc(hidden)]
            fn zeros<S: Sum>() -> Self::Registers<S>;
            #[doc(hidden)]
            #[cfg(target_arch = "nvptx64")]
            unsafe fn fence<S: Sum>(d: &mut Self::Registers<S>);
            #[doc(hidden)]
            #[cfg(target_arch = "nvptx64")]
            unsafe fn wait<S: Sum, const LATER: u32>(d: &mut Self::Registers<S>);
            #[doc(hidden)]
            #[cfg(target_arch = "nvptx64")]
            unsafe fn bf16_fragment<B: Major>(d: &mut Self::Registers<f32>, a: [u32; 4], b: u64, accumulate: u32);
            #[doc(hidden)]
            #[cfg(target_arch = "nvptx64")]
            unsafe fn f16_fragment<B: Major>(d: &mut Self::Registers<f32>, a: [u32; 4], b: u64, accumulate: u32);
            $(
                #[doc(hidden)]
                #[cfg(target_arch = "nvptx64")]
                unsafe fn $name<A: Major, B: Major>(d: &mut Self::Registers<$sum>, a: u64, b: u64, accumulate: u32);
            )*
        }
    };
}

declare! {
    bf16_bf16: f32, f16_f16: f32, tf32_tf32: f32,
    e4m3_e4m3: f32, e4m3_e5m2: f32, e5m2_e4m3: f32, e5m2_e5m2: f32,
    s8_s8: i32, s8_u8: i32, u8_s8: i32, u8_u8: i32,
}

/// Implements [`Width`] for `N` columns. The last arguments are the register numbers after 0.
macro_rules! width {
    ($n:literal, $count:literal: $($i:literal)*) => {
        impl Width for Columns<$n> {
            type Registers<S: Sum> = [S; $count];

            #[inline(always)]
            fn zeros<S: Sum>() -> [S; $count] {
                [S::ZERO; $count]
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn fence<S: Sum>(d: &mut [S; $count]) {
                // SAFETY: like `f32`, sums are plain 32-bit numbers.
                let d = unsafe { &mut *(&raw mut *d).cast::<[f32; $count]>() };
                // SAFETY: all threads of the warpgroup execute this instruction. A comment in the assembly names the
                // registers, so that they become operands.
                unsafe {
                    core::arch::asm!(
                        concat!("wgmma.fence.sync.aligned; // {0}", $(" {", $i, "}",)*),
                        inout(reg32) d[0], $(inout(reg32) d[$i],)* options(nostack)
                    );
                }
            }

            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            unsafe fn wait<S: Sum, const LATER: u32>(d: &mut [S; $count]) {
                // SAFETY: as above.
                let d = unsafe { &mut *(&raw mut *d).cast::<[f32; $count]>() };
                // SAFETY: as above.
                unsafe {
                    core::arch::asm!(
                        concat!("wgmma.wait_group.sync.aligned {n}; // {0}", $(" {", $i, "}",)*),
                        inout(reg32) d[0], $(inout(reg32) d[$i],)* n = const LATER, options(nostack)
                    );
                }
            }

            width!(@fragment bf16_fragment "k16.f32.bf16.bf16", $n, $count: $($i)*);
            width!(@fragment f16_fragment "k16.f32.f16.f16", $n, $count: $($i)*);

            width!(@mma bf16_bf16 f32, "k16.f32.bf16.bf16", ", 1, 1, {ta}, {tb}", $n, $count: $($i)*;
                ta = const A::IS_TRANSPOSED as i32, tb = const B::IS_TRANSPOSED as i32,);
            width!(@mma f16_f16 f32, "k16.f32.f16.f16", ", 1, 1, {ta}, {tb}", $n, $count: $($i)*;
                ta = const A::IS_TRANSPOSED as i32, tb = const B::IS_TRANSPOSED as i32,);
            width!(@mma tf32_tf32 f32, "k8.f32.tf32.tf32", ", 1, 1", $n, $count: $($i)*;);
            width!(@mma e4m3_e4m3 f32, "k32.f32.e4m3.e4m3", ", 1, 1", $n, $count: $($i)*;);
            width!(@mma e4m3_e5m2 f32, "k32.f32.e4m3.e5m2", ", 1, 1", $n, $count: $($i)*;);
            width!(@mma e5m2_e4m3 f32, "k32.f32.e5m2.e4m3", ", 1, 1", $n, $count: $($i)*;);
            width!(@mma e5m2_e5m2 f32, "k32.f32.e5m2.e5m2", ", 1, 1", $n, $count: $($i)*;);
            width!(@mma s8_s8 i32, "k32.s32.s8.s8", "", $n, $count: $($i)*;);
            width!(@mma s8_u8 i32, "k32.s32.s8.u8", "", $n, $count: $($i)*;);
            width!(@mma u8_s8 i32, "k32.s32.u8.s8", "", $n, $count: $($i)*;);
            width!(@mma u8_u8 i32, "k32.s32.u8.u8", "", $n, $count: $($i)*;);
        }
    };
    (@fragment $name:ident $form:literal, $n:literal, $count:literal: $($i:literal)*) => {
        #[cfg(target_arch = "nvptx64")]
        #[inline(always)]
        unsafe fn $name<B: Major>(d: &mut [f32; $count], a: [u32; 4], b: u64, accumulate: u32) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!(
                    concat!(
                        "{{ .reg .pred p; setp.ne.b32 p, {s}, 0; wgmma.mma_async.sync.aligned.m64n", $n, $form,
                        " {{{0}", $(", {", $i, "}",)* "}}, {{{a0}, {a1}, {a2}, {a3}}}, {b}, p, 1, 1, {tb}; }}"
                    ),
                    inout(reg32) d[0], $(inout(reg32) d[$i],)*
                    a0 = in(reg32) a[0], a1 = in(reg32) a[1], a2 = in(reg32) a[2], a3 = in(reg32) a[3],
                    b = in(reg64) b, s = in(reg32) accumulate, tb = const B::IS_TRANSPOSED as i32, options(nostack)
                );
            }
        }
    };
    (
        @mma $name:ident $sum:ty, $form:literal, $modifiers:literal, $n:literal, $count:literal: $($i:literal)*;
        $($majors:tt)*
    ) => {
        #[cfg(target_arch = "nvptx64")]
        #[inline(always)]
        unsafe fn $name<A: Major, B: Major>(d: &mut [$sum; $count], a: u64, b: u64, accumulate: u32) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                core::arch::asm!(
                    concat!(
                        "{{ .reg .pred p; setp.ne.b32 p, {s}, 0; wgmma.mma_async.sync.aligned.m64n", $n, $form,
                        " {{{0}", $(", {", $i, "}",)* "}}, {a}, {b}, p", $modifiers, "; }}"
                    ),
                    inout(reg32) d[0], $(inout(reg32) d[$i],)*
                    a = in(reg64) a, b = in(reg64) b, s = in(reg32) accumulate, $($majors)* options(nostack)
                );
            }
        }
    };
}

width!(
    8, 4:
        1 2 3
);
width!(
    16, 8:
        1 2 3 4 5 6 7
);
width!(
    32, 16:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
);
width!(
    64, 32:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);
width!(
    96, 48:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
        38 39 40 41 42 43 44 45 46 47
);
width!(
    128, 64:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
        38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);
width!(
    192, 96:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
        38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71
        72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
);
width!(
    256, 128:
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37
        38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71
        72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103
        104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
);
