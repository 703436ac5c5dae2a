//! Reads and writes INI like gopkg.in/ini.
//!
//! A comment belongs to the section or key below it. When keys are written, their values are aligned in a column.

use zeroize::Zeroizing;

use super::{SopsReadError, SopsWriteError};
use crate::limits::SopsParseBudget;
use crate::value::{MapItem, MapItemKey, SecretBytes, SopsValue};

/// The section of keys above all sections.
const DEFAULT: &str = "DEFAULT";
const TRIPLE_QUOTES: &[u8] = b"\"\"\"";

/// The rest of a file, line by line.
struct IniLines<'d>(&'d [u8]);

impl<'d> IniLines<'d> {
    /// The next line including its end; `None` after the last line.
    fn next(&mut self) -> Option<&'d [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let end = memchr::memchr(b'\n', self.0).map_or(self.0.len(), |at| at + 1);
        let (line, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(line)
    }
}

struct IniSection {
    name: String,
    comment: SecretBytes,
    keys: Vec<(String, SecretBytes, SecretBytes)>,
}

impl IniSection {
    fn new(name: &str, comment: SecretBytes) -> Self {
        Self { name: name.to_owned(), comment, keys: Vec::new() }
    }

    /// Adds a key, or replaces the value of an existing one.
    fn set(&mut self, name: String, value: SecretBytes, comment: SecretBytes) {
        match self.keys.iter_mut().find(|(known, ..)| *known == name) {
            Some(key) => (key.1, key.2) = (value, comment),
            None => self.keys.push((name, value, comment)),
        }
    }
}

fn refuse(problem: impl std::fmt::Display) -> SopsReadError {
    SopsReadError::Form(format!("Could not unmarshal input data: {problem}"))
}

fn trimmed(text: &[u8]) -> SecretBytes {
    Zeroizing::new(text.trim_ascii().to_vec())
}

fn comment_in(text: &[u8]) -> Option<usize> {
    memchr::memchr2(b'#', b';', text)
}

pub(super) fn read(
    data: &[u8],
    budget: &mut SopsParseBudget,
) -> Result<Vec<MapItem>, SopsReadError> {
    let mut lines = IniLines(data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data));
    let mut sections = Vec::new();
    let mut section = IniSection::new(DEFAULT, SecretBytes::default());
    let mut comment: SecretBytes = Zeroizing::default();
    let mut number = 0;
    let mut counter = 1;
    while let Some(line) = lines.next() {
        number += 1;
        let line = line.trim_ascii_start();
        let Some(first) = line.first() else { continue };
        budget.take(2)?;
        if matches!(first, b'#' | b';') {
            comment.extend_from_slice(line);
            continue;
        }
        if *first == b'[' {
            let close = memchr::memrchr(b']', line)
                .ok_or_else(|| refuse(format_args!("unclosed section in line {number}")))?;
            let name = String::from_utf8_lossy(line.get(1..close).unwrap_or_default()).into_owned();
            if name.is_empty() {
                return Err(refuse("empty section name"));
            }
            let behind = line.get(close + 1..).unwrap_or_default();
            let at = comment_in(behind).unwrap_or(behind.len());
            comment.extend_from_slice(behind.get(at..).unwrap_or_default());
            let next = IniSection::new(&name, trimmed(&std::mem::take(&mut comment)));
            sections.push(std::mem::replace(&mut section, next));
            counter = 1;
            continue;
        }
        let (mut name, behind) =
            key_name(line).map_err(|problem| refuse(format_args!("{problem} in line {number}")))?;
        if name == "-" {
            name = format!("#{counter}");
            counter += 1;
        }
        let value = value(behind, &mut lines, &mut comment)
            .ok_or_else(|| refuse(format_args!("missing closing key quote in line {number}")))?;
        if name.is_empty() {
            return Err(refuse("error creating new key: empty key name"));
        }
        // Linear look-ups in large sections would be quadratic.
        if section.keys.len() > MAX_KEYS {
            return Err(refuse(format_args!("a section has more than {MAX_KEYS} keys")));
        }
        section.set(name, value, trimmed(&std::mem::take(&mut comment)));
    }
    sections.push(section);
    Ok(sections.into_iter().map(item).collect())
}

/// The most keys in a section.
const MAX_KEYS: usize = 10_000;

/// Splits a line into its key and the text after the delimiter.
fn key_name(line: &[u8]) -> Result<(String, &[u8]), &'static str> {
    const MISSING: &str = "key-value delimiter not found";
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    let quote: &[u8] = match line {
        [b'"', b'"', b'"', _, _, _, _, ..] => TRIPLE_QUOTES,
        [b'"', ..] => b"\"",
        [b'`', ..] => b"`",
        _ => {
            let at = memchr::memchr2(b'=', b':', line).ok_or(MISSING)?;
            if at == 0 {
                return Err("empty key name");
            }
            let (name, rest) = line.split_at(at);
            return Ok((lossy(name), rest.get(1..).unwrap_or_default()));
        }
    };
    let inner = line.get(quote.len()..).unwrap_or_default();
    let end = memchr::memmem::find(inner, quote).ok_or("missing closing key quote")?;
    let (name, rest) = inner.split_at(end);
    let rest = rest.get(quote.len()..).unwrap_or_default();
    let at = memchr::memchr2(b'=', b':', rest).ok_or(MISSING)?;
    Ok((lossy(name), rest.get(at + 1..).unwrap_or_default()))
}

/// Reads a value, which may continue on the next lines; `None` if a quote is not closed.
fn value(text: &[u8], lines: &mut IniLines<'_>, comment: &mut SecretBytes) -> Option<SecretBytes> {
    let line = text.trim_ascii_start();
    let quote: &[u8] = match line {
        [] => return Some(SecretBytes::default()),
        [b'"', b'"', b'"', _, ..] => TRIPLE_QUOTES,
        [b'`', ..] => b"`",
        _ => b"",
    };
    if !quote.is_empty() {
        let inner = line.get(quote.len()..).unwrap_or_default();
        return match memchr::memmem::rfind(inner, quote) {
            Some(end) => Some(Zeroizing::new(inner.get(..end).unwrap_or_default().to_vec())),
            None => quoted_lines(inner, quote, lines, comment),
        };
    }
    let mut line = line.trim_ascii();
    if let Some(start) = line.strip_suffix(b"\\") {
        return Some(continued(start, lines));
    }
    if let Some(at) = comment_in(line) {
        let (value, behind) = line.split_at(at);
        comment.extend_from_slice(behind);
        line = value.trim_ascii();
    }
    for quote in [b'\'', b'"'] {
        if let [first, inner @ .., last] = line
            && [*first, *last] == [quote, quote]
            && !inner.contains(&quote)
        {
            return Some(Zeroizing::new(inner.to_vec()));
        }
    }
    Some(Zeroizing::new(line.to_vec()))
}

fn quoted_lines(
    first: &[u8],
    quote: &[u8],
    lines: &mut IniLines<'_>,
    comment: &mut SecretBytes,
) -> Option<SecretBytes> {
    let mut value = Zeroizing::new(first.to_vec());
    loop {
        let line = lines.next()?;
        let Some(at) = memchr::memmem::rfind(line, quote) else {
            value.extend_from_slice(line);
            continue;
        };
        let (inner, behind) = line.split_at(at);
        let behind_quote = behind.get(quote.len()..).unwrap_or_default();
        if behind_quote.trim_ascii().ends_with(b"\\") {
            value.extend_from_slice(line);
            continue;
        }
        value.extend_from_slice(inner);
        if let Some(at) = comment_in(behind) {
            comment.extend_from_slice(behind.get(at..).unwrap_or_default().trim_ascii());
        }
        return Some(value);
    }
}

/// Reads a value whose line ends with a backslash.
fn continued(first: &[u8], lines: &mut IniLines<'_>) -> SecretBytes {
    let mut value = Zeroizing::new(first.to_vec());
    while let Some(next) = lines.next().map(<[u8]>::trim_ascii)
        && !next.is_empty()
    {
        value.extend_from_slice(next);
        if value.last() != Some(&b'\\') {
            break;
        }
        value.pop();
    }
    value
}

/// A comment without its first character.
fn uncommented(comment: &[u8]) -> &[u8] {
    let Some(mark @ (b';' | b'#')) = comment.first() else { return comment };
    let start = comment.iter().position(|byte| byte != mark && *byte != b' ');
    comment.get(start.unwrap_or(comment.len())..).unwrap_or_default()
}

fn item(section: IniSection) -> MapItem {
    let mut items = Vec::new();
    if !section.comment.is_empty() {
        items.push(MapItem::comment(uncommented(&section.comment), false));
    }
    for (name, value, comment) in section.keys {
        items.push(MapItem::text(name, SopsValue::Text(value)));
        if !comment.is_empty() {
            items.push(MapItem::comment(uncommented(&comment), false));
        }
    }
    MapItem::text(section.name, SopsValue::Map(items))
}

pub(super) fn write(documents: &[Vec<MapItem>]) -> Result<SecretBytes, SopsWriteError> {
    let mut sections = Vec::new();
    for item in documents.iter().flatten() {
        let name = match &item.key {
            MapItemKey::Comment(_) => continue,
            MapItemKey::Text(name) if name.is_empty() => {
                return Err(SopsWriteError::Ini(
                    "Error encoding section : empty section name".to_owned(),
                ));
            }
            MapItemKey::Text(name) => name,
            MapItemKey::Other(kind) => {
                return Err(SopsWriteError::Ini(format!("a key is no text but {kind}")));
            }
        };
        let SopsValue::Map(items) = &item.value else {
            let problem = "Error encoding section: Section values should always be TreeBranches";
            return Err(SopsWriteError::Ini(problem.to_owned()));
        };
        sections.push(section(name, items)?);
    }
    let mut out = Zeroizing::new(Vec::new());
    let last = sections.len().saturating_sub(1);
    for (at, section) in sections.iter().enumerate() {
        comment(&mut out, &section.comment, false)?;
        if at > 0 || !section.name.eq_ignore_ascii_case(DEFAULT) {
            out.extend_from_slice(format!("[{}]\n", section.name).as_bytes());
        } else if section.keys.is_empty() {
            continue;
        }
        keys(&mut out, section)?;
        if at < last {
            out.push(b'\n');
        }
    }
    Ok(out)
}

fn section(name: &str, items: &[MapItem]) -> Result<IniSection, SopsWriteError> {
    let (own, items) = match items.split_first() {
        Some((MapItem { key: MapItemKey::Comment(comment), .. }, rest)) => {
            (comment.text.clone(), rest)
        }
        _ => (SecretBytes::default(), items),
    };
    let mut section = IniSection::new(name, own);
    let mut last: Option<String> = None;
    for item in items {
        match &item.key {
            MapItemKey::Comment(comment) => {
                let last = section.keys.iter_mut().find(|(name, ..)| Some(name) == last.as_ref());
                if let Some(key) = last {
                    key.2 = comment.text.clone();
                }
            }
            MapItemKey::Text(name) if name.is_empty() => {
                return Err(SopsWriteError::Ini("Error encoding key: empty key name".to_owned()));
            }
            MapItemKey::Text(name) => {
                let known = section.keys.iter_mut().find(|(known, ..)| known == name);
                match known {
                    Some(key) => key.1 = item.value.shown(),
                    None => section.keys.push((
                        name.clone(),
                        item.value.shown(),
                        SecretBytes::default(),
                    )),
                }
                last = Some(name.clone());
            }
            MapItemKey::Other(kind) => {
                return Err(SopsWriteError::Ini(format!("a key is no text but {kind}")));
            }
        }
    }
    Ok(section)
}

/// Writes the lines of a comment, each with the character that begins a comment.
fn comment(out: &mut SecretBytes, text: &[u8], trims: bool) -> Result<(), SopsWriteError> {
    if text.is_empty() {
        return Ok(());
    }
    for line in text.split(|byte| *byte == b'\n') {
        match line {
            // Parity(sops 3.13): its library panics, which Flux reports as an error.
            [] => return Err(SopsWriteError::Ini("a comment has an empty line".to_owned())),
            [mark @ (b'#' | b';'), rest @ ..] => {
                out.extend_from_slice(&[*mark, b' ']);
                out.extend_from_slice(rest.trim_ascii());
            }
            _ => {
                out.extend_from_slice(b"; ");
                out.extend_from_slice(if trims { line.trim_ascii() } else { line });
            }
        }
        out.push(b'\n');
    }
    Ok(())
}

fn keys(out: &mut SecretBytes, section: &IniSection) -> Result<(), SopsWriteError> {
    let quoted = |name: &str| match name {
        _ if name.contains(['"', '=', ':']) => format!("`{name}`"),
        _ if name.contains('`') => format!("\"\"\"{name}\"\"\""),
        _ => name.to_owned(),
    };
    let width = section.keys.iter().map(|(name, ..)| quoted(name).len()).max().unwrap_or_default();
    for (name, value, above) in &section.keys {
        comment(out, above, true)?;
        let name = quoted(name);
        out.extend_from_slice(name.as_bytes());
        out.extend(std::iter::repeat_n(b' ', width.saturating_sub(name.len())));
        out.extend_from_slice(b" = ");
        let quote: &[u8] = if memchr::memchr2(b'\n', b'`', value).is_some() {
            TRIPLE_QUOTES
        } else if comment_in(value).is_some() {
            b"`"
        } else if value.trim_ascii().len() != value.len() {
            b"\""
        } else {
            b""
        };
        for part in [quote, value.as_slice(), quote, b"\n"] {
            out.extend_from_slice(part);
        }
    }
    Ok(())
}
