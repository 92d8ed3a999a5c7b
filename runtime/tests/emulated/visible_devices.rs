//! Tests of the devices that `CUDA_VISIBLE_DEVICES` makes visible.

use warpsmith_runtime::device::visible::read;

#[test]
fn lists_are_read_as_cuda_reads_them() {
    // Two GPUs whose UUIDs begin with the same digits, one different GPU, and two MIG instances of the different GPU.
    let machine = ["GPU-aa11-0", "GPU-aa12-1", "GPU-bb00-2", "MIG-cc10", "MIG-cc20"].map(str::to_owned);
    let cases: &[(&str, &[usize], Option<usize>)] = &[
        ("", &[], None),
        // Indices select devices and determine their order.
        ("0", &[0], None),
        ("2,0,1", &[2, 0, 1], None),
        (" 1,\t+2 , 0", &[1, 2, 0], None),
        ("1gpu2,2ampere,0x1", &[1, 2, 0], None),
        ("002,-0", &[2, 0], None),
        // The first invalid entry ends the list.
        ("1,3,0", &[1], Some(1)),
        ("7", &[], Some(0)),
        ("0,99999999999999999999999,1", &[0], Some(1)),
        ("1,,2", &[1], Some(1)),
        ("1, ,2", &[1], Some(1)),
        ("1,GPU-aa11,2", &[1], Some(1)),
        ("1,\u{a0}2", &[1], Some(1)),
        ("1,é", &[1], Some(1)),
        (" ", &[], Some(0)),
        ("NoDevFiles", &[], Some(0)),
        (" GPU-aa11", &[], Some(0)),
        ("--1", &[], Some(0)),
        // A negative index hides the entries after it, which is not a mistake.
        ("-1", &[], None),
        ("2,-1,0", &[2], None),
        ("0,-99999999999999999999999", &[0], None),
        // A device that is named twice hides all devices.
        ("0,1,0", &[], Some(2)),
        ("GPU-aa11,GPU-bb,GPU-aa11-0", &[], Some(2)),
        ("0,-1,0", &[0], None),
        // UUIDs may be abbreviated while they are unique.
        ("GPU-bb00-2", &[2], None),
        ("GPU-b,GPU-aa12", &[2, 1], None),
        ("GPU-bb,GPU-aa1,GPU-aa12", &[2], Some(1)),
        ("GPU-", &[], Some(0)),
        ("GPU-BB", &[], Some(0)),
        // The first entry determines the kind of the others.
        ("GPU-bb,0", &[2], Some(1)),
        ("GPU-bb, GPU-aa11", &[2], Some(1)),
        ("GPU-bb,", &[2], Some(1)),
        ("GPU-bb,MIG-cc10", &[2], Some(1)),
        ("MIG-cc2,MIG-cc10", &[4, 3], None),
        ("3", &[], Some(0)),
    ];
    for (text, devices, mistake) in cases {
        let visible = read(Some(text), &machine);
        assert_eq!((&visible.devices[..], visible.mistake), (*devices, *mistake), "{text:?}");
    }
    assert_eq!(read(None, &machine).devices, [0, 1, 2]);
    assert!(read(None, &[]).devices.is_empty());
}
