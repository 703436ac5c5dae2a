//! Parses text to a document: TOML 1.1 like the Go library, with the same errors.
//!
//! Elsewhere: characters (`cursor.rs`), tables and their rules (`document.rs`), numbers and times (`scalar.rs`), strings
//! (`parse/string.rs`).

mod string;

use golang::GoRuntimeValue;
use golang::strconv::{QuotingStyle, quote};
use golang::value::{GoMap, GoSlice, GoString, GoType};

use super::cursor::{TomlCursor, TomlError, is_blank, is_line_end, quoted};
use super::document::{MAX_DEPTH, TomlDocument};
use super::scalar;
use crate::template_environment::TemplateEnvironment;

/// Why a text is not TOML.
#[derive(Debug, thiserror::Error)]
#[error("toml: line {line}{key}: {message}")]
pub(super) struct TomlParseError {
    line: usize,
    /// The last key, in parentheses.
    key: String,
    message: String,
}

/// The document that a text is.
pub(super) fn parse(
    text: &[u8],
    template_environment: &dyn TemplateEnvironment,
) -> Result<GoMap, TomlParseError> {
    let marks: [&[u8]; 3] = [b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"];
    let text = marks.iter().find_map(|mark| text.strip_prefix(*mark)).unwrap_or(text);
    if text.iter().take(6).any(|byte| *byte == 0) {
        let message =
            "files cannot contain NULL bytes; probably using UTF-16; TOML files must be UTF-8";
        return Err(TomlParseError { line: 1, key: String::new(), message: message.to_owned() });
    }
    let mut parser = TomlParser {
        cursor: TomlCursor::new(text),
        document: TomlDocument::default(),
        template_environment,
        line: 0,
        depth: 0,
    };
    match parser.document() {
        Ok(()) => Ok(parser.document.finish()),
        Err(TomlError { line, message }) => {
            let key = match parser.document.last_key().as_slice() {
                b"" => String::new(),
                key => {
                    let key = quote(key, QuotingStyle::Printable);
                    format!(" (last key {})", String::from_utf8_lossy(&key))
                }
            };
            Err(TomlParseError { line, key, message })
        }
    }
}

struct TomlParser<'t> {
    cursor: TomlCursor<'t>,
    document: TomlDocument,
    template_environment: &'t dyn TemplateEnvironment,
    /// The line of the last key or header.
    line: usize,
    depth: usize,
}

type TomlResult<T = ()> = Result<T, TomlError>;

/// Whether a character is a digit of a base.
type DigitPredicate = fn(&char) -> bool;

impl TomlParser<'_> {
    fn document(&mut self) -> TomlResult {
        loop {
            match self.cursor.peek()? {
                None => return Ok(()),
                Some(blank) if is_blank(blank) || is_line_end(blank) => {
                    self.cursor.next()?;
                }
                Some('#') => self.comment()?,
                Some('[') => {
                    self.cursor.next()?;
                    self.header()?;
                    self.end_of_line()?;
                }
                Some(_) => {
                    let context = self.document.context.clone();
                    self.entry()?;
                    self.document.context = context;
                    self.document.key = GoString::default();
                    self.end_of_line()?;
                }
            }
        }
    }

    /// Takes a comment up to the end of its line.
    fn comment(&mut self) -> TomlResult {
        self.cursor.skip(|character| !is_line_end(character))
    }

    /// Reads the end of a line, which may follow a header or an entry.
    fn end_of_line(&mut self) -> TomlResult {
        self.cursor.skip(is_blank)?;
        if self.cursor.peek()? == Some('#') {
            return self.comment();
        }
        match self.cursor.next()? {
            None => Ok(()),
            Some(end) if is_line_end(end) => Ok(()),
            found => Err(self.cursor.fault(format!(
                "expected a top-level item to end with a newline, comment, or EOF, but got {} instead",
                quoted(found)
            ))),
        }
    }

    /// A fault of the document, at the last key or header.
    fn at_key<T>(&self, outcome: Result<T, String>) -> TomlResult<T> {
        outcome.map_err(|message| TomlError { line: self.line, message })
    }

    /// `[a.b]` or `[[a.b]]`, behind the first bracket.
    fn header(&mut self) -> TomlResult {
        let is_array = self.cursor.accept('[')?;
        let mut key = Vec::new();
        loop {
            self.cursor.skip(is_blank)?;
            let message = match self.cursor.peek()? {
                Some(']') | None => "unexpected end of table name (table names cannot be empty)",
                Some('.') => "unexpected table separator (table names cannot be empty)",
                Some(_) => "",
            };
            if !message.is_empty() {
                return Err(self.cursor.fault(message));
            }
            let part = self.key_part()?;
            if key.is_empty() {
                self.line = self.cursor.line;
            }
            key.push(part);
            self.cursor.skip(is_blank)?;
            match self.cursor.next()? {
                Some('.') => {}
                Some(']') => break,
                found => {
                    let found_text = quoted(found);
                    let message = format!(
                        "expected '.' or ']' to end table name, but got {found_text} instead"
                    );
                    return Err(self.cursor.fault_at(found, message));
                }
            }
        }
        if is_array {
            let found = self.cursor.next()?;
            if found != Some(']') {
                let message = format!(
                    "expected end of table array name delimiter ']', but got {} instead",
                    quoted(found)
                );
                return Err(self.cursor.fault_at(found, message));
            }
        }
        let entered = self.document.enter(&key, is_array);
        self.at_key(entered)?;
        self.document.note_array(&GoString::default(), false);
        Ok(())
    }

    /// One part of a key, bare or in quotes.
    fn key_part(&mut self) -> TomlResult<GoString> {
        match self.cursor.peek()? {
            Some('"') => {
                self.cursor.next()?;
                self.basic_string()
            }
            Some('\'') => {
                self.cursor.next()?;
                self.raw_string()
            }
            _ => {
                let from = self.cursor.place();
                let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
                self.cursor.skip(is_bare)?;
                Ok(self.cursor.since(from).into())
            }
        }
    }

    /// Reads the parts of a key, and the `=` after it.
    fn key(&mut self) -> TomlResult<Vec<GoString>> {
        match self.cursor.peek()? {
            Some('=') | None => {
                return Err(self.cursor.fault("unexpected '=': key name appears blank"));
            }
            Some('.') => {
                return Err(self.cursor.fault("unexpected '.': keys cannot start with a '.'"));
            }
            Some(_) => {}
        }
        let mut key = Vec::new();
        loop {
            self.cursor.skip(is_blank)?;
            match self.cursor.peek()? {
                Some('=') | None => return Err(self.cursor.fault("unexpected '='")),
                Some('.') => return Err(self.cursor.fault("unexpected '.'")),
                Some(_) => {}
            }
            let part = self.key_part()?;
            if key.is_empty() {
                self.line = self.cursor.line;
            }
            key.push(part);
            self.cursor.skip(is_blank)?;
            let found = self.cursor.next()?;
            let message = format!("expected '.' or '=', but got {} instead", quoted(found));
            match found {
                Some('.') => {}
                Some('=') => return Ok(key),
                Some('\n') => return Err(self.cursor.fault_before(message)),
                None => {
                    let message = "unexpected EOF; expected key separator '='";
                    return Err(self.cursor.fault_at(None, message));
                }
                Some(_) => return Err(self.cursor.fault(message)),
            }
        }
    }

    /// Reads a key and its value, and returns both.
    fn entry(&mut self) -> TomlResult<(Vec<GoString>, GoRuntimeValue)> {
        let key = self.key()?;
        let (last, parents) = key
            .split_last()
            .map_or((GoString::default(), &[][..]), |(last, rest)| (last.clone(), rest));
        self.document.key = last.clone();
        for parent in parents {
            let mut path = self.document.context.clone();
            path.push(parent.clone());
            let entered = self.document.enter_implicitly(&path);
            self.at_key(entered)?;
        }
        let (value, is_array) = self.value(false)?;
        let set = self.document.set(value.clone());
        self.at_key(set)?;
        self.document.note_array(&last, is_array);
        Ok((key, value))
    }

    /// Reads a value, and returns whether it is an array.
    fn value(&mut self, is_in_array: bool) -> TomlResult<(GoRuntimeValue, bool)> {
        self.cursor.skip(is_blank)?;
        let from = self.cursor.place();
        let found = self.cursor.next()?;
        let value = match found {
            Some('[') => return self.nested(|parser| Ok((parser.array()?, true))),
            Some('{') => {
                return self.nested(|parser| Ok((parser.inline_table(is_in_array)?, false)));
            }
            Some('"') if self.cursor.starts_with(b"\"\"") => {
                self.cursor.next()?;
                self.cursor.next()?;
                GoRuntimeValue::String(self.long_string()?)
            }
            Some('"') => GoRuntimeValue::String(self.basic_string()?),
            Some('\'') if self.cursor.starts_with(b"''") => {
                self.cursor.next()?;
                self.cursor.next()?;
                GoRuntimeValue::String(self.long_raw_string()?)
            }
            Some('\'') => GoRuntimeValue::String(self.raw_string()?),
            Some('.') => return Err(self.cursor.fault("floats must start with a digit, not '.'")),
            Some('0'..='9') => self.number_or_time(from)?,
            Some('-' | '+') => self.signed_number(from)?,
            Some('i' | 'n') => {
                let is_float = self.cursor.accept('n')? && self.cursor.accept('f')?
                    || self.cursor.accept('a')? && self.cursor.accept('n')?;
                if is_float {
                    return self.scalar(from, scalar::float).map(|value| (value, false));
                }
                // Parity(toml): the library forgets what it has read of the word.
                self.cursor.step_back();
                let word = self.cursor.place();
                self.word(word, from)?
            }
            Some(letter) if letter.is_alphabetic() => self.word(from, from)?,
            None => return Err(self.cursor.fault_at(None, "unexpected EOF; expected value")),
            Some(other) => {
                let message = format!("expected value but found {} instead", quoted(found));
                return Err(match other {
                    '\n' => self.cursor.fault_before(message),
                    _ => self.cursor.fault(message),
                });
            }
        };
        Ok((value, false))
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> TomlResult<T>) -> TomlResult<T> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("arrays and tables are nested more than {MAX_DEPTH} deep");
            return Err(self.cursor.fault(message));
        }
        let read = read(self)?;
        self.depth -= 1;
        Ok(read)
    }

    /// Reads `true` or `false`, beginning at `from`. The error shows the text from `shown` on.
    fn word(&mut self, shown: usize, from: usize) -> TomlResult<GoRuntimeValue> {
        self.cursor.skip(char::is_alphabetic)?;
        match self.cursor.since(shown) {
            b"true" if shown == from => Ok(GoRuntimeValue::Bool(true)),
            b"false" if shown == from => Ok(GoRuntimeValue::Bool(false)),
            other => {
                let other = quote(other, QuotingStyle::Printable);
                let other = String::from_utf8_lossy(&other);
                Err(self.cursor.fault(format!("expected value but found {other} instead")))
            }
        }
    }

    /// The text since an earlier position, as a number or time.
    fn scalar(
        &self,
        from: usize,
        read: impl FnOnce(&str) -> Result<GoRuntimeValue, String>,
    ) -> TomlResult<GoRuntimeValue> {
        let text = String::from_utf8_lossy(self.cursor.since(from));
        read(text.trim()).map_err(|message| self.cursor.fault(message))
    }

    fn number_or_time(&mut self, from: usize) -> TomlResult<GoRuntimeValue> {
        let digit = |c: char| c.is_ascii_digit();
        if self.cursor.since(from) == b"0" {
            let digits: Option<(&str, DigitPredicate)> = match self.cursor.peek()? {
                Some('b') => Some(("a binary", |c| matches!(c, '0' | '1'))),
                Some('o') => Some(("an octal", |c| matches!(c, '0'..='7'))),
                Some('x') => Some(("a hexadecimal", char::is_ascii_hexdigit)),
                Some('_' | '.' | 'e' | 'E' | '0'..='9') => None,
                _ => return self.scalar(from, scalar::integer),
            };
            if let Some((name, is_digit)) = digits {
                self.cursor.next()?;
                let first = self.cursor.peek()?;
                if !first.is_some_and(|c| is_digit(&c)) {
                    let passed = String::from_utf8_lossy(self.cursor.since(from));
                    let first = first.unwrap_or('\0');
                    let message = format!("not {name} number: '{passed}{first}'");
                    return Err(self.cursor.fault(message));
                }
                self.cursor.skip(|c| is_digit(&c) || c == '_')?;
                return self.scalar(from, scalar::integer);
            }
        }
        self.cursor.skip(digit)?;
        match self.cursor.peek()? {
            // A time begins with at least two digits, unless the first is not a zero.
            Some('-' | ':') if self.cursor.since(from) != b"0" => {
                let is_part = |c: char| {
                    digit(c) || matches!(c, '-' | ':' | 'T' | 't' | ' ' | '.' | 'Z' | 'z' | '+')
                };
                self.cursor.skip(is_part)?;
                let template_environment = self.template_environment;
                self.scalar(from, |text| scalar::time(text, template_environment))
            }
            Some('_' | '.' | 'e' | 'E') => self.decimal(from),
            _ => self.scalar(from, scalar::integer),
        }
    }

    fn signed_number(&mut self, from: usize) -> TomlResult<GoRuntimeValue> {
        let passed =
            |parser: &Self| String::from_utf8_lossy(parser.cursor.since(from)).into_owned();
        let found = self.cursor.next()?;
        let rest = match found {
            Some('i') => ['n', 'f'],
            Some('n') => ['a', 'n'],
            Some('0') => {
                if let Some(base @ ('b' | 'o' | 'x')) = self.cursor.peek()? {
                    let passed = passed(self);
                    let message =
                        format!("cannot use sign with non-decimal numbers: '{passed}{base}'");
                    return Err(self.cursor.fault(message));
                }
                return self.decimal(from);
            }
            Some('1'..='9') => return self.decimal(from),
            Some('.') => return Err(self.cursor.fault("floats must start with a digit, not '.'")),
            _ => {
                let message = format!("expected a digit but got {}", quoted(found));
                return Err(self.cursor.fault_at(found, message));
            }
        };
        for wanted in rest {
            if !self.cursor.accept(wanted)? {
                return Err(self.cursor.fault(format!("invalid float: '{}'", passed(self))));
            }
        }
        self.scalar(from, scalar::float)
    }

    /// The rest of a decimal number.
    fn decimal(&mut self, from: usize) -> TomlResult<GoRuntimeValue> {
        self.cursor.skip(|c| c.is_ascii_digit() || c == '_')?;
        if !matches!(self.cursor.peek()?, Some('.' | 'e' | 'E')) {
            return self.scalar(from, scalar::integer);
        }
        self.cursor
            .skip(|c| c.is_ascii_digit() || matches!(c, '_' | '.' | '-' | '+' | 'e' | 'E'))?;
        self.scalar(from, scalar::float)
    }

    /// Takes blanks, line ends and comments.
    fn space(&mut self) -> TomlResult {
        loop {
            self.cursor.skip(|c| is_blank(c) || is_line_end(c))?;
            if self.cursor.peek()? != Some('#') {
                return Ok(());
            }
            self.comment()?;
        }
    }

    /// An array, behind its bracket.
    fn array(&mut self) -> TomlResult<GoRuntimeValue> {
        let key = self.document.key.clone();
        self.document.note_array(&key, true);
        let mut items = Vec::new();
        loop {
            self.space()?;
            match self.cursor.peek()? {
                Some(',') => {
                    self.cursor.next()?;
                    return Err(self.cursor.fault("unexpected comma"));
                }
                Some(']') => break,
                _ => items.push(self.value(true)?.0),
            }
            self.space()?;
            match self.cursor.next()? {
                Some(',') => {}
                Some(']') => return Ok(list(items)),
                found => {
                    let message = format!(
                        "expected a comma (',') or array terminator (']'), but got {}",
                        or_end(found)
                    );
                    return Err(self.cursor.fault_at(found, message));
                }
            }
        }
        self.cursor.next()?;
        Ok(list(items))
    }

    /// Reads an inline table after its brace. It is entered like other tables, so that the same rules apply.
    fn inline_table(&mut self, is_in_array: bool) -> TomlResult<GoRuntimeValue> {
        let context = self.document.context.clone();
        let key = self.document.key.clone();
        let mut inside = context.clone();
        inside.push(std::mem::take(&mut self.document.key));
        self.document.imply(&inside);
        let entered = self.document.enter(&inside, is_in_array);
        self.at_key(entered)?;
        let table = GoMap::default();
        loop {
            self.space()?;
            match self.cursor.peek()? {
                Some(',') => {
                    self.cursor.next()?;
                    return Err(self.cursor.fault("unexpected comma"));
                }
                Some('}') => break,
                _ => {}
            }
            let (keys, value) = self.entry()?;
            self.insert(&table, &keys, value)?;
            self.document.context.clone_from(&inside);
            self.space()?;
            let found = self.cursor.next()?;
            match found {
                Some(',') => {}
                Some('}') => {
                    self.cursor.step_back();
                    break;
                }
                _ => {
                    let found_text = or_end(found);
                    let message = format!(
                        "expected a comma or an inline table terminator '}}', but got {found_text} instead"
                    );
                    return Err(self.cursor.fault_at(found, message));
                }
            }
        }
        self.cursor.next()?;
        self.document.context = context;
        self.document.key = key;
        Ok(GoRuntimeValue::Map(table))
    }

    /// Puts a value under keys that lead from table to table.
    fn insert(&self, table: &GoMap, keys: &[GoString], value: GoRuntimeValue) -> TomlResult {
        let Some((last, parents)) = keys.split_last() else { return Ok(()) };
        let mut table = table.clone();
        for key in parents {
            let next = table.get(key).unwrap_or_else(|| GoRuntimeValue::Map(GoMap::default()));
            let GoRuntimeValue::Map(inner) = &next else {
                let names: Vec<String> =
                    self.document.context.iter().map(|key| format!("{key:?}")).collect();
                let message = format!("[{}] is not a table", names.join(" "));
                return Err(TomlError { line: self.line, message });
            };
            let inner = inner.clone();
            table.insert(key.clone(), next);
            table = inner;
        }
        table.insert(last.clone(), value);
        Ok(())
    }
}

fn list(items: Vec<GoRuntimeValue>) -> GoRuntimeValue {
    // The library begins with room for two.
    let capacity = items.len().next_power_of_two().max(2);
    GoRuntimeValue::List(GoSlice::with_capacity(GoType::Any, items, capacity))
}

fn or_end(found: Option<char>) -> String {
    found.map_or_else(|| "end of file".to_owned(), |found| format!("'{found}'"))
}
