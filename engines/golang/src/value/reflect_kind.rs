//! Go's kinds and types, and integers of all sizes.

use std::fmt;
use std::sync::Arc;

use super::{FunctionSignature, GoMap, GoObject, GoRuntimeValue, GoSlice};

/// The size and sign of an integer type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Go's")]
pub enum IntegerKind {
    Int,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Uintptr,
}

impl IntegerKind {
    /// Whether the type has negative numbers.
    pub fn is_signed(self) -> bool {
        match self {
            Self::Int | Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 => true,
            Self::Uint
            | Self::Uint8
            | Self::Uint16
            | Self::Uint32
            | Self::Uint64
            | Self::Uintptr => false,
        }
    }

    /// How many bits the type has.
    pub fn bits(self) -> u32 {
        match self {
            Self::Int8 | Self::Uint8 => 8,
            Self::Int16 | Self::Uint16 => 16,
            Self::Int32 | Self::Uint32 => 32,
            Self::Int | Self::Int64 | Self::Uint | Self::Uint64 | Self::Uintptr => 64,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint => "uint",
            Self::Uint8 => "uint8",
            Self::Uint16 => "uint16",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Uintptr => "uintptr",
        }
    }
}

/// An integer with its size, on a machine with 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedInteger {
    kind: IntegerKind,
    /// The number in two's complement, with the sign in all upper bits.
    number: i64,
}

impl SizedInteger {
    /// Converts a number to a kind. Bits that do not fit are cut off, as in Go's conversions.
    pub fn new(kind: IntegerKind, number: i64) -> Self {
        let unused = 64 - kind.bits();
        let number = if kind.is_signed() {
            number << unused >> unused
        } else {
            ((number as u64) << unused >> unused) as i64
        };
        Self { kind, number }
    }

    /// The size and sign of the integer.
    pub fn kind(self) -> IntegerKind {
        self.kind
    }

    /// The number as `int64`. A larger unsigned number becomes negative.
    pub fn signed(self) -> i64 {
        self.number
    }

    /// The number as `uint64`. A negative number becomes a large one.
    pub fn unsigned(self) -> u64 {
        self.number as u64
    }

    /// Whether the integer is zero.
    pub fn is_zero(self) -> bool {
        self.number == 0
    }
}

/// The kinds of types in the words of `reflect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Go's")]
pub enum ReflectKind {
    Invalid,
    Bool,
    Integer(IntegerKind),
    Float64,
    Complex128,
    String,
    Slice,
    Map,
    Func,
    Struct,
    Pointer,
}

impl fmt::Display for ReflectKind {
    /// The name that sprig's `kindOf` returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid",
            Self::Bool => "bool",
            Self::Integer(kind) => kind.name(),
            Self::Float64 => "float64",
            Self::Complex128 => "complex128",
            Self::String => "string",
            Self::Slice => "slice",
            Self::Map => "map",
            Self::Func => "func",
            Self::Struct => "struct",
            Self::Pointer => "ptr",
        })
    }
}

/// A type, which prints as Go does.
#[derive(Debug, Clone, PartialEq)]
pub enum GoType {
    /// `interface {}`, which can have any value.
    Any,
    /// `reflect.Value`: the type of a parameter when a template function checks whether there is a value at all.
    Reflected,
    /// `bool`.
    Bool,
    /// An integer.
    Integer(IntegerKind),
    /// `float64`.
    Float64,
    /// `complex128`.
    Complex128,
    /// A slice with items of this type.
    String,
    /// A slice of a type.
    Slice(Arc<Self>),
    /// A map from strings to values of this type.
    Map(Arc<Self>),
    /// A function.
    Func(Arc<FunctionSignature>),
    /// A type with a name, and its kind.
    Named(Arc<str>, ReflectKind),
}

impl GoType {
    /// `int`.
    pub const INT: Self = Self::Integer(IntegerKind::Int);
    /// `int64`.
    pub const INT64: Self = Self::Integer(IntegerKind::Int64);

    /// Go's type `[]interface {}`.
    pub fn list() -> Self {
        Self::Slice(Arc::new(Self::Any))
    }

    /// Go's type `map[string]interface {}`.
    pub fn map() -> Self {
        Self::Map(Arc::new(Self::Any))
    }

    /// Whether the type can be nil.
    pub fn can_be_nil(&self) -> bool {
        match self {
            Self::Any | Self::Reflected | Self::Slice(_) | Self::Map(_) | Self::Func(_) => true,
            Self::Named(_, kind) => {
                matches!(
                    kind,
                    ReflectKind::Slice
                        | ReflectKind::Map
                        | ReflectKind::Func
                        | ReflectKind::Pointer
                )
            }
            Self::Bool | Self::Integer(_) | Self::Float64 | Self::Complex128 | Self::String => {
                false
            }
        }
    }

    /// The zero value of the type. It is nil for kinds whose zero value cannot be distinguished from nil.
    pub fn zero(&self) -> GoRuntimeValue {
        match self {
            Self::Any | Self::Reflected | Self::Func(_) => GoRuntimeValue::Nil,
            Self::Bool => GoRuntimeValue::Bool(false),
            Self::Integer(kind) => GoRuntimeValue::Integer(SizedInteger::new(*kind, 0)),
            Self::Float64 => GoRuntimeValue::Float(0.0),
            Self::Complex128 => GoRuntimeValue::Complex(0.0, 0.0),
            Self::String => GoRuntimeValue::string(""),
            Self::Slice(item) => GoRuntimeValue::List(GoSlice::nil((**item).clone())),
            Self::Map(item) => GoRuntimeValue::Map(GoMap::nil((**item).clone())),
            Self::Named(name, kind) => {
                GoRuntimeValue::object(ZeroValue { name: name.clone(), kind: *kind })
            }
        }
    }
}

impl fmt::Display for GoType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("interface {}"),
            Self::Reflected => f.write_str("reflect.Value"),
            Self::Bool => f.write_str("bool"),
            Self::Integer(kind) => f.write_str(kind.name()),
            Self::Float64 => f.write_str("float64"),
            Self::Complex128 => f.write_str("complex128"),
            Self::String => f.write_str("string"),
            Self::Slice(item) => write!(f, "[]{item}"),
            Self::Map(item) => write!(f, "map[string]{item}"),
            Self::Func(signature) => write!(f, "{signature}"),
            Self::Named(name, _) => f.write_str(name),
        }
    }
}

/// The zero value of a named type about which nothing else is known, such as a nil pointer.
#[derive(Debug)]
struct ZeroValue {
    name: Arc<str>,
    kind: ReflectKind,
}

impl GoObject for ZeroValue {
    fn type_name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> ReflectKind {
        self.kind
    }

    fn entries(&self) -> Option<Vec<(GoRuntimeValue, GoRuntimeValue)>> {
        (self.kind == ReflectKind::Map).then(Vec::new)
    }

    fn is_nil(&self) -> bool {
        !matches!(self.kind, ReflectKind::Struct)
    }
}
