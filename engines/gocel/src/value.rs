//! The values of expressions: their types, equality and order.
//!
//! Here: the values that Kubernetes objects and the functions of CEL give. Elsewhere: the functions (`functions`), and
//! the types of the checker ([`crate::expression_types`]).

use std::cmp::Ordering;
use std::rc::Rc;

use golang::strconv::{FloatTextFormat, format_float};
use golang::time::{GoDuration, GoTime};
use serde_json::{Map, Value as Json};

use crate::budget::{CelBudget, CelError};

/// A value. Lists and maps of the data are borrowed, so that reading a large object copies nothing.
#[derive(Debug, Clone)]
pub(crate) enum CelValue<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Rc<str>),
    Bytes(Rc<[u8]>),
    List(CelList<'a>),
    Map(CelMapEntries<'a>),
    Duration(GoDuration),
    Timestamp(Rc<GoTime>),
    /// A CEL type. The value is the name of the type.
    Type(Rc<str>),
    Optional(Option<Rc<Self>>),
}

/// A list of the data, or a list that an expression made.
#[derive(Debug, Clone)]
pub(crate) enum CelList<'a> {
    Data(&'a [Json]),
    Made(Rc<Vec<CelValue<'a>>>),
}

/// A map of the data, whose keys are strings, or a map that an expression made.
#[derive(Debug, Clone)]
pub(crate) enum CelMapEntries<'a> {
    Data(&'a Map<String, Json>),
    Made(Rc<Vec<(CelValue<'a>, CelValue<'a>)>>),
}

impl<'a> CelList<'a> {
    pub(crate) fn made(values: Vec<CelValue<'a>>) -> Self {
        Self::Made(Rc::new(values))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data(items) => items.len(),
            Self::Made(items) => items.len(),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<CelValue<'a>> {
        match self {
            Self::Data(items) => items.get(index).map(CelValue::from_json),
            Self::Made(items) => items.get(index).cloned(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = CelValue<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<'a> CelMapEntries<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Data(entries) => entries.len(),
            Self::Made(entries) => entries.len(),
        }
    }

    pub(crate) fn get(
        &self,
        key: &CelValue<'a>,
        budget: &mut CelBudget,
    ) -> Result<Option<CelValue<'a>>, CelError> {
        match self {
            Self::Data(entries) => Ok(match key {
                CelValue::String(key) => entries.get(&**key).map(CelValue::from_json),
                _ => None,
            }),
            Self::Made(entries) => {
                for (own, value) in entries.iter() {
                    if own.equals(key, budget)? {
                        return Ok(Some(value.clone()));
                    }
                }
                Ok(None)
            }
        }
    }

    /// The keys of the map. Each key costs a step and the bytes of its text.
    pub(crate) fn keys(&self, budget: &mut CelBudget) -> Result<Vec<CelValue<'a>>, CelError> {
        budget.spend(self.len())?;
        budget.spend_bytes(self.len().saturating_mul(size_of::<CelValue<'_>>()))?;
        Ok(match self {
            Self::Data(entries) => {
                for key in entries.keys() {
                    budget.spend_bytes(key.len())?;
                }
                entries.keys().map(CelValue::text).collect()
            }
            Self::Made(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        })
    }

    /// The first key and value of the map. `None` if the map is empty.
    pub(crate) fn first(&self) -> Option<(CelValue<'a>, CelValue<'a>)> {
        match self {
            Self::Data(entries) => entries
                .iter()
                .next()
                .map(|(key, value)| (CelValue::text(key), CelValue::from_json(value))),
            Self::Made(entries) => entries.first().cloned(),
        }
    }
}

impl<'a> CelValue<'a> {
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self::String(text.as_ref().into())
    }

    /// Parity(flux): whole numbers that fit are integers, as Kubernetes' decoder reads them.
    pub(crate) fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(bool) => Self::Bool(*bool),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Double(number.as_f64().unwrap_or_default()),
            },
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::List(CelList::Data(items)),
            Json::Object(entries) => Self::Map(CelMapEntries::Data(entries)),
        }
    }

    /// The value as JSON. `None` if JSON cannot represent it, or if it nests deeper than `depth`.
    pub(crate) fn to_json(&self, depth: usize) -> Option<Json> {
        let below = depth.checked_sub(1)?;
        Some(match self {
            Self::Null => Json::Null,
            Self::Bool(value) => Json::from(*value),
            Self::Int(value) => Json::from(*value),
            Self::Uint(value) => Json::from(*value),
            Self::Double(value) => Json::from(*value),
            Self::String(text) => Json::from(&**text),
            Self::List(list) => {
                Json::Array(list.iter().map(|it| it.to_json(below)).collect::<Option<_>>()?)
            }
            Self::Map(CelMapEntries::Data(map)) => Json::Object((*map).clone()),
            Self::Map(CelMapEntries::Made(entries)) => {
                let entry = |(key, value): &(Self, Self)| match key {
                    Self::String(key) => Some((key.to_string(), value.to_json(below)?)),
                    _ => None,
                };
                Json::Object(entries.iter().map(entry).collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }

    /// Charges for taking a value out of the data. A text is copied.
    pub(crate) fn is_read(&self, budget: &mut CelBudget) -> Result<(), CelError> {
        match self {
            Self::String(text) => budget.spend_bytes(text.len()),
            _ => Ok(()),
        }
    }

    /// The name of the value's type at run time.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
        }
    }

    /// Whether the value is the zero value of its type: 0, an empty text, an empty list.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(bool) => !bool,
            Self::Int(int) => *int == 0,
            Self::Uint(uint) => *uint == 0,
            Self::Double(double) => *double == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.len() == 0,
            Self::Map(entries) => entries.len() == 0,
            Self::Duration(duration) => duration.0 == 0,
            // Go's zero time is the first moment of the year 1.
            Self::Timestamp(time) => time.unix() == -62_135_596_800 && time.nanosecond() == 0,
            Self::Type(_) | Self::Optional(_) => false,
        }
    }

    /// Whether two values are equal. Numbers of different types are compared by their amount. Other values of different
    /// types are never equal. Each compared pair costs a step.
    pub(crate) fn equals(&self, other: &Self, budget: &mut CelBudget) -> Result<bool, CelError> {
        budget.spend(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(two)) => one == two,
            (Self::String(one), Self::String(two)) => {
                budget.spend_bytes(one.len().min(two.len()))?;
                one == two
            }
            (Self::Bytes(one), Self::Bytes(two)) => {
                budget.spend_bytes(one.len().min(two.len()))?;
                one == two
            }
            (Self::Duration(one), Self::Duration(two)) => one == two,
            (Self::Timestamp(one), Self::Timestamp(two)) => one == two,
            (Self::Type(one), Self::Type(two)) => one == two,
            (Self::Optional(one), Self::Optional(two)) => match (one, two) {
                (None, None) => true,
                (Some(one), Some(two)) => one.equals(two, budget)?,
                _ => false,
            },
            (Self::List(one), Self::List(two)) => {
                if one.len() != two.len() {
                    return Ok(false);
                }
                for (one, two) in one.iter().zip(two.iter()) {
                    one.is_read(budget)?;
                    two.is_read(budget)?;
                    if !one.equals(&two, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(one), Self::Map(two)) => {
                if one.len() != two.len() {
                    return Ok(false);
                }
                for key in one.keys(budget)? {
                    let (Some(mine), Some(theirs)) =
                        (one.get(&key, budget)?, two.get(&key, budget)?)
                    else {
                        return Ok(false);
                    };
                    if !mine.equals(&theirs, budget)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => order_of_numbers(self, other) == Some(Ordering::Equal),
        })
    }

    /// The order of two values. `None` if they have no order, for example because of NaN.
    pub(crate) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(two)) => Some(one.cmp(two)),
            (Self::String(one), Self::String(two)) => Some(one.as_bytes().cmp(two.as_bytes())),
            (Self::Bytes(one), Self::Bytes(two)) => Some(one.cmp(two)),
            (Self::Duration(one), Self::Duration(two)) => Some(one.cmp(two)),
            (Self::Timestamp(one), Self::Timestamp(two)) => Some(one.cmp(two)),
            _ => order_of_numbers(self, other),
        }
    }

    /// The value as Go's `%v` shows it. For lists and maps, only the type is named.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Null => "0".to_owned(),
            Self::Bool(bool) => bool.to_string(),
            Self::Int(int) => int.to_string(),
            Self::Uint(uint) => uint.to_string(),
            Self::Double(double) => general(*double, 21),
            Self::String(text) => text.to_string(),
            Self::Type(name) => name.to_string(),
            Self::Duration(duration) => duration.to_string(),
            Self::Timestamp(time) => time.to_string(),
            Self::Optional(None) => "optional.none()".to_owned(),
            Self::Optional(Some(value)) => format!("optional({})", value.shown()),
            Self::Bytes(_) | Self::List(_) | Self::Map(_) => format!("({})", self.type_name()),
        }
    }
}

/// Formats a double as Go's `%g`. From the exponent `threshold` on, the text has an exponent.
pub(crate) fn general(double: f64, threshold: i32) -> String {
    let magnitude = double.abs();
    let fixed = magnitude == 0.0 || (magnitude >= 1e-4 && magnitude < 10f64.powi(threshold));
    let form = if fixed { FloatTextFormat::Fixed } else { FloatTextFormat::Exponent };
    format_float(double, form, None)
}

fn order_of_numbers(one: &CelValue<'_>, two: &CelValue<'_>) -> Option<Ordering> {
    use CelValue::{Double, Int, Uint};
    match (one, two) {
        (Int(one), Int(two)) => Some(one.cmp(two)),
        (Uint(one), Uint(two)) => Some(one.cmp(two)),
        (Double(one), Double(two)) => one.partial_cmp(two),
        (Int(one), Uint(two)) => Some(i128::from(*one).cmp(&i128::from(*two))),
        (Uint(one), Int(two)) => Some(i128::from(*one).cmp(&i128::from(*two))),
        (Int(one), Double(two)) => order_with_double(i128::from(*one), *two),
        (Uint(one), Double(two)) => order_with_double(i128::from(*one), *two),
        (Double(one), Int(two)) => order_with_double(i128::from(*two), *one).map(Ordering::reverse),
        (Double(one), Uint(two)) => {
            order_with_double(i128::from(*two), *one).map(Ordering::reverse)
        }
        _ => None,
    }
}

/// Compares a whole number with a double, as doubles. `None` if the double is NaN.
///
/// Parity(cel-go): the whole number becomes a double first, unless the double is beyond what it can be.
#[expect(clippy::cast_precision_loss, reason = "the source compares rounded doubles too")]
fn order_with_double(whole: i128, double: f64) -> Option<Ordering> {
    (whole as f64).partial_cmp(&double)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::CelBudget;
    use serde_json::json;

    #[test]
    fn numbers_are_equal_across_types_and_nothing_else_is() {
        let budget = &mut CelBudget::default();
        let list = json!([1, 1.0, "1", null, true, [1], {"a": 1}]);
        let values: Vec<CelValue<'_>> =
            list.as_array().unwrap().iter().map(CelValue::from_json).collect();
        for (i, one) in values.iter().enumerate() {
            for (j, two) in values.iter().enumerate() {
                let want = i == j || (i < 2 && j < 2);
                assert_eq!(one.equals(two, budget).unwrap(), want, "{one:?} {two:?}");
            }
        }
        assert!(CelValue::Uint(1).equals(&CelValue::Double(1.0), budget).unwrap());
        assert!(!CelValue::Double(f64::NAN).equals(&CelValue::Double(f64::NAN), budget).unwrap());
    }
}
