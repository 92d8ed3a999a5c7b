//! [`NvvmArch`]: compute capabilities, with Rust-CUDA's names.

use std::fmt;

use warpsmith_builder::Arch;

macro_rules! archs {
    ($($name:ident = $number:literal $suffix:literal;)*) => {
        /// Compute capability.
        #[allow(missing_docs, reason = "each is named by its number")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum NvvmArch {
            #[default]
            Compute80,
            $($name,)*
        }

        impl NvvmArch {
            /// Returns the number and the suffix of a variant.
            fn parts(self) -> (u32, &'static str) {
                match self {
                    NvvmArch::Compute80 => (80, ""),
                    $(NvvmArch::$name => ($number, $suffix),)*
                }
            }

            const ALL: &[NvvmArch] = &[NvvmArch::Compute80, $(NvvmArch::$name),*];
        }
    };
}

archs! {
    Compute35 = 35 ""; Compute37 = 37 ""; Compute50 = 50 ""; Compute52 = 52 ""; Compute53 = 53 "";
    Compute60 = 60 ""; Compute61 = 61 ""; Compute62 = 62 ""; Compute70 = 70 ""; Compute72 = 72 "";
    Compute75 = 75 ""; Compute86 = 86 ""; Compute87 = 87 ""; Compute89 = 89 ""; Compute90 = 90 "";
    Compute90a = 90 "a"; Compute100 = 100 ""; Compute100a = 100 "a"; Compute100f = 100 "f";
    Compute101 = 101 ""; Compute101a = 101 "a"; Compute101f = 101 "f"; Compute103 = 103 "";
    Compute103a = 103 "a"; Compute103f = 103 "f"; Compute120 = 120 ""; Compute120a = 120 "a";
    Compute120f = 120 "f"; Compute121 = 121 ""; Compute121a = 121 "a"; Compute121f = 121 "f";
}

/// Minimum compute capability that LLVM and gpu-std support.
const MIN: u32 = 70;

impl NvvmArch {
    /// Returns the compute capability as a number, `10 * major + minor`.
    pub fn capability_value(self) -> u32 {
        self.parts().0
    }

    /// Returns the name of the capability, such as `compute_80`, which is also the name of the feature in
    /// `#[cfg(target_feature = "compute_80")]`.
    pub fn target_feature(self) -> String {
        let (number, suffix) = self.parts();
        format!("compute_{number}{suffix}")
    }

    /// Returns the target features of kernels compiled for this capability: its own, and those of all lower
    /// capabilities.
    pub(crate) fn target_features(self) -> Vec<String> {
        let (own, suffix) = self.parts();
        let lower = NvvmArch::ALL.iter().filter(|arch| {
            let (number, of) = arch.parts();
            of.is_empty() && (number < own || number == own && !suffix.is_empty())
        });
        lower.chain([&self]).map(|arch| arch.target_feature()).collect()
    }

    /// Returns the compilation target, and whether it is higher than the requested one.
    pub(crate) fn target(self) -> Result<(Arch, bool), String> {
        match self.parts() {
            (number, "") => Ok((Arch::new(number.max(MIN)), number < MIN)),
            (number, "a") => Ok((Arch::specific(number), false)),
            (number, _) => Err(format!(
                "{self} targets a family of GPUs, which is not supported: choose Compute{number}, or Compute{number}a \
                 for only that GPU"
            )),
        }
    }
}

impl fmt::Display for NvvmArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target_feature())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_all_lower_capabilities() {
        let features = NvvmArch::Compute70.target_features();
        assert!(features.contains(&"compute_70".to_owned()) && features.contains(&"compute_60".to_owned()));
        assert!(!features.contains(&"compute_80".to_owned()), "{features:?}");
        let features = NvvmArch::Compute90a.target_features();
        assert!(
            ["compute_90a", "compute_90", "compute_80"].iter().all(|name| features.iter().any(|f| f == name))
        );
    }

    #[test]
    fn old_and_family_targets_are_answered() {
        assert_eq!(NvvmArch::Compute61.target(), Ok((Arch::new(70), true)));
        assert_eq!(NvvmArch::default().target(), Ok((Arch::SM_80, false)));
        assert_eq!(NvvmArch::Compute90a.target(), Ok((Arch::SM_90A, false)));
        assert!(NvvmArch::Compute100f.target().unwrap_err().contains("Compute100a"));
    }
}
