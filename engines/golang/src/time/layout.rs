//! Layouts: the reference time, divided into its parts. Elsewhere: writing and reading times.

/// A part of a layout that stands for a part of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayoutElement {
    LongMonth,
    Month,
    NumMonth,
    ZeroMonth,
    LongWeekday,
    Weekday,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    LongYear,
    Year,
    /// `PM` or `pm`.
    HalfDay {
        is_upper: bool,
    },
    /// `MST`.
    Abbreviation,
    /// An offset, such as `Z0700` or `-07:00`.
    Offset(ZoneOffsetFormat),
    /// A fraction of a second, such as `.000` or `,999`.
    Fraction {
        digits: usize,
        is_trimmed: bool,
        separator: u8,
    },
}

/// The form of an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ZoneOffsetFormat {
    /// Whether UTC is written as `Z`.
    pub(super) has_z: bool,
    pub(super) has_colon: bool,
    pub(super) has_minutes: bool,
    pub(super) has_seconds: bool,
}

/// The first element of a layout, with the text around it.
pub(super) struct LayoutChunk<'l> {
    /// The literal text before the element.
    pub(super) before: &'l [u8],
    /// The element as the layout writes it.
    pub(super) spelled: &'l [u8],
    /// The element itself.
    pub(super) element: LayoutElement,
    /// The rest of the layout.
    pub(super) after: &'l [u8],
}

/// Finds the first element of a layout, such as a year, and the text around it. `None` if only literal text is left.
pub(super) fn chunk(layout: &[u8]) -> Option<LayoutChunk<'_>> {
    (0..layout.len()).find_map(|start| {
        let (skipped, length, element) = element(&layout[start..])?;
        let (before, rest) = layout.split_at(start + skipped);
        let (spelled, after) = rest.split_at(length);
        Some(LayoutChunk { before, spelled, element, after })
    })
}

/// The element at the beginning of a layout: how many bytes before it are literal, its length, and the element. `None`
/// if no element is at the beginning.
fn element(text: &[u8]) -> Option<(usize, usize, LayoutElement)> {
    use LayoutElement::{
        Abbreviation, Day, HalfDay, Hour, Hour12, LongMonth, LongWeekday, LongYear, Minute, Month,
        NumMonth, Second, UnderDay, UnderYearDay, Weekday, Year, ZeroDay, ZeroHour12, ZeroMinute,
        ZeroMonth, ZeroSecond, ZeroYearDay,
    };
    // `Jan` in `Janitor` does not count.
    let ends_word = |at: usize| !text.get(at).is_some_and(u8::is_ascii_lowercase);
    let (length, element) = match text {
        [b'J', ..] if text.starts_with(b"January") => (7, LongMonth),
        [b'J', ..] if text.starts_with(b"Jan") && ends_word(3) => (3, Month),
        [b'M', ..] if text.starts_with(b"Monday") => (6, LongWeekday),
        [b'M', ..] if text.starts_with(b"Mon") && ends_word(3) => (3, Weekday),
        [b'M', b'S', b'T', ..] => (3, Abbreviation),
        [b'0', b'1', ..] => (2, ZeroMonth),
        [b'0', b'2', ..] => (2, ZeroDay),
        [b'0', b'3', ..] => (2, ZeroHour12),
        [b'0', b'4', ..] => (2, ZeroMinute),
        [b'0', b'5', ..] => (2, ZeroSecond),
        [b'0', b'6', ..] => (2, Year),
        [b'0', b'0', b'2', ..] => (3, ZeroYearDay),
        [b'1', b'5', ..] => (2, Hour),
        [b'1', ..] => (1, NumMonth),
        [b'2', b'0', b'0', b'6', ..] => (4, LongYear),
        [b'2', ..] => (1, Day),
        // The underscore before a year is literal.
        [b'_', b'2', b'0', b'0', b'6', ..] => return Some((1, 4, LongYear)),
        [b'_', b'2', ..] => (2, UnderDay),
        [b'_', b'_', b'2', ..] => (3, UnderYearDay),
        [b'3', ..] => (1, Hour12),
        [b'4', ..] => (1, Minute),
        [b'5', ..] => (1, Second),
        [b'P', b'M', ..] => (2, HalfDay { is_upper: true }),
        [b'p', b'm', ..] => (2, HalfDay { is_upper: false }),
        [b'-' | b'Z', ..] => offset(text)?,
        [b'.' | b',', ..] => fraction(text)?,
        _ => return None,
    };
    Some((0, length, element))
}

fn offset(text: &[u8]) -> Option<(usize, LayoutElement)> {
    let (sign, rest) = text.split_first()?;
    // The order matters, because `-0700` is a part of `-070000`.
    let forms: [(&[u8], bool, bool, bool); 5] = [
        (b"070000", false, true, true),
        (b"07:00:00", true, true, true),
        (b"0700", false, true, false),
        (b"07:00", true, true, false),
        (b"07", false, false, false),
    ];
    let (form, has_colon, has_minutes, has_seconds) =
        forms.into_iter().find(|(form, ..)| rest.starts_with(form))?;
    let has_z = *sign == b'Z';
    let offset = ZoneOffsetFormat { has_z, has_colon, has_minutes, has_seconds };
    Some((1 + form.len(), LayoutElement::Offset(offset)))
}

/// The fraction of a second at the beginning of a layout: a point or comma, then only zeros or only nines. `None` if
/// another digit follows.
fn fraction(text: &[u8]) -> Option<(usize, LayoutElement)> {
    let (separator, rest) = text.split_first()?;
    let digit = *rest.first().filter(|digit| matches!(digit, b'0' | b'9'))?;
    let digits = rest.iter().take_while(|byte| **byte == digit).count();
    if rest.get(digits).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    // Parity(go): twelve bits hold the number of digits.
    let element = LayoutElement::Fraction {
        digits: digits & 0xfff,
        is_trimmed: digit == b'9',
        separator: *separator,
    };
    Some((1 + digits, element))
}

/// The months.
pub(super) const MONTHS: [&str; 12] = [
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

/// The weekdays.
pub(super) const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
