//! Instructions that give the values that Rust guarantees.

use crate::builds::HANDLER;
use crate::common::{build, function, ptx, scratch_crate};
use warpsmith_builder::{Arch, PtxBuilder};

/// Returns the PTX of a crate with `items` and with kernels: name, parameters and body of each.
fn ptx_of(test: &str, items: &str, kernels: &[(&str, &str, &str)]) -> String {
    let mut source = format!("#![feature(f16)]\n{HANDLER}{items}\n");
    for (name, parameters, body) in kernels {
        source.push_str(&format!(
            "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn {name}({parameters}) {{ unsafe {{ {body} }} }}\n"
        ));
    }
    let builder = PtxBuilder::new(scratch_crate(test, &source)).archs([Arch::SM_80]);
    ptx(&build(test, &builder).unwrap(), "sm_80")
}

#[test]
fn the_remainder_of_floats_is_libdevices() {
    let text = ptx_of(
        "remainder",
        "",
        &[
            ("of_f32", "x: *const f32, y: *mut f32", "*y = *x % *y"),
            ("of_f64", "x: *const f64, y: *mut f64", "*y = *x % *y"),
            ("of_f16", "x: *const f16, y: *mut f16", "*y = *x % *y"),
        ],
    );
    // The division in its first step is approximate, and is corrected later; LLVM's own sequence divides by `div.rn`.
    for name in ["of_f32", "of_f16"] {
        let kernel = function(&text, name);
        assert!(kernel.contains("div.approx.f32") && !kernel.contains("div.rn.f32"), "{kernel}");
    }
    let kernel = function(&text, "of_f64");
    assert!(!kernel.contains("div.rn.f64") && !kernel.contains("cvt.rzi.f64"), "{kernel}");
}

#[test]
fn square_roots_and_quotients_are_rounded_correctly() {
    let libdevice = "unsafe extern \"C\" { fn __nv_sqrtf(x: f32) -> f32; fn __nv_hypotf(x: f32, y: f32) -> f32; \
                     fn __nv_norm3df(x: f32, y: f32, z: f32) -> f32; }";
    let parameters = "x: *const f32, y: *mut f32";
    let text = ptx_of(
        "roots",
        libdevice,
        &[
            ("sqrt", parameters, "*y = __nv_sqrtf(*x)"),
            ("hypot", parameters, "*y = __nv_hypotf(*x, *y)"),
            ("norm", parameters, "*y = __nv_norm3df(*x, *y, 1.0)"),
            ("quotient", parameters, "*y = *x / *y; *y.add(1) = 1.0 / *x"),
        ],
    );
    for name in ["sqrt", "hypot", "norm"] {
        assert!(function(&text, name).contains("sqrt.rn.f32"), "{text}");
    }
    let kernel = function(&text, "quotient");
    assert!(kernel.contains("div.rn.f32") && kernel.contains("rcp.rn.f32"), "{kernel}");
    assert!(!text.contains("sqrt.approx") && !kernel.contains("approx"), "{text}");
}

#[test]
fn floats_and_128_bit_integers_are_cast() {
    let mut kernels = Vec::new();
    for float in ["f32", "f64", "f16"] {
        for integer in ["u128", "i128"] {
            let body = format!("let n = *y; *y = *x as {integer}; *x = n as {float};");
            let unchecked = match float {
                "f16" => "",
                _ => "*y.add(1) = (*x.add(1)).to_int_unchecked();",
            };
            kernels.push((
                format!("{float}_{integer}"),
                format!("x: *mut {float}, y: *mut {integer}"),
                body + unchecked,
            ));
        }
    }
    let kernels: Vec<_> =
        kernels.iter().map(|(name, parameters, body)| (&**name, &**parameters, &**body)).collect();
    let text = ptx_of("casts", "", &kernels);
    for (name, ..) in kernels {
        assert!(!function(&text, name).contains("call"), "{text}");
    }
}

const ATOMICS: &str = "use core::sync::atomic::{*, Ordering::*};\n";

#[test]
fn atomics_of_local_memory_are_plain() {
    let mut kernels = Vec::new();
    for width in [8, 16, 32, 64] {
        let body = format!(
            "let n = *y as usize; \
             let a: [AtomicU{width}; 8] = core::array::from_fn(|i| AtomicU{width}::new(i as u{width} ^ *y)); \
             let b = &a[n % 8]; \
             *y = match b.compare_exchange(5, 9, AcqRel, Relaxed) {{ Ok(x) => x, Err(x) => x ^ 3 }}; \
             *y ^= b.swap(*y, SeqCst) ^ b.fetch_add(7, Relaxed) ^ a[(n + 1) % 8].fetch_max(b.load(Acquire), AcqRel); \
             *y.add(1) = a.iter().fold(0, |sum, b| sum ^ b.fetch_nand(3, Relaxed))"
        );
        kernels.push((format!("of_{width}"), format!("y: *mut u{width}"), body));
    }
    let mut kernels: Vec<_> =
        kernels.iter().map(|(name, parameters, body)| (&**name, &**parameters, &**body)).collect();
    let exchange = "let a = AtomicPtr::new(*y); _ = a.compare_exchange(*y.add(1), *y.add(2), Relaxed, Relaxed); \
                    *y = a.into_inner()";
    kernels.push(("of_pointer", "y: *mut *mut u8", exchange));
    let text = ptx_of("local-atomics", ATOMICS, &kernels);
    assert!(!text.contains("atom."), "{text}");
    assert!(!function(&text, "of_pointer").contains(".local"), "{text}");
}

#[test]
fn atomics_by_reference_ask_for_the_space() {
    let items = format!(
        "{ATOMICS}#[inline(never)] fn change(a: &AtomicU32, n: u32) -> u32 {{ \
         let old = a.fetch_add(n, Relaxed); _ = a.compare_exchange(old + n, n, Relaxed, Relaxed); old }}"
    );
    let parameters = "y: *mut u32, b: &AtomicU32";
    let body = "let a = AtomicU32::new(3); *y = change(&a, 5) ^ change(b, 4); *y.add(1) = a.into_inner(); \
                b.fetch_add(1, Relaxed);";
    let text = ptx_of("local-by-reference", &items, &[("k", parameters, body)]);
    let change = &text[text.rfind(".func").unwrap()..];
    assert_eq!(change.matches("isspacep.local").count(), 1, "{text}");
    assert!(change.contains("atom.add.u32") && change.contains("ld.local"), "{text}");
    // In the kernel itself the pointer is a kernel parameter, so the atomic stays global.
    let kernel = function(&text, "k");
    assert!(kernel.contains("atom.global.add.u32") && !kernel.contains("isspacep"), "{text}");
    // Nothing is in local memory if no address is taken.
    let text = ptx_of("no-local", &items, &[("k", parameters, "*y = change(b, 4);")]);
    assert!(text.contains("atom.add.u32") && !text.contains("isspacep"), "{text}");
}
