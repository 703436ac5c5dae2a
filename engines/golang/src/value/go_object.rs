//! Values with fields or methods, and functions.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{GoRuntimeValue, GoString, GoType, ReflectKind};
use crate::work_meter::{WorkLimitExceeded, WorkMeter};

/// A Go value with a type of its own: a struct, a pointer to one, or a named type such as `time.Duration`.
///
/// Users never see its `Debug` text.
pub trait GoObject: Any + fmt::Debug + Send + Sync {
    /// The name of the type as `%T` prints it. A pointer has a star.
    fn type_name(&self) -> &str;

    /// The kind of the type. For a named type, it is the kind of [`GoObject::underlying`].
    fn kind(&self) -> ReflectKind {
        self.underlying().map_or(ReflectKind::Struct, |value| value.kind())
    }

    /// The same value without the name of its type. `None` for structs and pointers.
    fn underlying(&self) -> Option<GoRuntimeValue> {
        None
    }

    /// The fields of the struct, in the order of their declaration. For a pointer, they are the fields of the struct
    /// that it points to.
    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        Vec::new()
    }

    /// The value of the field with this name. `None` if the object has no such field.
    fn field(&self, name: &str) -> Option<GoRuntimeValue> {
        self.fields().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The keys and values of a map whose keys are not strings, in Go's order. `None` for any other object.
    fn entries(&self) -> Option<Vec<(GoRuntimeValue, GoRuntimeValue)>> {
        None
    }

    /// The method with this name, bound to this object. `None` if the object has no such method.
    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let _ = name;
        None
    }

    /// The text of its method `String` or `Error`. `None` if it has neither.
    fn text(&self) -> Option<GoString> {
        None
    }

    /// The text of the pointer's method `String` or `Error`. A template prints it if the value is a field of a struct
    /// that was reached through a pointer. `None` if the pointer has neither method.
    fn addressed_text(&self) -> Option<GoString> {
        self.text()
    }

    /// The fields that `encoding/json` writes, by their JSON names. These are the fields that begin with a capital
    /// letter, unless a tag of the struct says otherwise.
    fn json_fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        let mut fields = self.fields();
        fields.retain(|(name, _)| name.starts_with(|first: char| first.is_ascii_uppercase()));
        fields
    }

    /// Whether the object is a nil pointer, map or slice.
    fn is_nil(&self) -> bool {
        false
    }

    /// Go's `==` with an object of the same type. Pointers are equal if they point to the same object.
    fn equals(&self, other: &dyn GoObject) -> bool {
        let _ = other;
        false
    }

    /// Go's `reflect.DeepEqual` with an object of the same type. It is called for objects that show no fields.
    fn deep_equals(&self, other: &dyn GoObject) -> bool {
        self.equals(other)
    }
}

/// The struct that a pointer points to, without the methods of the pointer. Other objects are returned unchanged.
pub fn pointee(object: &Arc<dyn GoObject>) -> Arc<dyn GoObject> {
    match object.kind() {
        ReflectKind::Pointer => Arc::new(PointedObject(Arc::clone(object))),
        _ => Arc::clone(object),
    }
}

#[derive(Debug)]
struct PointedObject(Arc<dyn GoObject>);

impl GoObject for PointedObject {
    fn type_name(&self) -> &str {
        let name = self.0.type_name();
        name.strip_prefix('*').unwrap_or(name)
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Struct
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        self.0.fields()
    }

    fn field(&self, name: &str) -> Option<GoRuntimeValue> {
        self.0.field(name)
    }

    fn json_fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        self.0.json_fields()
    }
}

/// The types of a function's parameters and of its result.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionSignature {
    /// The types of the parameters. If [`FunctionSignature::is_variadic`], the last one is the type of each further
    /// argument.
    pub params: Vec<GoType>,
    /// Whether the last parameter accepts any number of arguments.
    pub is_variadic: bool,
    /// The type of the result. For a nil, templates print `interface {}` and a concrete type differently.
    pub result: GoType,
}

impl FunctionSignature {
    /// The signature of a function with a fixed number of parameters.
    pub fn new(params: impl Into<Vec<GoType>>, result: GoType) -> Self {
        Self { params: params.into(), is_variadic: false, result }
    }

    /// The signature of a function whose last parameter accepts any number of arguments.
    pub fn variadic(params: impl Into<Vec<GoType>>, result: GoType) -> Self {
        Self { params: params.into(), is_variadic: true, result }
    }

    /// The smallest number of arguments.
    pub fn fixed(&self) -> usize {
        if self.is_variadic { self.params.len().saturating_sub(1) } else { self.params.len() }
    }

    /// The type of an argument. `None` if the function does not accept so many arguments.
    pub fn param(&self, index: usize) -> Option<&GoType> {
        match self.params.get(index) {
            None if self.is_variadic => self.params.last(),
            known => known,
        }
    }
}

impl fmt::Display for FunctionSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("func(")?;
        for (index, param) in self.params.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let is_last = index + 1 == self.params.len();
            let dots = if self.is_variadic && is_last { "..." } else { "" };
            write!(f, "{comma}{dots}{param}")?;
        }
        write!(f, ") {}", self.result)
    }
}

/// The body of a function.
pub type FunctionBody = dyn Fn(&mut WorkMeter, &[GoRuntimeValue]) -> Result<GoRuntimeValue, FunctionCallError>
    + Send
    + Sync;

/// Why a function returned no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FunctionCallError {
    /// The function failed, with the text of Go's error.
    #[error("{0}")]
    Said(String),
    /// The function would exceed its allowance.
    #[error(transparent)]
    Exhausted(#[from] WorkLimitExceeded),
}

impl From<String> for FunctionCallError {
    fn from(text: String) -> Self {
        Self::Said(text)
    }
}

/// A function as a value, or a method bound to its object.
pub struct GoFunction {
    signature: FunctionSignature,
    body: Box<FunctionBody>,
}

impl GoFunction {
    /// A function that only gets arguments of its signature. Its error is the text of Go's error.
    ///
    /// Its argument strings, which it may keep, and its result are counted. A function that makes more than that, or
    /// works longer, has to be [`GoFunction::metered`].
    pub fn new(
        signature: FunctionSignature,
        body: impl Fn(&[GoRuntimeValue]) -> Result<GoRuntimeValue, String> + Send + Sync + 'static,
    ) -> Self {
        Self::metered(signature, move |meter, arguments| {
            for text in arguments.iter().filter_map(GoRuntimeValue::bytes) {
                meter.steps(text.len() as u64 / 4)?;
                meter.bytes(text.len() as u64)?;
            }
            let result = body(arguments)?;
            meter.bytes(result.bytes().map_or(0, |text| text.len() as u64))?;
            Ok(result)
        })
    }

    /// A function that counts its own work.
    pub fn metered(
        signature: FunctionSignature,
        body: impl Fn(&mut WorkMeter, &[GoRuntimeValue]) -> Result<GoRuntimeValue, FunctionCallError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { signature, body: Box::new(body) }
    }

    /// The signature of the function.
    pub fn signature(&self) -> &FunctionSignature {
        &self.signature
    }

    /// Calls the function.
    ///
    /// # Errors
    /// The text of the function's error, or the limit that it exceeded.
    ///
    /// # Assumes
    /// The arguments match the signature.
    pub fn call(
        &self,
        meter: &mut WorkMeter,
        arguments: &[GoRuntimeValue],
    ) -> Result<GoRuntimeValue, FunctionCallError> {
        (self.body)(meter, arguments)
    }
}

impl fmt::Debug for GoFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signature.fmt(f)
    }
}
