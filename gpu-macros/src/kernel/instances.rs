//! Instances of a generic kernel, which are the cross product of its argument lists.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{GenericParam, Generics, Ident, Type};

use super::Errors;
use super::options::{Const, List, Options};

/// The argument for one generic parameter in an instance.
#[derive(Clone)]
pub(crate) enum Argument {
    /// A type, and its name in the symbol and in the spec.
    Type { parameter: Ident, ty: Box<Type>, name: String },
    /// A constant.
    Const { parameter: Ident, value: Const },
}

impl Argument {
    /// Emits the argument as it is written between `<` and `>`.
    pub fn tokens(&self) -> TokenStream {
        match self {
            Argument::Type { ty, .. } => ty.to_token_stream(),
            Argument::Const { value, .. } => {
                let expr = &value.expr;
                quote::quote!({ #expr })
            }
        }
    }

    /// Returns the string that represents the argument in a symbol.
    fn label(&self) -> String {
        match self {
            Argument::Type { name, .. } => symbol_part(name),
            Argument::Const { value, .. } if value.value < 0 => format!("m{}", value.value.unsigned_abs()),
            Argument::Const { value, .. } => value.value.to_string(),
        }
    }
}

/// The arguments of one instance, in the same order as the generic parameters.
#[derive(Clone, Default)]
pub(crate) struct Instance(pub Vec<Argument>);

impl Instance {
    /// Returns the symbol of this instance of kernel `kernel`.
    pub fn symbol(&self, kernel: &str) -> String {
        let kernel: String = gpu_spec::image::symbol_of(kernel).collect();
        if self.0.is_empty() {
            return kernel;
        }
        let labels: Vec<String> = self.0.iter().map(Argument::label).collect();
        format!("{kernel}__{}", labels.join("_"))
    }
}

/// Expands the lists in `options` to all instances of `generics`.
pub(crate) fn expand(generics: &Generics, options: &Options, errors: &mut Errors) -> Vec<Instance> {
    check_names(generics, options, errors);
    let mut instances = vec![Instance::default()];
    for parameter in &generics.params {
        let (choices, name, kind, example): (Option<Vec<Argument>>, _, _, _) = match parameter {
            GenericParam::Lifetime(_) => continue,
            GenericParam::Type(ty) => {
                let of = |value: &Type| Argument::Type {
                    parameter: ty.ident.clone(),
                    ty: Box::new(value.clone()),
                    name: type_name(value),
                };
                let list = find(&options.types, &ty.ident);
                (list.map(|list| list.values.iter().map(of).collect()), &ty.ident, "types", "f32, f64")
            }
            GenericParam::Const(constant) => {
                let of = |value: &Const| Argument::Const {
                    parameter: constant.ident.clone(),
                    value: value.clone(),
                };
                let list = find(&options.consts, &constant.ident);
                (list.map(|list| list.values.iter().map(of).collect()), &constant.ident, "consts", "1, 2, 4")
            }
        };
        let Some(choices) = choices else {
            let things = if kind == "types" { kind } else { "constants" };
            errors.push(
                name,
                format!(
                    "no instances are listed for `{name}`: a kernel is compiled only for the listed {things}; write \
                     #[kernel({kind}({name} = {example}))]"
                ),
            );
            continue;
        };
        instances = instances
            .iter()
            .flat_map(|instance| {
                choices.iter().map(|choice| {
                    let mut next = instance.clone();
                    next.0.push(choice.clone());
                    next
                })
            })
            .collect();
    }
    let mut symbols: Vec<String> = instances.iter().map(|instance| instance.symbol("")).collect();
    symbols.sort();
    if let Some(pair) = symbols.windows(2).find(|pair| pair[0] == pair[1]) {
        errors.push(
            generics,
            format!(
                "two instances would have the same name `{}`: remove one",
                pair[0].trim_start_matches('_')
            ),
        );
    }
    instances
}

/// Checks that every list names a generic parameter of the matching kind.
fn check_names(generics: &Generics, options: &Options, errors: &mut Errors) {
    let is_type = |name: &Ident| generics.type_params().any(|parameter| parameter.ident == *name);
    let is_const = |name: &Ident| generics.const_params().any(|parameter| parameter.ident == *name);
    for List { parameter, .. } in &options.types {
        if is_const(parameter) {
            errors.push(parameter, format!("`{parameter}` is a constant: list it under `consts(…)`"));
        } else if !is_type(parameter) {
            errors.push(parameter, format!("the kernel has no type parameter `{parameter}`"));
        }
    }
    for List { parameter, .. } in &options.consts {
        if is_type(parameter) {
            errors.push(parameter, format!("`{parameter}` is a type: list it under `types(…)`"));
        } else if !is_const(parameter) {
            errors.push(parameter, format!("the kernel has no const parameter `{parameter}`"));
        }
    }
}

fn find<'a, V>(lists: &'a [List<V>], name: &Ident) -> Option<&'a List<V>> {
    lists.iter().find(|list| list.parameter == *name)
}

/// Returns the last segment of a path with its arguments, or the whole type if it is not a path. Removes all spaces.
fn type_name(ty: &Type) -> String {
    let tokens = match ty {
        Type::Path(path) => path.path.segments.last().map(ToTokens::to_token_stream).unwrap_or_default(),
        other => other.to_token_stream(),
    };
    tokens.to_string().replace(' ', "")
}

/// Encodes a name as part of a symbol: `Vector<f32,4>` becomes `Vector_f32_4`.
fn symbol_part(name: &str) -> String {
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("_")
}
