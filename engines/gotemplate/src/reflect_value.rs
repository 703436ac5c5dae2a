//! Values during a run. They correspond to Go's `reflect.Value`, which also knows how a value was reached.

use golang::GoRuntimeValue;
use golang::value::GoType;

/// How a value was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueAccess {
    /// There is no value.
    Absent,
    /// The value was reached directly.
    Plain,
    /// The value was taken out of an `interface {}`. It may be nil.
    Interface,
    /// The value is a field of a struct behind a pointer.
    Addressable,
}

/// A value with the way in which it was reached, or no value.
#[derive(Debug, Clone)]
pub(crate) struct ReflectedValue {
    value: GoRuntimeValue,
    how: ValueAccess,
}

impl ReflectedValue {
    pub(crate) const ABSENT: Self = Self { value: GoRuntimeValue::Nil, how: ValueAccess::Absent };

    /// A value that was reached directly. A nil is absent.
    pub(crate) fn plain(value: GoRuntimeValue) -> Self {
        match value {
            GoRuntimeValue::Nil => Self::ABSENT,
            value => Self { value, how: ValueAccess::Plain },
        }
    }

    /// A value out of a container whose values have the type `held`.
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

    /// The value. It is nil if there is none.
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

    /// Whether the value is a nil in an `interface {}`.
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

    /// The type in which the value is held. `None` if there is no value.
    pub(crate) fn held_as(&self) -> Option<GoType> {
        match self.how {
            ValueAccess::Absent => None,
            ValueAccess::Interface => Some(GoType::Any),
            ValueAccess::Plain | ValueAccess::Addressable => self.value.type_of(),
        }
    }

    /// The type of [`ReflectedValue::held_as`] as text, for messages.
    pub(crate) fn held_name(&self) -> String {
        self.held_as().map_or_else(|| "<nil>".to_owned(), |held| held.to_string())
    }
}
