//! Results per part of a warp, and lengths that must agree.

use crate::common::{Random, device, stream};
use test_kernels::IMAGE;
use test_kernels::thread_groups::{add_each, multiply_rows};
use warpsmith::gpu_std::SafeKernel;
use warpsmith::prelude::*;
use warpsmith::{LaunchError, TypedKernel};

fn kernel<K: SafeKernel>() -> TypedKernel<K> {
    device().load(&IMAGE).unwrap().kernel::<K>().unwrap()
}

/// Rows of 0 to 90 elements, each a whole number, so that sums are exact in any order.
fn multiplies<K>(threads: usize)
where
    K: SafeKernel<Params = <multiply_rows<8> as warpsmith::gpu_std::Kernel>::Params>,
{
    let (stream, kernel, mut random) = (stream(), kernel::<K>(), Random::new());
    for rows in [0usize, 1, 31, 32, 33, 1000] {
        let mut whole = |count: usize, below: u32| -> Vec<u32> {
            random.values::<f32>(count, 1e6).iter().map(|value| value.abs() as u32 % below).collect()
        };
        let mut starts = vec![0u32];
        for len in whole(rows, 91) {
            starts.push(starts.last().unwrap() + if len % 5 == 0 { 0 } else { len });
        }
        let count = *starts.last().unwrap() as usize;
        let (columns, values) = (whole(count, 200), whole(count, 1000));
        let values: Vec<f64> = values.into_iter().map(f64::from).collect();
        let x: Vec<f64> = whole(200, 1000).into_iter().map(f64::from).collect();
        let exact: Vec<f64> = starts
            .windows(2)
            .map(|row| (row[0]..row[1]).map(|i| values[i as usize] * x[columns[i as usize] as usize]).sum())
            .collect();
        let [starts, columns] = [starts, columns].map(|of| DeviceBuffer::from_host(&stream, &of).unwrap());
        let [values, x] = [values, x].map(|of| DeviceBuffer::from_host(&stream, &of).unwrap());
        for launch in [
            Launch::auto(threads * rows.max(1)),
            Launch::grid_block(2, 64),
            Launch::grid_block((3, 2), (8, 4, 3)),
        ] {
            let mut y = DeviceBuffer::from_host(&stream, &vec![f64::NAN; rows]).unwrap();
            kernel.launch(&stream, launch, (&starts, &columns, &values, &x, &mut y)).unwrap();
            assert_eq!(
                y.to_host().unwrap(),
                exact,
                "{rows} rows, {threads} threads each, seed {}",
                random.seed
            );
        }
    }
}

#[test]
fn parts_of_warps_have_a_row_each() {
    multiplies::<multiply_rows<2>>(2);
    multiplies::<multiply_rows<8>>(8);
    multiplies::<multiply_rows<32>>(32);
}

#[test]
fn lengths_that_do_not_agree_are_refused() {
    let (stream, add, rows) = (stream(), kernel::<add_each>(), kernel::<multiply_rows<8>>());
    let x = DeviceBuffer::from_host(&stream, &[2.0f32; 8]).unwrap();
    let mut sums = DeviceBuffer::from_host(&stream, &[1.0f32; 8]).unwrap();
    let refused = |result: Result<(), Error>, words: &[&str]| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Launch(LaunchError::WrongLengths { .. })), "{error}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    };
    refused(
        add.launch(&stream, Launch::auto(8), (x.slice(..7), &mut sums)),
        &["`add_each`", "`x` has 7", "`sums` has 8"],
    );
    refused(
        add.launch(&stream, Launch::linear(6, 32), (&x, &mut sums)),
        &["`x` has 8", "the launch is for 6 threads"],
    );
    let starts = DeviceBuffer::from_host(&stream, &[0u32, 1]).unwrap();
    let columns = DeviceBuffer::from_host(&stream, &[0u32]).unwrap();
    let values = DeviceBuffer::from_host(&stream, &[1.0f64, 2.0]).unwrap();
    let mut y = DeviceBuffer::<f64>::zeros(&stream, 1).unwrap();
    refused(
        rows.prepare(Launch::auto(8)).unwrap().launch(&stream, (&starts, &columns, &values, &values, &mut y)),
        &["`columns` has 1", "`values` has 2"],
    );
    add.launch(&stream, Launch::auto(8), (&x, &mut sums)).unwrap();
    assert_eq!(sums.to_host().unwrap(), [3.0; 8]);
}
