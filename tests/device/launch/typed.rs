//! Kernels launched by type, as in a program with its own kernels.

use crate::common::{Random, device, stream};
use glam::Vec3;
use test_kernels::diagnostic::diagnose_glam;
use warpsmith::kernels::elementwise::axpy;
use warpsmith::module::spec::{CodeForm, CodeKind, ImageModule, ImageSpec};
use warpsmith::prelude::*;
use warpsmith::{GpuImage, IMAGE};

#[test]
fn a_safe_kernel_is_correct_in_any_line() {
    let stream = stream();
    let kernel = device().load(&IMAGE).unwrap().kernel::<axpy<f32, 2, 16>>().unwrap();
    let mut random = Random::new();
    let n = 5003;
    let (x, y): (Vec<f32>, Vec<f32>) = (random.values(n, 10.0), random.values(n, 10.0));
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| 2.0f32.mul_add(*x, *y)).collect();
    let x = DeviceBuffer::from_host(&stream, &x).unwrap();
    for launch in [Launch::auto(n), Launch::linear(n, 32), Launch::linear(1, 1), Launch::grid_block(3, 100)] {
        let mut out = DeviceBuffer::from_host(&stream, &y).unwrap();
        kernel.launch(&stream, launch, (2.0f32, &x, &mut out)).unwrap();
        assert_eq!(out.to_host().unwrap(), expected, "{launch:?}, seed {}", random.seed);
    }
    // The view has one dimension.
    let mut out = DeviceBuffer::from_host(&stream, &y).unwrap();
    let error =
        kernel.launch(&stream, Launch::grid_block((2, 3, 2), (8, 4, 2)), (2.0f32, &x, &mut out)).unwrap_err();
    assert!(error.to_string().contains("in one dimension"), "{error}");
}

#[test]
fn glam_types_go_through_arrays_and_values() {
    let stream = stream();
    let kernel = device().load(&test_kernels::IMAGE).unwrap().kernel::<diagnose_glam>().unwrap();
    let mut random = Random::new();
    for n in [1, 31, 33, 1000] {
        let mut point = || Vec3::new(random.unit() as f32, random.unit() as f32, random.unit() as f32);
        let axis = point();
        let points: Vec<Vec3> = (0..n).map(|_| point()).collect();
        let on_device = DeviceBuffer::from_host(&stream, &points).unwrap();
        let mut out = DeviceBuffer::from_host(&stream, &vec![Vec3::NAN; n]).unwrap();
        kernel.launch(&stream, Launch::linear(n, 64), (axis, &on_device, &mut out)).unwrap();
        for (found, point) in out.to_host().unwrap().into_iter().zip(points) {
            let expected = point.cross(axis);
            assert!(found.distance(expected) <= 1e-6, "{found} is not {expected}, seed {}", random.seed);
        }
    }
}

#[test]
fn every_form_gives_the_same_result() {
    let device = device();
    let stream = stream();
    let (major, minor) = device.properties().capability;
    let runs_here = |form: &CodeForm| match form.is_arch_specific || matches!(form.kind, CodeKind::Cubin(_)) {
        true => form.arch == 10 * major + minor,
        false => form.arch <= 10 * major + minor,
    };
    let mut random = Random::new();
    let values: Vec<f32> = random.values(10_007, 10.0);
    let x = DeviceBuffer::from_host(&stream, &values).unwrap();
    let expected: Vec<f32> = values.iter().map(|value| 3.0 * value).collect();
    let spec = IMAGE.spec();
    let record = spec.kernel("axpy__f32_1_16").expect("the image, which this test looks at, has code");
    let module = &spec.modules[record.module_index];
    // The emulated device accepts none of the forms, and still runs the kernels.
    for form in module.forms.iter().filter(|form| device.is_emulated() || runs_here(form)) {
        let mut modules = spec.modules.to_vec();
        for module in &mut modules {
            *module = ImageModule { forms: std::slice::from_ref(form), ..*module };
        }
        // SAFETY: the module of the launched kernel has its own code.
        let image =
            Box::leak(Box::new(unsafe { GpuImage::new(ImageSpec { modules: modules.leak(), ..*spec }) }));
        let mut y = DeviceBuffer::zeros(&stream, values.len()).unwrap();
        let kernel = device.load(image).unwrap().kernel::<axpy<f32, 1, 16>>().unwrap();
        kernel.launch(&stream, Launch::auto(values.len()), (3.0f32, &x, &mut y)).unwrap();
        assert_eq!(y.to_host().unwrap(), expected, "{form:?}, seed {}", random.seed);
    }
}

#[test]
fn a_kernel_of_another_crate_is_refused() {
    for error in [
        device().load(&IMAGE).unwrap().kernel::<diagnose_glam>().err(),
        device().load(&test_kernels::IMAGE).unwrap().kernel::<axpy<f32, 1, 16>>().err(),
    ] {
        let text = error.expect("the image is of another crate").to_string();
        for part in ["test-kernels-gpu 0.1.0", "warpsmith-gpu-kernels 0.1.0", "is not in the image of"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
