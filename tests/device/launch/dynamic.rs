//! Kernels that launch kernels.

use crate::alone::alone;
use crate::common::{Random, device, device_name, stream};
use test_kernels::IMAGE;
use test_kernels::dynamic::{
    count_launches, fill_then_sum, go_deeper, halve, launch_many, launch_panic, launch_with_block, multiples,
    refine_odd_rows,
};
use warpsmith::GpuImage;
use warpsmith::gpu_std::Kernel;
use warpsmith::gpu_std::dynamic::{LaunchError, MAX_DEPTH, MAX_PENDING};
use warpsmith::module::spec::{CodeForm, CodeKind, ImageModule, ImageSpec, Packed};
use warpsmith::prelude::*;

fn kernel<K: Kernel>() -> TypedKernel<K> {
    device().load(&IMAGE).and_then(|module| module.kernel::<K>()).expect("the kernel is in the image")
}

fn buffer(values: &[u32]) -> DeviceBuffer<u32> {
    DeviceBuffer::from_host(&stream(), values).expect("memory on the device under test")
}

fn is_emulated() -> bool {
    device_name().starts_with("cpu")
}

#[test]
fn a_thread_launches_a_kernel_over_its_row() {
    let mut random = Random::new();
    for (count, len) in [(1usize, 1usize), (40, 37), (300, 130)] {
        let rows: Vec<u32> = (0..count * len).map(|_| random.below(1000) as u32).collect();
        let weights: Vec<u32> = (0..len).map(|_| random.below(1000) as u32).collect();
        let mut expected = rows.clone();
        for row in expected.chunks_mut(len).filter(|row| row[0] % 2 == 1) {
            row.iter_mut().zip(&weights).for_each(|(x, weight)| *x = *x * 7 + weight);
        }
        let (mut data, mut refused) = (buffer(&rows), buffer(&[0, 0]));
        let arguments = (&mut data, count, 7u32, &buffer(&weights), &mut refused);
        // SAFETY: the rows cover the buffer exactly.
        unsafe { kernel::<refine_odd_rows>().launch_unsafe(&stream(), Launch::linear(count, 64), arguments) }
            .unwrap();
        assert_eq!(refused.to_host().unwrap(), [0, 0]);
        assert_eq!(data.to_host().unwrap(), expected, "seed {}", random.seed);
    }
}

#[test]
fn launched_kernels_launch_kernels() {
    for (len, smallest) in [(1usize, 1usize), (64, 8), (1000, 30)] {
        let values: Vec<u32> = (0..len as u32).collect();
        let (mut data, mut refused) = (buffer(&values), buffer(&[0, 0]));
        let arguments = (&mut data, len, smallest, &mut refused);
        // SAFETY: the data covers the buffer exactly.
        unsafe { kernel::<halve>().launch_unsafe(&stream(), Launch::grid_block(1, 32), arguments) }.unwrap();
        assert_eq!(refused.to_host().unwrap(), [0, 0]);
        assert_eq!(data.to_host().unwrap(), (1..=len as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_tail_launch_sees_all_writes() {
    for (len, part) in [(1usize, 1usize), (1000, 64), (5000, 129)] {
        let (mut data, mut sum, mut refused) = (buffer(&vec![1; len]), buffer(&[9]), buffer(&[0, 0]));
        let arguments = (&mut data, len, part, &mut sum, &mut refused);
        // SAFETY: data and sum cover their buffers exactly.
        unsafe { kernel::<fill_then_sum>().launch_unsafe(&stream(), Launch::grid_block(1, 32), arguments) }
            .unwrap();
        assert_eq!(refused.to_host().unwrap(), [0, 0]);
        let expected: Vec<u32> = (0..len).map(|i| (i % part) as u32 * 3).collect();
        assert_eq!(sum.to_host().unwrap(), [expected.iter().sum::<u32>()], "{len} in parts of {part}");
        assert_eq!(data.to_host().unwrap(), expected);
    }
}

#[test]
fn later_work_waits_for_launched_kernels() {
    let stream = stream();
    let (mut data, mut refused) = (buffer(&[0; 512]), buffer(&[0, 0]));
    let kernel = kernel::<halve>();
    for _ in 0..10 {
        let arguments = (&mut data, 512usize, 16usize, &mut refused);
        // SAFETY: the data covers the buffer exactly.
        unsafe { kernel.launch_unsafe(&stream, Launch::grid_block(1, 32), arguments) }.unwrap();
    }
    assert_eq!(data.to_host().unwrap(), [10; 512]);
}

#[test]
fn a_launch_over_the_limit_is_refused() {
    let launches = 3 * MAX_PENDING / 2;
    let (mut ran, mut refused) = (buffer(&[0]), buffer(&[0, 0]));
    let arguments = (launches, &mut ran, &mut refused);
    kernel::<count_launches>().launch(&stream(), Launch::grid_block(1, 1), arguments).unwrap();
    let (ran, refused) = (ran.to_host().unwrap(), refused.to_host().unwrap());
    assert_eq!(ran[0] + refused[0], launches, "{ran:?} {refused:?}");
    if is_emulated() {
        assert_eq!((ran[0], refused[1]), (MAX_PENDING, LaunchError::TOO_MANY_PENDING.code()));
    }
    // A GPU runs some launches while others are made, and has two error codes for a full queue.
    let full = [0, LaunchError::TOO_MANY_PENDING.code(), LaunchError::OUT_OF_RESOURCES.code()];
    assert!(ran[0] > 0 && full.contains(&refused[1]), "{ran:?} {refused:?}");
}

#[test]
fn launches_go_as_deep_as_the_limit() {
    let levels = if is_emulated() { MAX_DEPTH + 10 } else { 10 };
    let (mut ran, mut refused) = (buffer(&[0]), buffer(&[0, 0]));
    kernel::<go_deeper>()
        .launch(&stream(), Launch::grid_block(1, 1), (levels, &mut ran, &mut refused))
        .unwrap();
    if is_emulated() {
        assert_eq!(ran.to_host().unwrap(), [MAX_DEPTH + 1]);
        assert_eq!(refused.to_host().unwrap(), [1, LaunchError::TOO_DEEP.code()]);
    } else {
        assert_eq!((ran.to_host().unwrap(), refused.to_host().unwrap()), (vec![levels], vec![0, 0]));
    }
}

#[test]
fn an_impossible_block_is_refused() {
    for threads in [0u32, 1025] {
        let mut refused = buffer(&[0, 0]);
        let arguments = (threads, &mut refused);
        kernel::<launch_with_block>().launch(&stream(), Launch::grid_block(1, 1), arguments).unwrap();
        let refused = refused.to_host().unwrap();
        assert!(refused[0] == 1 && refused[1] != 0, "a block of {threads} threads: {refused:?}");
        if is_emulated() {
            assert_eq!(refused[1], LaunchError::INVALID_CONFIGURATION.code());
        }
    }
    let mut refused = buffer(&[0, 0]);
    let arguments = (1024u32, &mut refused);
    kernel::<launch_with_block>().launch(&stream(), Launch::grid_block(1, 1), arguments).unwrap();
    assert_eq!(refused.to_host().unwrap(), [0, 0]);
}

#[test]
fn one_thread_or_many_launch_many_kernels() {
    let stream = stream();
    for threads in [1, 256] {
        kernel::<launch_many>().launch(&stream, Launch::linear(threads, threads as u32), (1000u32,)).unwrap();
        stream.synchronize().unwrap();
    }
}

/// Makes an image per form of the linked code that this device accepts, with that form and `library`.
fn images_with(library: Option<Packed>) -> Vec<(String, &'static GpuImage)> {
    let device = device();
    let (major, minor) = device.properties().capability;
    let runs_here = |form: &CodeForm| match form.is_arch_specific || matches!(form.kind, CodeKind::Cubin(_)) {
        true => form.arch == 10 * major + minor,
        false => form.arch <= 10 * major + minor,
    };
    let spec = IMAGE.spec();
    let linked = spec.modules.iter().filter(|module| module.is_linked).flat_map(|module| module.forms);
    linked
        .filter(|form| device.is_emulated() || runs_here(form))
        .map(|form| {
            let mut modules = spec.modules.to_vec();
            for module in modules.iter_mut().filter(|module| module.is_linked) {
                *module = ImageModule { forms: std::slice::from_ref(form), ..*module };
            }
            let spec = ImageSpec { modules: modules.leak(), device_runtime: library, ..*spec };
            // SAFETY: the code belongs to the records.
            let image = unsafe { GpuImage::new(spec) };
            (format!("{form:?}"), &*Box::leak(Box::new(image)))
        })
        .collect()
}

#[test]
fn every_form_is_linked_and_runs() {
    let images = images_with(IMAGE.spec().device_runtime);
    assert!(!images.is_empty(), "the image, which this test looks at, has linked code");
    for (name, image) in images {
        let kernel =
            device().load(image).unwrap().kernel::<halve>().unwrap_or_else(|e| panic!("{name}: {e}"));
        let (mut data, mut refused) = (buffer(&[0; 100]), buffer(&[0, 0]));
        let arguments = (&mut data, 100usize, 10usize, &mut refused);
        // SAFETY: the data covers the buffer exactly.
        unsafe { kernel.launch_unsafe(&stream(), Launch::grid_block(1, 32), arguments) }.unwrap();
        assert_eq!(data.to_host().unwrap(), [1; 100], "{name}");
    }
}

#[test]
fn unlinkable_code_fails_alone() {
    // An archive that contains a text file. Drivers crash on truncated archives, which is why a build rejects them.
    const NO_CODE: &[u8] = b"!<arch>\nreadme/         0           0     0     644     4         `\ntext";
    for (name, image) in images_with(Some(Packed::Plain(NO_CODE))) {
        let module = device().load(image).unwrap();
        match module.kernel::<halve>() {
            Ok(_) => assert!(is_emulated(), "{name} was linked with nothing"),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    !is_emulated() && text.contains("kernel `halve`") && text.contains("libcudadevrt"),
                    "{text}"
                );
            }
        }
        let mut data = buffer(&[0; 100]);
        module
            .kernel::<multiples>()
            .unwrap()
            .launch(&stream(), Launch::auto(100), (5u32, &mut data))
            .unwrap();
        assert!(data.to_host().unwrap().into_iter().eq((0..100).map(|i| i * 5)), "{name}");
    }
}

/// A fault stops the device for the whole process, so this test runs in a separate process.
#[test]
fn a_panic_in_a_launched_kernel_comes_back() {
    let Some(text) = alone!() else {
        let stream = stream();
        let launched = kernel::<launch_panic>().launch(&stream, Launch::grid_block(1, 32), ());
        let error = launched.and_then(|()| stream.synchronize()).expect_err("a launched kernel panics");
        println!("\nerror: {error}\nlost: {}", stream.device().is_lost());
        return;
    };
    assert!(text.contains("the diagnostic kernel panics as it was asked to"), "{text}");
    assert!(text.contains("diagnostic.rs") && text.contains("lost: true"), "{text}");
    if is_emulated() {
        assert!(text.contains("kernel `diagnose_panic`") && text.contains("thread [5, 0, 0]"), "{text}");
    }
}
