//! Times and durations as templates see them: `time.Time`, `time.Duration`, `time.Month` and `time.Weekday`.
//!
//! Two groups of methods are left out: methods with several results, which templates cannot call, and methods that need
//! a `*time.Location`.

use std::any::Any;
use std::sync::Arc;

use super::{CalendarDate, GoDuration, GoTime, GoTimeZone, TimeOfDay, calendar};
use crate::GoRuntimeValue;
use crate::value::{
    FunctionSignature, GoFunction, GoObject, GoString, GoType, IntegerKind, ReflectKind,
};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

fn time_type() -> GoType {
    GoType::Named("time.Time".into(), ReflectKind::Struct)
}

fn duration_type() -> GoType {
    GoType::Named("time.Duration".into(), ReflectKind::Integer(IntegerKind::Int64))
}

/// The argument at this place, as an object of type `T`. `None` if it is missing or of another type, which the
/// signature rules out.
fn given<T: GoObject>(arguments: &[GoRuntimeValue], at: usize) -> Option<&T> {
    let Some(GoRuntimeValue::Object(object)) = arguments.get(at) else { return None };
    let object: &dyn Any = &**object;
    object.downcast_ref()
}

fn number(arguments: &[GoRuntimeValue], at: usize) -> i64 {
    match arguments.get(at) {
        Some(GoRuntimeValue::Integer(integer)) => integer.signed(),
        _ => 0,
    }
}

fn length(arguments: &[GoRuntimeValue]) -> GoDuration {
    given(arguments, 0).copied().unwrap_or_default()
}

impl GoTime {
    /// Go's `time.Time{}`: the beginning of the year 1 in UTC.
    pub fn zero() -> Self {
        Self::from_civil(
            CalendarDate { year: 1, month: 1, day: 1 },
            TimeOfDay::default(),
            GoTimeZone::Utc,
        )
    }

    /// Nanoseconds since 1970, which wrap around as in Go.
    fn unix_nanos(&self) -> i64 {
        self.unix().wrapping_mul(1_000_000_000).wrapping_add(self.nanosecond().into())
    }

    /// Go's `AddDate`. Days or months that exceed their range carry over.
    fn add_date(&self, years: i64, months: i64, days: i64) -> Self {
        let date = self.date();
        let month = i64::from(date.month) - 1 + months;
        let year = date.year.saturating_add(years).saturating_add(month.div_euclid(12));
        let first = CalendarDate { year, month: month.rem_euclid(12) as u32 + 1, day: 1 };
        let midnight = calendar::seconds(first, TimeOfDay::default());
        let days = days.saturating_add(i64::from(date.day) - 1).saturating_mul(86_400);
        let date = calendar::date(midnight.saturating_add(days));
        Self::from_civil(date, self.clock(), self.zone().clone())
    }

    /// The time since the last multiple of a duration, counted from the beginning of the year 1.
    fn over(&self, unit: GoDuration) -> GoDuration {
        if unit.0 <= 0 {
            return GoDuration(0);
        }
        let seconds = i128::from(self.unix()) - i128::from(Self::zero().unix());
        let nanos = seconds * 1_000_000_000 + i128::from(self.nanosecond());
        GoDuration(nanos.rem_euclid(i128::from(unit.0)) as i64)
    }

    fn truncate(&self, unit: GoDuration) -> Self {
        self.add(GoDuration(-self.over(unit).0))
    }

    fn round(&self, unit: GoDuration) -> Self {
        let over = self.over(unit);
        // The time left until the next multiple. Halves are rounded up.
        let left = unit.0 - over.0;
        if unit.0 <= 0 || over.0 < left { self.truncate(unit) } else { self.add(GoDuration(left)) }
    }
}

/// `time.Time`.
impl GoObject for GoTime {
    fn type_name(&self) -> &'static str {
        "time.Time"
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        type Give = fn(&GoTime, &[GoRuntimeValue]) -> GoRuntimeValue;
        let (parameters, result, give): (Vec<GoType>, GoType, Give) = match name {
            "Year" => (vec![], GoType::INT, |time, _| GoRuntimeValue::int(time.date().year)),
            "Day" => (vec![], GoType::INT, |time, _| GoRuntimeValue::int(time.date().day.into())),
            "YearDay" => {
                (vec![], GoType::INT, |time, _| GoRuntimeValue::int(time.date().year_day().into()))
            }
            "Hour" => {
                (vec![], GoType::INT, |time, _| GoRuntimeValue::int(time.clock().hour.into()))
            }
            "Minute" => {
                (vec![], GoType::INT, |time, _| GoRuntimeValue::int(time.clock().minute.into()))
            }
            "Second" => {
                (vec![], GoType::INT, |time, _| GoRuntimeValue::int(time.clock().second.into()))
            }
            "Nanosecond" => {
                (vec![], GoType::INT, |time, _| GoRuntimeValue::int(time.nanosecond().into()))
            }
            "Month" => (vec![], MonthOrWeekdayObject::MONTH.as_type(), |time, _| {
                GoRuntimeValue::object(MonthOrWeekdayObject {
                    number: time.date().month.into(),
                    ..MonthOrWeekdayObject::MONTH
                })
            }),
            "Weekday" => (vec![], MonthOrWeekdayObject::WEEKDAY.as_type(), |time, _| {
                let number = i64::try_from(time.date().weekday()).unwrap_or_default();
                GoRuntimeValue::object(MonthOrWeekdayObject {
                    number,
                    ..MonthOrWeekdayObject::WEEKDAY
                })
            }),
            "Unix" => (vec![], GoType::INT64, |time, _| GoRuntimeValue::int64(time.unix())),
            "UnixMilli" => (vec![], GoType::INT64, |time, _| {
                let millis = i64::from(time.nanosecond() / 1_000_000);
                GoRuntimeValue::int64(time.unix().wrapping_mul(1000).wrapping_add(millis))
            }),
            "UnixMicro" => (vec![], GoType::INT64, |time, _| {
                let micros = i64::from(time.nanosecond() / 1000);
                GoRuntimeValue::int64(time.unix().wrapping_mul(1_000_000).wrapping_add(micros))
            }),
            "UnixNano" => {
                (vec![], GoType::INT64, |time, _| GoRuntimeValue::int64(time.unix_nanos()))
            }
            "IsZero" => {
                (vec![], GoType::Bool, |time, _| GoRuntimeValue::Bool(*time == Self::zero()))
            }
            "String" => (vec![], GoType::String, |time, _| GoRuntimeValue::from(time.to_string())),
            "UTC" => (vec![], time_type(), |time, _| {
                GoRuntimeValue::object(time.in_zone(GoTimeZone::Utc))
            }),
            "Format" => (vec![GoType::String], GoType::String, |time, arguments| {
                let layout = match arguments {
                    [GoRuntimeValue::String(layout)] => layout.lossy(),
                    _ => "".into(),
                };
                GoRuntimeValue::from(time.format(&layout))
            }),
            "Add" => (vec![duration_type()], time_type(), |time, arguments| {
                GoRuntimeValue::object(time.add(length(arguments)))
            }),
            "Truncate" => (vec![duration_type()], time_type(), |time, arguments| {
                GoRuntimeValue::object(time.truncate(length(arguments)))
            }),
            "Round" => (vec![duration_type()], time_type(), |time, arguments| {
                GoRuntimeValue::object(time.round(length(arguments)))
            }),
            "AddDate" => (vec![GoType::INT; 3], time_type(), |time, arguments| {
                let [years, months, days] = [0, 1, 2].map(|at| number(arguments, at));
                GoRuntimeValue::object(time.add_date(years, months, days))
            }),
            "Sub" => (vec![time_type()], duration_type(), |time, arguments| {
                GoRuntimeValue::object(time.since(given(arguments, 0).unwrap_or(&Self::zero())))
            }),
            "Compare" => (vec![time_type()], GoType::INT, |time, arguments| {
                GoRuntimeValue::int(given(arguments, 0).map_or(0, |other| time.cmp(other) as i64))
            }),
            "After" => (vec![time_type()], GoType::Bool, |time, arguments| {
                GoRuntimeValue::Bool(given(arguments, 0).is_some_and(|other| time > other))
            }),
            "Before" => (vec![time_type()], GoType::Bool, |time, arguments| {
                GoRuntimeValue::Bool(given(arguments, 0).is_some_and(|other| time < other))
            }),
            "Equal" => (vec![time_type()], GoType::Bool, |time, arguments| {
                GoRuntimeValue::Bool(
                    given(arguments, 0).is_some_and(|other: &Self| *time == *other),
                )
            }),
            _ => return None,
        };
        let signature = FunctionSignature::new(parameters, result);
        Some(GoFunction::new(signature, move |arguments| Ok(give(&self, arguments))))
    }

    fn text(&self) -> Option<GoString> {
        Some(self.to_string().into())
    }

    /// The same moment in the same zone.
    fn equals(&self, other: &dyn GoObject) -> bool {
        let other: &dyn Any = other;
        other
            .downcast_ref::<Self>()
            .is_some_and(|other| self == other && self.zone().name() == other.zone().name())
    }
}

/// `time.Duration`.
impl GoObject for GoDuration {
    fn type_name(&self) -> &'static str {
        "time.Duration"
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(GoRuntimeValue::int64(self.0))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        type Give = fn(GoDuration, &[GoRuntimeValue]) -> GoRuntimeValue;
        let (parameters, result, give): (Vec<GoType>, GoType, Give) = match name {
            "Hours" => (vec![], GoType::Float64, |length, _| GoRuntimeValue::Float(length.hours())),
            "Minutes" => {
                (vec![], GoType::Float64, |length, _| GoRuntimeValue::Float(length.minutes()))
            }
            "Seconds" => {
                (vec![], GoType::Float64, |length, _| GoRuntimeValue::Float(length.seconds()))
            }
            "Milliseconds" => {
                (vec![], GoType::INT64, |length, _| GoRuntimeValue::int64(length.milliseconds()))
            }
            "Microseconds" => {
                (vec![], GoType::INT64, |length, _| GoRuntimeValue::int64(length.microseconds()))
            }
            "Nanoseconds" => {
                (vec![], GoType::INT64, |length, _| GoRuntimeValue::int64(length.nanoseconds()))
            }
            "String" => {
                (vec![], GoType::String, |length, _| GoRuntimeValue::from(length.to_string()))
            }
            "Abs" => (vec![], duration_type(), |length, _| GoRuntimeValue::object(length.abs())),
            "Round" => (vec![duration_type()], duration_type(), |own, arguments| {
                GoRuntimeValue::object(own.round(length(arguments)))
            }),
            "Truncate" => (vec![duration_type()], duration_type(), |own, arguments| {
                GoRuntimeValue::object(own.truncate(length(arguments)))
            }),
            _ => return None,
        };
        let signature = FunctionSignature::new(parameters, result);
        Some(GoFunction::new(signature, move |arguments| Ok(give(*self, arguments))))
    }

    fn text(&self) -> Option<GoString> {
        Some(self.to_string().into())
    }

    fn equals(&self, other: &dyn GoObject) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }
}

/// A value of Go's `time.Month` or `time.Weekday`, for templates.
#[derive(Debug, Clone, Copy)]
struct MonthOrWeekdayObject {
    type_name: &'static str,
    names: &'static [&'static str],
    /// The number of the first name.
    first: i64,
    number: i64,
}

impl MonthOrWeekdayObject {
    const MONTH: Self = Self { type_name: "time.Month", names: &MONTHS, first: 1, number: 1 };
    const WEEKDAY: Self = Self { type_name: "time.Weekday", names: &WEEKDAYS, first: 0, number: 0 };

    fn as_type(self) -> GoType {
        GoType::Named(self.type_name.into(), ReflectKind::Integer(IntegerKind::Int))
    }
}

impl GoObject for MonthOrWeekdayObject {
    fn type_name(&self) -> &str {
        self.type_name
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(GoRuntimeValue::int(self.number))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        (name == "String").then(|| {
            GoFunction::new(FunctionSignature::new([], GoType::String), move |_| {
                Ok(self.text().map_or(GoRuntimeValue::Nil, GoRuntimeValue::String))
            })
        })
    }

    fn text(&self) -> Option<GoString> {
        let at = usize::try_from(self.number - self.first).ok()?;
        self.names.get(at).map(|name| GoString::from(*name))
    }

    fn equals(&self, other: &dyn GoObject) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<Self>().is_some_and(|other| self.number == other.number)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::work_meter::{StopSignal, WorkAllowance, WorkMeter};

    fn call(object: impl GoObject, method: &str, arguments: &[GoRuntimeValue]) -> String {
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        let result = Arc::new(object).method(method).unwrap().call(&mut meter, arguments).unwrap();
        String::from_utf8(crate::fmt::sprint(&[result]).unwrap()).unwrap()
    }

    fn time(text: &str) -> GoTime {
        GoTime::parse(super::super::RFC3339, text, &GoTimeZone::Utc).unwrap()
    }

    #[test]
    fn templates_see_the_methods_of_times() {
        let leap = || time("2024-02-29T13:04:05Z");
        assert_eq!(call(leap(), "Month", &[]), "February");
        assert_eq!(call(leap(), "Weekday", &[]), "Thursday");
        assert_eq!(call(leap(), "Format", &[GoRuntimeValue::from("3:04PM")]), "1:04PM");
        let years = [1, 0, 0].map(GoRuntimeValue::int);
        assert_eq!(call(leap(), "AddDate", &years), "2025-03-01 13:04:05 +0000 UTC");
        let day = [GoRuntimeValue::object(time("2024-02-28T13:04:05Z"))];
        assert_eq!(call(leap(), "Sub", &day), "24h0m0s");
        assert_eq!(call(leap(), "After", &day), "true");
        let hour = [GoRuntimeValue::object(GoDuration::HOUR)];
        assert_eq!(call(leap(), "Truncate", &hour), "2024-02-29 13:00:00 +0000 UTC");
        assert_eq!(call(GoTime::zero(), "IsZero", &[]), "true");
    }

    #[test]
    fn templates_see_the_methods_of_durations() {
        let length = || GoDuration::parse("1h30m").unwrap();
        assert_eq!(call(length(), "Hours", &[]), "1.5");
        assert_eq!(call(length(), "Round", &[GoRuntimeValue::object(GoDuration::HOUR)]), "2h0m0s");
        assert_eq!(
            GoRuntimeValue::object(length()).kind(),
            ReflectKind::Integer(IntegerKind::Int64)
        );
    }
}
