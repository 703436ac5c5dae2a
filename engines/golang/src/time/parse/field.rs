//! Reads one part of a time. Elsewhere: the time that the parts form (`parse.rs`).

use super::super::layout::{self, LayoutElement, MONTHS, WEEKDAYS, ZoneOffsetFormat};
use super::TimeParts;

/// Why a part cannot be read.
pub(super) enum TimeFieldError {
    /// The text does not have the form of the part.
    Mismatch,
    /// A number is out of its range. The text says which number.
    OutOfRange(&'static str),
}

type TimeFieldReadResult<'t, T> = Result<(T, &'t [u8]), TimeFieldError>;

impl TimeParts {
    /// Reads a part, and returns the rest of the text. `layout` is the rest of the layout.
    pub(super) fn read<'t>(
        &mut self,
        element: LayoutElement,
        text: &'t [u8],
        layout: &[u8],
    ) -> Result<&'t [u8], TimeFieldError> {
        let rest;
        match element {
            LayoutElement::Year => {
                let (digits, after) = text.split_at_checked(2).ok_or(TimeFieldError::Mismatch)?;
                let year = signed(digits)?;
                self.year = year + if year >= 69 { 1900 } else { 2000 };
                rest = after;
            }
            LayoutElement::LongYear => {
                let (digits, after) = text.split_at_checked(4).ok_or(TimeFieldError::Mismatch)?;
                if !digits[0].is_ascii_digit() {
                    return Err(TimeFieldError::Mismatch);
                }
                self.year = signed(digits)?;
                rest = after;
            }
            LayoutElement::Month | LayoutElement::LongMonth => {
                let is_long = element == LayoutElement::LongMonth;
                let month;
                (month, rest) = name(&MONTHS, is_long, text)?;
                self.month = Some(month + 1);
            }
            LayoutElement::Weekday | LayoutElement::LongWeekday => {
                (_, rest) = name(&WEEKDAYS, element == LayoutElement::LongWeekday, text)?;
            }
            LayoutElement::NumMonth | LayoutElement::ZeroMonth => {
                let month;
                (month, rest) = number(text, element == LayoutElement::ZeroMonth)?;
                self.month = Some(month);
                within("month", 1..=12, month)?;
            }
            LayoutElement::Day | LayoutElement::UnderDay | LayoutElement::ZeroDay => {
                let text = without_spaces(text, u32::from(element == LayoutElement::UnderDay));
                let day;
                (day, rest) = number(text, element == LayoutElement::ZeroDay)?;
                self.day = Some(day);
            }
            LayoutElement::UnderYearDay | LayoutElement::ZeroYearDay => {
                let is_padded = element == LayoutElement::UnderYearDay;
                let text = without_spaces(text, if is_padded { 2 } else { 0 });
                let day;
                (day, rest) = year_day(text, !is_padded)?;
                self.year_day = Some(day);
            }
            LayoutElement::Hour | LayoutElement::Hour12 | LayoutElement::ZeroHour12 => {
                (self.clock.hour, rest) = number(text, element == LayoutElement::ZeroHour12)?;
                let most = if element == LayoutElement::Hour { 23 } else { 12 };
                within("hour", 0..=most, self.clock.hour)?;
            }
            LayoutElement::Minute | LayoutElement::ZeroMinute => {
                (self.clock.minute, rest) = number(text, element == LayoutElement::ZeroMinute)?;
                within("minute", 0..=59, self.clock.minute)?;
            }
            LayoutElement::Second | LayoutElement::ZeroSecond => {
                let (second, after) = number(text, element == LayoutElement::ZeroSecond)?;
                self.clock.second = second;
                within("second", 0..=59, second)?;
                rest = self.unannounced_fraction(after, layout)?;
            }
            LayoutElement::HalfDay { is_upper } => {
                let (half, after) = text.split_at_checked(2).ok_or(TimeFieldError::Mismatch)?;
                self.is_afternoon = Some(match (is_upper, half) {
                    (true, b"PM") | (false, b"pm") => true,
                    (true, b"AM") | (false, b"am") => false,
                    _ => return Err(TimeFieldError::Mismatch),
                });
                rest = after;
            }
            LayoutElement::Abbreviation => rest = self.abbreviation(text)?,
            LayoutElement::Offset(form) => rest = self.offset(form, text)?,
            LayoutElement::Fraction { digits, is_trimmed: false, .. } => {
                rest = self.fraction(text, 1 + digits)?;
            }
            LayoutElement::Fraction { is_trimmed: true, .. } => {
                rest = if has_fraction(text) { self.fraction(text, length(text))? } else { text };
            }
        }
        Ok(rest)
    }

    /// Reads a fraction after the seconds, even if the layout has none.
    fn unannounced_fraction<'t>(
        &mut self,
        text: &'t [u8],
        layout: &[u8],
    ) -> Result<&'t [u8], TimeFieldError> {
        let next = layout::chunk(layout).map(|chunk| chunk.element);
        if !has_fraction(text) || matches!(next, Some(LayoutElement::Fraction { .. })) {
            return Ok(text);
        }
        self.fraction(text, length(text))
    }

    /// Reads a point or comma and digits, together `length` bytes. Digits after the ninth do not count.
    fn fraction<'t>(&mut self, text: &'t [u8], length: usize) -> Result<&'t [u8], TimeFieldError> {
        let (fraction, rest) = text.split_at_checked(length).ok_or(TimeFieldError::Mismatch)?;
        if !matches!(fraction.first(), Some(b'.' | b',')) {
            return Err(TimeFieldError::Mismatch);
        }
        let digits = &fraction[1..fraction.len().min(10)];
        // Parity(go): a sign is taken for a digit.
        let number = signed(digits)?;
        let scale = 10i64.pow(u32::try_from(9 - digits.len()).unwrap_or_default());
        let nanos = u32::try_from(number * scale);
        self.clock.nanosecond =
            nanos.map_err(|_| TimeFieldError::OutOfRange("fractional second"))?;
        Ok(rest)
    }

    fn offset<'t>(
        &mut self,
        form: ZoneOffsetFormat,
        text: &'t [u8],
    ) -> Result<&'t [u8], TimeFieldError> {
        if form.has_z
            && let Some(rest) = text.strip_prefix(b"Z")
        {
            self.is_utc = true;
            return Ok(rest);
        }
        let ZoneOffsetFormat { has_colon, has_minutes, has_seconds, .. } = form;
        let places: &[usize] = match (has_minutes, has_seconds, has_colon) {
            (false, ..) => &[1],
            (true, false, false) => &[1, 3],
            (true, false, true) => &[1, 4],
            (true, true, false) => &[1, 3, 5],
            (true, true, true) => &[1, 4, 7],
        };
        let length = places[places.len() - 1] + 2;
        let (text, rest) = text.split_at_checked(length).ok_or(TimeFieldError::Mismatch)?;
        if places[1..].iter().any(|place| has_colon && text[place - 1] != b':') {
            return Err(TimeFieldError::Mismatch);
        }
        let mut units = [0; 3];
        let mut is_number = true;
        for (unit, place) in units.iter_mut().zip(places) {
            match number(&text[*place..], true) {
                Ok((number, _)) if is_number => *unit = number,
                Ok(_) => {}
                Err(_) => is_number = false,
            }
        }
        let [hours, minutes, seconds] = units;
        // As in Go, 24 hours and 60 minutes or seconds are accepted, because some programs write them.
        within("time zone offset second", 0..=60, seconds)?;
        within("time zone offset minute", 0..=60, minutes)?;
        within("time zone offset hour", 0..=24, hours)?;
        let total = i32::try_from((hours * 60 + minutes) * 60 + seconds).unwrap_or_default();
        match text[0] {
            _ if !is_number => return Err(TimeFieldError::Mismatch),
            b'+' => self.offset = Some(total),
            b'-' => self.offset = Some(-total),
            _ => return Err(TimeFieldError::Mismatch),
        }
        Ok(rest)
    }

    fn abbreviation<'t>(&mut self, text: &'t [u8]) -> Result<&'t [u8], TimeFieldError> {
        if let Some(rest) = text.strip_prefix(b"UTC") {
            self.is_utc = true;
            return Ok(rest);
        }
        let length = abbreviation(text).ok_or(TimeFieldError::Mismatch)?;
        let (name, rest) = text.split_at(length);
        self.zone = Some(String::from_utf8_lossy(name).into_owned());
        Ok(rest)
    }
}

fn within(
    what: &'static str,
    range: std::ops::RangeInclusive<u32>,
    number: u32,
) -> Result<(), TimeFieldError> {
    if range.contains(&number) { Ok(()) } else { Err(TimeFieldError::OutOfRange(what)) }
}

fn without_spaces(text: &[u8], most: u32) -> &[u8] {
    (0..most).fold(text, |text, _| text.strip_prefix(b" ").unwrap_or(text))
}

/// Reads one or two digits. With `is_fixed`, there must be two.
fn number(text: &[u8], is_fixed: bool) -> TimeFieldReadResult<'_, u32> {
    let digit = |at: usize| {
        text.get(at).filter(|byte| byte.is_ascii_digit()).map(|byte| u32::from(byte - b'0'))
    };
    match (digit(0), digit(1)) {
        (Some(tens), Some(ones)) => Ok((tens * 10 + ones, &text[2..])),
        (Some(ones), None) if !is_fixed => Ok((ones, &text[1..])),
        (Some(_) | None, _) => Err(TimeFieldError::Mismatch),
    }
}

/// Reads up to three digits. With `is_fixed`, there must be three.
fn year_day(text: &[u8], is_fixed: bool) -> TimeFieldReadResult<'_, u32> {
    let length = text.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    if length == 0 || is_fixed && length != 3 {
        return Err(TimeFieldError::Mismatch);
    }
    let (digits, rest) = text.split_at(length);
    Ok((digits.iter().fold(0, |day, digit| day * 10 + u32::from(digit - b'0')), rest))
}

/// Reads a whole text as a number. It may have a sign.
fn signed(text: &[u8]) -> Result<i64, TimeFieldError> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    let number = digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Ok(number * 10 + i64::from(digit - b'0')),
        _ => Err(TimeFieldError::Mismatch),
    });
    number.map(|number| sign * number)
}

/// The index of a name in a list, in upper or lower case. Short names are the first three letters.
fn name<'t>(names: &[&str], is_long: bool, text: &'t [u8]) -> TimeFieldReadResult<'t, u32> {
    for (index, name) in (0..).zip(names) {
        let name = if is_long { name } else { &name[..3] };
        if let Some((head, rest)) = text.split_at_checked(name.len())
            && head.eq_ignore_ascii_case(name.as_bytes())
        {
            return Ok((index, rest));
        }
    }
    Err(TimeFieldError::Mismatch)
}

fn has_fraction(text: &[u8]) -> bool {
    matches!(text, [b'.' | b',', b'0'..=b'9', ..])
}

/// The length of a fraction, including its point.
fn length(text: &[u8]) -> usize {
    1 + text[1..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The length of a text that looks like an abbreviation: three capital letters, or some more that end with T. Returns
/// `None` if the text begins with none.
fn abbreviation(text: &[u8]) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with(b"ChST") || text.starts_with(b"MeST") {
        return Some(4);
    }
    if let Some(rest) = text.strip_prefix(b"GMT") {
        return Some(3 + signed_hours(rest));
    }
    if matches!(text[0], b'+' | b'-') {
        return Some(signed_hours(text)).filter(|length| *length > 0);
    }
    let capitals = text.iter().take(6).take_while(|byte| byte.is_ascii_uppercase()).count();
    match capitals {
        3 => Some(3),
        4 if text[3] == b'T' || text.starts_with(b"WITA") => Some(4),
        5 if text[4] == b'T' => Some(5),
        _ => None,
    }
}

/// The length of a sign and a number up to 23. It is 0 if there is none.
fn signed_hours(text: &[u8]) -> usize {
    let [b'+' | b'-', digits @ ..] = text else { return 0 };
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let hours = digits[..length]
        .iter()
        .fold(0u32, |hours, digit| hours.saturating_mul(10).saturating_add((digit - b'0').into()));
    if length == 0 || hours > 23 { 0 } else { 1 + length }
}
