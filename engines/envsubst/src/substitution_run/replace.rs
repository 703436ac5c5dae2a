//! Replaces text in a value, as Go's `strings.Replace` does.

use std::borrow::Cow;

use golang::unicode::decode;

use crate::error::LimitError;
use crate::limits::SubstitutionBudget;
use crate::parse::ValueSide;

/// Replaces the text `old` from the left: as often as given, or everywhere.
///
/// An empty `old` is found before every character and at the end.
pub(super) fn replace<'v>(
    value: &'v [u8],
    old: &[u8],
    new: &[u8],
    times: Option<usize>,
    budget: &mut SubstitutionBudget,
) -> Result<Cow<'v, [u8]>, LimitError> {
    if old == new {
        return Ok(Cow::Borrowed(value));
    }
    let mut replaced = Vec::new();
    let mut copied = 0;
    let mut from = 0;
    for _ in 0..times.unwrap_or(usize::MAX) {
        let Some(found) = find(value, old, from, budget)? else { break };
        budget.produce(found - copied + new.len())?;
        replaced.extend_from_slice(&value[copied..found]);
        replaced.extend_from_slice(new);
        copied = found + old.len();
        from = copied;
        if old.is_empty() {
            match decode(&value[found..]) {
                (_, 0) => break,
                (_, width) => from = found + width,
            }
        }
    }
    budget.produce(value.len() - copied)?;
    replaced.extend_from_slice(&value[copied..]);
    Ok(Cow::Owned(replaced))
}

/// Replaces the text `old` at the beginning or the end of a value.
pub(super) fn replace_at<'v>(
    value: &'v [u8],
    old: &[u8],
    new: &[u8],
    side: ValueSide,
    budget: &mut SubstitutionBudget,
) -> Result<Cow<'v, [u8]>, LimitError> {
    budget.spend(old.len())?;
    let parts = match side {
        ValueSide::Prefix => value.strip_prefix(old).map(|rest| [new, rest]),
        ValueSide::Suffix => value.strip_suffix(old).map(|rest| [rest, new]),
    };
    let Some(parts) = parts else { return Ok(Cow::Borrowed(value)) };
    budget.produce(parts[0].len() + parts[1].len())?;
    Ok(Cow::Owned(parts.concat()))
}

/// The next position of a text in a value. Every compared byte is charged.
fn find(
    value: &[u8],
    text: &[u8],
    from: usize,
    budget: &mut SubstitutionBudget,
) -> Result<Option<usize>, LimitError> {
    let Some(last) = value.len().checked_sub(text.len()) else { return Ok(None) };
    for start in from..=last {
        let same = value[start..].iter().zip(text).take_while(|(a, b)| a == b).count();
        budget.spend(same + 1)?;
        if same == text.len() {
            return Ok(Some(start));
        }
    }
    Ok(None)
}
