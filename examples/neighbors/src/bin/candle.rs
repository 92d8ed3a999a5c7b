//! Trains the weights of a gated linear unit with candle and with [`swiglu`] as the activation, on the emulated device.
//! In each step, the loss must be the same as with candle's built-in operations.

use std::error::Error;

use candle_core::{Device as Theirs, Tensor, Var};
use neighbors::swiglu::swiglu;
use warpsmith::{Device, Stream};

fn main() -> Result<(), Box<dyn Error>> {
    let stream = Stream::new(&Device::emulated(0)?)?;
    let random = |rows: usize, columns: usize| Tensor::randn(0.0f32, 1.0, (rows, columns), &Theirs::Cpu);
    let (x, gate, up) = (random(64, 8)?, random(8, 16)?, random(8, 16)?);
    let expected = (x.matmul(&gate)?.silu()? * x.matmul(&up)?)?;

    let (gate, up) = ((gate + (random(8, 16)? * 0.1)?)?, (up + (random(8, 16)? * 0.1)?)?);
    let ours = [Var::from_tensor(&gate)?, Var::from_tensor(&up)?];
    let theirs = [Var::from_tensor(&gate.copy()?)?, Var::from_tensor(&up.copy()?)?];
    let mut losses = Vec::new();
    for step in 0..50 {
        let loss = |weights: &[Var; 2], is_ours: bool| {
            let (gate, up) = (x.matmul(&weights[0])?, x.matmul(&weights[1])?);
            let found = if is_ours { swiglu(&stream, &gate, &up)? } else { (gate.silu()? * up)? };
            let loss = (found - &expected)?.sqr()?.mean_all()?;
            let gradients = loss.backward()?;
            for weight in weights {
                let gradient = gradients.get(weight).ok_or("a weight has no gradient")?;
                weight.set(&(weight.as_tensor() - (gradient * 0.2)?)?)?;
            }
            Ok::<f32, Box<dyn Error>>(loss.to_scalar()?)
        };
        let (found, reference) = (loss(&ours, true)?, loss(&theirs, false)?);
        if (found - reference).abs() > 1e-3 * reference {
            return Err(format!("step {step}: the loss is {found}, and {reference} with candle alone").into());
        }
        losses.push(found);
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    if last > 0.5 * first {
        return Err(format!("the loss was {first} and is {last}").into());
    }
    println!("the loss fell from {first:.4} to {last:.4}, as with candle's own operations");
    Ok(())
}
