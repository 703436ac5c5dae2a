//! Decodes bytes into characters: encodings, byte order marks, allowed characters, and positions in the text. The
//! scanner gives the characters their meaning.

use crate::error::Error;

/// A position in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct YamlMark {
    /// The number of characters before the position.
    pub(crate) index: usize,
    /// The number of lines before the position.
    pub(crate) line: usize,
    /// The number of characters before the position in its line.
    pub(crate) column: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputEncoding {
    Unknown,
    Utf8,
    Utf16 { low: usize, high: usize },
}

/// How many bytes are decoded at once.
///
/// Parity(go-yaml v2): only what has been decoded can be found invalid, so this number decides how
/// far behind the end of the first document a wrong byte is still an error.
const DECODE_CHUNK_BYTES: usize = 512;

/// The initial capacity of the decoded text.
const INITIAL_TEXT_BYTES: usize = 64 << 10;

/// A text that is only decoded as far as it has been examined.
///
/// After the end, it returns NUL, which no text contains.
#[derive(Debug)]
pub(crate) struct YamlInputReader<'i> {
    input: &'i [u8],
    encoding: InputEncoding,
    /// The position of decoding in the input, and the end of the chunk that is being decoded.
    raw: usize,
    chunk: usize,
    ended: bool,
    /// The decoded text so far, as UTF-8.
    text: Vec<u8>,
    at: usize,
    /// The number of characters in `text` from `at` on.
    unread: usize,
    /// The position where Go's buffer of decoded characters begins.
    buffer: usize,
    pub(crate) mark: YamlMark,
    /// The number of line breaks since the last character that was neither a break nor a blank.
    pub(crate) newlines: usize,
}

impl<'i> YamlInputReader<'i> {
    /// A reader of `input`, whose first line counts as `line` (from 0).
    pub(crate) fn new(input: &'i [u8], line: usize) -> Self {
        Self {
            input,
            encoding: InputEncoding::Unknown,
            raw: 0,
            chunk: 0,
            ended: false,
            // Most input is UTF-8 already, so the text has the same length. But perhaps only its beginning is read.
            text: Vec::with_capacity(input.len().min(INITIAL_TEXT_BYTES)),
            at: 0,
            unread: 0,
            buffer: 0,
            mark: YamlMark { index: 0, line, column: 0 },
            newlines: 0,
        }
    }

    /// Decodes until `length` characters are available, or the text ends.
    #[inline]
    pub(crate) fn cache(&mut self, length: usize) -> Result<(), Error> {
        if self.unread >= length { Ok(()) } else { self.fill(length) }
    }

    /// Decodes the whole text, as UTF-8 without a byte order mark.
    pub(crate) fn into_text(mut self) -> Result<Vec<u8>, Error> {
        self.cache(usize::MAX)?;
        Ok(self.text)
    }

    fn fill(&mut self, length: usize) -> Result<(), Error> {
        if self.encoding == InputEncoding::Unknown {
            self.next_chunk();
            let (encoding, width) = match self.input {
                [0xff, 0xfe, ..] => (InputEncoding::Utf16 { low: 0, high: 1 }, 2),
                [0xfe, 0xff, ..] => (InputEncoding::Utf16 { low: 1, high: 0 }, 2),
                [0xef, 0xbb, 0xbf, ..] => (InputEncoding::Utf8, 3),
                _ => (InputEncoding::Utf8, 0),
            };
            self.encoding = encoding;
            self.raw = width;
            if self.input.len() < 3 {
                self.ended = true;
            }
        }
        self.buffer = self.at;
        let mut first = true;
        while self.unread < length {
            if !first || self.raw == self.chunk {
                self.next_chunk();
            }
            first = false;
            self.decode_chunk()?;
            if self.ended {
                // The NUL that stands for the end counts as a character.
                self.unread += 1;
                break;
            }
        }
        Ok(())
    }

    /// Takes the next chunk. Go only notices the end of its input at a further read.
    fn next_chunk(&mut self) {
        if self.chunk == self.input.len() {
            self.ended = true;
        } else {
            self.chunk = self.input.len().min(self.raw + DECODE_CHUNK_BYTES);
        }
    }

    /// Decodes the chunk up to its end, or up to a character that continues after it.
    fn decode_chunk(&mut self) -> Result<(), Error> {
        while self.raw < self.chunk {
            let rest = &self.input[self.raw..self.chunk];
            if self.encoding == InputEncoding::Utf8 {
                let ascii = allowed_ascii(rest);
                if ascii > 0 {
                    self.text.extend_from_slice(&rest[..ascii]);
                    self.raw += ascii;
                    self.unread += ascii;
                    continue;
                }
            }
            let decoded = match self.encoding {
                InputEncoding::Utf16 { low, high } => utf16(rest, low, high),
                InputEncoding::Utf8 | InputEncoding::Unknown => utf8(rest),
            };
            match decoded {
                Ok((character, width)) if is_allowed(character) => {
                    let mut bytes = [0; 4];
                    self.text.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                    self.raw += width;
                    self.unread += 1;
                }
                Ok(_) => return Err(self.error("control characters are not allowed")),
                Err(InvalidInput::Incomplete(_)) if !self.ended => return Ok(()),
                Err(InvalidInput::Incomplete(problem) | InvalidInput::Wrong(problem)) => {
                    return Err(self.error(problem));
                }
            }
        }
        Ok(())
    }

    fn error(&self, problem: &str) -> Error {
        let ahead = self.text[self.at..].iter().filter(|byte| **byte == b'\n').count();
        Error::encoding(problem, YamlMark { line: self.mark.line + ahead, ..self.mark })
    }

    /// The byte that is `ahead` bytes from here, or NUL.
    #[inline]
    pub(crate) fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    #[inline]
    fn width(&self) -> usize {
        match self.peek(0) {
            0..0xc0 => 1,
            0xc0..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        }
    }

    /// Skips one character that is not a line break.
    #[inline]
    pub(crate) fn skip(&mut self) {
        if !self.is_blank(0) {
            self.newlines = 0;
        }
        self.advance(self.width(), 1);
    }

    #[inline]
    fn advance(&mut self, bytes: usize, characters: usize) {
        self.at = self.text.len().min(self.at + bytes);
        self.unread = self.unread.saturating_sub(characters);
        self.mark.index += characters;
        self.mark.column += characters;
    }

    /// Takes one character and appends it to `into`.
    #[inline]
    pub(crate) fn read(&mut self, into: &mut Vec<u8>) {
        let end = self.text.len().min(self.at + self.width());
        into.extend_from_slice(&self.text[self.at..end]);
        self.skip();
    }

    /// How many of the next bytes are ASCII and `ordinary`.
    ///
    /// It leaves two decoded characters. Reading in runs therefore decodes no more than examining single characters
    /// would.
    #[inline]
    fn run(&self, ordinary: impl Fn(u8) -> bool) -> usize {
        let most = self.unread.saturating_sub(2).min(self.text.len() - self.at);
        let rest = &self.text[self.at..self.at + most];
        rest.iter().take_while(|byte| byte.is_ascii() && ordinary(**byte)).count()
    }

    /// Takes a run of `ordinary` ASCII characters, which may be empty, and appends it to `into`.
    #[inline]
    pub(crate) fn read_run(&mut self, into: &mut Vec<u8>, ordinary: impl Fn(u8) -> bool) {
        let run = self.run(ordinary);
        let text = &self.text[self.at..self.at + run];
        if text.iter().any(|byte| !matches!(byte, b' ' | b'\t')) {
            self.newlines = 0;
        }
        into.extend_from_slice(text);
        self.advance(run, run);
    }

    /// Skips a line break, if there is one.
    pub(crate) fn skip_line(&mut self) {
        if self.peek(0) == b'\r' && self.peek(1) == b'\n' {
            self.advance(2, 2);
        } else if self.is_break(0) {
            self.advance(self.width(), 1);
        } else {
            return;
        }
        self.mark.column = 0;
        self.mark.line += 1;
        self.newlines += 1;
    }

    /// Takes a line break and appends it to `into`. Unicode separators stay as they are, and any other break becomes a
    /// line feed.
    pub(crate) fn read_line(&mut self, into: &mut Vec<u8>) {
        match self.peek(0) {
            0xe2 if self.is_break(0) => into.extend_from_slice(&self.text[self.at..self.at + 3]),
            _ if self.is_break(0) => into.push(b'\n'),
            _ => return,
        }
        self.skip_line();
    }

    /// Skips blanks, and a comment up to the end of its line.
    pub(crate) fn skip_blanks_and_comment(&mut self) -> Result<(), Error> {
        self.skip_blanks()?;
        self.skip_comment()
    }

    /// Skips spaces and tabs of the input.
    pub(crate) fn skip_blanks(&mut self) -> Result<(), Error> {
        self.cache(1)?;
        while self.is_blank(0) {
            self.skip();
            self.cache(1)?;
        }
        Ok(())
    }

    /// Skips a comment up to the end of its line, if there is one.
    pub(crate) fn skip_comment(&mut self) -> Result<(), Error> {
        if self.peek(0) == b'#' {
            while !self.is_breakz(0) {
                let run = self.run(|byte| byte != b'\n' && byte != b'\r');
                self.advance(run, run);
                if !self.is_breakz(0) {
                    self.skip();
                }
                self.cache(1)?;
            }
        }
        Ok(())
    }

    /// Whether a byte order mark may be skipped here.
    pub(crate) fn is_bom(&self) -> bool {
        // Parity(go-yaml v2): it examines the beginning of its buffer, not at where it is, so a
        // second mark at the start of a text eats the first character of some later lines.
        self.text.get(self.buffer..).is_some_and(|text| text.starts_with(&[0xef, 0xbb, 0xbf]))
    }

    /// Whether the character at this distance is a space or tab.
    #[inline]
    pub(crate) fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.peek(ahead), b' ' | b'\t')
    }

    /// Whether the character at this distance is a line break: CR, LF, NEL, LS or PS.
    #[inline]
    pub(crate) fn is_break(&self, ahead: usize) -> bool {
        match self.peek(ahead) {
            b'\r' | b'\n' => true,
            0xc2 => self.peek(ahead + 1) == 0x85,
            0xe2 => self.peek(ahead + 1) == 0x80 && matches!(self.peek(ahead + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    /// Whether the character at this distance is a line break or the end.
    #[inline]
    pub(crate) fn is_breakz(&self, ahead: usize) -> bool {
        self.peek(ahead) == 0 || self.is_break(ahead)
    }

    /// Whether the character at this distance is a space, tab, line break or the end.
    #[inline]
    pub(crate) fn is_blankz(&self, ahead: usize) -> bool {
        self.is_blank(ahead) || self.is_breakz(ahead)
    }

    /// Whether the character at this distance is a letter, digit, `_` or `-`.
    #[inline]
    pub(crate) fn is_alpha(&self, ahead: usize) -> bool {
        let byte = self.peek(ahead);
        byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
    }

    /// Whether a line begins here with `---` or `...` and a blank.
    pub(crate) fn is_document_indicator(&self) -> bool {
        let same = |byte| (0..3).all(|ahead| self.peek(ahead) == byte);
        self.mark.column == 0 && (same(b'-') || same(b'.')) && self.is_blankz(3)
    }
}

enum InvalidInput {
    /// The input ends within a character.
    Incomplete(&'static str),
    Wrong(&'static str),
}

/// How many bytes at the beginning are allowed ASCII characters.
fn allowed_ascii(bytes: &[u8]) -> usize {
    const SCAN_CHUNK_BYTES: usize = 64;
    // Without an early end, the compiler compares many bytes at once.
    let all = |chunk: &[u8]| chunk.iter().fold(true, |all, byte| all & is_allowed_ascii(*byte));
    let whole = bytes.chunks_exact(SCAN_CHUNK_BYTES).take_while(|chunk| all(chunk)).count()
        * SCAN_CHUNK_BYTES;
    whole + bytes[whole..].iter().take_while(|byte| is_allowed_ascii(**byte)).count()
}

fn is_allowed_ascii(byte: u8) -> bool {
    matches!(byte, 0x09 | 0x0a | 0x0d | 0x20..=0x7e)
}

fn is_allowed(character: char) -> bool {
    matches!(character, '\u{09}' | '\u{0a}' | '\u{0d}' | '\u{20}'..='\u{7e}' | '\u{85}'
        | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

fn utf8(bytes: &[u8]) -> Result<(char, usize), InvalidInput> {
    let (width, smallest) = match bytes[0] {
        0..0x80 => (1, 0),
        0xc0..0xe0 => (2, 0x80),
        0xe0..0xf0 => (3, 0x800),
        0xf0..0xf8 => (4, 0x10000),
        _ => return Err(InvalidInput::Wrong("invalid leading UTF-8 octet")),
    };
    if bytes.len() < width {
        return Err(InvalidInput::Incomplete("incomplete UTF-8 octet sequence"));
    }
    // The marker bits of the first byte, by width: 0, 110, 1110, 11110.
    let mut value = u32::from(bytes[0] & [0x7f, 0x1f, 0x0f, 0x07][width - 1]);
    for byte in &bytes[1..width] {
        if byte & 0xc0 != 0x80 {
            return Err(InvalidInput::Wrong("invalid trailing UTF-8 octet"));
        }
        value = value << 6 | u32::from(byte & 0x3f);
    }
    if value < smallest {
        return Err(InvalidInput::Wrong("invalid length of a UTF-8 sequence"));
    }
    match char::from_u32(value) {
        Some(character) => Ok((character, width)),
        None => Err(InvalidInput::Wrong("invalid Unicode character")),
    }
}

fn utf16(bytes: &[u8], low: usize, high: usize) -> Result<(char, usize), InvalidInput> {
    let unit = |at: usize| u32::from(bytes[at + low]) | u32::from(bytes[at + high]) << 8;
    if bytes.len() < 2 {
        return Err(InvalidInput::Incomplete("incomplete UTF-16 character"));
    }
    let first = unit(0);
    if let Some(character) = char::from_u32(first) {
        return Ok((character, 2));
    }
    if first & 0xfc00 == 0xdc00 {
        return Err(InvalidInput::Wrong("unexpected low surrogate area"));
    }
    if bytes.len() < 4 {
        return Err(InvalidInput::Incomplete("incomplete UTF-16 surrogate pair"));
    }
    let second = unit(2);
    if second & 0xfc00 != 0xdc00 {
        return Err(InvalidInput::Wrong("expected low surrogate area"));
    }
    let value = 0x10000 + ((first & 0x3ff) << 10) + (second & 0x3ff);
    Ok((char::from_u32(value).unwrap_or('\u{fffd}'), 4))
}
