//! Which strings Go's `time.Parse` accepts under the four layouts that go-yaml v2 tries.
//! Version 2 only asks whether a text is a date; version 3 writes it again as JSON.

/// Whether go-yaml v2 takes `text` for a timestamp.
///
/// The layouts are `2006-1-2`, `2006-1-2 15:4:5.999999999` without a zone, and the same with `T` or
/// `t` and a zone of `Z` or `±07:00`.
pub(crate) fn is_timestamp(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 5 || !bytes[..4].iter().all(u8::is_ascii_digit) || bytes[4] != b'-' {
        return false;
    }
    let Some(rest) = date(bytes) else { return false };
    match rest {
        [] => true,
        [b'T' | b't', rest @ ..] => clock(rest).is_some_and(zone),
        // A blank in a layout of Go's stands for one or more blanks.
        [b' ', rest @ ..] => clock(skip_blanks(rest)).is_some_and(<[u8]>::is_empty),
        _ => false,
    }
}

/// A text that [`is_timestamp`] accepts as Go writes times into JSON, or `None` if Go refuses its
/// zone.
pub(crate) fn rfc3339(text: &str) -> Option<String> {
    let (date, rest) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], text[at + 1..].trim_start_matches(' ')),
        None => (text, "0:0:0"),
    };
    let zone_at = rest.find(['Z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, fraction) = clock.split_once(['.', ',']).unwrap_or((clock, ""));
    // Go knows nanoseconds and leaves out zeros at the end.
    let fraction = fraction.get(..9).unwrap_or(fraction).trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let zone = match zone {
        "" | "Z" => "Z".to_owned(),
        _ => offset(zone)?,
    };
    let padded = |text: &str, separator: char, joined: &str| {
        text.split(separator).map(|part| format!("{part:0>2}")).collect::<Vec<_>>().join(joined)
    };
    let date = padded(date, '-', "-");
    let clock = padded(clock, ':', ":");
    Some(format!("{date}T{clock}{dot}{fraction}{zone}"))
}

/// Writes an offset of hours and minutes as Go does, where 60 minutes are an hour. `None` if it is not valid or a day
/// or longer.
fn offset(zone: &str) -> Option<String> {
    let (sign, rest) = zone.split_at(1);
    let (hours, minutes) = rest.split_once(':')?;
    let total = hours.parse::<u32>().ok()? * 60 + minutes.parse::<u32>().ok()?;
    match total {
        0 => Some("Z".to_owned()),
        _ if total >= 24 * 60 => None,
        _ => Some(format!("{sign}{:02}:{:02}", total / 60, total % 60)),
    }
}

fn skip_blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|byte| **byte == b' ').count();
    &bytes[blanks..]
}

fn date(bytes: &[u8]) -> Option<&[u8]> {
    let year = bytes[..4].iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    let (month, rest) = one_or_two(&bytes[5..])?;
    let (day, rest) = one_or_two(rest.strip_prefix(b"-")?)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    (1..=days).contains(&day).then_some(rest)
}

fn clock(bytes: &[u8]) -> Option<&[u8]> {
    let (hour, rest) = one_or_two(bytes)?;
    let (minute, rest) = one_or_two(rest.strip_prefix(b":")?)?;
    let (second, rest) = one_or_two(rest.strip_prefix(b":")?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    match rest {
        [b'.' | b',', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => {
            let end = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
            Some(&digits[end..])
        }
        _ => Some(rest),
    }
}

fn zone(bytes: &[u8]) -> bool {
    match bytes {
        [b'Z'] => true,
        [b'+' | b'-', h1, h2, b':', m1, m2] => {
            // Go tests with `>`, as some people write offsets of 24 hours or 60 minutes.
            two(*h1, *h2).is_some_and(|hours| hours <= 24)
                && two(*m1, *m2).is_some_and(|minutes| minutes <= 60)
        }
        _ => false,
    }
}

fn one_or_two(bytes: &[u8]) -> Option<(u32, &[u8])> {
    match bytes {
        [a, b, rest @ ..] if two(*a, *b).is_some() => Some((two(*a, *b)?, rest)),
        [a, rest @ ..] if a.is_ascii_digit() => Some((u32::from(a - b'0'), rest)),
        _ => None,
    }
}

fn two(tens: u8, ones: u8) -> Option<u32> {
    (tens.is_ascii_digit() && ones.is_ascii_digit())
        .then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}
