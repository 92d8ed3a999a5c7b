//! Copies that overlap with the work: many arrays are copied to the device, computed with, and copied back, in three
//! orders. Prints what each takes beside the ideal, which is the slowest of the three stages.
//!
//! `cargo run --release --example overlap -- [DEVICE]`, the device being `cpu`, `cuda:0`, …, by default the best there is.
//! The launches on an array together take as long as a copy. On the emulated device the times say nothing about a
//! GPU.

use std::cell::RefCell;
use std::time::Instant;

use warpsmith::transfer::pipeline::{Failure, Pipeline, Strategy};
use warpsmith::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, PinnedBuffer, Stream, ops};

/// Arrays on their way at the same time.
const DEPTH: usize = 4;
/// The fastest of these runs counts.
const RUNS: usize = 3;

const ORDERS: [(&str, Strategy); 3] = [
    ("in order", Strategy::InOrder),
    ("a stream per item", Strategy::StreamPerItem),
    ("a stream per stage", Strategy::StreamPerStage),
];

fn main() -> Result<(), Failure> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let (items, len) = if device.is_emulated() { (6, 1 << 14) } else { (64, 1 << 24) };
    println!("{items} arrays of {:.2} MiB on {}", (len * 4) as f64 / f64::from(1 << 20), device.name());

    let arrays = Arrays::new(&device, len)?;
    let launches = arrays.launches()?;
    let alone = arrays.alone(items, launches)?;
    let ideal = alone.iter().copied().fold(0.0, f64::max);
    let [copy_in, compute, copy_out] = alone;
    println!(
        "alone: copy in {copy_in:.2} ms, compute {compute:.2} ms ({launches} launches an array), copy out {copy_out:.2} ms"
    );

    let both_ways = arrays.both_ways(items)?;
    println!("copies in and out at the same time, without work: {both_ways:.2} ms");
    let possible = both_ways.max(compute);

    println!(
        "\n{:<20}{:>10}{:>16}{:>12}{:>15}",
        "order", "time ms", "GB/s each way", "of ideal", "of possible"
    );
    for (name, strategy) in ORDERS {
        let mut pipeline = Pipeline::new(&device, strategy, DEPTH)?;
        arrays.check(&mut pipeline, items, launches)?;
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let clock = Instant::now();
            arrays.pass(&mut pipeline, items, launches, |_, _| Ok(()))?;
            best = best.min(clock.elapsed().as_secs_f64() * 1e3);
        }
        let rate = (items * len * 4) as f64 / best / 1e6;
        let [of_ideal, of_possible] = [ideal, possible].map(|least| 100.0 * least / best);
        println!("{name:<20}{best:>10.2}{rate:>16.2}{of_ideal:>10.1} %{of_possible:>13.1} %");
    }
    println!(
        "\nideal {ideal:.2} ms: the slowest stage alone; possible {possible:.2} ms: the work alone, or the copies of"
    );
    println!("both directions at the same time, which slow each other down; every result was checked");
    Ok(())
}

/// Page-locked arrays that go through pipelines again and again, and the work on them.
struct Arrays {
    device: Device,
    len: usize,
    /// Those that are on no way.
    spare: RefCell<Vec<PinnedBuffer<f32>>>,
}

/// `output = launches / 2 * input`, in n launches.
fn compute(
    stream: &Stream,
    launches: usize,
    input: DeviceSlice<'_, f32>,
    mut output: DeviceSliceMut<'_, f32>,
) -> Result<(), Failure> {
    output.memset(0)?;
    for _ in 0..launches {
        ops::axpy(stream, 0.5, input, output.reborrow())?;
    }
    Ok(())
}

/// The result of `work`, and its time on the stream in milliseconds.
fn timed<R>(stream: &Stream, work: impl FnOnce() -> Result<R, Failure>) -> Result<(R, f64), Failure> {
    let start = stream.record_timed_event()?;
    let done = work()?;
    let end = stream.record_timed_event()?;
    end.synchronize()?;
    Ok((done, end.elapsed_us(&start)? / 1e3))
}

impl Arrays {
    fn new(device: &Device, len: usize) -> Result<Self, Failure> {
        let array = |seed: usize| {
            let mut array = PinnedBuffer::zeroed(device, len)?;
            // Small whole numbers: every sum of halves of them is exact.
            array.iter_mut().enumerate().for_each(|(i, x)| *x = ((i + 7 * seed) % 1000) as f32);
            Ok::<_, Failure>(array)
        };
        let spare = (0..=DEPTH).map(array).collect::<Result<_, _>>()?;
        Ok(Self { device: device.clone(), len, spare: RefCell::new(spare) })
    }

    fn take(&self) -> Result<PinnedBuffer<f32>, Failure> {
        self.spare.borrow_mut().pop().ok_or_else(|| "more arrays are on their way than there are".into())
    }

    fn give(&self, array: PinnedBuffer<f32>) {
        self.spare.borrow_mut().push(array);
    }

    /// How often the kernel has to run to take about as long as a copy.
    fn launches(&self) -> Result<usize, Failure> {
        // The first of each also loads the kernel and makes memory.
        self.alone(1, 1)?;
        let [copy_in, compute, copy_out] = self.alone(1, 8)?;
        let launches = copy_in.max(copy_out) / (compute / 8.0).max(1e-3);
        Ok((launches.round() as usize).clamp(1, 1000))
    }

    /// How long the copies in, the computes and the copies out of n arrays take by themselves, in milliseconds.
    fn alone(&self, items: usize, launches: usize) -> Result<[f64; 3], Failure> {
        let stream = Stream::new(&self.device)?;
        let mut input = DeviceBuffer::<f32>::zeros(&stream, self.len)?;
        let mut output = DeviceBuffer::<f32>::zeros(&stream, self.len)?;
        let mut host = PinnedBuffer::zeroed(&self.device, self.len)?;
        let mut sums = [0.0; 3];
        for _ in 0..items {
            let array = self.take()?;
            let (copy, copy_in) = timed(&stream, || Ok(stream.copy_from_host(array, &mut input)?))?;
            self.give(copy.wait()?);
            let ((), computing) =
                timed(&stream, || compute(&stream, launches, input.as_slice(), output.as_mut_slice()))?;
            let (copy, copy_out) = timed(&stream, || Ok(stream.copy_to_host(&output, host)?))?;
            host = copy.wait()?;
            sums.iter_mut().zip([copy_in, computing, copy_out]).for_each(|(sum, time)| *sum += time);
        }
        Ok(sums)
    }

    /// How long the copies in and out take together, without work between them, in milliseconds.
    fn both_ways(&self, items: usize) -> Result<f64, Failure> {
        let mut pipeline = Pipeline::new(&self.device, Strategy::StreamPerStage, DEPTH)?;
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let clock = Instant::now();
            let take = |_, input: PinnedBuffer<f32>, _: &mut PinnedBuffer<f32>| {
                self.give(input);
                Ok(())
            };
            pipeline.run((0..items).map(|_| self.take()), |len| len, |_, _, _| Ok(()), take)?;
            best = best.min(clock.elapsed().as_secs_f64() * 1e3);
        }
        Ok(best)
    }

    /// Takes n arrays through the pipeline; `look` sees each input beside its result.
    fn pass(
        &self,
        pipeline: &mut Pipeline,
        items: usize,
        launches: usize,
        look: impl Fn(&[f32], &[f32]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let take = |_, input: PinnedBuffer<f32>, output: &mut PinnedBuffer<f32>| {
            look(&input, output)?;
            self.give(input);
            Ok(())
        };
        pipeline.run(
            (0..items).map(|_| self.take()),
            |len| len,
            |stream, input, output| compute(stream, launches, input, output),
            take,
        )?;
        Ok(())
    }

    /// As [`Self::pass`], and fails if any element of any result is wrong.
    fn check(&self, pipeline: &mut Pipeline, items: usize, launches: usize) -> Result<(), Failure> {
        let factor = launches as f32 / 2.0;
        self.pass(pipeline, items, launches, |input, output| {
            match input.iter().zip(output).position(|(x, y)| *y != factor * *x) {
                None => Ok(()),
                Some(i) => Err(format!("element {i} is {}, not {}", output[i], factor * input[i]).into()),
            }
        })
    }
}
