//! Overlaps copies with computation. Many arrays are copied to the device, processed, and copied back, with three
//! assignments of the work to streams. The example prints the time of each next to the ideal time, which is the time of
//! the slowest of the three stages.
//!
//! `cargo run --release --example overlap -- [DEVICE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the best
//! available device. The launches on an array together take as long as a copy. Times on the emulated device do not
//! represent a GPU.

use std::error::Error;
use std::time::Instant;

use warpsmith::transfer::Pending;
use warpsmith::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Event, PinnedBuffer, Stream, ops};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Number of slots, which is the number of arrays whose stages can be in flight at the same time.
const DEPTH: usize = 4;
/// Number of runs. Only the fastest counts.
const RUNS: usize = 3;

/// Name of each assignment, with its number of streams.
const ORDERS: [(&str, usize); 3] = [("in order", 1), ("a stream per item", DEPTH), ("a stream per stage", 3)];

fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let (items, len) = if device.is_emulated() { (6, 1 << 14) } else { (64, 1 << 24) };
    println!("{items} arrays of {:.2} MiB on {}", (len * 4) as f64 / f64::from(1 << 20), device.name());

    let mut arrays = Arrays::new(&device, len)?;
    let launches = arrays.launches()?;
    let alone = arrays.alone(items, launches)?;
    let ideal = alone.iter().copied().fold(0.0, f64::max);
    let [copy_in, compute, copy_out] = alone;
    println!(
        "alone: copy in {copy_in:.2} ms, compute {compute:.2} ms ({launches} launches an array), copy out {copy_out:.2} ms"
    );

    let both_ways = arrays.fastest(&streams(&device, 3)?, items, 0)?;
    println!("copies in and out at the same time, without work: {both_ways:.2} ms");
    let possible = both_ways.max(compute);

    println!(
        "\n{:<20}{:>10}{:>16}{:>12}{:>15}",
        "order", "time ms", "GB/s each way", "of ideal", "of possible"
    );
    for (name, count) in ORDERS {
        let best = arrays.fastest(&streams(&device, count)?, items, launches)?;
        let rate = (items * len * 4) as f64 / best / 1e6;
        let [of_ideal, of_possible] = [ideal, possible].map(|minimum| 100.0 * minimum / best);
        println!("{name:<20}{best:>10.2}{rate:>16.2}{of_ideal:>10.1} %{of_possible:>13.1} %");
    }
    println!(
        "\nideal {ideal:.2} ms: the slowest stage alone; possible {possible:.2} ms: the work alone, or the copies of"
    );
    println!("both directions at the same time, which slow each other down; every result was checked");
    Ok(())
}

fn streams(device: &Device, count: usize) -> Result<Vec<Stream>> {
    (0..count).map(|_| Ok(Stream::new(device)?)).collect()
}

/// Computes `output = launches / 2 * input` in n launches.
fn compute(
    stream: &Stream,
    launches: usize,
    input: DeviceSlice<'_, f32>,
    mut output: DeviceSliceMut<'_, f32>,
) -> Result<()> {
    if launches > 0 {
        stream.memset(output.reborrow(), 0)?;
    }
    for _ in 0..launches {
        ops::axpy(stream, input, 0.5, output.reborrow())?;
    }
    Ok(())
}

/// Returns the result of `work`, with its time on the stream in milliseconds.
fn timed<R>(stream: &Stream, work: impl FnOnce() -> Result<R>) -> Result<(R, f64)> {
    let start = stream.record_timed_event()?;
    let done = work()?;
    let end = stream.record_timed_event()?;
    end.synchronize()?;
    Ok((done, end.elapsed_us(&start)? / 1e3))
}

/// Page-locked arrays that are copied repeatedly, with the buffers for their processing.
struct Arrays {
    device: Device,
    len: usize,
    /// Inputs that are not owned by a copy in flight.
    inputs: Vec<PinnedBuffer<f32>>,
    /// Slots. Item `i` uses slot `i % DEPTH`.
    slots: Vec<Slot>,
}

/// Device buffers of one item, with its copies.
struct Slot {
    input: DeviceBuffer<f32>,
    output: DeviceBuffer<f32>,
    /// Event that is recorded after the compute stage of the slot's last item.
    computed: Event,
    /// Copies to and from the device of the slot's last item.
    copies: Option<[Pending<PinnedBuffer<f32>>; 2]>,
    /// Target of the copy from the device, while no copy owns it.
    result: Option<PinnedBuffer<f32>>,
}

impl Slot {
    /// Waits for the results of the slot's last item, and passes its input and its result to `look`.
    fn finish(
        &mut self,
        inputs: &mut Vec<PinnedBuffer<f32>>,
        look: impl Fn(&[f32], &[f32]) -> Result<()>,
    ) -> Result<()> {
        if let Some([copy_in, copy_out]) = self.copies.take() {
            let (input, result) = (copy_in.wait()?, copy_out.wait()?);
            look(&input, &result)?;
            inputs.push(input);
            self.result = Some(result);
        }
        Ok(())
    }
}

impl Arrays {
    fn new(device: &Device, len: usize) -> Result<Self> {
        let input = |seed: usize| {
            let mut array = PinnedBuffer::zeroed(device, len)?;
            // These are small whole numbers, so that every sum of halves of them is exact.
            array.iter_mut().enumerate().for_each(|(i, x)| *x = ((i + 7 * seed) % 1000) as f32);
            Ok(array)
        };
        let slot = |_| {
            Ok(Slot {
                input: DeviceBuffer::zeros(&device.default_stream(), len)?,
                output: DeviceBuffer::zeros(&device.default_stream(), len)?,
                computed: Event::new(device)?,
                copies: None,
                result: Some(PinnedBuffer::zeroed(device, len)?),
            })
        };
        // There is one more input than there are slots, because an item's copy to the device is enqueued before the
        // results of item `i - DEPTH` are awaited.
        let inputs = (0..=DEPTH).map(input).collect::<Result<_>>()?;
        Ok(Self { device: device.clone(), len, inputs, slots: (0..DEPTH).map(slot).collect::<Result<_>>()? })
    }

    fn input(&mut self) -> PinnedBuffer<f32> {
        self.inputs.pop().expect("at most DEPTH inputs are in copies when one is taken")
    }

    /// Returns how often the kernel must run to take about as long as a copy.
    fn launches(&mut self) -> Result<usize> {
        // The first run of each stage also loads the kernel and allocates memory, so it is not timed.
        self.alone(1, 1)?;
        let [copy_in, compute, copy_out] = self.alone(1, 8)?;
        let launches = copy_in.max(copy_out) / (compute / 8.0).max(1e-3);
        Ok((launches.round() as usize).clamp(1, 1000))
    }

    /// Returns the time, in milliseconds, that each of the three stages takes alone for n arrays: the copies to the
    /// device, the computation, and the copies back.
    fn alone(&mut self, items: usize, launches: usize) -> Result<[f64; 3]> {
        let stream = Stream::new(&self.device)?;
        let mut input = DeviceBuffer::<f32>::zeros(&stream, self.len)?;
        let mut output = DeviceBuffer::<f32>::zeros(&stream, self.len)?;
        let mut host = PinnedBuffer::zeroed(&self.device, self.len)?;
        let mut sums = [0.0; 3];
        for _ in 0..items {
            let array = self.input();
            let (copy, copy_in) = timed(&stream, || Ok(stream.copy_from_host_async(array, &mut input)?))?;
            self.inputs.push(copy.wait()?);
            let ((), computing) =
                timed(&stream, || compute(&stream, launches, input.as_slice(), output.as_mut_slice()))?;
            let (copy, copy_out) = timed(&stream, || Ok(stream.copy_to_host_async(&output, host)?))?;
            host = copy.wait()?;
            sums.iter_mut().zip([copy_in, computing, copy_out]).for_each(|(sum, time)| *sum += time);
        }
        Ok(sums)
    }

    /// Processes n arrays in three stages: copy to the device, compute, and copy back. `look` receives each input with
    /// its result, in order.
    ///
    /// Buffers order their uses automatically. The explicit waits here name exactly the work that must come first, so
    /// that a copy does not wait for work that was enqueued later. Between stages on the same stream, these waits cost
    /// nothing.
    fn pass(
        &mut self,
        streams: &[Stream],
        items: usize,
        launches: usize,
        look: impl Fn(&[f32], &[f32]) -> Result<()>,
    ) -> Result<()> {
        for item in 0..items {
            let [copy_in, computing, copy_out] = match streams {
                [copy_in, computing, copy_out] => [copy_in, computing, copy_out],
                streams => [&streams[item % streams.len()]; 3],
            };
            let input = self.input();
            let slot = &mut self.slots[item % DEPTH];

            // The copy to the device waits until the compute stage of item - DEPTH, whose input was in this buffer, is
            // complete.
            copy_in.wait_event(&slot.computed)?;
            let copied_in = copy_in.copy_from_host_async(input, &mut slot.input)?;

            // The compute stage waits until the input has arrived, and the result of item - DEPTH has been copied from
            // this buffer.
            copied_in.make_wait(computing)?;
            if let Some([_, copied_out]) = &slot.copies {
                copied_out.make_wait(computing)?;
            }
            compute(computing, launches, slot.input.as_slice(), slot.output.as_mut_slice())?;
            slot.computed.record(computing)?;

            // Before the copy back, the host waits for item - DEPTH, while the device works on later items.
            slot.finish(&mut self.inputs, &look)?;
            let result = slot.result.take().expect("the slot's last item is finished");
            copy_out.wait_event(&slot.computed)?;
            slot.copies = Some([copied_in, copy_out.copy_to_host_async(&slot.output, result)?]);
        }
        for item in items..items + DEPTH {
            self.slots[item % DEPTH].finish(&mut self.inputs, &look)?;
        }
        Ok(())
    }

    /// Returns the time of the fastest of several passes in milliseconds. A first pass checks the results.
    fn fastest(&mut self, streams: &[Stream], items: usize, launches: usize) -> Result<f64> {
        let factor = launches as f32 / 2.0;
        self.pass(streams, items, launches, |input, output| {
            match input.iter().zip(output).position(|(x, y)| launches > 0 && *y != factor * *x) {
                None => Ok(()),
                Some(i) => Err(format!("element {i} is {}, not {}", output[i], factor * input[i]).into()),
            }
        })?;
        let mut best = f64::INFINITY;
        for _ in 0..RUNS {
            let clock = Instant::now();
            self.pass(streams, items, launches, |_, _| Ok(()))?;
            best = best.min(clock.elapsed().as_secs_f64() * 1e3);
        }
        Ok(best)
    }
}
