//! The template functions for dates: formatting and parsing times, in the time zones of the environment. Elsewhere: durations
//! (`durations.rs`), the methods of times (`golang::time`).

use std::any::Any;

use golang::GoRuntimeValue;
use golang::time::{GoDuration, GoTime, GoTimeZone, TimeParseError};
use golang::value::IntegerKind;
use gotemplate::FunctionCallContext;

use crate::arguments::{SprigResult, TEXT_OVERHEAD_BYTES, any, text};
use crate::function_table::{SprigFunctionEntry, impure, plain};
use crate::template_environment::TemplateEnvironment;

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    impure("ago", "func(interface {}) string", ago),
    impure("date", "func(string, interface {}) string", date),
    impure("dateInZone", "func(string, interface {}, string) string", date_in_zone),
    plain("dateModify", "func(string, time.Time) time.Time", date_modify),
    impure("date_in_zone", "func(string, interface {}, string) string", date_in_zone),
    plain("date_modify", "func(string, time.Time) time.Time", date_modify),
    impure("htmlDate", "func(interface {}) string", html_date),
    impure("htmlDateInZone", "func(interface {}, string) string", html_date_in_zone),
    plain("mustDateModify", "func(string, time.Time) (time.Time, error)", must_date_modify),
    impure("mustToDate", "func(string, string) (time.Time, error)", must_to_date),
    plain("must_date_modify", "func(string, time.Time) (time.Time, error)", must_date_modify),
    impure("now", "func() time.Time", now),
    impure("toDate", "func(string, string) time.Time", to_date),
    plain("unixEpoch", "func(time.Time) string", unix_epoch),
];

/// The layout of `htmlDate`.
const HTML: &str = "2006-01-02";

/// How long ago a time was, in whole seconds. A value that is not a time counts as the present time.
fn ago(
    template_environment: &dyn TemplateEnvironment,
    _: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let date = any(args, 0);
    // Parity(helm 4): an `int32` is a date for `date`, but not here.
    let is_int32 =
        matches!(date, GoRuntimeValue::Integer(integer) if integer.kind() == IntegerKind::Int32);
    let time =
        if is_int32 { template_environment.now() } else { time_of(template_environment, date) };
    Ok(GoRuntimeValue::from(
        template_environment.now().since(&time).round(GoDuration::SECOND).to_string(),
    ))
}

/// A time by a layout, in the local zone. A number is seconds since 1970, and a value that is not a time counts as now.
fn date(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    written(
        call,
        text(args, 0),
        &time_of(template_environment, any(args, 1)),
        template_environment.local().clone(),
    )
}

/// Formats a time in a time zone. If the zone does not exist, UTC is used.
fn date_in_zone(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let zone = zone(template_environment, text(args, 2));
    written(call, text(args, 0), &time_of(template_environment, any(args, 1)), zone)
}

/// Formats a date for HTML forms, in the local zone.
fn html_date(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    written(
        call,
        HTML.as_bytes(),
        &time_of(template_environment, any(args, 0)),
        template_environment.local().clone(),
    )
}

/// Formats a date for HTML forms, in a time zone.
fn html_date_in_zone(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let zone = zone(template_environment, text(args, 1));
    written(call, HTML.as_bytes(), &time_of(template_environment, any(args, 0)), zone)
}

/// Adds a duration to a time. If the duration is not valid, the time stays unchanged.
fn date_modify(args: &[GoRuntimeValue]) -> SprigResult {
    must_date_modify(args).or_else(|_| Ok(any(args, 1).clone()))
}

/// A time some length later.
fn must_date_modify(args: &[GoRuntimeValue]) -> SprigResult {
    let length = GoDuration::parse(&String::from_utf8_lossy(text(args, 0)));
    let length = length.map_err(|error| error.to_string())?;
    let time = given(any(args, 1)).cloned().unwrap_or_else(GoTime::zero);
    Ok(GoRuntimeValue::object(time.add(length)))
}

/// The function `now` of templates: the present time.
fn now(
    template_environment: &dyn TemplateEnvironment,
    _: &mut FunctionCallContext<'_>,
    _: &[GoRuntimeValue],
) -> SprigResult {
    Ok(GoRuntimeValue::object(template_environment.now()))
}

/// Parses a time. A time without a zone is in the local zone. If the text is not valid, the result is the beginning of year 1.
fn to_date(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    call.work(text(args, 0).len() + text(args, 1).len())?;
    Ok(GoRuntimeValue::object(
        parsed(template_environment, args).unwrap_or_else(|_| GoTime::zero()),
    ))
}

/// Parses a time. A time without a zone is in the local zone.
fn must_to_date(
    template_environment: &dyn TemplateEnvironment,
    call: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    call.work(text(args, 0).len() + text(args, 1).len())?;
    let time = parsed(template_environment, args).map_err(|error| error.to_string())?;
    Ok(GoRuntimeValue::object(time))
}

fn parsed(
    template_environment: &dyn TemplateEnvironment,
    args: &[GoRuntimeValue],
) -> Result<GoTime, TimeParseError> {
    let [layout, text] = [0, 1].map(|at| String::from_utf8_lossy(text(args, at)));
    GoTime::parse_in(&layout, &text, template_environment.local())
}

/// Seconds since 1970, as a text.
fn unix_epoch(args: &[GoRuntimeValue]) -> SprigResult {
    let time = given(any(args, 0)).cloned().unwrap_or_else(GoTime::zero);
    Ok(GoRuntimeValue::from(time.unix().to_string()))
}

/// The value as a time. `None` if it is not a time.
pub(super) fn given(value: &GoRuntimeValue) -> Option<&GoTime> {
    let GoRuntimeValue::Object(object) = value else { return None };
    let object: &dyn Any = &**object;
    object.downcast_ref()
}

/// The time that a value means.
fn time_of(template_environment: &dyn TemplateEnvironment, value: &GoRuntimeValue) -> GoTime {
    match value {
        GoRuntimeValue::Integer(integer)
            if matches!(
                integer.kind(),
                IntegerKind::Int | IntegerKind::Int32 | IntegerKind::Int64
            ) =>
        {
            GoTime::from_unix(integer.signed(), 0, template_environment.local().clone())
        }
        value => given(value).cloned().unwrap_or_else(|| template_environment.now()),
    }
}

fn zone(template_environment: &dyn TemplateEnvironment, name: &[u8]) -> GoTimeZone {
    match name {
        b"Local" => template_environment.local().clone(),
        name => GoTimeZone::load(&String::from_utf8_lossy(name)).unwrap_or(GoTimeZone::Utc),
    }
}

fn written(
    call: &mut FunctionCallContext<'_>,
    layout: &[u8],
    time: &GoTime,
    zone: GoTimeZone,
) -> SprigResult {
    let layout = String::from_utf8_lossy(layout);
    // A part of a layout becomes less than this many times its length.
    call.work(layout.len())?;
    call.produce(layout.len().saturating_mul(8) + TEXT_OVERHEAD_BYTES)?;
    let text = time.in_zone(zone).format(&layout);
    Ok(GoRuntimeValue::from(text))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn times_are_written() {
        check(&[
            (
                r#"{{ date "2006-01-02T15:04:05Z07:00" 1700000000 }} {{ date "15:04" now }}"#,
                "2023-11-14T22:13:20Z 07:08",
            ),
            (
                r#"{{ date "2006" "no date" }} {{ htmlDate 0 }} {{ htmlDateInZone 0 "America/New_York" }}"#,
                "2030 1970-01-01 1969-12-31",
            ),
            (
                r#"{{ dateInZone "15:04 MST" 0 "Asia/Tokyo" }} {{ date_in_zone "MST" 0 "Nowhere" }}"#,
                "09:00 JST UTC",
            ),
            (
                r#"{{ unixEpoch now }} {{ now.Year }} {{ ago (now.Add (mustToDuration "-90s")) }} {{ ago "x" }}"#,
                "1904281689 2030 1m30s 0s",
            ),
        ]);
    }

    #[test]
    fn strings_become_times() {
        check(&[
            (r#"{{ toDate "2006-01-02" "2019-11-30" }}"#, "2019-11-30 00:00:00 +0000 UTC"),
            (r#"{{ toDate "2006-01-02" "bad" }}"#, "0001-01-01 00:00:00 +0000 UTC"),
            (r#"{{ (mustToDate "2006-01-02" "2021-05-06").Weekday }}"#, "Thursday"),
            (
                r#"{{ mustToDate "2006-01-02" "bad" }}"#,
                r#"error: error calling mustToDate: parsing time "bad" as "2006-01-02": cannot parse "bad" as "2006""#,
            ),
            (
                r#"{{ dateModify "-1h" now }}|{{ date_modify "x" now }}"#,
                "2030-05-06 06:08:09 +0000 UTC|2030-05-06 07:08:09 +0000 UTC",
            ),
            (
                r#"{{ mustDateModify "x" now }}"#,
                r#"error: error calling mustDateModify: time: invalid duration "x""#,
            ),
            (r#"{{ must_date_modify "1m" now }}"#, "2030-05-06 07:09:09 +0000 UTC"),
        ]);
    }
}
