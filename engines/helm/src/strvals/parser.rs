//! Parses names, indices and the ends of values.
//!
//! It follows Helm's parser step by step, even if the text ends early. In that case no further value is set, and
//! usually that is not an error. Elsewhere: the value of a text (`typed_set_value.rs`).

use golang::GoRuntimeValue;
use golang::json::decode_prefix;
use golang::strconv::{QuotingStyle, quote, quote_char};
use golang::unicode::decode;
use golang::value::{GoMap, GoSlice, GoType};

use super::{
    Error, ListReplacement, MAX_DEPTH, MAX_INDEX, MAX_NESTED_NAME_LEVEL, MAX_NEW_ITEMS, MAX_STEPS,
    SetValueMode, typed_set_value,
};

pub(super) struct SetValueParser<'t, 'f> {
    rest: &'t [u8],
    mode: SetValueMode<'f>,
    depth: usize,
    new_items: usize,
    steps: usize,
    replaced: Vec<ListReplacement>,
}

/// Why parsing of a `--set` text stops.
enum SetParseHalt {
    /// The text has ended.
    End,
    /// Go would panic here. Helm catches the panic at the beginning of the innermost name.
    Panic(Error),
    Failed(Error),
}

impl From<Error> for SetParseHalt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The characters before a stop character, and that character.
struct SetTextPiece {
    text: Vec<char>,
    stop: Option<char>,
}

impl SetTextPiece {
    fn text(&self) -> String {
        self.text.iter().collect()
    }

    fn quoted(&self) -> String {
        let quoted = quote(self.text().as_bytes(), QuotingStyle::Printable);
        String::from_utf8_lossy(&quoted).into_owned()
    }
}

impl<'t, 'f> SetValueParser<'t, 'f> {
    pub(super) fn new(text: &'t [u8], mode: SetValueMode<'f>) -> Self {
        Self { rest: text, mode, depth: 0, new_items: 0, steps: 0, replaced: Vec::new() }
    }

    pub(super) fn run(mut self, values: &GoMap) -> Result<Vec<ListReplacement>, Error> {
        loop {
            match self.key(values, 0) {
                Ok(()) => {}
                Err(SetParseHalt::End) => return Ok(self.replaced),
                Err(SetParseHalt::Panic(error) | SetParseHalt::Failed(error)) => return Err(error),
            }
        }
    }

    fn is_literal(&self) -> bool {
        matches!(self.mode, SetValueMode::Literal)
    }

    fn next(&mut self) -> Option<char> {
        let (character, width) = decode(self.rest);
        self.rest = &self.rest[width..];
        (width > 0).then_some(character)
    }

    fn until(&mut self, stops: &[char]) -> SetTextPiece {
        let escapes = !self.is_literal();
        let mut text = Vec::new();
        while let Some(character) = self.next() {
            if stops.contains(&character) {
                return SetTextPiece { text, stop: Some(character) };
            }
            if escapes && character == '\\' {
                let Some(escaped) = self.next() else { break };
                text.push(escaped);
            } else {
                text.push(character);
            }
        }
        SetTextPiece { text, stop: None }
    }

    /// Parses one table or list deeper.
    fn deeper<T>(
        &mut self,
        inside: impl FnOnce(&mut Self) -> Result<T, SetParseHalt>,
    ) -> Result<T, SetParseHalt> {
        if self.depth == MAX_DEPTH {
            return Err(Error::TooDeep.into());
        }
        self.depth += 1;
        let done = inside(self);
        self.depth -= 1;
        done
    }

    fn key(&mut self, table: &GoMap, dots: usize) -> Result<(), SetParseHalt> {
        let done = self.deeper(|parser| {
            let stops: &[char] =
                if parser.is_literal() { &['=', '[', '.'] } else { &['=', '[', ',', '.'] };
            let name = parser.until(stops);
            match name.stop {
                None if name.text.is_empty() => Err(SetParseHalt::End),
                None => Err(Error::NoValue(name.quoted()).into()),
                Some('=') => parser.assign(table, &name.text()),
                Some(',') => {
                    put(table, &name.text(), GoRuntimeValue::from(""));
                    Err(Error::NoValueBeforeComma(name.quoted()).into())
                }
                Some('[') => parser.item(table, &name.text(), dots),
                Some(_) => parser.inside(table, &name, dots + 1),
            }
        });
        done.map_err(|halt| match halt {
            SetParseHalt::Panic(error) => SetParseHalt::Failed(error),
            other => other,
        })
    }

    /// Parses the text after `name=`.
    fn assign(&mut self, table: &GoMap, name: &str) -> Result<(), SetParseHalt> {
        let is_list = self.rest.first() == Some(&b'{');
        let value = self.value();
        match &value {
            Ok(value) => put(table, name, value.clone()),
            // Parity(helm): a file that cannot be read leaves null behind, except for an item of a list.
            Err(SetParseHalt::Failed(Error::File(_))) if !is_list => {
                put(table, name, GoRuntimeValue::Nil);
            }
            Err(_) => {}
        }
        value.map(|_| ())
    }

    /// Parses the text after `name.`.
    fn inside(
        &mut self,
        table: &GoMap,
        name: &SetTextPiece,
        dots: usize,
    ) -> Result<(), SetParseHalt> {
        if dots > MAX_NESTED_NAME_LEVEL {
            return Err(Error::TooManyDots.into());
        }
        let text = name.text();
        let inner = match table.get(text.as_bytes()) {
            None => empty(),
            Some(GoRuntimeValue::Map(inner)) => inner,
            Some(other) => return Err(not_a("map[string]interface {}", &other)),
        };
        let done = self.key(&inner, dots);
        if !inner.is_empty() {
            put(table, &text, GoRuntimeValue::Map(inner));
        } else if done.is_ok() {
            return Err(Error::EmptyTable(name.quoted()).into());
        }
        done
    }

    /// Parses the text after `name[`.
    fn item(&mut self, table: &GoMap, name: &str, dots: usize) -> Result<(), SetParseHalt> {
        let index = self.index()?;
        let known = table.get(name.as_bytes());
        let mut items = match &known {
            None => Vec::new(),
            Some(list) => items(list)?,
        };
        let done = self.list_item(&mut items, index, dots);
        if !matches!(done, Err(SetParseHalt::Panic(_))) {
            let after = GoSlice::new(GoType::Any, items);
            put(table, name, GoRuntimeValue::List(after.clone()));
            if let Some(GoRuntimeValue::List(before)) = known
                && before.len() == after.len()
            {
                self.replace(before, after)?;
            }
        }
        done
    }

    /// Notes that one list replaced another, which itself may have replaced a third one.
    fn replace(&mut self, before: GoSlice, after: GoSlice) -> Result<(), SetParseHalt> {
        self.walk(self.replaced.len())?;
        match self.replaced.iter_mut().find(|known| known.after.is_same(&before)) {
            Some(known) => known.after = after,
            None => self.replaced.push(ListReplacement { before, after }),
        }
        Ok(())
    }

    fn index(&mut self) -> Result<i64, SetParseHalt> {
        let piece = self.until(&[']']);
        if piece.stop.is_none() {
            return Err(SetParseHalt::End);
        }
        let text = piece.text();
        text.parse().map_err(|_| {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let problem = if is_number { "value out of range" } else { "invalid syntax" };
            Error::BadIndex { text: piece.quoted(), problem }.into()
        })
    }

    /// Parses the text after `[index]`.
    fn list_item(
        &mut self,
        list: &mut Vec<GoRuntimeValue>,
        index: i64,
        dots: usize,
    ) -> Result<(), SetParseHalt> {
        let place = usize::try_from(index).map_err(|_| Error::NegativeIndex(index))?;
        self.walk(list.len())?;
        let piece = self.until(&['[', '.', '=']);
        if !piece.text.is_empty() {
            let characters = piece.text.iter().map(|character| {
                let quoted = quote_char(*character, QuotingStyle::Printable);
                String::from_utf8_lossy(&quoted).into_owned()
            });
            let characters: Vec<String> = characters.collect();
            return Err(Error::AfterIndex(format!("[{}]", characters.join(" "))).into());
        }
        let value = match piece.stop {
            None => return Err(SetParseHalt::End),
            Some('=') => self.value()?,
            Some('[') => self.nested_list(list, place, dots)?,
            Some(_) => {
                let inner = match list.get_mut(place) {
                    None => empty(),
                    Some(GoRuntimeValue::Map(inner)) => inner.clone(),
                    // Parity(helm): the former value is gone, even if no value takes its place.
                    Some(other) => {
                        let inner = empty();
                        *other = GoRuntimeValue::Map(inner.clone());
                        inner
                    }
                };
                self.key(&inner, dots)?;
                GoRuntimeValue::Map(inner)
            }
        };
        self.put_item(list, index, place, value)
    }

    /// Parses the text after `[place][`.
    fn nested_list(
        &mut self,
        list: &mut [GoRuntimeValue],
        place: usize,
        dots: usize,
    ) -> Result<GoRuntimeValue, SetParseHalt> {
        let index = self.index()?;
        let (mut inner, known) = match list.get(place) {
            None | Some(GoRuntimeValue::Nil) => (Vec::new(), false),
            Some(found) => (items(found)?, true),
        };
        let done = self.deeper(|parser| parser.list_item(&mut inner, index, dots));
        let inner = GoRuntimeValue::List(GoSlice::new(GoType::Any, inner));
        match done {
            Ok(()) => Ok(inner),
            Err(halt) => {
                // Go has changed the list itself by then.
                if known {
                    list[place] = inner;
                }
                Err(halt)
            }
        }
    }

    fn put_item(
        &mut self,
        list: &mut Vec<GoRuntimeValue>,
        index: i64,
        place: usize,
        value: GoRuntimeValue,
    ) -> Result<(), SetParseHalt> {
        if index > MAX_INDEX {
            return Err(Error::IndexTooLarge(index).into());
        }
        if list.len() <= place {
            let more = place + 1 - list.len();
            self.new_items += more;
            if self.new_items > MAX_NEW_ITEMS {
                return Err(Error::TooLarge.into());
            }
            self.walk(more)?;
            list.resize(place + 1, GoRuntimeValue::Nil);
        }
        list[place] = value;
        Ok(())
    }

    fn walk(&mut self, items: usize) -> Result<(), SetParseHalt> {
        self.steps += items;
        if self.steps > MAX_STEPS { Err(Error::TooLarge.into()) } else { Ok(()) }
    }

    /// Parses the value after `=`, and the comma after it.
    fn value(&mut self) -> Result<GoRuntimeValue, SetParseHalt> {
        match self.mode {
            SetValueMode::Json => self.json(),
            SetValueMode::Literal => {
                let text = self.until(&[]).text();
                Ok(GoRuntimeValue::from(text))
            }
            SetValueMode::Typed | SetValueMode::Strings | SetValueMode::File(_) => {
                match self.rest.first() {
                    // Parity(helm): at the end of the text it is a string, in every mode.
                    None => Ok(GoRuntimeValue::from("")),
                    Some(b'{') => self.list(),
                    Some(_) => {
                        let text = self.until(&[',']).text();
                        Ok(typed_set_value::read(&mut self.mode, text)?)
                    }
                }
            }
        }
    }

    fn json(&mut self) -> Result<GoRuntimeValue, SetParseHalt> {
        if self.is_blank() {
            return Ok(GoRuntimeValue::Nil);
        }
        let (value, len) = decode_prefix(self.rest).map_err(Error::Json)?;
        self.rest = &self.rest[len..];
        self.is_blank();
        Ok(value)
    }

    /// Skips white space and the comma after it, or white space up to the end of the text. It returns whether there was
    /// nothing else.
    fn is_blank(&mut self) -> bool {
        loop {
            let (character, width) = decode(self.rest);
            match character {
                _ if width == 0 => return true,
                ',' => {}
                // Go's white space is the same set.
                space if space.is_whitespace() => {}
                _ => return false,
            }
            self.rest = &self.rest[width..];
            if character == ',' {
                return true;
            }
        }
    }

    fn list(&mut self) -> Result<GoRuntimeValue, SetParseHalt> {
        self.rest = &self.rest[1..];
        let mut items = Vec::new();
        loop {
            let piece = self.until(&[',', '}']);
            let Some(stop) = piece.stop else { return Err(Error::OpenList.into()) };
            items.push(typed_set_value::read(&mut self.mode, piece.text())?);
            if stop == '}' {
                if self.rest.first() == Some(&b',') {
                    self.rest = &self.rest[1..];
                }
                return Ok(GoRuntimeValue::list(items));
            }
        }
    }
}

fn empty() -> GoMap {
    GoMap::new(GoType::Any, [])
}

/// Parity(helm): a value without a name is dropped.
fn put(table: &GoMap, name: &str, value: GoRuntimeValue) {
    if !name.is_empty() {
        table.insert(name, value);
    }
}

fn items(value: &GoRuntimeValue) -> Result<Vec<GoRuntimeValue>, SetParseHalt> {
    match value {
        GoRuntimeValue::List(list) => Ok(list.items().to_vec()),
        other => Err(not_a("[]interface {}", other)),
    }
}

fn not_a(wanted: &'static str, value: &GoRuntimeValue) -> SetParseHalt {
    let found = match value {
        GoRuntimeValue::Nil => "nil".to_owned(),
        other => other.type_name(),
    };
    SetParseHalt::Panic(Error::NotContainer { found, wanted })
}
