//! [`Engine`]: continuous batching. Each step decodes one token of every running sequence, and processes a chunk of a
//! new sequence's prompt.

use std::collections::VecDeque;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use llm_kernels::advance;
use warpsmith::Pending;
use warpsmith::collective::{BackendChoice, Communicator, CommunicatorOptions};
use warpsmith::graph::GraphCache;
use warpsmith::ops::{self, Sampling};
use warpsmith::prelude::*;
use warpsmith::random::Generator;

use crate::KERNELS;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::linear::WeightFormat;
use crate::model::{Memory, Model, PAGE, Pass};
use crate::weights::Folder;

/// Number of graphs to keep.
const GRAPHS: usize = 64;

/// Limits of an engine.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest number of sequences per step.
    pub sequences: usize,
    /// Largest number of prompt tokens per step.
    pub chunk: usize,
    /// Pages of the cache. `None` uses nine tenths of the free memory, but at most what all sequences can need.
    pub pages: Option<usize>,
}

/// A text to continue.
#[derive(Debug, Clone)]
pub struct Request {
    pub prompt: Vec<u32>,
    /// Largest number of new tokens.
    pub max_tokens: usize,
    pub sampling: Sampling,
    /// Continues the text after an end token.
    pub ignores_end: bool,
}

/// Progress of a sequence in a step.
#[derive(Debug)]
pub struct Output {
    pub id: u64,
    /// The new token, unless an error ended the sequence.
    pub token: Option<u32>,
    pub finish: Option<Finish>,
}

/// Reason why a sequence ended.
#[derive(Debug)]
pub enum Finish {
    /// The model produced an end token.
    End,
    /// The largest number of tokens is reached.
    Length,
    Failed(Error),
}

struct Sequence {
    id: u64,
    /// Prompt and new tokens.
    tokens: Vec<u32>,
    /// Number of tokens at which the sequence ends.
    limit: usize,
    sampling: Sampling,
    ignores_end: bool,
    pages: Vec<u32>,
    /// Number of prompt tokens whose keys and values are in the cache.
    cached: usize,
    has_ended: bool,
}

/// Identifies a graph: number of sequences, of pages per sequence, and text of the sampling options and the number of
/// sequences with each.
type Key = (usize, usize, String);

/// A call of an engine, which the engines of all ranks must receive in the same order.
type Call = Box<dyn FnOnce(&mut Engine) -> Result<()> + Send>;

/// Decodes many sequences at once.
pub struct Engine {
    /// Calls of the engines of the other ranks, which do the same as this one.
    others: Vec<Sender<Call>>,
    pub model: Model,
    pub stream: Stream,
    limits: Limits,
    memory: Memory,
    /// Pages of the cache that no sequence uses.
    free: Vec<u32>,
    /// Inputs of a decoding step in device memory, which the previous step writes. Row i belongs to the i-th sequence.
    tokens: DeviceBuffer<u32>,
    lengths: DeviceBuffer<u32>,
    table: DeviceBuffer<u32>,
    sampled: DeviceBuffer<u64>,
    generator: Generator,
    graphs: GraphCache<Key>,
    /// Sequences that wait for their prompt to be processed. Only the first one has pages, while it is processed.
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    /// Tokens of steps that are enqueued.
    in_flight: VecDeque<Pending<PinnedBuffer<u64>>>,
    /// The sequences have changed since the state was written.
    is_changed: bool,
    next_id: u64,
    /// Engines of the other ranks. They end when this engine's channels and communicator are dropped.
    _threads: Vec<Ended>,
}

/// A thread that ends before this value is dropped.
struct Ended(Option<JoinHandle<()>>);

impl Drop for Ended {
    fn drop(&mut self) {
        // A panic of the thread has been printed.
        self.0.take().map(JoinHandle::join);
    }
}

impl Engine {
    /// Allocates the cache and everything else that the steps need.
    pub fn new(stream: &Stream, mut model: Model, limits: Limits) -> Result<Self> {
        let (device, sequences) = (stream.device(), limits.sequences);
        let memory = model.memory(stream, limits.chunk.max(sequences), sequences, limits.pages)?;
        Ok(Self {
            others: Vec::new(),
            free: (0..memory.pages as u32).rev().collect(),
            memory,
            tokens: DeviceBuffer::zeros(stream, sequences)?,
            lengths: DeviceBuffer::zeros(stream, sequences)?,
            table: DeviceBuffer::zeros(stream, sequences * model.pages())?,
            sampled: DeviceBuffer::zeros(stream, sequences)?,
            generator: Generator::new(device),
            graphs: GraphCache::new(device, GRAPHS),
            waiting: VecDeque::new(),
            running: Vec::new(),
            in_flight: VecDeque::new(),
            is_changed: false,
            next_id: 0,
            _threads: Vec::new(),
            stream: stream.clone(),
            model,
            limits,
        })
    }

    /// Loads a model for each stream's device. Several devices divide its matrices and heads (tensor parallelism). Each
    /// has an engine on a thread, which makes the same steps, because all compute the same logits.
    pub fn load(
        streams: &[Stream],
        config: &Config,
        context: usize,
        format: WeightFormat,
        folder: Option<&Folder>,
        limits: Limits,
    ) -> Result<Self> {
        let load = |stream: &Stream, ranks| {
            let model = Model::load(stream, config.clone(), context, format, folder, ranks)?;
            Self::new(stream, model, limits)
        };
        if let [stream] = streams {
            return load(stream, None);
        }
        let options = CommunicatorOptions::new().backend(BackendChoice::Peer);
        let ranks = Communicator::init_all(streams, &options)?;
        let engines: Result<Vec<_>> = thread::scope(|scope| {
            let pairs = streams.iter().zip(ranks);
            let threads: Vec<_> =
                pairs.map(|(stream, ranks)| scope.spawn(move || load(stream, Some(ranks)))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        let mut engines = engines?;
        let mut first = engines.remove(0);
        for mut engine in engines {
            let (sender, calls) = channel();
            first.others.push(sender);
            // After an error, the rank leaves the communicator, and the first rank fails.
            let run = move || drop(calls.into_iter().try_for_each(|call: Call| call(&mut engine)));
            first._threads.push(Ended(Some(thread::spawn(run))));
        }
        Ok(first)
    }

    /// Makes the engines of the other ranks do the same.
    fn tell(&self, call: impl FnOnce(&mut Self) -> Result<()> + Clone + Send + 'static) {
        self.others.iter().for_each(|other| drop(other.send(Box::new(call.clone()))));
    }

    /// Sets the seed of the sampling.
    pub fn seed(&self, seed: u64) -> Result<()> {
        self.tell(move |other| other.seed(seed));
        Ok(self.generator.manual_seed(seed)?)
    }

    /// Adds a request and returns the number that identifies its sequence.
    pub fn submit(&mut self, request: Request) -> Result<u64> {
        let (prompt, capacity) = (request.prompt.len(), self.model.context.min(self.memory.pages * PAGE));
        let vocabulary = self.model.config.vocabulary;
        if prompt == 0 {
            return Err(Error::EmptyPrompt);
        }
        if prompt >= capacity {
            return Err(Error::PromptTooLong { prompt, capacity });
        }
        if let Some(&token) = request.prompt.iter().find(|token| **token as usize >= vocabulary) {
            return Err(Error::UnknownToken { token, vocabulary });
        }
        let copy = request.clone();
        self.tell(move |other| other.submit(copy).map(drop));
        let Request { prompt: tokens, max_tokens, sampling, ignores_end } = request;
        let id = self.next_id;
        self.next_id += 1;
        let limit = capacity.min(prompt.saturating_add(max_tokens.max(1)));
        let new = Sequence {
            id,
            tokens,
            limit,
            sampling,
            ignores_end,
            pages: Vec::new(),
            cached: 0,
            has_ended: false,
        };
        self.waiting.push_back(new);
        Ok(id)
    }

    /// Number of sequences that have not ended.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of sequences whose prompt has been processed.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Number of tokens of all running sequences.
    pub fn cached_tokens(&self) -> usize {
        self.running.iter().map(|sequence| sequence.tokens.len()).sum()
    }

    /// Number of free pages of the cache.
    pub fn free_pages(&self) -> usize {
        self.free.len()
    }

    /// Takes free pages, or none if there are too few.
    fn take_pages(&mut self, count: usize) -> Option<Vec<u32>> {
        let rest = self.free.len().checked_sub(count)?;
        Some(self.free.split_off(rest))
    }

    /// Ends a sequence and frees its pages. The tokens of the other sequences' steps are in the result.
    pub fn cancel(&mut self, id: u64) -> Result<Vec<Output>> {
        self.tell(move |other| other.cancel(id).map(drop));
        let mut outputs = Vec::new();
        if let Some(place) = self.waiting.iter().position(|sequence| sequence.id == id) {
            self.free.extend(self.waiting.remove(place).into_iter().flat_map(|sequence| sequence.pages));
        }
        if self.running.iter().any(|sequence| sequence.id == id) {
            self.drain(&mut outputs)?;
            if let Some(row) = self.running.iter().position(|sequence| sequence.id == id) {
                self.remove(row);
            }
        }
        outputs.retain(|output| output.id != id);
        Ok(outputs)
    }

    /// Advances the sequences: processes a chunk of one prompt, and decodes a token of each running sequence.
    pub fn step(&mut self) -> Result<Vec<Output>> {
        self.tell(|other| other.step().map(drop));
        let mut outputs = Vec::new();
        self.start(&mut outputs)?;
        self.grow(&mut outputs)?;
        if !self.running.is_empty() {
            self.enqueue()?;
        }
        // The device works on the next step while the host reads the tokens of this one, unless a sequence will end.
        let ahead = self.in_flight.len();
        let ends = self.running.iter().any(|sequence| sequence.tokens.len() + ahead >= sequence.limit);
        while self.in_flight.len() > usize::from(!ends) {
            self.read(&mut outputs)?;
        }
        if self.running.iter().any(|sequence| sequence.has_ended) {
            self.drain(&mut outputs)?;
        }
        Ok(outputs)
    }

    /// Processes a chunk of a prompt. After the last chunk, the sequence starts to run.
    fn start(&mut self, outputs: &mut Vec<Output>) -> Result<()> {
        let Some(mut sequence) = self.waiting.pop_front() else { return Ok(()) };
        if sequence.pages.is_empty() {
            let needed = sequence.tokens.len() / PAGE + 1;
            // A spare page lets the running sequences continue for some time.
            let spare = usize::from(!self.running.is_empty());
            if self.running.len() == self.limits.sequences || self.free.len() < needed + spare {
                self.waiting.push_front(sequence);
                return Ok(());
            }
            sequence.pages = self.take_pages(needed).unwrap_or_default();
        }
        let (start, len) = (sequence.cached, sequence.tokens.len());
        let end = len.min(start + self.limits.chunk);
        let part = (&sequence.tokens[start..end], end, &sequence.pages[..]);
        self.model.prefill(&self.stream, part, 1, &mut self.memory)?;
        sequence.cached = end;
        if end < len {
            self.waiting.push_front(sequence);
            return Ok(());
        }
        self.drain(outputs)?;
        let mut token = DeviceBuffer::uninit(&self.stream, 1)?;
        let logits = self.memory.logits.first(1)?;
        ops::sample(&self.stream, &self.generator, sequence.sampling, logits, &mut token)?;
        outputs.push(sequence.add(token.to_host()?[0], self.model.config.end_tokens()));
        if sequence.has_ended {
            self.free.extend(sequence.pages);
        } else {
            self.running.push(sequence);
            // Equal options become neighbors, so that one launch samples all their tokens.
            self.running.sort_by_cached_key(|sequence| format!("{:?}", sequence.sampling));
            self.is_changed = true;
        }
        Ok(())
    }

    /// Gives each running sequence the pages that the next step needs. If there are too few, sequences are evicted: the
    /// last ones wait until there are free pages again, and are then computed anew.
    fn grow(&mut self, outputs: &mut Vec<Output>) -> Result<()> {
        loop {
            let ahead = self.in_flight.len();
            let missing = self.running.iter().enumerate().find_map(|(row, sequence)| {
                let needed = (sequence.tokens.len() + ahead).div_ceil(PAGE);
                (needed > sequence.pages.len()).then(|| (row, needed - sequence.pages.len()))
            });
            let Some((row, missing)) = missing else { return Ok(()) };
            if let Some(pages) = self.take_pages(missing) {
                self.running[row].pages.extend(pages);
                if !self.is_changed {
                    let (start, pages) = (row * self.model.pages(), self.running[row].pages.clone());
                    let target = self.table.slice_mut(start..start + pages.len());
                    let copy = self.stream.copy_from_host_async(pages, target);
                    drop(copy.map_err(|failed| failed.error)?);
                }
            } else if ahead > 0 {
                // Sequences that end free their pages.
                self.drain(outputs)?;
            } else if let Some(sequence) = self.waiting.pop_front_if(|sequence| !sequence.pages.is_empty()) {
                self.evict(sequence);
            } else if self.running.len() > 1 {
                let newest = (0..self.running.len()).max_by_key(|row| self.running[*row].id).unwrap_or(0);
                let sequence = self.remove(newest);
                self.evict(sequence);
            } else {
                let id = self.remove(0).id;
                outputs.push(Output { id, token: None, finish: Some(Finish::Failed(Error::CacheFull)) });
            }
        }
    }

    /// Frees the pages of a sequence, which waits until there are free pages again.
    fn evict(&mut self, mut sequence: Sequence) {
        self.free.append(&mut sequence.pages);
        sequence.cached = 0;
        self.waiting.push_front(sequence);
    }

    /// Removes a running sequence and frees its pages. No step may be in flight.
    fn remove(&mut self, row: usize) -> Sequence {
        let mut sequence = self.running.remove(row);
        self.free.append(&mut sequence.pages);
        self.is_changed = true;
        sequence
    }

    /// Writes the state of the running sequences to the device. No step may be in flight.
    fn write_state(&mut self) -> Result<()> {
        let columns = self.model.pages();
        let [mut tokens, mut lengths] = [(); 2].map(|()| vec![0; self.limits.sequences]);
        let mut table = vec![0; self.limits.sequences * columns];
        for (row, sequence) in self.running.iter().enumerate() {
            lengths[row] = sequence.tokens.len() as u32;
            tokens[row] = sequence.tokens[sequence.tokens.len() - 1];
            table[row * columns..][..sequence.pages.len()].copy_from_slice(&sequence.pages);
        }
        self.tokens.copy_from_host(&tokens)?;
        self.lengths.copy_from_host(&lengths)?;
        self.table.copy_from_host(&table)?;
        self.is_changed = false;
        Ok(())
    }

    /// Enqueues a decoding step as one graph, and the copy of its tokens to the host.
    pub(crate) fn enqueue(&mut self) -> Result<()> {
        if self.is_changed {
            self.write_state()?;
        }
        let used = self.running.len();
        // Few different sizes, so that few graphs are captured.
        let rows = if used <= 16 { used.next_power_of_two() } else { used.next_multiple_of(16) };
        let rows = rows.min(self.limits.sequences);
        let pages = self.running.iter().map(|sequence| sequence.pages.len()).max().unwrap_or(1);
        let all_columns = self.model.pages();
        let columns = pages.next_power_of_two().max(4).min(all_columns);
        // Sequences with equal options are neighbors.
        let groups = self.running.chunk_by(|a, b| a.sampling == b.sampling);
        let groups: Vec<_> = groups.map(|group| (group[0].sampling, group.len())).collect();
        let key = (rows, columns, format!("{groups:?}"));
        let Self { stream, model, memory, generator, limits, .. } = self;
        let (tokens, lengths, sampled) = (&mut self.tokens, &mut self.lengths, &mut self.sampled);
        self.graphs.launch::<Error>(stream, key, &[], |stream| {
            let table = self.table.as_2d(limits.sequences, all_columns)?.part(..rows, ..columns);
            let pass =
                Pass { tokens: tokens.slice(..rows), lengths: lengths.slice(..rows), table, prompt: None };
            model.forward(stream, &pass, rows, memory)?;
            let (logits, mut start) = (memory.logits.first(rows)?, 0);
            for (sampling, count) in groups {
                let group = start..start + count;
                let out = sampled.slice_mut(group.clone());
                ops::sample(stream, generator, sampling, logits.part(group, ..), out)?;
                start += count;
            }
            let kernel = stream.device().load(&KERNELS)?.kernel::<advance>()?;
            let next = (sampled.slice(..rows), tokens.slice_mut(..rows), lengths.slice_mut(..rows));
            Ok(kernel.launch(stream, Launch::auto(rows), next)?)
        })?;
        let host = PinnedBuffer::zeroed(self.stream.device(), rows)?;
        let copy = self.stream.copy_to_host_async(self.sampled.slice(..rows), host);
        self.in_flight.push_back(copy.map_err(|failed| failed.error)?);
        Ok(())
    }

    /// Waits for the tokens of the oldest step in flight.
    fn read(&mut self, outputs: &mut Vec<Output>) -> Result<()> {
        let Some(pending) = self.in_flight.pop_front() else { return Ok(()) };
        let host = pending.wait().map_err(|failed| failed.error)?;
        for (sequence, token) in self.running.iter_mut().zip(host.iter()) {
            if !sequence.has_ended {
                outputs.push(sequence.add(*token, self.model.config.end_tokens()));
            }
        }
        Ok(())
    }

    /// Waits for all steps in flight, and removes the sequences that have ended.
    fn drain(&mut self, outputs: &mut Vec<Output>) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.read(outputs)?;
        }
        while let Some(row) = self.running.iter().position(|sequence| sequence.has_ended) {
            self.remove(row);
        }
        Ok(())
    }
}

impl Sequence {
    /// Adds a sampled token, which may end the sequence.
    fn add(&mut self, token: u64, end_tokens: &[u32]) -> Output {
        let Ok(token) = u32::try_from(token) else {
            self.has_ended = true;
            return Output { id: self.id, token: None, finish: Some(Finish::Failed(Error::NotANumber)) };
        };
        self.tokens.push(token);
        let finish = if end_tokens.contains(&token) && !self.ignores_end {
            Some(Finish::End)
        } else {
            (self.tokens.len() >= self.limit).then_some(Finish::Length)
        };
        self.has_ended = finish.is_some();
        Output { id: self.id, token: Some(token), finish }
    }
}
