//! Interpreter of pickles, which are programs. It supports only plain data (dicts, lists, tuples, strings and numbers)
//! of protocols 0 to 5.
//!
//! Names in a pickle are neither looked up nor run. A pickle may use the names in [`Class`], which represent plain
//! data; a pickle that names anything else is rejected. Damaged pickles cause errors, regardless of the lengths that
//! they claim. Shared values are stored once, however often they are referenced.

use std::collections::HashMap;

use super::{opcode, text};

/// Reason why a pickle could not be read.
#[derive(Debug)]
pub enum Problem {
    /// The pickle is truncated.
    CutOff,
    /// The pickle contains something other than plain data at this byte.
    At(usize),
    /// The pickle contains more values than are permitted for a file of its size.
    TooMany,
    /// The data of the pickle does not have the expected structure.
    Content(serde::de::value::Error),
}

/// A value; the contents of containers are in [`Machine::lists`].
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    None,
    Bool(bool),
    Number(i128),
    Float(f64),
    /// A text, which may not be UTF-8, because PyTorch writes file names that cannot be decoded in Python's internal
    /// form.
    Text(&'a [u8]),
    /// A text with escapes, identified by its index among the texts.
    Unescaped(usize),
    /// A named container of Python.
    Class(Class),
    /// A list or tuple, identified by its index among the lists.
    List(usize),
    /// A dict, stored as a list of alternating keys and values.
    Dict(usize),
}

/// Names that a pickle may use.
#[derive(Debug, Clone, Copy)]
pub enum Class {
    /// A dict that preserves the order of its keys or has a default value.
    Dict,
    /// A PyTorch function that returns its first argument.
    First,
    /// A type that a dict may use for its default.
    Type,
}

impl Class {
    fn of(module: &[u8], name: &[u8]) -> Option<Class> {
        Some(match (module, name) {
            (b"collections", b"OrderedDict" | b"defaultdict") => Class::Dict,
            (
                b"torch.jit._pickle",
                b"build_intlist" | b"build_boollist" | b"build_doublelist" | b"restore_type_tag",
            ) => Class::First,
            (
                b"builtins" | b"__builtin__",
                b"int" | b"float" | b"str" | b"bool" | b"list" | b"dict" | b"tuple" | b"set" | b"long"
                | b"unicode",
            ) => Class::Type,
            _ => return None,
        })
    }
}

/// Interpreter state while a pickle runs.
#[derive(Default)]
pub struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value<'a>>,
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    pub lists: Vec<Vec<Value<'a>>>,
    pub texts: Vec<String>,
    /// Number of values, marks and memoized names of values that the pickle may still create.
    left: u64,
}

impl<'a> Machine<'a> {
    /// Creates a machine for a pickle that may create at most `most` values.
    pub fn new(bytes: &'a [u8], most: u64) -> Self {
        Self { bytes, left: most, ..Self::default() }
    }

    /// Runs the pickle to its end and returns the remaining value.
    pub fn run(&mut self) -> Result<Value<'a>, Problem> {
        loop {
            let start = self.at;
            // If operands are missing on the stack, the error names the position of the operation.
            let wrong = || Problem::At(start);
            self.left = self.left.checked_sub(1).ok_or(Problem::TooMany)?;
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
                    let text = self.take(length)?;
                    self.stack.push(Value::Text(text));
                }
                code @ (opcode::SHORT_BINSTRING
                | opcode::BINSTRING
                | opcode::SHORT_BINBYTES
                | opcode::BINBYTES) => {
                    let is_short = matches!(code, opcode::SHORT_BINSTRING | opcode::SHORT_BINBYTES);
                    let length = self.length(if is_short { 1 } else { 4 })?;
                    let text = self.take(length)?;
                    self.stack.push(Value::Text(text));
                }

                opcode::INT => {
                    let value = match self.line()? {
                        b"00" => Value::Bool(false),
                        b"01" => Value::Bool(true),
                        digits => Value::Number(parsed(digits).ok_or_else(wrong)?),
                    };
                    self.stack.push(value);
                }
                opcode::LONG => {
                    let line = self.line()?;
                    let digits = line.strip_suffix(b"L").unwrap_or(line);
                    self.stack.push(Value::Number(parsed(digits).ok_or_else(wrong)?));
                }
                opcode::FLOAT => {
                    let value = parsed(self.line()?).ok_or_else(wrong)?;
                    self.stack.push(Value::Float(value));
                }
                code @ (opcode::UNICODE | opcode::STRING) => {
                    let line = self.line()?;
                    let text = match code {
                        opcode::UNICODE => text::raw_unicode(line),
                        _ => text::quoted(line).ok_or_else(wrong)?,
                    };
                    self.stack.push(Value::Unescaped(self.texts.len()));
                    self.texts.push(text);
                }
                opcode::PUT => {
                    let memo = parsed(self.line()?).ok_or_else(wrong)?;
                    self.memo.insert(memo, *self.stack.last().ok_or_else(wrong)?);
                }
                opcode::GET => {
                    let memo: u32 = parsed(self.line()?).ok_or_else(wrong)?;
                    self.stack.push(*self.memo.get(&memo).ok_or_else(wrong)?);
                }

                opcode::GLOBAL => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.stack.push(Value::Class(Class::of(module, name).ok_or_else(wrong)?));
                }
                opcode::STACK_GLOBAL => {
                    let names = self.top(2).ok_or_else(wrong)?;
                    let [Value::Text(module), Value::Text(name)] = names[..] else { return Err(wrong()) };
                    self.stack.push(Value::Class(Class::of(module, name).ok_or_else(wrong)?));
                }
                opcode::REDUCE => self.reduce().ok_or_else(wrong)?,
                // A container's state is ignored, because it does not describe the container's contents.
                opcode::BUILD => drop(self.top(1).ok_or_else(wrong)?),

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

    /// Reads an unsigned number that occupies `bytes` bytes, at most eight.
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

    /// Calls an object that the pickle names, which must be one of [`Class`].
    fn reduce(&mut self) -> Option<()> {
        let call = self.top(2)?;
        let [Value::Class(class), Value::List(arguments)] = call[..] else { return None };
        let first = self.lists.get(arguments)?.first().copied();
        match (class, first) {
            (Class::First, Some(first)) => self.stack.push(first),
            // In Python 2, the argument is the list of key-value pairs.
            (Class::Dict, Some(Value::List(pairs))) => {
                let mut items = Vec::new();
                for pair in self.lists.get(pairs)? {
                    let Value::List(pair) = *pair else { return None };
                    items.extend_from_slice(self.lists.get(pair)?.get(..2)?);
                }
                self.left = self.left.checked_sub(items.len() as u64)?;
                self.list(items, Value::Dict);
            }
            (Class::Dict, None | Some(Value::Class(Class::Type) | Value::None)) => {
                self.list(Vec::new(), Value::Dict);
            }
            _ => return None,
        }
        Some(())
    }

    /// Reads the rest of a line, without its newline.
    fn line(&mut self) -> Result<&'a [u8], Problem> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or(Problem::CutOff)?;
        self.at += length + 1;
        let line = &rest[..length];
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn top(&mut self, count: usize) -> Option<Vec<Value<'a>>> {
        Some(self.stack.split_off(self.stack.len().checked_sub(count)?))
    }

    fn above_mark(&mut self) -> Option<Vec<Value<'a>>> {
        let mark = self.marks.pop()?;
        (mark <= self.stack.len()).then(|| self.stack.split_off(mark))
    }
}

/// Reads a two's complement number, least significant byte first; `None` if it has too many bytes.
fn number(bytes: &[u8]) -> Option<i128> {
    let mut all = [if bytes.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 }; 16];
    all.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i128::from_le_bytes(all))
}

/// Parses a decimal number.
fn parsed<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    str::from_utf8(digits).ok()?.trim().parse().ok()
}
