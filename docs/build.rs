//! Creates an image without GPU code for `include_image!("kernels")` in the listings, which run on the emulated device.

use std::error::Error;
use std::path::Path;

const IMAGES: &str = r#"macro_rules! warpsmith_image {
    ("kernels") => {
        ImageSpec::without_code(
            Package { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") },
            "the listings of the guide are not compiled for GPUs",
        )
    };
}"#;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let folder = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    Ok(std::fs::write(Path::new(&folder).join("warpsmith_images.rs"), IMAGES)?)
}
