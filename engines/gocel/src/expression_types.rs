//! Types of expressions for the checker, and when a value of one type may be used as another type.
//!
//! Here: types and their unification. Elsewhere: the walk over an expression ([`crate::type_check`]), and declared
//! functions ([`crate::overloads`]).
//!
//! Source of the semantics: cel-go's `checker` package.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::value::CelValue;

/// A type of the expression language, as the type check knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CelType {
    Error,
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Self>),
    Map(Arc<(Self, Self)>),
    Optional(Arc<Self>),
    /// The type of a type. It has that type, if it is known.
    Of(Option<Arc<Self>>),
    /// A parameter, which stands for a type that the checker has to find.
    Param(Arc<str>),
}

impl CelType {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// The type within an optional type, and whether the type was optional.
    pub(crate) fn unwrapped(&self) -> (&Self, bool) {
        match self {
            Self::Optional(of) => (of, true),
            other => (other, false),
        }
    }

    /// The name of this type at run time.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            Self::Error => "error",
            Self::Dyn => "dyn",
            Self::Null => "null_type",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Duration => "google.protobuf.Duration",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Of(_) => "type",
            Self::Param(name) => name,
        }
    }

    /// Whether a value may be an argument of this type. For lists and maps, only the first element is examined.
    pub(crate) fn admits(&self, value: &CelValue<'_>) -> bool {
        match (self, value) {
            (Self::Dyn | Self::Param(_), _) => true,
            (Self::List(of), CelValue::List(list)) => {
                list.get(0).is_none_or(|first| of.admits(&first))
            }
            (Self::Map(of), CelValue::Map(entries)) => {
                entries.first().is_none_or(|(key, value)| of.0.admits(&key) && of.1.admits(&value))
            }
            _ => self.runtime_name() == value.type_name(),
        }
    }

    fn parameters(&self) -> Vec<&Self> {
        match self {
            Self::List(of) | Self::Optional(of) => vec![of],
            Self::Map(of) => vec![&of.0, &of.1],
            Self::Of(Some(of)) => vec![of],
            _ => Vec::new(),
        }
    }

    /// Replaces each type parameter by a type.
    pub(crate) fn renamed(&self, names: &dyn Fn(&str) -> Self) -> Self {
        match self {
            Self::List(of) => Self::list(of.renamed(names)),
            Self::Optional(of) => Self::optional(of.renamed(names)),
            Self::Map(of) => Self::map(of.0.renamed(names), of.1.renamed(names)),
            Self::Of(Some(of)) => Self::Of(Some(Arc::new(of.renamed(names)))),
            Self::Param(name) => names(name),
            other => other.clone(),
        }
    }
}

impl fmt::Display for CelType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(of) => write!(f, "map({}, {})", of.0, of.1),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Of(Some(of)) => write!(f, "type({of})"),
            other => f.write_str(other.runtime_name()),
        }
    }
}

/// How many types one check may examine. Types can double with every call, so the walk over them needs a limit.
const MAX_LOOKS: u32 = 1_000_000;

/// The types that are known for type parameters.
#[derive(Debug)]
pub(crate) struct TypeParameterBindings {
    known: BTreeMap<Arc<str>, CelType>,
    /// The former types of parameters that were learned in the present assignment, so that it can be undone.
    undo: Vec<(Arc<str>, Option<CelType>)>,
    looks: Cell<u32>,
}

impl Default for TypeParameterBindings {
    fn default() -> Self {
        Self { known: BTreeMap::new(), undo: Vec::new(), looks: Cell::new(MAX_LOOKS) }
    }
}

impl TypeParameterBindings {
    /// Whether the limit of examined types was reached. All answers since then are invalid.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.looks.get() == 0
    }

    /// Counts an examined type. It returns false if the limit is reached.
    fn look(&self) -> bool {
        self.looks.set(self.looks.get().saturating_sub(1));
        !self.is_exhausted()
    }

    fn find(&self, t: &CelType) -> Option<&CelType> {
        match t {
            CelType::Param(name) => self.known.get(name),
            _ => None,
        }
    }

    fn learn(&mut self, name: &Arc<str>, t: CelType) {
        let before = self.known.insert(name.clone(), t);
        self.undo.push((name.clone(), before));
    }

    /// A type with all known parameters replaced. With `free_to_dyn`, unknown parameters become dynamic.
    pub(crate) fn substitute(&self, t: &CelType, free_to_dyn: bool) -> CelType {
        if !self.look() {
            return CelType::Dyn;
        }
        match t {
            CelType::List(of) => CelType::list(self.substitute(of, free_to_dyn)),
            CelType::Optional(of) => CelType::optional(self.substitute(of, free_to_dyn)),
            CelType::Map(of) => CelType::map(
                self.substitute(&of.0, free_to_dyn),
                self.substitute(&of.1, free_to_dyn),
            ),
            CelType::Of(Some(of)) => CelType::Of(Some(Arc::new(self.substitute(of, free_to_dyn)))),
            CelType::Param(name) => match self.known.get(name) {
                Some(known) => self.substitute(known, free_to_dyn),
                None if free_to_dyn => CelType::Dyn,
                None => t.clone(),
            },
            other => other.clone(),
        }
    }

    /// Whether a value of one type may be used as another type. If so, the learned types of parameters are kept.
    pub(crate) fn assign(&mut self, from: &CelType, to: &CelType) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Like [`Self::assign`], for two lists of types. They must have the same length.
    pub(crate) fn assign_all(&mut self, from: &[CelType], to: &[CelType]) -> bool {
        self.undo.clear();
        let fits = from.len() == to.len()
            && from.iter().zip(to).all(|(from, to)| self.is_assignable(from, to));
        while let Some((name, before)) = self.undo.pop().filter(|_| !fits) {
            match before {
                Some(before) => self.known.insert(name, before),
                None => self.known.remove(&name),
            };
        }
        fits
    }

    fn is_assignable(&mut self, one: &CelType, two: &CelType) -> bool {
        if !self.look() {
            return true;
        }
        if matches!(two, CelType::Param(_)) {
            let (valid, has_known) = self.is_valid_for(one, two);
            if valid || has_known {
                return valid;
            }
        }
        if matches!(one, CelType::Param(_)) {
            return self.is_valid_for(two, one).0;
        }
        match (one, two) {
            (CelType::Dyn | CelType::Error, _) | (_, CelType::Dyn | CelType::Error) => true,
            (CelType::Null, other) | (other, CelType::Null) => {
                matches!(
                    other,
                    CelType::Null | CelType::Optional(_) | CelType::Duration | CelType::Timestamp
                )
            }
            (CelType::Of(_), CelType::Of(_)) => true,
            (CelType::List(one), CelType::List(two))
            | (CelType::Optional(one), CelType::Optional(two)) => self.is_assignable(one, two),
            (CelType::Map(one), CelType::Map(two)) => {
                self.is_assignable(&one.0, &two.0) && self.is_assignable(&one.1, &two.1)
            }
            _ => one == two,
        }
    }

    /// Whether a parameter may stand for a type, and whether its type is known already.
    fn is_valid_for(&mut self, t: &CelType, param: &CelType) -> (bool, bool) {
        if t == param {
            return (true, true);
        }
        let CelType::Param(name) = param else { return (false, false) };
        if let Some(known) = self.find(param).cloned() {
            if *t == known {
                return (true, true);
            }
            if self.is_assignable(t, &known) {
                let general = most_general(t, &known).clone();
                if self.is_absent_from(param, &general) {
                    self.learn(name, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.is_absent_from(param, t) {
            self.learn(name, t.clone());
            return (true, false);
        }
        (false, false)
    }

    fn is_absent_from(&self, param: &CelType, within: &CelType) -> bool {
        if param == within || !self.look() {
            return false;
        }
        match within {
            CelType::Param(_) => {
                self.find(within).is_none_or(|known| self.is_absent_from(param, known))
            }
            other => other.parameters().into_iter().all(|it| self.is_absent_from(param, it)),
        }
    }
}

/// The more general of two types that agree.
pub(crate) fn most_general<'t>(one: &'t CelType, two: &'t CelType) -> &'t CelType {
    if is_no_more_specific(one, two) { one } else { two }
}

fn is_no_more_specific(one: &CelType, two: &CelType) -> bool {
    match (one, two) {
        (CelType::Dyn | CelType::Param(_), _) => true,
        (_, CelType::Dyn | CelType::Param(_)) => false,
        (CelType::List(one), CelType::List(two))
        | (CelType::Optional(one), CelType::Optional(two)) => is_no_more_specific(one, two),
        (CelType::Map(one), CelType::Map(two)) => {
            is_no_more_specific(&one.0, &two.0) && is_no_more_specific(&one.1, &two.1)
        }
        (CelType::Of(_), CelType::Of(_)) => true,
        _ => one == two,
    }
}
