//! Parts of times and durations, such as `getHours`.

use golang::strconv;
use golang::time::{GoTime, GoTimeZone};

use super::FunctionResult;
use crate::budget::CelError;
use crate::value::CelValue;

pub(super) fn part<'a>(name: &str, args: &[CelValue<'a>]) -> FunctionResult<'a> {
    let part = match args {
        [CelValue::Timestamp(time)] => of_time(name, &time.in_zone(GoTimeZone::Utc)),
        [CelValue::Timestamp(time), CelValue::String(name_of_zone)] => {
            of_time(name, &time.in_zone(zone(name_of_zone)?))
        }
        [CelValue::Duration(duration)] => match name {
            "getHours" => duration.hours().trunc() as i64,
            "getMinutes" => duration.minutes().trunc() as i64,
            "getSeconds" => duration.seconds().trunc() as i64,
            _ => duration.milliseconds(),
        },
        _ => return Err(CelError::no_such_overload()),
    };
    Ok(CelValue::Int(part))
}

fn of_time(name: &str, time: &GoTime) -> i64 {
    let date = time.date();
    let clock = time.clock();
    match name {
        "getFullYear" => date.year,
        "getMonth" => i64::from(date.month) - 1,
        "getDayOfYear" => i64::from(date.year_day()) - 1,
        "getDayOfMonth" => i64::from(date.day) - 1,
        "getDate" => i64::from(date.day),
        "getDayOfWeek" => i64::try_from(date.weekday()).unwrap_or_default(),
        "getHours" => clock.hour.into(),
        "getMinutes" => clock.minute.into(),
        "getSeconds" => clock.second.into(),
        _ => i64::from(clock.nanosecond) / 1_000_000,
    }
}

/// Parses a time zone: an IANA name such as `Europe/Paris`, or hours and minutes east of UTC.
fn zone(name: &str) -> Result<GoTimeZone, CelError> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return GoTimeZone::load(name).map_err(|error| CelError::failed(error.to_string()));
    };
    let number =
        |text: &str| strconv::atoi(text).map_err(|error| CelError::failed(error.to_string()));
    let hours = number(hours)?;
    let minutes = number(minutes)?;
    let minutes = if name.starts_with('-') { -minutes } else { minutes };
    let offset = hours.saturating_mul(60).saturating_add(minutes).saturating_mul(60);
    // The text may have an offset of more than a day, but no clock has one.
    let offset = i32::try_from(offset).unwrap_or(0);
    Ok(GoTimeZone::fixed("", offset))
}
