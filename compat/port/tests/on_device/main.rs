//! The kernels on the device under test. They run from PTX on a GPU, and from their Rust source on the emulated device.

#[path = "../../../../runtime/tests/common/alone.rs"]
mod alone;
mod on_gpu;
#[path = "../../../../runtime/tests/common/under_test.rs"]
#[allow(dead_code, reason = "each program uses some of it")]
mod under_test;

use alone::{alone, only_alone};
use cust::context::Context;
use cust::error::{CudaError, explanation};
use cust::memory::{DeviceBox, DeviceBuffer, UnifiedBuffer};
use cust::prelude::*;
use glam::{Mat3, Vec3};
use kernels as _;
use rust_cuda_port::{Motion, PTX, Scene, smooth};

/// Context, module and stream on the device under test.
fn fixture() -> (Context, Module, Stream) {
    let context = Context::from_runtime(&under_test::shared_device());
    let module = Module::from_ptx(PTX, &[]).unwrap();
    let stream = Stream::new(StreamFlags::NON_BLOCKING, None).unwrap();
    (context, module, stream)
}

#[test]
fn ptx_has_all_kernels_and_address_spaces() {
    assert!(!PTX.starts_with("// No GPU code"), "the PTX is what this test looks at: {PTX}");
    let kernels = ["smooth", "sum", "lanes", "advance", "functions", "digits", "checks", "statics", "scale"];
    for kernel in kernels {
        assert!(PTX.contains(&format!(".entry {kernel}(")), "{kernel}");
    }
    let body = |kernel: &str| {
        let from = PTX.split_once(&format!(".entry {kernel}(")).unwrap().1;
        from.split_once("\n}").unwrap().0.to_owned()
    };
    let smooth = body("smooth");
    assert!(smooth.contains("st.shared.b32") && smooth.contains("ld.shared.b32"), "{smooth}");
    assert!(smooth.contains("TILE[1024]") || PTX.contains("TILE[1024]"), "{smooth}");
    let statics = body("statics");
    assert!(PTX.contains("\n.const ") && statics.contains("ld.const.b32"), "{statics}");
    assert!(
        PTX.lines().any(|line| line.starts_with(".visible .global") && line.ends_with(" CALLS[4] = {5};")),
        "the initial value"
    );
    assert!(PTX.contains("\n.visible .const .align 4 .b8 SCALE[8] = {"), "the host finds it by its name");
    assert!(body("scale").contains("ld.const.b32"), "it is read, whatever its first value");
    assert!(body("sum").contains("atom.relaxed.gpu") || body("sum").contains("red.relaxed.gpu"));
    assert!(body("advance").contains(".param .u64"), "a reference is a pointer");
    assert!(PTX.contains("malloc") && PTX.contains("vprintf"));
}

#[test]
fn slices_are_smoothed() {
    let (_context, module, stream) = fixture();
    let x: Vec<f32> = (0..1000).map(|i| ((i * 31) % 101) as f32).collect();
    let y = smooth(&module, &stream, &x).unwrap();
    for (i, found) in y.iter().enumerate() {
        let block = i / 256 * 256;
        let at = |place: usize| x.get(block + place).copied().unwrap_or(0.0);
        let weights = [0.0625, 0.25, 0.375, 0.25, 0.0625];
        let expected: f32 = weights
            .iter()
            .enumerate()
            .map(|(k, weight)| weight * at((i - block + k).saturating_sub(2).min(255)))
            .sum();
        assert!((found - expected).abs() < 1e-4, "{i}: {found} is not {expected}");
    }
}

#[test]
fn sums_are_added_atomically() {
    let (_context, module, stream) = fixture();
    let x: Vec<f32> = (0..5000).map(|i| (i % 7) as f32).collect();
    let (x_gpu, total) = (x.as_slice().as_dbuf().unwrap(), DeviceBox::new(&1.0f32).unwrap());
    let sum = module.get_function("sum").unwrap();
    let (grid, block) = sum.suggested_launch_configuration(0, 512.into()).unwrap();
    assert!(grid > 0 && block <= 512 && block.is_multiple_of(32), "{grid} blocks of {block}");
    let grid = 5000u32.div_ceil(block);
    // SAFETY: the kernel expects a slice and a reference.
    unsafe {
        launch!(sum<<<grid, block, 0, stream>>>(x_gpu.as_device_ptr(), x_gpu.len(), total.as_device_ptr()))
            .unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(total.as_host_value().unwrap(), 1.0 + x.iter().sum::<f32>());
}

#[test]
fn lanes_exchange_values() {
    let (_context, module, stream) = fixture();
    let out = UnifiedBuffer::new(&[0u32; 8], 32).unwrap();
    // SAFETY: the kernel expects a pointer to 32 rows.
    unsafe { launch!(module.lanes<<<1, 32, 0, stream>>>(out.as_unified_ptr())).unwrap() };
    stream.synchronize().unwrap();
    for (lane, row) in (0..32u32).zip(out.iter()) {
        let expected = [
            (lane ^ 8) + 1000,
            if lane >= 3 { lane - 3 + 1000 } else { lane },
            2 * (lane / 8 * 8 + 1) + 1,
            0x4210_8421,
            0xff << (lane / 8 * 8),
            u32::MAX,
            496,
            u32::MAX,
        ];
        assert_eq!(*row, expected, "lane {lane}");
    }
}

#[test]
fn enums_and_vectors_are_arguments() {
    let (_context, module, stream) = fixture();
    let turn = Mat3::from_rotation_z(0.5);
    let by = Vec3::new(1.0, 2.0, 3.0);
    let scene = Scene { motions: [Motion::Rest, Motion::Turn(turn), Motion::Step { by }], scale: 2.0 };
    let points: Vec<Vec3> = (0..100).map(|i| Vec3::new(i as f32, 1.0, -1.0)).collect();
    let (scene, moved) = (scene.as_dbox().unwrap(), points.as_slice().as_dbuf().unwrap());
    let shift = Vec3::splat(0.25);
    // SAFETY: the kernel expects a reference, a pointer to 100 points, their number and a vector.
    unsafe {
        launch!(module.advance<<<(4, 1), (32, 1, 1), 0, stream>>>(
            scene.as_device_ptr(),
            moved.as_device_ptr(),
            100u32,
            shift,
        ))
        .unwrap();
    }
    stream.synchronize().unwrap();
    for (i, (found, point)) in moved.as_host_vec().unwrap().into_iter().zip(points).enumerate() {
        let expected = [point, turn * point, point + by][i % 3] * 2.0 + shift;
        assert!(found.distance(expected) < 1e-4, "{i}: {found} is not {expected}");
    }
}

#[test]
fn functions_are_libdevices() {
    let (_context, module, stream) = fixture();
    let x = [0.125f64, 0.75, 1.5, 3.0];
    let out = DeviceBuffer::from_slice(&[[0.0f64; 10]; 4]).unwrap();
    let x_gpu = x.as_dbuf().unwrap();
    // SAFETY: the kernel expects a slice and a pointer to the same number of rows.
    unsafe {
        launch!(module.functions<<<1, 4, 0, stream>>>(x_gpu.as_device_ptr(), x_gpu.len(), out.as_device_ptr()))
            .unwrap();
    }
    stream.synchronize().unwrap();
    // These are reference values of erf, J₀ and the normal distribution, computed from their series.
    let known = [
        [0.140_316_204_801_333_8, 0.996_097_563_041_985_2, 0.549_738_224_830_112_9],
        [0.711_155_633_653_515_1, 0.864_242_275_166_648_6, 0.773_372_647_623_131_7],
        [0.966_105_146_475_310_8, 0.511_827_671_735_918_1, 0.933_192_798_731_141_9],
        [0.999_977_909_503_001_4, -0.260_051_954_901_933_45, 0.998_650_101_968_369_9],
    ];
    let mantissas = [0.5 * -2.0, 0.75 * 0.0, 0.75, 0.75 * 2.0];
    for (i, (row, x)) in out.as_host_vec().unwrap().into_iter().zip(x).enumerate() {
        let [erf, j0, cdf] = known[i];
        let expected = [
            x.sin(),
            x.cos(),
            x.powi(3),
            x.log2(),
            erf,
            j0,
            cdf,
            mantissas[i],
            (-x).rem_euclid(1.5),
            (std::f64::consts::PI * x).sin(),
        ];
        for (place, (found, expected)) in row.iter().zip(expected).enumerate() {
            assert!((found - expected).abs() < 1e-12, "function {place} of {x}: {found} is not {expected}");
        }
    }
}

#[test]
fn kernels_allocate_on_a_heap() {
    let (_context, module, stream) = fixture();
    // SAFETY: the kernel writes every element.
    let digits = unsafe { DeviceBuffer::<u32>::uninitialized(200).unwrap() };
    // SAFETY: the kernel expects a pointer to 200 numbers.
    unsafe { launch!(module.digits<<<2, 100, 0, stream>>>(digits.as_device_ptr(), 200u32)).unwrap() };
    stream.synchronize().unwrap();
    for (i, found) in digits.as_host_vec().unwrap().into_iter().enumerate() {
        let expected: u32 = (i * 37).to_string().bytes().map(|digit| u32::from(digit - b'0')).sum();
        assert_eq!(found, expected, "{i}");
    }
}

#[test]
fn statics_have_their_initial_values() {
    let (_context, module, stream) = fixture();
    let weights = DeviceBuffer::<f32>::zeroed(64).unwrap();
    let calls = DeviceBuffer::<u32>::zeroed(64).unwrap();
    // SAFETY: the kernel expects two pointers to a value for each thread.
    unsafe {
        launch!(module.statics<<<2, 32, 0, stream>>>(weights.as_device_ptr(), calls.as_device_ptr()))
            .unwrap();
    }
    stream.synchronize().unwrap();
    for (i, found) in weights.as_host_vec().unwrap().into_iter().enumerate() {
        assert_eq!(found, [0.0625, 0.25, 0.375, 0.25, 0.0625][i % 5], "{i}");
    }
    let mut calls = calls.as_host_vec().unwrap();
    calls.sort();
    assert_eq!(calls, (0..64).map(|i| 5 + 2 * i).collect::<Vec<u32>>());
}

#[test]
fn constants_scale_by_their_values() {
    let (_context, module, stream) = fixture();
    let x = [1.0f32, 2.0, 3.0, 4.0].as_dbuf().unwrap();
    // SAFETY: the kernel expects a pointer to a value for each thread.
    unsafe { launch!(module.scale<<<1, 4, 0, stream>>>(x.as_device_ptr())).unwrap() };
    stream.synchronize().unwrap();
    assert_eq!(x.as_host_vec().unwrap(), [2.0, 1.0, 6.0, 2.0]);
}

#[test]
fn wrong_launches_are_errors() {
    let (_context, module, stream) = fixture();
    assert_eq!(module.get_function("smoth").unwrap_err(), CudaError::NotFound);
    assert!(explanation().unwrap().contains("smoth"));
    let out = DeviceBuffer::<u32>::zeroed(1).unwrap();
    // SAFETY: neither kernel is launched.
    unsafe {
        let error = launch!(module.digits<<<1, 2048, 0, stream>>>(out.as_device_ptr(), 1u32)).unwrap_err();
        assert_eq!(error, CudaError::LaunchOutOfResources, "{error}");
        let error = launch!(module.digits<<<1, 1, 0, stream>>>(out.as_device_ptr())).unwrap_err();
        assert_eq!(error, CudaError::InvalidValue, "{error}");
        let error = launch!(module.digits<<<1, 1, 0, stream>>>(out.as_device_ptr(), 1u8)).unwrap_err();
        assert!(error.to_string().contains("argument 2"), "{error}");
    }
}

#[test]
fn a_kernel_prints_to_standard_output() {
    let Some(text) = alone!() else {
        let (_context, module, stream) = fixture();
        // SAFETY: the kernel expects a number.
        unsafe { launch!(module.checks<<<2, 4, 0, stream>>>(100u32)).unwrap() };
        return stream.synchronize().unwrap();
    };
    assert_eq!(text.matches("thread 3 of [4, 1, 1]\n").count(), 1, "{text}");
}

#[test]
fn a_panic_in_a_kernel_is_explained() {
    // The failure makes the device unusable for the whole process.
    only_alone!();
    let (_context, module, stream) = fixture();
    // SAFETY: the kernel expects a number.
    unsafe { launch!(module.checks<<<1, 4, 0, stream>>>(3u32)).unwrap() };
    let error = stream.synchronize().unwrap_err();
    assert_eq!(error, CudaError::AssertError, "{error}");
    assert!(error.to_string().contains("the limit is exceeded"), "{error}");
}
