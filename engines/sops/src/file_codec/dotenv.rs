//! The dotenv format: lines of `KEY=value`. A line break in a value is written as `\n`, and there are no quotes.

use zeroize::Zeroizing;

use super::{SopsReadError, SopsWriteError, with_lines};
use crate::limits::SopsParseBudget;
use crate::value::{MapItem, MapItemKey, SecretBytes, SopsValue};

pub(super) fn read(
    data: &[u8],
    budget: &mut SopsParseBudget,
) -> Result<Vec<MapItem>, SopsReadError> {
    let mut items = Vec::new();
    for (at, line) in data.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        budget.take(1)?;
        if let Some(comment) = line.strip_prefix(b"#") {
            items.push(MapItem::comment(comment, false));
            continue;
        }
        // The line itself may be secret.
        let Some(equals) = memchr::memchr(b'=', line) else {
            let problem = format!("invalid dotenv input line: line {} has no `=`", at + 1);
            return Err(SopsReadError::Form(problem));
        };
        let (key, value) = line.split_at(equals);
        let value = with_lines(value.get(1..).unwrap_or_default());
        items.push(MapItem::text(String::from_utf8_lossy(key), SopsValue::Text(value)));
    }
    Ok(items)
}

pub(super) fn write(items: &[MapItem]) -> Result<SecretBytes, SopsWriteError> {
    let mut out = Zeroizing::new(Vec::new());
    for item in items {
        let key = match &item.key {
            MapItemKey::Comment(comment) => {
                out.push(b'#');
                out.extend_from_slice(&comment.text);
                out.push(b'\n');
                continue;
            }
            MapItemKey::Text(key) => key.as_str(),
            MapItemKey::Other(name) => name,
        };
        if item.value.is_collection() {
            return Err(SopsWriteError::Complex(key.to_owned()));
        }
        out.extend_from_slice(key.as_bytes());
        out.push(b'=');
        let shown = item.value.shown();
        if matches!(item.value, SopsValue::Text(_)) {
            for (at, line) in shown.split(|byte| *byte == b'\n').enumerate() {
                out.extend_from_slice(if at > 0 { b"\\n" } else { b"" });
                out.extend_from_slice(line);
            }
        } else {
            out.extend_from_slice(&shown);
        }
        out.push(b'\n');
    }
    Ok(out)
}
