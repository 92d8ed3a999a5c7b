//! Tests of writes beyond the ends of shared memory.

use crate::common::{ORDERS, launch_as, launch_at_once};
use warpsmith_emulator::{FaultKind, redzone, shared, thread};

kernel!(static STRAY = "stray"(block: usize, offset: isize) {
    static SITE: u8 = 0;
    let memory = shared::static_memory(&SITE, 100, 4);
    if thread::block_index()[0] as usize == block && thread::linear_index() == 7 {
        // SAFETY: the access is in the array or in its red zones.
        unsafe { *memory.offset(offset) ^= 1 };
    }
});

kernel!(static STRAY_DYNAMIC = "stray_dynamic"(offset: isize) {
    if thread::linear_index() == 0 {
        // SAFETY: the access is in the memory or in its red zones.
        unsafe { *shared::dynamic_memory().offset(offset) ^= 1 };
    }
});

#[test]
fn writes_outside_a_shared_array_fail() {
    let zone = redzone::BYTES as isize;
    for order in ORDERS {
        for offset in [-zone, -1, 100, 101, 100 + zone - 1] {
            let fault = launch_as(&STRAY, [4, 1, 1], [32, 1, 1], 0, order, &[2, offset as u64]).unwrap_err();
            assert!(matches!(fault.kind, FaultKind::RedZone(_)), "{fault:?}");
            assert_eq!((fault.kernel, fault.block), ("stray", Some([2, 0, 0])));
            let side = if offset < 0 { "before the start" } else { "beyond the end" };
            let text = fault.to_string();
            let expected =
                format!("1 byte {side} of a shared array of 100 bytes (emulator/tests/emulator/redzones.rs:");
            assert!(text.contains(&expected), "{text}");
            assert!(text.contains(&format!("overwritten, starting at byte {offset}")), "{text}");
            assert!(text.contains("run under `warpsmith check` to find the line"), "{text}");
        }
        for offset in [0, 99] {
            launch_as(&STRAY, [4, 1, 1], [32, 1, 1], 0, order, &[2, offset]).unwrap();
        }
    }
}

#[test]
fn writes_outside_dynamic_shared_memory_fail() {
    for bytes in [0, 1, 64, 1000] {
        let stray = |offset: i64| {
            launch_as(&STRAY_DYNAMIC, [2, 1, 1], [32, 1, 1], bytes, ORDERS[0], &[offset as u64])
        };
        for offset in [-1, bytes.into()] {
            let text = stray(offset).unwrap_err().to_string();
            assert!(text.contains(&format!("the dynamic shared memory of {bytes} bytes")), "{text}");
        }
        if bytes != 0 {
            stray(i64::from(bytes) - 1).unwrap();
        }
    }
}

kernel!(static STRAY_AFAR = "stray_afar"() {
    static SITE: u8 = 0;
    let memory = shared::static_memory(&SITE, 64, 4);
    if thread::block_index()[0] == 0 && thread::linear_index() == 0 {
        // SAFETY: the access is in the red zone of the other block's array.
        unsafe { shared::map_shared(memory, 1).add(64).write(1) };
    }
    warpsmith_emulator::collective::cluster_arrive("cluster");
    warpsmith_emulator::collective::cluster_wait("cluster");
});

#[test]
fn writes_outside_another_blocks_array_fail() {
    let fault =
        launch_at_once(&STRAY_AFAR, [2, 1, 1], [32, 1, 1], [2, 1, 1], false, ORDERS[0], &[]).unwrap_err();
    assert!(matches!(fault.kind, FaultKind::RedZone(_)), "{fault:?}");
    assert_eq!(fault.block, Some([1, 0, 0]));
}
