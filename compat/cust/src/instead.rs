//! Features of Rust-CUDA that this crate does not provide. Each type is declared without functions, only so that the
//! compiler names the replacement where a program uses the type.
//!
//! ```compile_fail
//! use cust::texture::Texture;
//!
//! let texture = Texture::from_array();
//! ```

macro_rules! instead {
    ($($(#[$doc:meta])* $module:ident: $note:literal, $($name:ident)*;)*) => { $(
        $(#[$doc])*
        #[allow(deprecated, reason = "the types refer to each other")]
        pub mod $module {
            $(
                #[doc = $note]
                #[deprecated(note = $note)]
                #[derive(Debug, Clone, Copy)]
                pub enum $name {}
            )*
        }
    )* };
}
instead! {
    /// Textures: not provided. `cuda_std` has no function that reads textures; pass a buffer to the kernel instead.
    texture: "textures are not provided: pass a DeviceBuffer to the kernel, whose loads go through the same cache",
        Texture TextureDescriptor TextureDescriptorFlags TextureAdressingMode TextureFilterMode;
    /// Surfaces: not provided. `cuda_std` has no function that reads or writes surfaces; pass a buffer to the kernel
    /// instead.
    surface: "surfaces are not provided: pass a DeviceBuffer to the kernel",
        Surface ResourceDescriptor ResourceType ResourceViewFormat;
    /// Graphics interoperability memory: not provided.
    external: "graphics interoperability memory is not provided: import it with cudarc's cuImportExternalMemory, and \
               pass its address with DevicePointer::from_raw",
        ExternalMemory;
    /// Graphs, which are not provided; use the graphs of the runtime, which capture and launch the same work.
    graph: "graphs are not provided: use cust::runtime::Graph::capture(stream.runtime(), …), see docs/guide/graphs.md",
        Graph GraphCreationFlags GraphNode GraphNodeType KernelInvocation;
    /// CUDA arrays for textures and surfaces, which are not provided.
    array: "arrays are for textures and surfaces, which are not provided: use DeviceBuffer, or cuda_malloc_pitched for \
            aligned rows",
        ArrayObject ArrayDescriptor ArrayFormat ArrayObjectFlags;
}
