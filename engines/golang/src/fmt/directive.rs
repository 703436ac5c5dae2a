//! The format string of `Sprintf`: flags, width, precision, and indexes of arguments, with the messages about mistakes
//! in them.

use super::format::FormatFlags;
use super::printer::FormatPrinter;
use crate::unicode::decode;
use crate::value::GoRuntimeValue;

/// Greater widths and precisions are ignored.
const MAX_WIDTH_OR_PRECISION: usize = 1_000_000;

/// Prints values according to a format.
pub(super) fn run(printer: &mut FormatPrinter, format: &[u8], values: &[GoRuntimeValue]) {
    let mut reader = FormatDirectiveReader {
        format,
        at: 0,
        next: 0,
        values,
        is_reordered: false,
        is_good: true,
    };
    while !printer.is_full() {
        let rest = &format[reader.at..];
        let text = rest.iter().position(|byte| *byte == b'%').unwrap_or(rest.len());
        printer.write(&rest[..text]);
        reader.at += text;
        if reader.at >= format.len() {
            break;
        }
        reader.at += 1;
        if !reader.directive(printer) {
            break;
        }
    }
    if !reader.is_reordered && reader.next < values.len() {
        printer.flags = FormatFlags::default();
        printer.write(b"%!(EXTRA ");
        for (index, value) in values[reader.next..].iter().enumerate() {
            if index > 0 {
                printer.write(b", ");
            }
            match value {
                GoRuntimeValue::Nil => printer.write(b"<nil>"),
                value => {
                    printer.write(value.type_name().as_bytes());
                    printer.write(b"=");
                    printer.argument(value, 'v');
                }
            }
        }
        printer.write(b")");
    }
}

struct FormatDirectiveReader<'a> {
    format: &'a [u8],
    at: usize,
    /// The index of the next value.
    next: usize,
    values: &'a [GoRuntimeValue],
    /// Whether the format named the index of a value. No value then counts as left over.
    is_reordered: bool,
    /// Whether the indexes of this directive are valid.
    is_good: bool,
}

impl FormatDirectiveReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    /// Prints one directive, after its percent sign. Returns whether the format continues after it.
    fn directive(&mut self, printer: &mut FormatPrinter) -> bool {
        self.is_good = true;
        printer.flags = FormatFlags::default();
        while let Some(flag) = self.peek() {
            match flag {
                b'#' => printer.flags.sharp = true,
                b'0' => printer.flags.zero = true,
                b'+' => printer.flags.plus = true,
                b'-' => printer.flags.minus = true,
                b' ' => printer.flags.space = true,
                _ => break,
            }
            self.at += 1;
        }
        let mut after_index = self.index();
        after_index = self.width(printer, after_index);
        after_index = self.precision(printer, after_index);
        if !after_index {
            self.index();
        }
        if self.at >= self.format.len() {
            printer.write(b"%!(NOVERB)");
            return false;
        }
        let (verb, width) = decode(&self.format[self.at..]);
        self.at += width;
        match self.values.get(self.next) {
            _ if verb == '%' => printer.write(b"%"),
            _ if !self.is_good => printer.complain(verb, "(BADINDEX)"),
            None => printer.complain(verb, "(MISSING)"),
            Some(value) => {
                if matches!(verb, 'v' | 'w') {
                    printer.flags.sharp_v = std::mem::take(&mut printer.flags.sharp);
                    printer.flags.plus_v = std::mem::take(&mut printer.flags.plus);
                }
                printer.argument(value, verb);
                self.next += 1;
            }
        }
        true
    }

    fn width(&mut self, printer: &mut FormatPrinter, after_index: bool) -> bool {
        if self.peek() == Some(b'*') {
            self.at += 1;
            match self.number_of_value() {
                Some(width) => {
                    printer.flags.width = Some(width.unsigned_abs() as usize);
                    if width < 0 {
                        printer.flags.minus = true;
                        printer.flags.zero = false;
                    }
                }
                None => printer.write(b"%!(BADWIDTH)"),
            }
            return false;
        }
        printer.flags.width = self.number(self.format.len());
        if after_index && printer.flags.width.is_some() {
            self.is_good = false;
        }
        after_index
    }

    fn precision(&mut self, printer: &mut FormatPrinter, after_index: bool) -> bool {
        if self.peek() != Some(b'.') || self.at + 1 >= self.format.len() {
            return after_index;
        }
        self.at += 1;
        if after_index {
            self.is_good = false;
        }
        let after_index = self.index();
        if self.peek() == Some(b'*') {
            self.at += 1;
            match self.number_of_value() {
                Some(precision) if precision >= 0 => {
                    printer.flags.precision = Some(precision.unsigned_abs() as usize);
                }
                _ => printer.write(b"%!(BADPREC)"),
            }
            return false;
        }
        printer.flags.precision = Some(self.number(self.format.len()).unwrap_or(0));
        after_index
    }

    /// Reads a decimal number before `end`. `None` if there are no digits or if the number is too large, in which case
    /// everything up to `end` is skipped.
    fn number(&mut self, end: usize) -> Option<usize> {
        let mut number = None;
        while self.at < end && self.format[self.at].is_ascii_digit() {
            let known = number.unwrap_or(0);
            if known > MAX_WIDTH_OR_PRECISION {
                self.at = end;
                return None;
            }
            number = Some(known * 10 + usize::from(self.format[self.at] - b'0'));
            self.at += 1;
        }
        number
    }

    /// Takes the next value as a width or precision. `None` if there is no value left, or if it is not an integer in
    /// range.
    fn number_of_value(&mut self) -> Option<i64> {
        let value = self.values.get(self.next)?;
        self.next += 1;
        let GoRuntimeValue::Integer(integer) = value.underlying() else { return None };
        let number = integer.signed();
        let fits = number.unsigned_abs() <= MAX_WIDTH_OR_PRECISION as u64;
        (fits && (integer.kind().is_signed() || number >= 0)).then_some(number)
    }

    /// Reads an index such as `[3]`. Returns whether there was a valid index.
    fn index(&mut self) -> bool {
        if self.peek() != Some(b'[') {
            return false;
        }
        self.is_reordered = true;
        let rest = &self.format[self.at..];
        let close = rest.iter().position(|byte| *byte == b']').filter(|_| rest.len() >= 3);
        let Some(close) = close else {
            self.at += 1;
            self.is_good = false;
            return false;
        };
        let end = self.at + close;
        self.at += 1;
        let index = self.number(end).filter(|_| self.at == end);
        self.at = end + 1;
        match index.and_then(|index| index.checked_sub(1)) {
            Some(index) if index < self.values.len() => {
                self.next = index;
                true
            }
            _ => {
                self.is_good = false;
                index.is_some()
            }
        }
    }
}
