//! Compares the custom operation and its gradients with candle's built-in operations, on the emulated device.

use candle_core::{DType, Device as Theirs, Result, Shape, Tensor, Var};
use neighbors::swiglu::swiglu;
use warpsmith::{Device, Stream};

fn stream() -> Stream {
    Stream::new(&Device::emulated(0).unwrap()).unwrap()
}

fn random(shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::randn(0.0f32, 3.0, shape, &Theirs::Cpu)
}

fn assert_close(found: &Tensor, expected: &Tensor) -> Result<()> {
    assert_eq!(found.dims(), expected.dims());
    let [found, expected] = [found, expected].map(|tensor| tensor.flatten_all()?.to_vec1::<f32>());
    for (found, expected) in found?.iter().zip(expected?) {
        assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{found} is not {expected}");
    }
    Ok(())
}

#[test]
fn result_and_gradients_equal_those_of_candle() -> Result<()> {
    let stream = stream();
    for shape in [(1, 1), (31, 1), (4, 8), (1, 33), (17, 241)] {
        let (gate, up, weight) =
            (Var::from_tensor(&random(shape)?)?, Var::from_tensor(&random(shape)?)?, random(shape)?);
        let found = swiglu(&stream, &gate, &up)?;
        let expected = (gate.silu()? * up.as_tensor())?;
        assert_close(&found, &expected)?;

        let gradients = |out: Tensor| (out * &weight)?.sum_all()?.backward();
        let (found, expected) = (gradients(found)?, gradients(expected)?);
        for input in [&gate, &up] {
            assert_close(found.get(input).unwrap(), expected.get(input).unwrap())?;
        }
    }
    Ok(())
}

#[test]
fn a_broadcast_gradient_and_one_tensor_twice_are_accepted() -> Result<()> {
    let x = Var::from_tensor(&random((5, 7))?)?;
    // The gradient of the mean has stride 0.
    let found = swiglu(&stream(), &x, &x)?.mean_all()?.backward()?;
    let expected = (x.silu()? * x.as_tensor())?.mean_all()?.backward()?;
    assert_close(found.get(&x).unwrap(), expected.get(&x).unwrap())
}

#[test]
fn contiguous_views_are_accepted_and_others_refused() -> Result<()> {
    let (stream, x) = (stream(), random((6, 4))?);
    let (middle, rest) = (x.narrow(0, 1, 3)?, x.narrow(0, 3, 3)?);
    assert_close(&swiglu(&stream, &middle, &rest)?, &(middle.silu()? * &rest)?)?;

    let empty = x.narrow(0, 6, 0)?;
    assert_eq!(swiglu(&stream, &empty, &empty)?.dims(), [0, 4]);

    let refused = |gate: &Tensor, up: &Tensor, reason: &str| {
        let error = swiglu(&stream, gate, up).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    };
    refused(&x.t()?, &x.t()?, "call `contiguous`");
    refused(&x, &middle, "tensors of one shape");
    refused(&x, &x.to_dtype(DType::F64)?, "dtype");
    Ok(())
}

#[test]
fn threads_use_one_tensor_at_once() -> Result<()> {
    let x = random(1000)?;
    let expected = (x.silu()? * &x)?;
    let stream = stream();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_close(&swiglu(&stream, &x, &x).unwrap(), &expected).unwrap();
                }
            });
        }
    });
    Ok(())
}
