//! Values during a run: Go's `reflect.Value`, which also knows how a value was reached.

use golang::GoRuntimeValue;
use golang::value::GoType;

/// How a value was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueAccess {
    /// There is no value.
    Absent,
    /// As itself.
    Plain,
    /// Out of something that holds an `interface {}`, which may be nil.
    Interface,
    /// As a field of something behind a pointer.
    Addressable,
}

/// A value, or none, and how it was reached.
#[derive(Debug, Clone)]
pub(crate) struct ReflectedValue {
    value: GoRuntimeValue,
    how: ValueAccess,
}

impl ReflectedValue {
    pub(crate) const ABSENT: Self = Self { value: GoRuntimeValue::Nil, how: ValueAccess::Absent };

    /// A value as itself; nil is absent.
    pub(crate) fn plain(value: GoRuntimeValue) -> Self {
        match value {
            GoRuntimeValue::Nil => Self::ABSENT,
            value => Self { value, how: ValueAccess::Plain },
        }
    }

    /// A value out of something that holds values of a type.
    pub(crate) fn of(value: GoRuntimeValue, held: &GoType) -> Self {
        match held {
            GoType::Any => Self { value, how: ValueAccess::Interface },
            _ => Self::plain(value),
        }
    }

    pub(crate) fn addressable(value: GoRuntimeValue) -> Self {
        match value {
            GoRuntimeValue::Nil => Self { value, how: ValueAccess::Interface },
            value => Self { value, how: ValueAccess::Addressable },
        }
    }

    /// The value; nil for none.
    pub(crate) fn value(&self) -> &GoRuntimeValue {
        &self.value
    }

    pub(crate) fn into_value(self) -> GoRuntimeValue {
        self.value
    }

    /// Whether there is no value, not even a nil in an `interface {}`.
    pub(crate) fn is_absent(&self) -> bool {
        self.how == ValueAccess::Absent
    }

    pub(crate) fn is_addressable(&self) -> bool {
        self.how == ValueAccess::Addressable
    }

    /// Whether it is a nil in an `interface {}`.
    pub(crate) fn is_nil_interface(&self) -> bool {
        self.how == ValueAccess::Interface && matches!(self.value, GoRuntimeValue::Nil)
    }

    /// The value without the `interface {}` around it.
    pub(crate) fn unboxed(self) -> Self {
        match self.how {
            ValueAccess::Interface => Self::plain(self.value),
            _ => self,
        }
    }

    /// The type in which it is held; nothing for no value.
    pub(crate) fn held_as(&self) -> Option<GoType> {
        match self.how {
            ValueAccess::Absent => None,
            ValueAccess::Interface => Some(GoType::Any),
            ValueAccess::Plain | ValueAccess::Addressable => self.value.type_of(),
        }
    }

    /// [`ReflectedValue::held_as`] for messages.
    pub(crate) fn held_name(&self) -> String {
        self.held_as().map_or_else(|| "<nil>".to_owned(), |held| held.to_string())
    }
}
