//! The template functions for words and upper or lower case, like goutils 1.1.1 and xstrings 1.5.0.

use golang::GoRuntimeValue;
use golang::unicode::{
    decode, is_digit, is_letter, is_lower, is_number, is_punct, is_title, is_upper, runes,
    to_lower, to_title, to_upper,
};

use crate::arguments::{SprigResult, text};
use crate::function_table::{SprigFunctionEntry, plain};

pub(crate) const ENTRIES: &[SprigFunctionEntry] = &[
    plain("camelcase", "func(string) string", camelcase),
    plain("initials", "func(string) string", initials),
    plain("kebabcase", "func(string) string", kebabcase),
    plain("nospace", "func(string) string", nospace),
    plain("snakecase", "func(string) string", snakecase),
    plain("swapcase", "func(string) string", swapcase),
    plain("title", "func(string) string", title),
    plain("untitle", "func(string) string", untitle),
];

/// The function `camelcase` of templates: `http_server` becomes `HttpServer`.
fn camelcase(args: &[GoRuntimeValue]) -> SprigResult {
    let mut characters = runes(text(args, 0)).peekable();
    let mut result = String::new();
    // Separators at the beginning of the text stay.
    while let Some(character) = characters.next_if(|character| joins(*character)) {
        result.push(character);
    }
    let Some(first) = characters.next() else {
        // Parity(helm 4): at the end of the text, the last character comes twice.
        result.extend(result.chars().next_back());
        return Ok(GoRuntimeValue::from(result));
    };
    let mut is_capital_run = is_upper(first);
    let mut last = to_upper(first);
    for character in characters {
        let mut next = character;
        match (joins(last), joins(next)) {
            (true, true) => result.push(last),
            (true, false) => {
                // The joint is left out.
                is_capital_run = is_upper(next);
                next = to_upper(next);
            }
            (false, _) => {
                if is_capital_run {
                    if is_upper(next) {
                        next = to_lower(next);
                    } else {
                        is_capital_run = false;
                    }
                }
                result.push(last);
            }
        }
        last = next;
    }
    result.push(last);
    Ok(GoRuntimeValue::from(result))
}

/// The first letters of all words.
fn initials(args: &[GoRuntimeValue]) -> SprigResult {
    let mut result = String::new();
    let mut is_gap = true;
    // Parity(helm 4): each byte counts as a character.
    for character in text(args, 0).iter().map(|byte| char::from(*byte)) {
        let is_space = character.is_whitespace();
        if is_gap && !is_space {
            result.push(character);
        }
        is_gap = is_space;
    }
    Ok(GoRuntimeValue::from(result))
}

/// The function `kebabcase` of templates: `HTTPServer` becomes `http-server`.
fn kebabcase(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::string(joined(text(args, 0), '-')))
}

/// The function `nospace` of templates: the text without white space.
fn nospace(args: &[GoRuntimeValue]) -> SprigResult {
    let text = text(args, 0);
    // Parity(helm 4): each byte counts as a character, and is written as one if any space is left out.
    let is_space = |byte: &u8| char::from(*byte).is_whitespace();
    if !text.iter().any(is_space) {
        return Ok(GoRuntimeValue::string(text));
    }
    let rest = text.iter().filter(|byte| !is_space(byte)).map(|byte| char::from(*byte));
    Ok(GoRuntimeValue::from(rest.collect::<String>()))
}

/// The function `snakecase` of templates: `HTTPServer` becomes `http_server`.
fn snakecase(args: &[GoRuntimeValue]) -> SprigResult {
    Ok(GoRuntimeValue::string(joined(text(args, 0), '_')))
}

/// Exchanges upper and lower case.
fn swapcase(args: &[GoRuntimeValue]) -> SprigResult {
    let mut is_gap = true;
    let swapped = runes(text(args, 0)).map(|character| {
        if is_upper(character) || is_title(character) {
            is_gap = false;
            to_lower(character)
        } else if is_lower(character) {
            if std::mem::take(&mut is_gap) { to_title(character) } else { to_upper(character) }
        } else {
            is_gap = character.is_whitespace();
            character
        }
    });
    Ok(GoRuntimeValue::from(swapped.collect::<String>()))
}

/// Begins each word with an upper-case letter. Other letters stay unchanged.
fn title(args: &[GoRuntimeValue]) -> SprigResult {
    let separates = |character: char| match character {
        '_' => false,
        character if character.is_ascii() => !character.is_ascii_alphanumeric(),
        character => !is_letter(character) && !is_digit(character) && character.is_whitespace(),
    };
    let mut last = ' ';
    let changed = runes(text(args, 0)).map(|character| {
        let is_first = separates(std::mem::replace(&mut last, character));
        if is_first { to_title(character) } else { character }
    });
    Ok(GoRuntimeValue::from(changed.collect::<String>()))
}

/// Begins each word with a lower-case letter. Other letters stay unchanged.
fn untitle(args: &[GoRuntimeValue]) -> SprigResult {
    let mut is_gap = true;
    let changed = runes(text(args, 0)).map(|character| {
        let is_space = character.is_whitespace();
        let is_first = std::mem::replace(&mut is_gap, is_space);
        if is_first && !is_space { to_lower(character) } else { character }
    });
    Ok(GoRuntimeValue::from(changed.collect::<String>()))
}

/// Whether a character joins words.
fn joins(character: char) -> bool {
    matches!(character, '-' | '_') || character.is_whitespace()
}

/// A run of characters of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CharacterRunKind {
    /// The end of the text, or bytes that are not valid characters.
    None,
    Number,
    Capital,
    Letters,
    Joint,
    Punctuation,
    Other,
}

impl CharacterRunKind {
    /// Whether the run needs a joining character before it.
    fn is_word(self) -> bool {
        !matches!(self, Self::Joint | Self::Punctuation)
    }
}

/// The words of a text in lower case, joined by a character.
fn joined(text: &[u8], joint: char) -> Vec<u8> {
    let mut words = WordSplitter { rest: text, joint, result: Vec::new() };
    let (mut kind, mut word) = words.next();
    while !words.rest.is_empty() {
        if kind != CharacterRunKind::Joint {
            words.write(kind, word);
        }
        let last_kind = kind;
        let last = word;
        (kind, word) = words.next();
        match last_kind {
            CharacterRunKind::Number => {
                (kind, word) = words.write_run(kind, word);
                if kind != CharacterRunKind::None && kind.is_word() {
                    words.join();
                }
            }
            CharacterRunKind::Joint => words.write(CharacterRunKind::Joint, last),
            CharacterRunKind::Punctuation => {}
            _ if kind != CharacterRunKind::Number => {
                if kind.is_word() {
                    words.join();
                }
            }
            _ if words.rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word) = words.next();
                if kind == CharacterRunKind::Letters {
                    // `http2xx` is `http_2xx`.
                    words.join();
                    words.write(CharacterRunKind::Number, number);
                    (kind, word) = words.write_run(kind, word);
                    if kind != CharacterRunKind::None && kind.is_word() {
                        words.join();
                    }
                } else {
                    // `Bld4Floor` is `bld4_floor`.
                    words.write(CharacterRunKind::Number, number);
                    if kind.is_word() {
                        words.join();
                    }
                }
            }
        }
    }
    words.write(kind, word);
    words.result
}

/// A text that is being split into words.
struct WordSplitter<'t> {
    rest: &'t [u8],
    joint: char,
    result: Vec<u8>,
}

impl<'t> WordSplitter<'t> {
    fn join(&mut self) {
        self.push(self.joint);
    }

    fn push(&mut self, character: char) {
        self.result.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }

    /// Writes a word in lower case. A separator is written as one joining character for each of its characters.
    fn write(&mut self, kind: CharacterRunKind, word: &[u8]) {
        if !matches!(kind, CharacterRunKind::Capital | CharacterRunKind::Joint) {
            self.result.extend_from_slice(word);
            return;
        }
        for character in runes(word) {
            match character {
                _ if joins(character) => self.join(),
                _ if is_upper(character) => self.push(to_lower(character)),
                _ => self.push(character),
            }
        }
    }

    /// Writes runs of letters and numbers, and returns the first other run after them.
    fn write_run(
        &mut self,
        kind: CharacterRunKind,
        word: &'t [u8],
    ) -> (CharacterRunKind, &'t [u8]) {
        let mut kind = kind;
        let mut word = word;
        while matches!(kind, CharacterRunKind::Letters | CharacterRunKind::Number) {
            self.write(kind, word);
            (kind, word) = self.next();
        }
        (kind, word)
    }

    /// Takes the next run of characters from the text, with its kind. `CharacterRunKind::None` means that the text is
    /// over or not valid there.
    fn next(&mut self) -> (CharacterRunKind, &'t [u8]) {
        let text = self.rest;
        if text.is_empty() {
            return (CharacterRunKind::None, text);
        }
        let (first, mut length) = next_valid(text, char::REPLACEMENT_CHARACTER);
        let kind = match first {
            char::REPLACEMENT_CHARACTER => CharacterRunKind::None,
            first if joins(first) => CharacterRunKind::Joint,
            first if is_punct(first) => CharacterRunKind::Punctuation,
            first if is_upper(first) => CharacterRunKind::Capital,
            first if is_alphabetic(first) => CharacterRunKind::Letters,
            first if is_number(first) => CharacterRunKind::Number,
            _ => CharacterRunKind::Other,
        };
        let small = |character| is_alphabetic(character) && !is_upper(character);
        match kind {
            CharacterRunKind::None => {}
            CharacterRunKind::Joint => length = run(text, length, first, joins),
            CharacterRunKind::Punctuation => length = run(text, length, first, is_punct),
            CharacterRunKind::Letters => length = run(text, length, first, small),
            CharacterRunKind::Number => length = run(text, length, first, is_number),
            CharacterRunKind::Other => {
                length = run(text, length, first, |character| {
                    !joins(character)
                        && !is_alphabetic(character)
                        && !is_number(character)
                        && !is_punct(character)
                });
            }
            CharacterRunKind::Capital if length < text.len() => {
                let (second, size) = next_valid(&text[length..], first);
                if is_upper(second) {
                    length = capitals(text, length + size, second, size);
                } else if is_alphabetic(second) {
                    length = run(text, length + size, second, small);
                }
            }
            CharacterRunKind::Capital => {}
        }
        self.rest = &text[length..];
        (kind, &text[..length])
    }
}

/// Whether a character is a letter but not an ideograph, which is a word by itself.
fn is_alphabetic(character: char) -> bool {
    is_letter(character)
        && !matches!(character, '\u{3400}'..='\u{4d85}' | '\u{4e00}'..='\u{9fcc}' | '\u{20000}'..='\u{2b81d}')
}

/// The end of a run of upper-case letters. If lower-case letters follow, the last upper-case letter belongs to them.
fn capitals(text: &[u8], mut length: usize, mut last: char, mut last_size: usize) -> usize {
    while length < text.len() {
        let (character, size) = next_valid(&text[length..], last);
        if !is_upper(character) {
            return if is_alphabetic(character) { length - last_size } else { length };
        }
        (last, last_size, length) = (character, size, length + size);
    }
    length
}

/// The end of a run of characters that `is_of` accepts, from a position on.
fn run(text: &[u8], mut length: usize, mut last: char, is_of: impl Fn(char) -> bool) -> usize {
    while length < text.len() {
        let (character, size) = next_valid(&text[length..], last);
        if !is_of(character) {
            break;
        }
        (last, length) = (character, length + size);
    }
    length
}

/// The next valid character, with any invalid bytes before it. If there is none, the last character is returned again.
fn next_valid(text: &[u8], last: char) -> (char, usize) {
    let mut length = 0;
    while length < text.len() {
        let (character, size) = decode(&text[length..]);
        length += size;
        if character != char::REPLACEMENT_CHARACTER {
            return (character, length);
        }
    }
    (last, length)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn words_are_found_as_xstrings_finds_them() {
        check(&[
            (
                r#"{{ camelcase "http_server" }} {{ camelcase "_complex__case_" }}"#,
                "HttpServer _Complex_Case_",
            ),
            (r#"{{ camelcase "GOLANG_IS_GREAT" }} {{ camelcase "a" }}"#, "GolangIsGreat A"),
            (
                r#"{{ snakecase "HTTPServer" }} {{ snakecase "Bld4Floor3rd" }}"#,
                "http_server bld4_floor_3rd",
            ),
            (
                r#"{{ kebabcase "fooBar2Baz" }} {{ kebabcase "HTTP20xOK" }}"#,
                "foo-bar2-baz http-20x-ok",
            ),
            (r#"{{ snakecase "GO PATH" }} {{ snakecase "foo.bar" }}"#, "go_path foo.bar"),
        ]);
    }

    #[test]
    fn letters_change_as_goutils_changes_them() {
        check(&[
            (r#"{{ initials "First try" }} {{ initials "é" }}"#, "Ft Ã"),
            (r#"{{ nospace "a b\u00a0" }} {{ nospace "é" }}"#, "abÂ é"),
            (r#"{{ swapcase "aB cD" }} {{ swapcase "ab" }}"#, "Ab Cd AB"),
            (r#"{{ title "wOrld-foo_bar éa" }}"#, "WOrld-Foo_bar Éa"),
            (r#"{{ untitle "Hello World" }}"#, "hello world"),
        ]);
    }
}
