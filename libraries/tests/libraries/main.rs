//! Library operations on the device under test: `WARPSMITH_TEST_DEVICE`, by default the emulated one. A missing device
//! or library fails the tests.

mod blas;
mod dnn;
mod fft;
mod names;
mod numbers;
mod rand_on_gpu;
mod sparse;
#[path = "../../../runtime/tests/common/under_test.rs"]
mod under_test;

use warpsmith_libraries::rand::{Generator, Pseudo, Quasi};
use warpsmith_libraries::{LibraryError, Vendor};
use warpsmith_runtime::Device;

#[test]
fn libraries_are_there_on_a_gpu_or_missing() {
    for vendor in Vendor::ALL {
        match vendor.version() {
            Ok(version) => println!("{} {version}", vendor.name()),
            Err(error) => {
                assert!(under_test::device().is_emulated(), "{error}");
                let error = error.downcast_ref::<LibraryError>();
                assert!(
                    matches!(error, Some(LibraryError::Missing { library, .. }) if *library == vendor.name())
                );
            }
        }
    }
}

#[test]
fn the_emulated_device_has_no_generators() {
    let device = Device::emulated(0).unwrap();
    let made =
        [Generator::pseudo(&device, Pseudo::Philox, 1, 0), Generator::quasi(&device, Quasi::Sobol32, 3, 0)];
    assert!(made.iter().all(|made| numbers::is_refused!(made, LibraryError::NeedsGpu { .. })), "{made:?}");
}
