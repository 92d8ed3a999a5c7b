//! Float functions, compared with known values.

use cuda_std::{FloatExt, GpuFloat};

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-13 * expected.abs().max(1e-3), "{found} is not {expected}");
}

#[test]
fn functions_have_known_values() {
    close(FloatExt::cospi(0.25f64), core::f64::consts::FRAC_1_SQRT_2);
    close(FloatExt::sinpi(1.0f64 / 6.0), 0.5);
    assert_eq!((FloatExt::sinpi(3.0f64), FloatExt::cospi(2.5f64)), (0.0, 0.0));
    assert_eq!(FloatExt::sincospi(1e15f64), (0.0, 1.0));
    close(0.5f64.error_function(), 0.520_499_877_813_046_5);
    close(3.0f64.complementary_error_function(), 2.209_049_699_858_544e-5);
    close(30.0f64.scaled_complementary_error_function(), 0.018_795_888_861_416_75);
    close(2.0f64.scaled_complementary_error_function(), 0.255_395_676_310_505_77);
    close(0.975f64.inv_norm_cdf(), 1.959_963_984_540_054);
    close(1.0f64.norm_cdf(), 0.841_344_746_068_542_9);
    close(1e-20f64.inv_complementary_error_function(), 6.601_580_622_355_143);
    close(FloatExt::j0(1.0f64), 0.765_197_686_557_966_6);
    close(FloatExt::yn(1.0f64, 2), -1.650_682_606_816_254_4);
    close(FloatExt::gamma(4.5f64), 11.631_728_396_567_448);
    close(27.0f64.rcbrt(), 1.0 / 3.0);
    assert_eq!((FloatExt::frexp(-6.0f32), FloatExt::ldexp(0.75f32, 3)), ((-0.75, 3), 6.0));
    assert_eq!((12.0f64.unbiased_exp(), 0.75f32.scale_by_n(-1)), (3, 0.375));
    assert_eq!([-1.0f32, 0.5, 2.0, f32::NAN].map(FloatExt::saturate), [0.0, 0.5, 1.0, 0.0]);
}

#[test]
fn limits_are_kept() {
    assert!(FloatExt::inv_norm_cdf(-0.1f64).is_nan() && FloatExt::inv_norm_cdf(1.1f64).is_nan());
    assert_eq!(0.0f64.inv_norm_cdf(), f64::NEG_INFINITY);
    assert_eq!(1.0f64.inv_norm_cdf(), f64::INFINITY);
}

#[test]
fn methods_are_the_standard_librarys() {
    for x in [-2.7f64, -0.3, 0.0, 0.4, 3.9] {
        assert_eq!(GpuFloat::floor(x), x.floor());
        assert_eq!(GpuFloat::fract(x), x.fract());
        assert_eq!(GpuFloat::rem_euclid(x, 1.3), x.rem_euclid(1.3));
        assert_eq!(GpuFloat::div_euclid(x, -1.3), x.div_euclid(-1.3));
        assert_eq!(GpuFloat::powi(x, 3), x.powi(3));
        assert_eq!(GpuFloat::sin_cos(x), x.sin_cos());
        assert_eq!(GpuFloat::log2(x.abs() + 1.0), (x.abs() + 1.0).log2());
        assert_eq!(GpuFloat::hypot(x, 2.0), x.hypot(2.0));
    }
}
