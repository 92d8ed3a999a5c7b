//! Tests of clusters: rounding, errors, and the number of resident clusters.

use crate::common::*;
use warpsmith_runtime::{DeviceBuffer, Error, Launch, LaunchError};

#[test]
fn threads_are_rounded_up_to_whole_clusters() {
    let (_, _, stream, kernel) = kernel_fixture::<Iota>();
    for (n, cluster) in [(1, 2), (1000, 4), (257, 8), (5000, 3)] {
        let launch = Launch::linear(n, 64).cluster(cluster);
        let config = kernel.function().configure(launch).unwrap().unwrap();
        assert_eq!(config.cluster, [cluster, 1, 1]);
        assert!(config.grid[0].is_multiple_of(cluster) && config.grid[0] * 64 >= n as u32, "{config}");
        assert!(config.grid[0] < (n as u32).div_ceil(64) + cluster, "{config}");
        let mut out = DeviceBuffer::uninit(&stream, n).unwrap();
        kernel.launch(&stream, launch, (&mut out,)).unwrap();
        assert!(out.to_host().unwrap().into_iter().eq(0..n as u32));
    }
}

#[test]
fn a_cluster_too_large_names_the_largest() {
    let (_, device, stream, kernel) = kernel_fixture::<Iota>();
    let mut out = DeviceBuffer::<u32>::uninit(&stream, 3).unwrap();
    let launch = |cluster: u32| Launch::grid_block(cluster, 32).cluster(cluster);
    let mut refused = |cluster| {
        let error = kernel.launch(&stream, launch(cluster), (&mut out,)).unwrap_err();
        let Error::Launch(LaunchError::ClusterTooLarge { limit, .. }) = error else { panic!("{error}") };
        assert!(error.to_string().contains(&format!("at most {limit}")), "{error}");
        limit
    };
    let largest = refused(1000);
    assert!(largest >= device.properties().max_cluster);
    assert_eq!(refused(largest + 1), largest);
    kernel.launch(&stream, launch(largest), (&mut out,)).unwrap();
    assert_eq!(out.to_host().unwrap(), [0, 1, 2]);
}
