//! Batch normalization on the host. Sums are accumulated in `f64`, and each result is rounded once.

use super::super::call::Place;
use super::super::norm::BatchNorm;
use super::super::tensor::Shape;
use crate::element::FloatType;
use crate::element::LibraryType;

/// # Safety
/// `places` must contain the scale, the bias, the batch's mean and inverse deviation, the running mean and variance
/// (or nothing), x and y. Until the function returns, nothing else may access the third to sixth place or the last
/// one.
pub unsafe fn training<T: FloatType>(norm: &BatchNorm, shape: &Shape, places: [Place; 8]) {
    let [scale, bias, mean, deviation, running_mean, running_variance, x, y] = places;
    // SAFETY: guaranteed by the caller.
    let (scale, bias, x, y) =
        unsafe { (scale.read::<T::Real>(), bias.read::<T::Real>(), x.read::<T>(), y.write::<T>()) };
    // SAFETY: guaranteed by the caller.
    let [saved_mean, saved_deviation, running_mean, running_variance] =
        [mean, deviation, running_mean, running_variance].map(|place| unsafe { place.write::<T::Real>() });
    for channel in 0..shape.dims[1] {
        let indices = indices(shape, channel);
        let count = indices.len() as f64;
        let mean = indices.iter().map(|at| x[*at].to_f64()).sum::<f64>() / count;
        let squares = indices.iter().map(|at| (x[*at].to_f64() - mean).powi(2)).sum::<f64>();
        let inverse = (squares / count + norm.epsilon).sqrt().recip();
        for &at in &indices {
            let value = (x[at].to_f64() - mean) * inverse;
            y[at] = T::from_f64(value * scale[channel].to_f64() + bias[channel].to_f64());
        }
        saved_mean[channel] = T::Real::from_f64(mean);
        saved_deviation[channel] = T::Real::from_f64(inverse);
        let mix = |old: &mut T::Real, new: f64| {
            *old = T::Real::from_f64((1.0 - norm.momentum) * old.to_f64() + norm.momentum * new);
        };
        running_mean.get_mut(channel).into_iter().for_each(|old| mix(old, mean));
        running_variance.get_mut(channel).into_iter().for_each(|old| mix(old, squares / (count - 1.0)));
    }
}

/// # Safety
/// `places` must contain the scale, bias, mean, variance, x and y, and nothing else may access y during the call.
pub unsafe fn inference<T: FloatType>(norm: &BatchNorm, shape: &Shape, places: [Place; 6]) {
    let [scale, bias, mean, variance, x, y] = places;
    // SAFETY: guaranteed by the caller.
    let (x, y) = unsafe { (x.read::<T>(), y.write::<T>()) };
    // SAFETY: guaranteed by the caller.
    let [scale, bias, mean, variance] =
        [scale, bias, mean, variance].map(|place| unsafe { place.read::<T::Real>() });
    for channel in 0..shape.dims[1] {
        let inverse = (variance[channel].to_f64() + norm.epsilon).sqrt().recip();
        for at in indices(shape, channel) {
            let value = (x[at].to_f64() - mean[channel].to_f64()) * inverse;
            y[at] = T::from_f64(value * scale[channel].to_f64() + bias[channel].to_f64());
        }
    }
}

/// # Safety
/// `places` must contain the scale, the batch's mean and inverse deviation, dscale, dbias, x, dy and dx. Until the
/// function returns, nothing else may access dscale, dbias and dx.
pub unsafe fn backward<T: FloatType>(shape: &Shape, places: [Place; 8]) {
    let [scale, mean, deviation, dscale, dbias, x, dy, dx] = places;
    // SAFETY: guaranteed by the caller.
    let (x, dy, dx) = unsafe { (x.read::<T>(), dy.read::<T>(), dx.write::<T>()) };
    // SAFETY: guaranteed by the caller.
    let [scale, mean, deviation] = [scale, mean, deviation].map(|place| unsafe { place.read::<T::Real>() });
    // SAFETY: guaranteed by the caller.
    let [dscale, dbias] = [dscale, dbias].map(|place| unsafe { place.write::<T::Real>() });
    for channel in 0..shape.dims[1] {
        let (mean, inverse) = (mean[channel].to_f64(), deviation[channel].to_f64());
        let indices = indices(shape, channel);
        let count = indices.len() as f64;
        let normal = |at: usize| (x[at].to_f64() - mean) * inverse;
        let sum: f64 = indices.iter().map(|at| dy[*at].to_f64()).sum();
        let product: f64 = indices.iter().map(|at| dy[*at].to_f64() * normal(*at)).sum();
        for &at in &indices {
            let rest = dy[at].to_f64() - sum / count - normal(at) * product / count;
            dx[at] = T::from_f64(scale[channel].to_f64() * inverse * rest);
        }
        dscale[channel] = T::Real::from_f64(product);
        dbias[channel] = T::Real::from_f64(sum);
    }
}

/// Returns the indices of a channel's elements.
fn indices(shape: &Shape, channel: usize) -> Vec<usize> {
    let (strides, [batch, _, depth, height, width]) = (shape.strides(), shape.dims);
    let each = (0..batch * depth * height * width).map(|index| {
        let (rest, w) = (index / width, index % width);
        let (rest, h) = (rest / height, rest % height);
        let (n, d) = (rest / depth, rest % depth);
        n * strides[0] + channel * strides[1] + d * strides[2] + h * strides[3] + w * strides[4]
    });
    each.collect()
}
