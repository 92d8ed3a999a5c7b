//! The options of `#[kernel(...)]`.

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitInt, Path, Result, Token, Type, UnOp, parenthesized, token};

/// A list of generic arguments, such as `T = f32, f64` or `ITEMS = 1, 2`.
pub(crate) struct List<V> {
    /// Generic parameter.
    pub parameter: Ident,
    /// Arguments for the generic parameter, one per instance.
    pub values: Vec<V>,
}

/// A const argument.
#[derive(Clone)]
pub(crate) struct Const {
    /// Expression as written.
    pub expr: Expr,
    /// The value, which is 0 or 1 for a boolean.
    pub value: i64,
}

/// Options of `#[kernel(...)]`.
#[derive(Default)]
pub(crate) struct Options {
    /// `types(T = f32, f64; U = i32)`.
    pub types: Vec<List<Type>>,
    /// `consts(ITEMS = 1, 2; VECTOR = 4)`.
    pub consts: Vec<List<Const>>,
    /// `launch_bounds(256, 2)`: at most 256 threads per block and, optionally, at least 2 blocks per SM.
    pub launch_bounds: Option<(Expr, Option<Expr>)>,
    /// `block(16, 16)`: one to three sides.
    pub block: Option<Vec<Expr>>,
    /// `cluster(2, 1)`: one to three sides.
    pub cluster: Option<Vec<Expr>>,
    /// `arch = 90`. The value is 0 if the option is absent.
    pub arch: u32,
    /// `arch = "90a"`: only this architecture can run the kernel.
    pub is_arch_specific: bool,
    /// `bytes = x.bytes() + y.bytes()`: the number of bytes that a launch transfers.
    pub bytes: Option<Expr>,
    /// `same_len(x, y; a, launch)`: groups of parameters whose lengths must agree. A group can include `launch`.
    pub same_len: Vec<Vec<Ident>>,
    /// `stack = 16384`: the stack size per thread, in bytes.
    pub stack: Option<u32>,
    /// `cooperative`: the blocks of the kernel wait for each other.
    pub cooperative: bool,
    /// `dependent`: the kernel can start before the preceding kernel has completed.
    pub dependent: bool,
    /// `no_panic`: a panic that remains after optimization is a build error.
    pub no_panic: bool,
    /// `crate = ::path::of::gpu_std`: the path of gpu-std, for use in crates that re-export it.
    pub library: Option<Path>,
}

impl Parse for Options {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut options = Options::default();
        let mut seen: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            if seen.contains(&name) {
                return Err(Error::new(
                    name.span(),
                    format!("`{name}` is given twice: separate its lists with `;`"),
                ));
            }
            match name.to_string().as_str() {
                "types" => options.types = lists(input, &name, |input| input.parse())?,
                "consts" => options.consts = lists(input, &name, constant)?,
                "launch_bounds" => options.launch_bounds = Some(launch_bounds(input)?),
                "block" => {
                    options.block = Some(sides(input, &name, 1024, "a block must have 1 to 1024 threads")?)
                }
                "cluster" => {
                    options.cluster = Some(sides(input, &name, 16, "a cluster must have 1 to 16 blocks")?)
                }
                "arch" => (options.arch, options.is_arch_specific) = arch(input)?,
                "bytes" => {
                    input.parse::<Token![=]>()?;
                    options.bytes = Some(input.parse()?);
                }
                "same_len" => options.same_len = same_len(input, &name)?,
                "stack" => options.stack = Some(stack(input)?),
                "cooperative" => options.cooperative = true,
                "dependent" => options.dependent = true,
                "no_panic" => options.no_panic = true,
                "crate" => {
                    input.parse::<Token![=]>()?;
                    options.library = Some(input.call(Path::parse_mod_style)?);
                }
                _ => {
                    return Err(Error::new(
                        name.span(),
                        format!(
                            "unknown option `{name}`: the options are types(T = f32, f64), consts(N = 1, 2), \
                             launch_bounds(max_threads, min_blocks), block(x, y, z), cluster(x, y, z), arch = 90, \
                             stack = 16384, bytes = x.bytes(), same_len(x, y), cooperative, dependent and no_panic"
                        ),
                    ));
                }
            }
            seen.push(name);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if let Some(sides) = &options.cluster {
            if (1..90).contains(&options.arch) {
                let message = "clusters require compute capability 9.0: remove `arch`, or write `arch = 90`";
                return Err(Error::new_spanned(sides.first(), message));
            }
            options.arch = options.arch.max(90);
        }
        Ok(options)
    }
}

/// Parses `(A = v, v; B = v)`.
fn lists<V>(input: ParseStream, option: &Ident, value: fn(ParseStream) -> Result<V>) -> Result<Vec<List<V>>> {
    let content;
    parenthesized!(content in input);
    if content.is_empty() {
        return Err(Error::new(option.span(), format!("`{option}` is empty: list values or remove it")));
    }
    let mut lists: Vec<List<V>> = Vec::new();
    while !content.is_empty() {
        let parameter: Ident = content.parse()?;
        if lists.iter().any(|list| list.parameter == parameter) {
            return Err(Error::new(parameter.span(), format!("`{parameter}` is listed twice")));
        }
        content.parse::<Token![=]>()?;
        let mut values = vec![value(&content)?];
        while content.peek(Token![,]) {
            content.parse::<Token![,]>()?;
            if content.is_empty() || content.peek(Token![;]) {
                break;
            }
            if content.peek(Ident) && content.peek2(Token![=]) {
                let next: Ident = content.parse()?;
                return Err(Error::new(
                    next.span(),
                    format!("separate the lists with `;`: `{option}({parameter} = …; {next} = …)`"),
                ));
            }
            values.push(value(&content)?);
        }
        lists.push(List { parameter, values });
        if !content.is_empty() {
            content.parse::<Token![;]>()?;
        }
    }
    Ok(lists)
}

/// Parses `(x, y)` or `(x, y; a, b)`.
fn same_len(input: ParseStream, option: &Ident) -> Result<Vec<Vec<Ident>>> {
    if !input.peek(token::Paren) {
        return Err(Error::new(
            option.span(),
            "list the slices and views that must have equal lengths: `same_len(x, \
                                              y)`",
        ));
    }
    let content;
    let parens = parenthesized!(content in input);
    let mut groups = Vec::new();
    while !content.is_empty() {
        let group = Punctuated::<Ident, Token![,]>::parse_separated_nonempty(&content)?;
        groups.push(group.into_iter().collect());
        if !content.is_empty() {
            content.parse::<Token![;]>()?;
        }
    }
    match groups.iter().find(|group: &&Vec<Ident>| group.len() < 2) {
        Some(group) => Err(Error::new_spanned(
            group.first(),
            "list at least two slices or views, whose lengths are \
                                                              compared",
        )),
        None if groups.is_empty() => Err(Error::new(
            parens.span.join(),
            "list the slices and views that must have equal lengths: `same_len(x, \
                                                y)`",
        )),
        None => Ok(groups),
    }
}

/// Parses a boolean or an integer, which may be negative.
fn constant(input: ParseStream) -> Result<Const> {
    let expr: Expr = input.parse()?;
    let (negative, literal) = match &expr {
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => (true, &*unary.expr),
        other => (false, other),
    };
    let value = match literal {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(int) => Some(int.base10_parse::<i64>()?),
            Lit::Bool(bool) if !negative => Some(bool.value.into()),
            _ => None,
        },
        _ => None,
    };
    match value {
        Some(value) => Ok(Const { expr, value: if negative { -value } else { value } }),
        None => Err(Error::new_spanned(
            &expr,
            "a constant must be an integer, `true` or `false`, because it becomes part of the instance's name",
        )),
    }
}

/// Parses `(max_threads)` or `(max_threads, min_blocks)`.
fn launch_bounds(input: ParseStream) -> Result<(Expr, Option<Expr>)> {
    let (numbers, span) = numbers(input)?;
    let (threads, blocks) = match &numbers[..] {
        [threads] => (threads, None),
        [threads, blocks] => (threads, Some(blocks)),
        _ => {
            let forms = "write launch_bounds(max_threads) or launch_bounds(max_threads, min_blocks)";
            return Err(Error::new(span, forms));
        }
    };
    if literal(threads)?.is_some_and(|threads| !(1..=1024).contains(&threads)) {
        return Err(Error::new_spanned(threads, "a block must have 1 to 1024 threads"));
    }
    if let Some(blocks) = blocks
        && literal(blocks)?.is_some_and(|blocks| blocks > 32)
    {
        return Err(Error::new_spanned(blocks, "an SM can hold at most 32 blocks"));
    }
    Ok((threads.clone(), blocks.cloned()))
}

/// Parses `(x)`, `(x, y)` or `(x, y, z)`. The product of the numbers must be from 1 to `most`.
fn sides(input: ParseStream, name: &Ident, most: u64, range: &str) -> Result<Vec<Expr>> {
    if !input.peek(token::Paren) {
        return Err(Error::new(name.span(), format!("write {name}(x), {name}(x, y) or {name}(x, y, z)")));
    }
    let (numbers, span) = numbers(input)?;
    if !(1..=3).contains(&numbers.len()) {
        return Err(Error::new(span, format!("write {name}(x), {name}(x, y) or {name}(x, y, z)")));
    }
    let mut product = Some(1u64);
    for side in &numbers {
        product = match (product, literal(side)?) {
            (Some(product), Some(side)) => Some(product.saturating_mul(side)),
            _ => None,
        };
    }
    match product {
        Some(product) if !(1..=most).contains(&product) => Err(Error::new(span, range)),
        _ => Ok(numbers),
    }
}

/// Parses numbers or constants in parentheses, and returns them with their span.
fn numbers(input: ParseStream) -> Result<(Vec<Expr>, Span)> {
    let content;
    let parens = parenthesized!(content in input);
    let numbers = Punctuated::<Expr, Token![,]>::parse_terminated(&content)?;
    Ok((numbers.into_iter().collect(), parens.span.join()))
}

/// Returns the value of an integer literal, or `None` for any other expression, which the compiler evaluates.
fn literal(expr: &Expr) -> Result<Option<u64>> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) => int.base10_parse().map(Some),
        Expr::Lit(other) => Err(Error::new_spanned(other, "write a number or a constant")),
        _ => Ok(None),
    }
}

/// Parses `= 90`, or `= "90a"` for a kernel that requires one specific architecture.
fn arch(input: ParseStream) -> Result<(u32, bool)> {
    input.parse::<Token![=]>()?;
    let literal: Lit = input.parse()?;
    let (arch, is_specific) = match &literal {
        Lit::Int(int) => (int.base10_parse().ok(), false),
        Lit::Str(text) => (text.value().strip_suffix('a').and_then(|digits| digits.parse().ok()), true),
        _ => (None, false),
    };
    match arch.filter(|arch| (if is_specific { 90 } else { 50 }..1000).contains(arch)) {
        Some(arch) => Ok((arch, is_specific)),
        None => Err(Error::new(
            literal.span(),
            "write the compute capability as 10 * major + minor: 80 for 8.0, 90 for 9.0; or \"90a\" for a kernel \
             that runs only on GPUs with compute capability 9.0",
        )),
    }
}

/// Parses `= 16384`.
fn stack(input: ParseStream) -> Result<u32> {
    /// Maximum local memory per thread, in bytes.
    const MAX: u32 = 512 << 10;
    input.parse::<Token![=]>()?;
    let literal: LitInt = input.parse()?;
    let bytes: u32 = literal.base10_parse()?;
    if !(1..=MAX).contains(&bytes) {
        return Err(Error::new(
            literal.span(),
            "write the stack size per thread in bytes, from 1 to 524288, for example `stack = 16384`",
        ));
    }
    Ok(bytes)
}
