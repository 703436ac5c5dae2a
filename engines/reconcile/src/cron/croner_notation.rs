//! Translates one field of a cron expression from its notation in a spec into the simpler notation that croner reads.
//!
//! Names become numbers, `?` becomes `*`, and `5/15` becomes `5-59/15`. Every remaining form then has only one meaning.
//! Elsewhere: the whole expression (`super`).

use super::CronError;

/// The values and names that a field allows.
pub(super) struct CronFieldRange {
    name: &'static str,
    least: u16,
    most: u16,
    /// The last value of a range `n/step`.
    last: u16,
    /// The names of the values in order. The first one names `least`.
    names: &'static [&'static str],
}

const fn numbers(name: &'static str, least: u16, most: u16) -> CronFieldRange {
    CronFieldRange { name, least, most, last: most, names: &[] }
}

pub(super) const MINUTE: CronFieldRange = numbers("minute", 0, 59);
pub(super) const HOUR: CronFieldRange = numbers("hour", 0, 23);
pub(super) const DAY: CronFieldRange = numbers("day of month", 1, 31);
pub(super) const MONTH: CronFieldRange = CronFieldRange {
    names: &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    ..numbers("month", 1, 12)
};
pub(super) const WEEKDAY: CronFieldRange = CronFieldRange {
    last: 6,
    names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
    ..numbers("day of week", 0, 7)
};

impl CronFieldRange {
    /// The plain form of a field's text.
    ///
    /// # Errors
    /// If the text has no meaning in this field.
    pub(super) fn plain(&self, text: &str) -> Result<String, CronError> {
        let mut items = Vec::new();
        for item in text.split(',') {
            let item = self.item(item).map_err(|why| CronError::Field {
                field: self.name,
                text: text.to_owned(),
                why,
            })?;
            // A list with `*` means every value.
            if item == "*" {
                return Ok(item);
            }
            items.push(item);
        }
        Ok(items.join(","))
    }

    fn item(&self, item: &str) -> Result<String, String> {
        let (range, step) = item.split_once('/').map_or((item, None), |(a, b)| (a, Some(b)));
        let step = step.map(|step| self.step(step)).transpose()?;
        let range = match (range, range.split_once('-')) {
            ("*" | "?", _) => "*".to_owned(),
            (_, Some((first, last))) => self.range(first, last)?,
            (single, None) => {
                let value = self.value(single)?;
                match step {
                    Some(_) if value > self.last => return Err("7 has no steps; write 0".into()),
                    Some(_) => format!("{value}-{}", self.last),
                    None => value.to_string(),
                }
            }
        };
        Ok(match step {
            None | Some(1) => range,
            Some(step) => format!("{range}/{step}"),
        })
    }

    fn range(&self, first: &str, last: &str) -> Result<String, String> {
        let from = self.value(first)?;
        // A week that begins on another day ends on Sunday.
        let to = if last.eq_ignore_ascii_case("SUN") && from > 0 { 7 } else { self.value(last)? };
        if from > to {
            return Err(format!("{first} comes after {last}"));
        }
        Ok(format!("{from}-{to}"))
    }

    fn step(&self, text: &str) -> Result<u16, String> {
        let step = if is_number(text) { text.parse().ok() } else { None };
        step.filter(|step| (1..=self.most).contains(step))
            .ok_or_else(|| format!("the step `{text}` is not a number from 1 to {}", self.most))
    }

    fn value(&self, text: &str) -> Result<u16, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        if let Some(at) = named.and_then(|at| u16::try_from(at).ok()) {
            return Ok(self.least + at);
        }
        let value = if is_number(text) { text.parse().ok() } else { None };
        let names = match self.names {
            [first, .., last] => format!(", or {first} to {last}"),
            [] | [_] => String::new(),
        };
        let Self { least, most, .. } = self;
        value.filter(|value| (*least..=*most).contains(value)).ok_or_else(|| {
            let hint = if text.contains(['L', 'W', '#']) {
                "; `L`, `W` and `#` are not supported"
            } else {
                ""
            };
            format!("`{text}` is not a number from {least} to {most}{names}{hint}")
        })
    }
}

/// A number has at most two digits, because no field allows more.
fn is_number(text: &str) -> bool {
    matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit())
}
