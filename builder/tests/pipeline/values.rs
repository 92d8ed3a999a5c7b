//! The instructions that give the values that Rust promises.

use crate::builds::HANDLER;
use crate::common::{build, function, ptx, scratch_crate};
use warpsmith_builder::{Arch, PtxBuilder};

/// The PTX of a kernel whose body is `body`, in a crate with the items `before`.
fn ptx_of(test: &str, before: &str, parameters: &str, body: &str) -> String {
    let source = format!(
        "#![feature(f16)]\n{HANDLER}{before}\n#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k({parameters}) {{ unsafe {{ {body} }} }}\n"
    );
    let builder = PtxBuilder::new(scratch_crate(test, &source)).archs([Arch::SM_80]);
    ptx(&build(test, &builder).unwrap(), "sm_80")
}

#[test]
fn the_remainder_of_floats_is_libdevices() {
    let text = ptx_of("remainder-f32", "", "x: *const f32, y: *mut f32", "*y = *x % *y");
    // The division of its first step is approximate, and corrected; LLVM's own sequence divides by `div.rn`.
    assert!(text.contains("div.approx.f32") && !text.contains("div.rn.f32"), "{text}");
    let text = ptx_of("remainder-f64", "", "x: *const f64, y: *mut f64", "*y = *x % *y");
    assert!(!text.contains("div.rn.f64") && !text.contains("cvt.rzi.f64"), "{text}");
    let text = ptx_of("remainder-f16", "", "x: *const f16, y: *mut f16", "*y = *x % *y");
    assert!(text.contains("div.approx.f32") && !text.contains("div.rn.f32"), "{text}");
}

#[test]
fn square_roots_and_quotients_are_rounded_correctly() {
    let libdevice = "unsafe extern \"C\" { fn __nv_sqrtf(x: f32) -> f32; fn __nv_hypotf(x: f32, y: f32) -> f32; \
                     fn __nv_norm3df(x: f32, y: f32, z: f32) -> f32; }";
    for (name, root) in
        [("sqrt", "__nv_sqrtf(*x)"), ("hypot", "__nv_hypotf(*x, *y)"), ("norm", "__nv_norm3df(*x, *y, 1.0)")]
    {
        let body = format!("*y = {root}");
        let text = ptx_of(&format!("root-{name}"), libdevice, "x: *const f32, y: *mut f32", &body);
        assert!(text.contains("sqrt.rn.f32") && !text.contains("sqrt.approx"), "{text}");
    }
    let text = ptx_of("quotient", "", "x: *const f32, y: *mut f32", "*y = *x / *y; *y.add(1) = 1.0 / *x");
    assert!(text.contains("div.rn.f32") && text.contains("rcp.rn.f32") && !text.contains("approx"), "{text}");
}

#[test]
fn floats_and_128_bit_integers_are_cast() {
    for float in ["f32", "f64", "f16"] {
        for integer in ["u128", "i128"] {
            let parameters = format!("x: *mut {float}, y: *mut {integer}");
            let body = format!(
                "let n = *y; *y = *x as {integer}; *x = n as {float}; *y.add(1) = (*x.add(1)).to_int_unchecked()"
            );
            let body = if float == "f16" { body.replace(".to_int_unchecked()", " as _") } else { body };
            let text = ptx_of(&format!("cast-{float}-{integer}"), "", &parameters, &body);
            assert!(!function(&text, "k").contains("call"), "{text}");
        }
    }
}
