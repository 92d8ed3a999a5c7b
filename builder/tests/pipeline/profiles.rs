//! Profile settings of a workspace do not affect GPU code.

use crate::builds::HANDLER;
use crate::common::{build, ptx, scratch_crate};
use warpsmith_builder::{Arch, PtxBuilder};

/// Settings that would check every sum and optimize nothing.
const SETTINGS: &str = "overflow-checks = true\ndebug-assertions = true\ncodegen-units = 16\nopt-level = 0\n\
                        incremental = true\ndebug = 2\nstrip = true\n";

#[test]
fn overrides_for_packages_change_nothing() {
    let source = format!(
        "{HANDLER}fn twice(x: i32) -> i32 {{ debug_assert!(x != 7); x + x }}\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: *mut i32, n: i32) \
         {{ unsafe {{ *y = twice(*y) + n; *y.add(1) = (*y).rotate_left(3); }} }}\n"
    );
    let folder = scratch_crate("profiles", &source);
    let builder = PtxBuilder::new(&folder).archs([Arch::SM_80]);
    let plain = ptx(&build("profiles", &builder).unwrap(), "sm_80");
    let manifest = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let overrides = format!(
        "{text}[profile.release]\npanic = \"unwind\"\nlto = \"fat\"\nsplit-debuginfo = \"packed\"\n{SETTINGS}\
         [profile.release.package.scratch-profiles]\n{SETTINGS}\
         [profile.release.package.\"*\"]\n{SETTINGS}\
         [profile.release.build-override]\n{SETTINGS}"
    );
    std::fs::write(&manifest, overrides).unwrap();
    assert_eq!(ptx(&build("profiles", &builder).unwrap(), "sm_80"), plain);
}
