//! Tests that with `CUDA_LAUNCH_BLOCKING=1`, a launch waits for its kernel and reports the kernel's fault itself.

use crate::alone::only_alone;
use crate::common::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::{DeviceBuffer, Error, Launch};

#[test]
fn a_blocking_launch_reports_its_own_fault() {
    only_alone!("CUDA_LAUNCH_BLOCKING" => "1");
    let (driver, device, stream) = fixture();
    let mut out = DeviceBuffer::uninit(&stream, 5).unwrap();
    let module = module(&device);
    driver.reset_calls();
    module.kernel::<Iota>().unwrap().launch(&stream, Launch::auto(5), (&mut out,)).unwrap();
    assert_eq!((driver.calls(Call::Launch), driver.calls(Call::StreamSynchronize)), (1, 1));
    let error = module.kernel::<PanicAt>().unwrap().launch(&stream, Launch::auto(8), (3u32,)).unwrap_err();
    assert!(matches!(&error, Error::KernelPanic { kernel, .. } if kernel == &["panic_at"]), "{error}");
}
