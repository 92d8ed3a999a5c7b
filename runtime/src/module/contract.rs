//! Checks that an image contains a given kernel, with the same package, version, module and parameters.

use gpu_spec::image::{KernelAbi, KernelRecord, Package};
use gpu_spec::{AbiParam, KernelSpec, ParamKind, ParamSpec};

use super::GpuImage;
use crate::error::{Error, Result};

/// Returns the record of the kernel; `None` for an image without code.
///
/// Returns [`Error::KernelNotOfImage`] if the image does not contain exactly this kernel, and
/// [`Error::KernelOfAnotherPackage`] if it contains a kernel of a different package with the same name.
pub fn check(image: &GpuImage, spec: &KernelSpec) -> Result<Option<&'static KernelRecord>> {
    let package = Package { name: spec.package, version: spec.version };
    let source = image.spec().sources.iter().find(|source| source.package == package);
    if source.is_some_and(|source| spec.folder != 0 && !source.folders.contains(&spec.folder)) {
        return Err(Error::KernelOfAnotherPackage {
            kernel: spec.symbol.to_owned(),
            package: package.name.to_owned(),
        });
    }
    let params: Vec<AbiParam> = spec.params.iter().map(|param| param.abi()).collect();
    let holds = match (image.missing(), image.spec().kernel_of(spec)) {
        (Some(_), _) => {
            // The version is compared only if the builder recorded it.
            let is_it = |of: &Package| {
                of.name == package.name && (of.version == package.version || of.version.is_empty())
            };
            let mut packages = [image.spec().package].into_iter().chain(image.spec().dependencies.to_vec());
            if packages.any(|of| is_it(&of)) {
                return Ok(None);
            }
            "no kernels of that package".to_owned()
        }
        (None, Some(record)) => match &record.abi {
            Some(abi) if !(abi.module.is_empty() || spec.module.is_empty() || abi.module == spec.module) => {
                format!("a kernel of this name in module {}, not in {}", abi.module, spec.module)
            }
            Some(abi) if abi.package == package && abi.params == params => {
                if (record.block, record.cluster) == (spec.block, spec.cluster) {
                    return Ok(Some(record));
                }
                let (has, wanted) = ((record.block, record.cluster), (spec.block, spec.cluster));
                format!("a kernel of this name with block and cluster {}, not {}", shape(has), shape(wanted))
            }
            Some(abi) => match of_another_type(abi, &package, spec) {
                Some(text) => text,
                None => signature(&abi.package, abi.params),
            },
            None => "a kernel of this name that was not written with #[kernel]".to_owned(),
        },
        (None, None) => "no kernel with this symbol".to_owned(),
    };
    Err(Error::KernelNotOfImage {
        kernel: spec.symbol.to_owned(),
        wanted: signature(&package, &params),
        image: format!("{} {}", image.spec().package.name, image.spec().package.version),
        holds,
    })
}

/// Finds the first parameter with the same layout but a different type, if there is no other difference.
fn of_another_type(abi: &KernelAbi, package: &Package, spec: &KernelSpec) -> Option<String> {
    let is_alike = |(image, host): (&AbiParam, &ParamSpec)| {
        AbiParam { signature: 0, ..*image } == AbiParam { signature: 0, ..host.abi() }
    };
    let mut params = abi.params.iter().zip(spec.params);
    if abi.package != *package || abi.params.len() != spec.params.len() || !params.clone().all(is_alike) {
        return None;
    }
    let (_, param) = params.find(|(image, host)| image.signature != host.signature)?;
    Some(format!(
        "a kernel of the same layout whose parameter `{}: {}` differs in its type, the type's fields or variants, \
         the view's mapping, or the kernel's attributes",
        param.name, param.type_name
    ))
}

/// Formats the block and the cluster, for example as `[16, 16, 1] and any`.
fn shape((block, cluster): (Option<[u32; 3]>, Option<[u32; 3]>)) -> String {
    let [block, cluster] =
        [block, cluster].map(|sides| sides.map_or("any".to_owned(), |sides| format!("{sides:?}")));
    format!("{block} and {cluster}")
}

/// Formats the package and the parameters, for example as
/// `my-kernels 0.1.0 (slice of 4 bytes aligned to 4, value of 8 bytes aligned to 8)`.
fn signature(package: &Package, params: &[AbiParam]) -> String {
    let one = |param: &AbiParam| {
        let kinds = [
            (ParamKind::Slice, "slice"),
            (ParamKind::SliceMut, "mutable slice"),
            (ParamKind::Pointer, "pointer to"),
            (ParamKind::PointerMut, "mutable pointer to"),
            (ParamKind::Slice2, "rows"),
            (ParamKind::SliceMut2, "mutable rows"),
            (ParamKind::Slice3, "planes"),
            (ParamKind::SliceMut3, "mutable planes"),
            (ParamKind::Shared, "shared array"),
        ];
        let kind =
            kinds.iter().find(|(kind, _)| *kind as u32 == param.kind).map_or("value", |(_, name)| name);
        format!("{kind} of {} bytes aligned to {}", param.size, param.align)
    };
    let params: Vec<String> = params.iter().map(one).collect();
    format!("{} {} ({})", package.name, package.version, params.join(", "))
}

#[cfg(test)]
mod tests {
    use gpu_spec::image::{CodeForm, CodeKind, Compilers, ImageModule, ImageSpec, Packed, Source, StackUse};

    use super::*;

    const OURS: Package = Package { name: "ours", version: "0.1.0" };

    const fn record(symbol: &'static str, abi: Option<KernelAbi>) -> KernelRecord {
        KernelRecord {
            symbol,
            module_index: 0,
            abi,
            stack: StackUse::Known(0),
            requested_stack: 0,
            block: None,
            cluster: None,
            resources: &[],
            panics: &[],
        }
    }

    const FORM: CodeForm = CodeForm {
        arch: 80,
        is_arch_specific: false,
        kind: CodeKind::Ptx(74),
        code: Packed::Plain(b""),
        hash: 0,
    };

    // SAFETY: the test launches none of the image's kernels.
    static IMAGE: GpuImage = unsafe {
        GpuImage::new(ImageSpec {
            package: OURS,
            dependencies: &[],
            sources: &[],
            missing: None,
            compilers: Compilers { device: "", host: "" },
            modules: &[ImageModule { name: "ours", is_linked: false, forms: &[FORM] }],
            kernels: &[
                record("by_hand", None),
                KernelRecord {
                    block: Some([16, 16, 1]),
                    ..record("planes", Some(KernelAbi { package: OURS, module: "", params: &[] }))
                },
                record(
                    "scale",
                    Some(KernelAbi {
                        package: OURS,
                        module: "ours::of_f32",
                        params: &[
                            AbiParam::new(ParamKind::SliceMut, 4, 4, 7),
                            AbiParam::new(ParamKind::Value, 8, 8, 7),
                        ],
                    }),
                ),
                record("twin$ours$a", Some(KernelAbi { package: OURS, module: "ours::a", params: &[] })),
                record("twin$ours$b", Some(KernelAbi { package: OURS, module: "ours::b", params: &[] })),
            ],
            device_runtime: None,
        })
    };

    fn spec(
        symbol: &'static str,
        (package, version): (&'static str, &'static str),
        size: usize,
    ) -> KernelSpec {
        let param =
            |kind, size| ParamSpec { name: "p", kind, type_name: "T", size, align: size, signature: 7 };
        let params = vec![param(ParamKind::SliceMut, 4), param(ParamKind::Value, size)].leak();
        KernelSpec::new(package, version, symbol, params, |_| {})
    }

    #[test]
    fn exactly_the_recorded_kernel_is_found() {
        let found = check(&IMAGE, &spec("scale", ("ours", "0.1.0"), 8)).unwrap().unwrap();
        assert_eq!(found.symbol, "scale");
        for (symbol, package, size, parts) in [
            ("scale", ("theirs", "0.1.0"), 8, ["theirs 0.1.0 (", "ours 0.1.0 ("]),
            ("scale", ("ours", "0.2.0"), 8, ["ours 0.2.0 (", "ours 0.1.0 ("]),
            ("scale", ("ours", "0.1.0"), 4, ["value of 4 bytes", "value of 8 bytes aligned to 8)"]),
            ("by_hand", ("ours", "0.1.0"), 8, ["`by_hand`", "not written with #[kernel]"]),
            ("other", ("ours", "0.1.0"), 8, ["`other`", "no kernel with this symbol"]),
        ] {
            let error = check(&IMAGE, &spec(symbol, package, size)).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    }

    #[test]
    fn a_kernel_of_another_module_is_refused() {
        let of = |module| {
            let mut spec = spec("scale", ("ours", "0.1.0"), 8);
            spec.info.module = module;
            check(&IMAGE, &spec).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(of("ours::of_f32"), Ok(()));
        let error = of("ours::of_f64").unwrap_err();
        assert!(
            error.contains("a kernel of this name in module ours::of_f32, not in ours::of_f64"),
            "{error}"
        );
    }

    #[test]
    fn a_name_of_several_kernels_is_found_with_its_module() {
        let mut spec = KernelSpec::new(OURS.name, OURS.version, "twin", &[], |_| {});
        for (module, symbol) in [("ours::a", "twin$ours$a"), ("ours::b", "twin$ours$b")] {
            spec.info.module = module;
            assert_eq!(check(&IMAGE, &spec).unwrap().unwrap().symbol, symbol);
        }
        spec.info.module = "ours::c";
        assert!(check(&IMAGE, &spec).is_err());
    }

    #[test]
    fn parameters_that_are_laid_out_alike_can_be_others() {
        let param = |name, kind, size, signature| ParamSpec {
            name,
            kind,
            type_name: "Flag",
            size,
            align: size,
            signature,
        };
        for (of_view, of_value, name) in [(7, 8, Some("flag")), (8, 7, Some("out")), (7, 7, None)] {
            let params =
                [param("out", ParamKind::SliceMut, 4, of_view), param("flag", ParamKind::Value, 8, of_value)];
            let spec = KernelSpec::new("ours", "0.1.0", "scale", params.to_vec().leak(), |_| {});
            let error = check(&IMAGE, &spec).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), name.is_some());
            if let (Some(error), Some(name)) = (error, name) {
                assert!(error.contains(&format!("parameter `{name}: Flag`")), "{error}");
            }
        }
    }

    #[test]
    fn another_block_than_the_recorded_is_refused() {
        let required = |block| {
            let mut spec = KernelSpec::new(OURS.name, OURS.version, "planes", &[], |_| {});
            spec.info.block = block;
            check(&IMAGE, &spec).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(required(Some([16, 16, 1])), Ok(()));
        for (block, text) in
            [(None, "[16, 16, 1] and any, not any and any"), (Some([8, 8, 1]), "not [8, 8, 1]")]
        {
            let error = required(block).unwrap_err();
            assert!(error.contains("`planes`") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_kernel_of_another_package_of_the_name_is_refused() {
        static SOURCES: [Source; 1] = [Source { package: OURS, folders: &[7, 8] }];
        for has_code in [true, false] {
            let spec = match has_code {
                true => *IMAGE.spec(),
                false => ImageSpec::without_code(OURS, "no toolchain"),
            };
            // SAFETY: the test launches none of the image's kernels.
            let image = unsafe { GpuImage::new(ImageSpec { sources: &SOURCES, ..spec }) };
            let found = |version, folder| {
                let mut spec = self::spec("scale", ("ours", version), 8);
                spec.info.folder = folder;
                check(&image, &spec).map(|record| record.is_some()).map_err(|error| error.to_string())
            };
            // Folders 7 and 8 are known sources of the image; 0 stands for an unknown folder.
            assert_eq!(
                [7, 8, 0].map(|folder| found("0.1.0", folder)),
                [Ok(has_code), Ok(has_code), Ok(has_code)]
            );
            let error = found("0.1.0", 9).unwrap_err();
            assert!(
                error.contains("`scale` from two different packages named ours")
                    && error.contains("cargo clean -p ours"),
                "{error}"
            );
            assert!(found("0.2.0", 9).unwrap_err().contains("is not in the image of ours"));
        }
    }

    #[test]
    fn an_image_without_code_knows_packages() {
        static EMPTY: GpuImage = GpuImage::without_code("ours", "0.1.0", "no toolchain");
        assert!(check(&EMPTY, &spec("scale", ("ours", "0.1.0"), 4)).unwrap().is_none());
        for package in [("theirs", "0.1.0"), ("ours", "0.2.0")] {
            let error = check(&EMPTY, &spec("scale", package, 4)).unwrap_err().to_string();
            assert!(error.contains(package.0) && error.contains("image of ours 0.1.0"), "{error}");
        }
    }
}
