//! Runs the program that a pickle is, as far as it makes plain data: dicts, lists, tuples, strings and numbers,
//! of protocols 2 to 5.
//!
//! Guarantees: nothing that a pickle names is looked up or run; one that names anything is refused. Damaged
//! pickles are errors, whatever lengths they claim, and shared values are kept once, whatever refers to them.

use std::collections::HashMap;

use crate::opcode;

/// Why a pickle could not be read.
#[derive(Debug)]
pub enum Problem {
    /// It ends too early.
    CutOff,
    /// It has something else than plain data at this byte.
    At(usize),
    /// Its data is not what was expected.
    Content(serde::de::value::Error),
}

/// A value; what it holds is in [`Machine::lists`].
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    None,
    Bool(bool),
    Number(i128),
    Float(f64),
    Text(&'a str),
    /// A list or tuple, by its index among the lists.
    List(usize),
    /// A dict: a list of keys and values in turn.
    Dict(usize),
}

/// The machine that a pickle is a program for.
#[derive(Default)]
pub struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value<'a>>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    pub lists: Vec<Vec<Value<'a>>>,
}

impl<'a> Machine<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Runs to the end, and returns the value that is left.
    pub fn run(&mut self) -> Result<Value<'a>, Problem> {
        loop {
            let start = self.at;
            // What the stack lacks for an operation is a fault of the operation.
            let wrong = || Problem::At(start);
            match self.byte()? {
                opcode::PROTO => drop(self.byte()?),
                opcode::FRAME => drop(self.take(8)?),
                opcode::STOP => return self.stack.pop().ok_or_else(wrong),
                opcode::MARK => self.marks.push(self.stack.len()),
                opcode::POP => drop(self.stack.pop().ok_or_else(wrong)?),
                opcode::POP_MARK => drop(self.above_mark().ok_or_else(wrong)?),
                opcode::DUP => self.stack.push(*self.stack.last().ok_or_else(wrong)?),

                opcode::MEMOIZE => {
                    let memo = self.memo.len() as u32;
                    self.memo.insert(memo, *self.stack.last().ok_or_else(wrong)?);
                }
                code @ (opcode::BINPUT | opcode::LONG_BINPUT) => {
                    let memo = self.length(if code == opcode::BINPUT { 1 } else { 4 })? as u32;
                    self.memo.insert(memo, *self.stack.last().ok_or_else(wrong)?);
                }
                code @ (opcode::BINGET | opcode::LONG_BINGET) => {
                    let memo = self.length(if code == opcode::BINGET { 1 } else { 4 })? as u32;
                    self.stack.push(*self.memo.get(&memo).ok_or_else(wrong)?);
                }

                opcode::NONE => self.stack.push(Value::None),
                opcode::NEWTRUE => self.stack.push(Value::Bool(true)),
                opcode::NEWFALSE => self.stack.push(Value::Bool(false)),
                opcode::BININT1 => self.unsigned(1)?,
                opcode::BININT2 => self.unsigned(2)?,
                opcode::BININT => {
                    let number = number(self.take(4)?).ok_or_else(wrong)?;
                    self.stack.push(Value::Number(number));
                }
                code @ (opcode::LONG1 | opcode::LONG4) => {
                    let length = self.length(if code == opcode::LONG1 { 1 } else { 4 })?;
                    let number = number(self.take(length)?).ok_or_else(wrong)?;
                    self.stack.push(Value::Number(number));
                }
                opcode::BINFLOAT => {
                    let bits = self.take(8)?.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
                    self.stack.push(Value::Float(f64::from_bits(bits)));
                }
                code @ (opcode::SHORT_BINUNICODE | opcode::BINUNICODE | opcode::BINUNICODE8) => {
                    let length = self.length(match code {
                        opcode::SHORT_BINUNICODE => 1,
                        opcode::BINUNICODE => 4,
                        _ => 8,
                    })?;
                    let text = str::from_utf8(self.take(length)?).map_err(|_| wrong())?;
                    self.stack.push(Value::Text(text));
                }

                opcode::EMPTY_LIST | opcode::EMPTY_TUPLE => self.list(Vec::new(), Value::List),
                opcode::EMPTY_DICT => self.list(Vec::new(), Value::Dict),
                opcode::LIST | opcode::TUPLE => {
                    let items = self.above_mark().ok_or_else(wrong)?;
                    self.list(items, Value::List);
                }
                opcode::DICT => {
                    let items = self.above_mark().ok_or_else(wrong)?;
                    self.list(items, Value::Dict);
                }
                code @ (opcode::TUPLE1 | opcode::TUPLE2 | opcode::TUPLE3) => {
                    let items = self.top(usize::from(code - opcode::TUPLE1) + 1).ok_or_else(wrong)?;
                    self.list(items, Value::List);
                }
                opcode::APPEND => {
                    let items = self.top(1).ok_or_else(wrong)?;
                    self.extend(items).ok_or_else(wrong)?;
                }
                opcode::SETITEM => {
                    let items = self.top(2).ok_or_else(wrong)?;
                    self.extend(items).ok_or_else(wrong)?;
                }
                opcode::APPENDS | opcode::SETITEMS => {
                    let items = self.above_mark().ok_or_else(wrong)?;
                    self.extend(items).ok_or_else(wrong)?;
                }
                _ => return Err(wrong()),
            }
        }
    }

    fn byte(&mut self) -> Result<u8, Problem> {
        let byte = *self.bytes.get(self.at).ok_or(Problem::CutOff)?;
        self.at += 1;
        Ok(byte)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Problem> {
        let end = self.at.checked_add(length).ok_or(Problem::CutOff)?;
        let bytes = self.bytes.get(self.at..end).ok_or(Problem::CutOff)?;
        self.at = end;
        Ok(bytes)
    }

    /// A number of this many bytes, at most eight, without sign.
    fn length(&mut self, bytes: usize) -> Result<usize, Problem> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte)))
    }

    fn unsigned(&mut self, bytes: usize) -> Result<(), Problem> {
        let number = self.length(bytes)?;
        self.stack.push(Value::Number(number as i128));
        Ok(())
    }

    fn list(&mut self, items: Vec<Value<'a>>, value: fn(usize) -> Value<'a>) {
        self.stack.push(value(self.lists.len()));
        self.lists.push(items);
    }

    /// Adds items to the list or dict on top of the stack.
    fn extend(&mut self, items: Vec<Value<'a>>) -> Option<()> {
        let (Value::List(list) | Value::Dict(list)) = *self.stack.last()? else { return None };
        self.lists.get_mut(list)?.extend(items);
        Some(())
    }

    fn top(&mut self, count: usize) -> Option<Vec<Value<'a>>> {
        Some(self.stack.split_off(self.stack.len().checked_sub(count)?))
    }

    fn above_mark(&mut self) -> Option<Vec<Value<'a>>> {
        let mark = self.marks.pop()?;
        (mark <= self.stack.len()).then(|| self.stack.split_off(mark))
    }
}

/// A number in two's complement, least byte first; `None` when it has too many bytes.
fn number(bytes: &[u8]) -> Option<i128> {
    let mut all = [if bytes.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 }; 16];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i128::from_le_bytes(all))
}
