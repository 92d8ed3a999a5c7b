//! Kernels of block operations.

crate::collectives::collectives! {
    collective_block_reduce block_reduce [1 32 33 70 96 256];
    collective_block_extremes block_extremes [1 32 33 70 96 256];
    collective_block_scan block_scan [1 32 33 70 96 256];
    collective_block_exclusive_scan block_exclusive_scan [1 32 33 70 96 256];
    collective_broadcast broadcast [1 32 33 70 96 256];
    collective_count count [1 32 33 70 96 256];
    collective_exchange exchange [1 32 33 70 96 256];
    collective_stencil stencil [1 32 33 70 96 256];
    collective_histogram histogram [1 32 33 70 96 256];
    collective_sort sort [1 32 33 70 96 256];
}
