//! Batch normalisation: sums in `f64`, each result rounded once.

use super::super::call::{Place, elements, elements_mut};
use super::super::element::{Float, sealed::Element};
use super::super::norm::BatchNorm;
use super::super::tensor::Shape;

/// # Safety
/// The places are of x, scale, bias, y, and the mean and inverse deviation of the batch; then of the running mean and
/// variance. The last are used by nobody else meanwhile, from y on.
pub unsafe fn training<T: Float>(
    norm: &BatchNorm,
    shape: &Shape,
    [x, scale, bias, y, mean, deviation]: [Place; 6],
    running: Option<[Place; 2]>,
) {
    // SAFETY: the caller's promise.
    let (x, scale, bias, y) = unsafe {
        (
            elements::<T>(x.address, x.len),
            elements::<T::Real>(scale.address, scale.len),
            elements::<T::Real>(bias.address, bias.len),
            elements_mut::<T>(y.address, y.len),
        )
    };
    // SAFETY: the caller's promise.
    let values = |place: Place| unsafe { elements_mut::<T::Real>(place.address, place.len) };
    let (saved_mean, saved_deviation) = (values(mean), values(deviation));
    let mut running = running.map(|[mean, variance]| (values(mean), values(variance)));
    for channel in 0..shape.dims[1] {
        let indices = indices(shape, channel);
        let count = indices.len() as f64;
        let mean = indices.iter().map(|at| x[*at].wide()).sum::<f64>() / count;
        let squares = indices.iter().map(|at| (x[*at].wide() - mean).powi(2)).sum::<f64>();
        let inverse = (squares / count + norm.epsilon).sqrt().recip();
        for &at in &indices {
            let value = (x[at].wide() - mean) * inverse;
            y[at] = T::narrow(value * scale[channel].wide() + bias[channel].wide());
        }
        saved_mean[channel] = T::Real::narrow(mean);
        saved_deviation[channel] = T::Real::narrow(inverse);
        if let Some((running_mean, running_variance)) = &mut running {
            let mix = |old: &mut T::Real, new: f64| {
                *old = T::Real::narrow((1.0 - norm.momentum) * old.wide() + norm.momentum * new);
            };
            mix(&mut running_mean[channel], mean);
            mix(&mut running_variance[channel], squares / (count - 1.0));
        }
    }
}

/// # Safety
/// The places are of x, scale, bias, mean, variance and y; the last is used by nobody else meanwhile.
pub unsafe fn inference<T: Float>(
    norm: &BatchNorm,
    shape: &Shape,
    [x, scale, bias, mean, variance, y]: [Place; 6],
) {
    // SAFETY: the caller's promise.
    let (x, y) = unsafe { (elements::<T>(x.address, x.len), elements_mut::<T>(y.address, y.len)) };
    // SAFETY: the caller's promise.
    let values = |place: Place| unsafe { elements::<T::Real>(place.address, place.len) };
    let [scale, bias, mean, variance] = [scale, bias, mean, variance].map(values);
    for channel in 0..shape.dims[1] {
        let inverse = (variance[channel].wide() + norm.epsilon).sqrt().recip();
        for at in indices(shape, channel) {
            let value = (x[at].wide() - mean[channel].wide()) * inverse;
            y[at] = T::narrow(value * scale[channel].wide() + bias[channel].wide());
        }
    }
}

/// # Safety
/// The places are of x, dy, scale, the mean and inverse deviation of the batch, dx, dscale and dbias; the last three are used
/// by nobody else meanwhile.
pub unsafe fn backward<T: Float>(
    shape: &Shape,
    [x, dy, scale, mean, deviation, dx, dscale, dbias]: [Place; 8],
) {
    // SAFETY: the caller's promise.
    let (x, dy, dx) = unsafe {
        let (x, dy) = (elements::<T>(x.address, x.len), elements::<T>(dy.address, dy.len));
        (x, dy, elements_mut::<T>(dx.address, dx.len))
    };
    // SAFETY: the caller's promise.
    let values = |place: Place| unsafe { elements::<T::Real>(place.address, place.len) };
    let [scale, mean, deviation] = [scale, mean, deviation].map(values);
    // SAFETY: the caller's promise.
    let values = |place: Place| unsafe { elements_mut::<T::Real>(place.address, place.len) };
    let (dscale, dbias) = (values(dscale), values(dbias));
    for channel in 0..shape.dims[1] {
        let (mean, inverse) = (mean[channel].wide(), deviation[channel].wide());
        let indices = indices(shape, channel);
        let count = indices.len() as f64;
        let normal = |at: usize| (x[at].wide() - mean) * inverse;
        let sum: f64 = indices.iter().map(|at| dy[*at].wide()).sum();
        let product: f64 = indices.iter().map(|at| dy[*at].wide() * normal(*at)).sum();
        for &at in &indices {
            let rest = dy[at].wide() - sum / count - normal(at) * product / count;
            dx[at] = T::narrow(scale[channel].wide() * inverse * rest);
        }
        dscale[channel] = T::Real::narrow(product);
        dbias[channel] = T::Real::narrow(sum);
    }
}

/// The indices of a channel's elements.
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
