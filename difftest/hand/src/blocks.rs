//! Kernels of block operations.

crate::teams::teams! {
    team_block_reduce block_reduce [1 32 33 70 96 256];
    team_block_extremes block_extremes [1 32 33 70 96 256];
    team_block_scan block_scan [1 32 33 70 96 256];
    team_block_exclusive_scan block_exclusive_scan [1 32 33 70 96 256];
    team_broadcast broadcast [1 32 33 70 96 256];
    team_count count [1 32 33 70 96 256];
    team_exchange exchange [1 32 33 70 96 256];
    team_stencil stencil [1 32 33 70 96 256];
    team_histogram histogram [1 32 33 70 96 256];
    team_sort sort [1 32 33 70 96 256];
}
