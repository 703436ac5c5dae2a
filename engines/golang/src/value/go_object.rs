//! What has fields or methods, and functions.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{GoRuntimeValue, GoString, GoType, ReflectKind};
use crate::work_meter::{WorkLimitExceeded, WorkMeter};

/// A Go value with a type of its own: a struct, a pointer to one, or a named type such as `time.Duration`.
///
/// Its `Debug` is never shown to users.
pub trait GoObject: Any + fmt::Debug + Send + Sync {
    /// The name of the type as `%T` prints it, with a star for pointers.
    fn type_name(&self) -> &str;

    /// What kind of type has that name; of named types, the kind of what is [`GoObject::underlying`].
    fn kind(&self) -> ReflectKind {
        self.underlying().map_or(ReflectKind::Struct, |value| value.kind())
    }

    /// The same value without the name of its type; nothing for structs and pointers.
    fn underlying(&self) -> Option<GoRuntimeValue> {
        None
    }

    /// The fields of the struct, or of what the pointer points at, in the order of their declaration.
    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        Vec::new()
    }

    /// One field.
    fn field(&self, name: &str) -> Option<GoRuntimeValue> {
        self.fields().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// The keys and values of a map whose keys are not strings, in Go's order; nothing for everything else.
    fn entries(&self) -> Option<Vec<(GoRuntimeValue, GoRuntimeValue)>> {
        None
    }

    /// A method, bound to this object.
    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let _ = name;
        None
    }

    /// The text of its method `String` or `Error`, if it has one.
    fn text(&self) -> Option<GoString> {
        None
    }

    /// What such a method of the pointer returns: a template prints it when the value is a field of something that was
    /// reached through a pointer.
    fn addressed_text(&self) -> Option<GoString> {
        self.text()
    }

    /// The fields that `encoding/json` writes, by the names it gives them: those that begin with a capital letter,
    /// unless a tag of the struct says otherwise.
    fn json_fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        let mut fields = self.fields();
        fields.retain(|(name, _)| name.starts_with(|first: char| first.is_ascii_uppercase()));
        fields
    }

    /// Whether it is a pointer, map or slice that is nil.
    fn is_nil(&self) -> bool {
        false
    }

    /// Go's `==` with an object of the same type; pointers are equal if they point at the same.
    fn equals(&self, other: &dyn GoObject) -> bool {
        let _ = other;
        false
    }

    /// Go's `reflect.DeepEqual` with an object of the same type, asked of those that show no fields.
    fn deep_equals(&self, other: &dyn GoObject) -> bool {
        self.equals(other)
    }
}

/// What a pointer points at: the struct, without the methods of the pointer; other objects are given back.
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

/// What a function takes and gives.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionSignature {
    /// Types of the parameters; of the last one when [`FunctionSignature::is_variadic`], the type of each argument.
    pub params: Vec<GoType>,
    /// Whether the last parameter takes any number of arguments.
    pub is_variadic: bool,
    /// The type of its result. `interface {}` and a concrete type differ in what templates print for a nil.
    pub result: GoType,
}

impl FunctionSignature {
    /// A function with a fixed number of parameters.
    pub fn new(params: impl Into<Vec<GoType>>, result: GoType) -> Self {
        Self { params: params.into(), is_variadic: false, result }
    }

    /// A function whose last parameter takes any number of arguments.
    pub fn variadic(params: impl Into<Vec<GoType>>, result: GoType) -> Self {
        Self { params: params.into(), is_variadic: true, result }
    }

    /// How many arguments are needed at least.
    pub fn fixed(&self) -> usize {
        if self.is_variadic { self.params.len().saturating_sub(1) } else { self.params.len() }
    }

    /// The type of an argument; `None` if the function does not take so many.
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

/// Why a function gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FunctionCallError {
    /// The text that Go's error has.
    #[error("{0}")]
    Said(String),
    /// It would use up more than is allowed.
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
    /// A function that is called with arguments of its signature only; an error is the text that Go's error has.
    ///
    /// The strings that it is given, which it may keep, and gives are counted. What makes more than that, or works longer, is
    /// [`GoFunction::metered`].
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

    /// A function that counts what it uses up.
    pub fn metered(
        signature: FunctionSignature,
        body: impl Fn(&mut WorkMeter, &[GoRuntimeValue]) -> Result<GoRuntimeValue, FunctionCallError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { signature, body: Box::new(body) }
    }

    /// What it takes and gives.
    pub fn signature(&self) -> &FunctionSignature {
        &self.signature
    }

    /// Calls it.
    ///
    /// # Errors
    /// The text of its error, or what it used up.
    ///
    /// # Assumes
    /// The arguments are those of the signature.
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
