//! Prints one value with one verb.

use std::sync::Arc;

use super::format::{DigitCase, FormatFlags};
use super::{Error, FormatLimits};
use crate::value::{
    GoObject, GoRuntimeValue, GoString, GoType, IntegerKind, ReflectKind, SizedInteger,
};

/// The address that is printed for every pointer. In Go, addresses differ from run to run.
const POINTER_PLACEHOLDER_ADDRESS: i64 = 0xc0_0001_2345;

/// The text that is being built.
///
/// Once it exceeds a limit, nothing more is added, and [`FormatPrinter::finish`] returns an error.
pub(super) struct FormatPrinter {
    text: Vec<u8>,
    limits: FormatLimits,
    error: Option<Error>,
    pub(super) flags: FormatFlags,
    /// Whether a message about a verb is being printed. Methods of values are not called then.
    is_complaining: bool,
}

impl FormatPrinter {
    pub(super) fn new(limits: FormatLimits) -> Self {
        Self {
            text: Vec::new(),
            limits,
            error: None,
            flags: FormatFlags::default(),
            is_complaining: false,
        }
    }

    pub(super) fn finish(self) -> Result<Vec<u8>, Error> {
        self.error.map_or(Ok(self.text), Err)
    }

    /// Whether a limit was reached.
    pub(super) fn is_full(&self) -> bool {
        self.error.is_some()
    }

    pub(super) fn write(&mut self, text: &[u8]) {
        if self.error.is_some() {
            return;
        }
        if text.len() > self.limits.bytes - self.text.len() {
            self.error = Some(Error::TooLong(self.limits.bytes));
            return;
        }
        self.text.extend_from_slice(text);
    }

    /// Prints a message such as `%!d(MISSING)`.
    pub(super) fn complain(&mut self, verb: char, about: &str) {
        self.write(format!("%!{verb}{about}").as_bytes());
    }

    /// Prints `%!d(string=x)` for a verb that does not fit the value.
    fn bad_verb(&mut self, value: &GoRuntimeValue, verb: char, depth: usize) {
        self.is_complaining = true;
        match value {
            GoRuntimeValue::Nil => self.complain(verb, "(<nil>)"),
            value => {
                self.complain(verb, "(");
                self.write(value.type_name().as_bytes());
                self.write(b"=");
                self.value(value, 'v', depth, PrintNesting::Top);
                self.write(b")");
            }
        }
        self.is_complaining = false;
    }

    /// Prints an argument of a function of `fmt`.
    pub(super) fn argument(&mut self, value: &GoRuntimeValue, verb: char) {
        match (value, verb) {
            (GoRuntimeValue::Nil, 'T' | 'v') => {
                let text = self.flags.pad(b"<nil>");
                self.write(&text);
            }
            (GoRuntimeValue::Nil, _) => self.bad_verb(value, verb, 0),
            (_, 'T') => {
                let text = self.flags.string(value.type_name().as_bytes());
                self.write(&text);
            }
            (_, 'p') => self.pointer(value, verb, 0),
            _ => self.value(value, verb, 0, PrintNesting::Top),
        }
    }

    fn value(&mut self, value: &GoRuntimeValue, verb: char, depth: usize, level: PrintNesting) {
        if self.error.is_some() {
            return;
        }
        if depth > self.limits.depth {
            self.error = Some(Error::TooDeep(self.limits.depth));
            return;
        }
        if verb == 'w'
            && !self.is_complaining
            && !matches!(value, GoRuntimeValue::Bytes(_) | GoRuntimeValue::Nil)
        {
            // What could be an error is not looked into.
            return self.bad_verb(value, verb, depth);
        }
        match value {
            GoRuntimeValue::Nil if self.flags.sharp_v => self.write(b"interface {}(nil)"),
            GoRuntimeValue::Nil => self.write(b"<nil>"),
            GoRuntimeValue::Bool(truth) if matches!(verb, 't' | 'v') => {
                let text = self.flags.pad(if *truth { b"true" } else { b"false" });
                self.write(&text);
            }
            GoRuntimeValue::Integer(integer) => self.integer(value, *integer, verb, depth),
            GoRuntimeValue::Float(float) => match verb {
                'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E' => {
                    let text = self.flags.float(*float, verb);
                    self.write(&text);
                }
                _ => self.bad_verb(value, verb, depth),
            },
            GoRuntimeValue::Complex(real, imaginary) => match verb {
                'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E' => {
                    let real = self.flags.float(*real, verb);
                    let imaginary =
                        FormatFlags { plus: true, ..self.flags }.float(*imaginary, verb);
                    self.write(&[b"(", &*real, &*imaginary, b"i)"].concat());
                }
                _ => self.bad_verb(value, verb, depth),
            },
            GoRuntimeValue::String(text) => self.string(value, text, verb, depth),
            GoRuntimeValue::Bytes(bytes) => self.bytes(value, bytes, verb, depth),
            GoRuntimeValue::List(list) => {
                if self.flags.sharp_v {
                    self.write(value.type_name().as_bytes());
                    if list.is_nil() {
                        self.write(b"(nil)");
                        return;
                    }
                }
                let items = list.items().iter().map(|item| (None, item.clone()));
                self.sequence(items, verb, depth, *b"[]");
            }
            GoRuntimeValue::Map(map) => {
                if self.flags.sharp_v {
                    self.write(value.type_name().as_bytes());
                    if map.is_nil() {
                        self.write(b"(nil)");
                        return;
                    }
                } else {
                    self.write(b"map");
                }
                let entries = map.entries().into_iter();
                let entries = entries.map(|(key, item)| (Some(GoRuntimeValue::String(key)), item));
                self.sequence(entries, verb, depth, *b"[]");
            }
            GoRuntimeValue::Function(_) => self.pointer(value, verb, depth),
            GoRuntimeValue::Object(object) => self.object(value, object, verb, depth, level),
            GoRuntimeValue::Bool(_) => self.bad_verb(value, verb, depth),
        }
    }

    fn sequence(
        &mut self,
        items: impl Iterator<Item = (Option<GoRuntimeValue>, GoRuntimeValue)>,
        verb: char,
        depth: usize,
        brackets: [u8; 2],
    ) {
        let [open, close] = if self.flags.sharp_v { *b"{}" } else { brackets };
        self.write(&[open]);
        for (index, (key, item)) in items.enumerate() {
            if self.error.is_some() {
                return;
            }
            if index > 0 {
                self.write(if self.flags.sharp_v { b", " } else { b" " });
            }
            if let Some(key) = key {
                self.value(&key, verb, depth + 1, PrintNesting::Inner);
                self.write(b":");
            }
            self.value(&item, verb, depth + 1, PrintNesting::Inner);
        }
        self.write(&[close]);
    }

    fn integer(&mut self, value: &GoRuntimeValue, integer: SizedInteger, verb: char, depth: usize) {
        let flags = self.flags;
        let text = match verb {
            'v' if flags.sharp_v && !integer.kind().is_signed() => {
                FormatFlags { sharp: true, ..flags }.integer(integer, 16, verb, DigitCase::Small)
            }
            'v' | 'd' => flags.integer(integer, 10, verb, DigitCase::Small),
            'b' => flags.integer(integer, 2, verb, DigitCase::Small),
            'o' | 'O' => flags.integer(integer, 8, verb, DigitCase::Small),
            'x' => flags.integer(integer, 16, verb, DigitCase::Small),
            'X' => flags.integer(integer, 16, verb, DigitCase::Capital),
            'c' => flags.character(integer.unsigned(), false),
            'q' => flags.character(integer.unsigned(), true),
            'U' => flags.unicode(integer.unsigned()),
            _ => return self.bad_verb(value, verb, depth),
        };
        self.write(&text);
    }

    fn string(&mut self, value: &GoRuntimeValue, text: &[u8], verb: char, depth: usize) {
        let text = match verb {
            'v' if self.flags.sharp_v => self.flags.quoted(text),
            'v' | 's' => self.flags.string(text),
            'x' => self.flags.hexadecimal(text, DigitCase::Small),
            'X' => self.flags.hexadecimal(text, DigitCase::Capital),
            'q' => self.flags.quoted(text),
            _ => return self.bad_verb(value, verb, depth),
        };
        self.write(&text);
    }

    fn bytes(&mut self, value: &GoRuntimeValue, bytes: &GoString, verb: char, depth: usize) {
        if matches!(verb, 's' | 'q' | 'x' | 'X') {
            return self.string(value, bytes, verb, depth);
        }
        if self.flags.sharp_v {
            // Parity(go): the type has another name inside of other values.
            self.write(if depth == 0 { b"[]byte" } else { b"[]uint8" });
        }
        let item = |byte: &u8| {
            GoRuntimeValue::Integer(SizedInteger::new(IntegerKind::Uint8, i64::from(*byte)))
        };
        self.sequence(bytes.iter().map(|byte| (None, item(byte))), verb, depth, *b"[]");
    }

    fn object(
        &mut self,
        value: &GoRuntimeValue,
        object: &Arc<dyn GoObject>,
        verb: char,
        depth: usize,
        level: PrintNesting,
    ) {
        let is_text = matches!(verb, 'v' | 's' | 'x' | 'X' | 'q') && !self.flags.sharp_v;
        if is_text
            && !self.is_complaining
            && !object.is_nil()
            && let Some(text) = object.text()
        {
            return self.string(&GoRuntimeValue::String(text.clone()), &text, verb, depth);
        }
        if let Some(underlying) = object.underlying() {
            return self.underlying(value, &underlying, verb, depth, level);
        }
        if let Some(entries) = object.entries() {
            let name = if self.flags.sharp_v { object.type_name() } else { "map" };
            self.write(name.as_bytes());
            let entries = entries.into_iter().map(|(key, item)| (Some(key), item));
            return self.sequence(entries, verb, depth, *b"[]");
        }
        match (object.kind(), level) {
            (ReflectKind::Struct, _) => {}
            (ReflectKind::Pointer, PrintNesting::Top) if !object.is_nil() => self.write(b"&"),
            _ => return self.pointer(value, verb, depth),
        }
        if self.flags.sharp_v {
            let name = object.type_name();
            self.write(name.strip_prefix('*').unwrap_or(name).as_bytes());
        }
        self.write(b"{");
        for (index, (name, field)) in object.fields().into_iter().enumerate() {
            if index > 0 {
                self.write(if self.flags.sharp_v { b", " } else { b" " });
            }
            if self.flags.plus_v || self.flags.sharp_v {
                self.write(name.as_bytes());
                self.write(b":");
            }
            self.value(&field, verb, depth + 1, PrintNesting::Inner);
        }
        self.write(b"}");
    }

    /// Prints a value of a named type. The name appears in Go syntax and in messages about verbs.
    fn underlying(
        &mut self,
        value: &GoRuntimeValue,
        underlying: &GoRuntimeValue,
        verb: char,
        depth: usize,
        level: PrintNesting,
    ) {
        let known = match underlying.kind() {
            ReflectKind::Bool => "tv",
            ReflectKind::Integer(_) => "vdboOxXcqU",
            ReflectKind::Float64 | ReflectKind::Complex128 => "vbgGxXfFeE",
            ReflectKind::String => "vsxXq",
            ReflectKind::Slice | ReflectKind::Map if self.flags.sharp_v => {
                let start = self.text.len();
                self.value(underlying, verb, depth, level);
                let written = underlying.type_name().len();
                if self.error.is_none() {
                    self.text.splice(start..start + written, value.type_name().into_bytes());
                }
                return;
            }
            _ => return self.value(underlying, verb, depth, level),
        };
        if known.contains(verb) {
            self.value(underlying, verb, depth, level);
        } else {
            self.bad_verb(value, verb, depth);
        }
    }

    /// Prints a value that only has an address.
    fn pointer(&mut self, value: &GoRuntimeValue, verb: char, depth: usize) {
        let is_nil = match value {
            GoRuntimeValue::Object(object) => object.is_nil(),
            GoRuntimeValue::List(list) => list.is_nil(),
            GoRuntimeValue::Map(map) => map.is_nil(),
            GoRuntimeValue::Function(_) | GoRuntimeValue::Bytes(_) => false,
            _ => return self.bad_verb(value, verb, depth),
        };
        let number = SizedInteger::new(
            IntegerKind::Uintptr,
            if is_nil { 0 } else { POINTER_PLACEHOLDER_ADDRESS },
        );
        let with_prefix = |sharp| FormatFlags { sharp, ..self.flags };
        let text = match verb {
            'v' if self.flags.sharp_v => {
                let name = value.type_of().unwrap_or(GoType::Any);
                let inner = if is_nil {
                    b"nil".to_vec()
                } else {
                    with_prefix(true).integer(number, 16, 'v', DigitCase::Small)
                };
                [b"(", name.to_string().as_bytes(), b")(", &inner, b")"].concat()
            }
            'v' if is_nil => self.flags.pad(b"<nil>"),
            'v' | 'p' => with_prefix(!self.flags.sharp).integer(number, 16, 'v', DigitCase::Small),
            'b' | 'o' | 'd' | 'x' | 'X' => return self.integer(value, number, verb, depth),
            _ => return self.bad_verb(value, verb, depth),
        };
        self.write(&text);
    }
}

/// Whether a value is nested in another one. A nested pointer only prints its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrintNesting {
    Top,
    Inner,
}
