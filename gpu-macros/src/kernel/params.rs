//! A kernel's parameters, and the errors in them.

use quote::ToTokens;
use syn::{
    Expr, ExprLit, FnArg, GenericArgument, Ident, Lifetime, Lit, Pat, PatType, PathArguments,
    PointerMutability, Signature, Type, TypePath,
};

use super::{Errors, shared};

/// Kind of a parameter: one of the `gpu_spec::ParamKind` kinds, or an array in shared memory.
pub(crate) enum Kind {
    /// `T`.
    Value,
    /// `&[T]`.
    Slice,
    /// `DisjointMut<T, M>`, with the mapping `M` if the type specifies it.
    SliceMut(Option<Box<Type>>),
    /// `Slice2<T>` or `Slice3<T>`, with the number of dimensions.
    View(u8),
    /// `DisjointMut2<T, M>` or `DisjointMut3<T, M>`, with the number of dimensions, and with the mapping `M` if the
    /// type specifies it.
    ViewMut(u8, Option<Box<Type>>),
    /// `Shared<A>` or `DoubleBuffer<A>`.
    Shared(shared::Array),
    /// `&TensorMap<T, RANK>`, with the number of dimensions.
    TensorMap(usize),
    /// `*const T`.
    Pointer,
    /// `*mut T`.
    PointerMut,
}

/// One parameter.
pub(crate) struct Param {
    /// Name of the parameter.
    pub name: Ident,
    /// Type as written.
    pub ty: Type,
    /// Type of the value, of an array element, or of an array in shared memory.
    pub element: Type,
    /// Kind of the parameter, which determines how it is passed.
    pub kind: Kind,
    /// True if the parameter is an `Option` of a slice or view.
    pub is_optional: bool,
}

impl Param {
    /// Returns true if the parameter is a mutable view, whose claims limit the launch shape.
    pub fn is_claimed(&self) -> bool {
        matches!(self.kind, Kind::SliceMut(_) | Kind::ViewMut(..))
    }
}

/// Reads all parameters. The result omits parameters that contain errors.
pub(crate) fn read(sig: &Signature, is_safe: bool, errors: &mut Errors) -> Vec<Param> {
    let mut params = Vec::new();
    for input in &sig.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                errors.push(receiver, "a kernel must be a free function: move it out of the `impl`");
            }
            FnArg::Typed(typed) => params.extend(read_one(typed, is_safe, errors)),
        }
    }
    shared::check_count(&params, errors);
    params
}

fn read_one(typed: &PatType, is_safe: bool, errors: &mut Errors) -> Option<Param> {
    let name = match &*typed.pat {
        Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => Some(ident.ident.clone()),
        pattern => {
            errors.push(
                pattern,
                "a kernel parameter cannot be a pattern: give it a name, and destructure it in the \
                                  body",
            );
            None
        }
    };
    let inner = optional(&typed.ty);
    match classify(inner.unwrap_or(&typed.ty), is_safe) {
        Ok((Kind::Shared(_), _)) if inner.is_some() => {
            errors.push(
                &typed.ty,
                "a shared array cannot be optional: remove `Option`; an empty array is a `Shared<[T]>` of length 0",
            );
            None
        }
        Ok((kind, element)) => {
            Some(Param { name: name?, ty: (*typed.ty).clone(), element, kind, is_optional: inner.is_some() })
        }
        Err((at, message)) => {
            errors.push(at, message);
            None
        }
    }
}

/// Returns the slice, view or shared array inside an `Option`. Returns `None` for any other type, including an `Option`
/// of a value.
fn optional(ty: &Type) -> Option<&Type> {
    let path = match ty {
        Type::Path(path) => path,
        Type::Paren(paren) => return optional(&paren.elem),
        Type::Group(group) => return optional(&group.elem),
        _ => return None,
    };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => match inner {
            Type::Reference(_) => Some(inner),
            Type::Path(path) => (view(path).is_some() || shared::classify(path).is_some()).then_some(inner),
            _ => None,
        },
        _ => None,
    }
}

type Wrong<'a> = (&'a dyn ToTokens, String);

fn classify(ty: &Type, is_safe: bool) -> Result<(Kind, Type), Wrong<'_>> {
    if let Some(lifetime) = static_lifetime(ty) {
        return Err((lifetime, "the data lives only as long as the launch: remove `'static`".to_owned()));
    }
    match ty {
        Type::Reference(reference) => match (&*reference.elem, reference.mutability) {
            (Type::Slice(slice), None) => Ok((Kind::Slice, (*slice.elem).clone())),
            (Type::Slice(slice), Some(_)) => Err((
                ty,
                format!(
                    "all threads would share one mutable slice: take `DisjointMut<{}>`, which gives each thread its \
                     own elements",
                    text(&slice.elem)
                ),
            )),
            (element, Some(_)) => Err((
                ty,
                format!(
                    "all threads would share one mutable reference: take `DisjointMut<{}>` with one element",
                    text(element)
                ),
            )),
            (Type::Path(path), None) if is_tensor_map(path) => tensor_map(path),
            (element, None) => Err((
                ty,
                format!(
                    "a kernel cannot take a reference to one value: take `{0}` by value, or a slice `&[{0}]`",
                    text(element)
                ),
            )),
        },
        Type::Ptr(pointer) => {
            if !is_safe {
                let kind = match pointer.mutability {
                    PointerMutability::Const(_) => Kind::Pointer,
                    PointerMutability::Mut(_) => Kind::PointerMut,
                };
                return Ok((kind, (*pointer.elem).clone()));
            }
            let (view, element) = (
                match pointer.mutability {
                    PointerMutability::Const(_) => "&[T]",
                    PointerMutability::Mut(_) => "DisjointMut<T>",
                },
                text(&pointer.elem),
            );
            Err((
                ty,
                format!(
                    "a safe kernel cannot take a pointer: take `{}`, or make the kernel `unsafe fn`",
                    view.replace('T', &element)
                ),
            ))
        }
        Type::Path(path) => match view(path) {
            Some(arguments) => arguments,
            None => match shared::classify(path) {
                Some(array) => array.map_err(|message| -> Wrong<'_> { (ty, message) }),
                None => Ok((Kind::Value, ty.clone())),
            },
        },
        Type::Array(_) | Type::Tuple(_) => Ok((Kind::Value, ty.clone())),
        Type::Paren(paren) => classify(&paren.elem, is_safe),
        Type::Group(group) => classify(&group.elem, is_safe),
        Type::ImplTrait(_) => Err((
            ty,
            "write a type parameter and list its instances: `fn kernel<T: …>(…)` with #[kernel(types(T = …))]"
                .to_owned(),
        )),
        Type::Slice(slice) => Err((ty, format!("take the slice by reference: `&[{}]`", text(&slice.elem)))),
        _ => Err((
            ty,
            "unsupported parameter type: a kernel takes plain values, `&[T]`, `DisjointMut<T>`, `Slice2<T>`, \
             `DisjointMut2<T>`, `Shared<[T; N]>` and, if it is an `unsafe fn`, raw pointers"
                .to_owned(),
        )),
    }
}

/// Returns a slice's or view's `'static` lifetime, if present. With this lifetime, a kernel could keep the data beyond
/// the launch.
fn static_lifetime(ty: &Type) -> Option<&Lifetime> {
    let lifetime = match ty {
        Type::Reference(reference) => reference.lifetime.as_ref(),
        Type::Path(path) => match &path.path.segments.last()?.arguments {
            PathArguments::AngleBracketed(arguments) => {
                arguments.args.iter().find_map(|argument| match argument {
                    GenericArgument::Lifetime(lifetime) => Some(lifetime),
                    _ => None,
                })
            }
            _ => None,
        },
        _ => None,
    };
    lifetime.filter(|lifetime| lifetime.ident == "static")
}

/// Reads the arguments of `DisjointMut<'a, T, M>` or of another view if `path` is one.
fn view(path: &TypePath) -> Option<Result<(Kind, Type), Wrong<'_>>> {
    let last = path.path.segments.last()?;
    let name = last.ident.to_string();
    let of: fn(Option<Box<Type>>) -> Kind = match &*name {
        "DisjointMut" => Kind::SliceMut,
        "DisjointMut2" => |mapping| Kind::ViewMut(2, mapping),
        "DisjointMut3" => |mapping| Kind::ViewMut(3, mapping),
        "Slice2" => |_| Kind::View(2),
        "Slice3" => |_| Kind::View(3),
        _ => return None,
    };
    let mut types = match &last.arguments {
        PathArguments::AngleBracketed(arguments) => arguments
            .args
            .iter()
            .filter_map(|argument| match argument {
                GenericArgument::Type(ty) => Some(ty.clone()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .into_iter(),
        _ => Vec::new().into_iter(),
    };
    let Some(element) = types.next() else {
        return Some(Err((path, format!("the element type is missing: write `{name}<T>`"))));
    };
    Some(Ok((of(types.next().map(Box::new)), element)))
}

fn is_tensor_map(path: &TypePath) -> bool {
    path.path.segments.last().is_some_and(|segment| segment.ident == "TensorMap")
}

/// Reads the arguments of `TensorMap<T, RANK>`. If `RANK` is omitted, the tensor has two dimensions.
fn tensor_map(path: &TypePath) -> Result<(Kind, Type), Wrong<'_>> {
    let form = || -> Wrong<'_> {
        (path, "the element type or the number of dimensions is missing: write, for example, `&TensorMap<bf16, 2>`".to_owned())
    };
    let Some(PathArguments::AngleBracketed(arguments)) =
        path.path.segments.last().map(|last| &last.arguments)
    else {
        return Err(form());
    };
    let mut arguments =
        arguments.args.iter().filter(|argument| !matches!(argument, GenericArgument::Lifetime(_)));
    let (Some(GenericArgument::Type(element)), rank, None) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err(form());
    };
    let rank = match rank {
        None => Some(2),
        Some(GenericArgument::Const(Expr::Lit(ExprLit { lit: Lit::Int(rank), .. }))) => {
            rank.base10_parse().ok()
        }
        Some(_) => None,
    };
    match rank {
        Some(rank) if (1..=gpu_spec::tensor_map::MAX_RANK).contains(&rank) => {
            Ok((Kind::TensorMap(rank), element.clone()))
        }
        Some(_) => Err((path, "a tensor map must have 1 to 5 dimensions".to_owned())),
        None => Err(form()),
    }
}

/// Formats a type as a user would write it.
pub(crate) fn text(ty: &Type) -> String {
    let mut text = ty.to_token_stream().to_string();
    for (spaced, tight) in [
        (" :: ", "::"),
        (" < ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" ;", ";"),
        ("& ", "&"),
        ("* ", "*"),
        ("[ ", "["),
        (" ]", "]"),
        ("' ", "'"),
    ] {
        text = text.replace(spaced, tight);
    }
    text
}
