//! Manifests that are written plainly, of which the part that Helm looks at can be read without the rest.
//!
//! Before it knows an object, Helm reads all of its manifest for a name, a kind and a few annotations, and most of the
//! time goes into definitions of megabytes. Here only such lines are recognised that mean the same in every reader of
//! YAML and cannot be wrong: keys, scalars, block scalars, lists. Whatever else stands anywhere in a text makes it one
//! that has to be read as a whole.
//!
//! Elsewhere: what is read (`head.rs`), YAML (`goyaml`).

/// Deeper nesting is left to the reader of YAML, which has a limit.
const MAX_DEPTH: usize = 100;

/// The longest key; what is much longer is none for go-yaml.
const MAX_KEY: usize = 256;

/// The lines of those entries whose keys are wanted, if the whole text is a plain map.
pub(super) fn entries(text: &[u8], is_wanted: impl Fn(&str) -> bool) -> Option<String> {
    let text = std::str::from_utf8(text).ok().filter(|text| has_plain_characters(text))?;
    let mut outline =
        Outline { open: Vec::new(), awaits: true, block: None, folded: None, quoted: None };
    let mut kept = String::new();
    let mut keeps = true;
    for line in text.split('\n') {
        if let Some(key) = outline.line(line)? {
            keeps = is_wanted(key);
        }
        if keeps {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    (!outline.open.is_empty() && outline.quoted.is_none()).then_some(kept)
}

/// Whether there are only line feeds and characters that are no control, line end or byte order mark.
fn has_plain_characters(text: &str) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
    let is_ascii = |bytes: &[u8]| bytes.iter().fold(true, |all, byte| all & is_plain(byte));
    text.as_bytes().chunks(64).all(is_ascii)
        || text.chars().all(|character| match character {
            '\n' | ' '..='~' => true,
            '\u{2028}' | '\u{2029}' | '\u{feff}' => false,
            '\u{a0}'..='\u{fffd}' | '\u{10000}'.. => true,
            _ => false,
        })
}

/// A collection that is open, and the column in which its entries begin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Open {
    Map(usize),
    List(usize),
}

impl Open {
    fn column(self) -> usize {
        match self {
            Self::Map(column) | Self::List(column) => column,
        }
    }
}

/// A block scalar: the column of the collection that it is in, and of its own text once that is known.
struct Block {
    outer: usize,
    text: Option<usize>,
}

/// Where in the text a reader is. Each step gives nothing where the text is not plain.
struct Outline {
    open: Vec<Open>,
    /// Whether the last key, dash, or the text itself has no value yet.
    awaits: bool,
    block: Option<Block>,
    /// The column of the collection that a scalar without quotes is in, which may go on in the next line.
    folded: Option<usize>,
    /// The quote that is open, and the column of the collection that the scalar is in.
    quoted: Option<(u8, usize)>,
}

impl Outline {
    /// Passes a line; gives the key if it begins an entry of the outermost map.
    fn line<'t>(&mut self, line: &'t str) -> Option<Option<&'t str>> {
        let text = line.trim_start_matches(' ');
        let column = line.len() - text.len();
        if let Some(block) = &mut self.block {
            if text.is_empty() {
                // Spaces in front of the text count, if there are more of them.
                return (block.text.is_some() || column == 0).then_some(None);
            }
            if column > block.outer {
                return (column >= *block.text.get_or_insert(column)).then_some(None);
            }
            self.block = None;
        }
        if text.is_empty() {
            return Some(None);
        }
        if let Some((quote, outer)) = self.quoted.take() {
            return (column > outer && self.quoted(text, quote, outer)).then_some(None);
        }
        let folded = self.folded.take();
        if text.starts_with('#') {
            return Some(None);
        }
        if folded.is_some_and(|outer| column > outer) {
            self.folded = folded;
            return (!ends(text) && !text.contains(" #")).then_some(None);
        }
        let (mut text, mut at, mut list) = (text, column, None);
        while let Some(rest) = text.strip_prefix('-').filter(|rest| is_end(rest)) {
            self.item(at)?;
            list = Some(at);
            let rest = rest.trim_start_matches(' ');
            if rest.is_empty() || rest.starts_with('#') {
                return Some(None);
            }
            at += text.len() - rest.len();
            text = rest;
        }
        if let Some((key, value)) = key(text) {
            self.key(at)?;
            let value = value.trim_start_matches(' ');
            if !value.is_empty() && !value.starts_with('#') {
                self.scalar(value, at)?;
            }
            return Some((at == 0).then_some(key));
        }
        let outer = match list {
            Some(list) => list,
            None => {
                self.close(column);
                self.open.last().filter(|open| self.awaits && open.column() < column)?.column()
            }
        };
        self.scalar(text, outer).map(|()| None)
    }

    /// Closes what is deeper than a column; no value is awaited then.
    fn close(&mut self, column: usize) {
        while self.open.last().is_some_and(|open| open.column() > column) {
            self.open.pop();
            self.awaits = false;
        }
    }

    fn item(&mut self, column: usize) -> Option<()> {
        self.close(column);
        match self.open.last()? {
            Open::List(known) if *known == column => {}
            // Below a key, a list needs no indentation.
            _ if self.awaits => self.begin(Open::List(column))?,
            _ => return None,
        }
        self.awaits = true;
        Some(())
    }

    fn key(&mut self, column: usize) -> Option<()> {
        self.close(column);
        if self.open.last() == Some(&Open::List(column)) {
            self.open.pop();
            self.awaits = false;
        }
        match self.open.last() {
            Some(Open::Map(known)) if *known == column => {}
            Some(_) if self.awaits => self.begin(Open::Map(column))?,
            None if self.awaits && column == 0 => self.begin(Open::Map(0))?,
            _ => return None,
        }
        self.awaits = true;
        Some(())
    }

    fn begin(&mut self, open: Open) -> Option<()> {
        self.open.push(open);
        (self.open.len() <= MAX_DEPTH).then_some(())
    }

    /// What is within quotes, up to the end of the line or of the scalar.
    fn quoted(&mut self, text: &str, quote: u8, outer: usize) -> bool {
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'\\' && quote == b'"' {
                return false;
            }
            if byte == quote {
                match rest.clone().next() {
                    None => return true,
                    // Two of these are one within the scalar.
                    Some(b'\'') if quote == b'\'' => _ = rest.next(),
                    Some(_) => return text[text.len() - rest.len()..].starts_with(" #"),
                }
            }
        }
        self.quoted = Some((quote, outer));
        true
    }

    /// A scalar, or an empty collection, in the collection of a column.
    fn scalar(&mut self, text: &str, outer: usize) -> Option<()> {
        self.awaits = false;
        let text = text.trim_end_matches(' ');
        let mut bytes = text.bytes();
        let is_plain = match (bytes.next()?, bytes.next()) {
            (b'|' | b'>', _) => {
                self.block = Some(Block { outer, text: None });
                matches!(text, "|" | "|-" | "|+" | ">" | ">-" | ">+")
            }
            (quote @ (b'"' | b'\''), _) => self.quoted(&text[1..], quote, outer),
            (b'[' | b'{', _) => matches!(text, "[]" | "{}"),
            (
                b'a'..=b'z'
                | b'A'..=b'Z'
                | b'0'..=b'9'
                | b'_'
                | b'/'
                | b'$'
                | b'('
                | b'^'
                | b'<'
                | b'\\',
                _,
            )
            | (b'-', Some(b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-'))
            | (b'.', Some(b'a'..=b'z' | b'A'..=b'Z' | b'/')) => {
                let text = match text.split_once(" #") {
                    Some((text, _)) => text.trim_end_matches(' '),
                    None => {
                        self.folded = Some(outer);
                        text
                    }
                };
                // These two are floats that JSON does not have.
                let is_number = [".inf", ".nan"].iter().any(|word| text.eq_ignore_ascii_case(word));
                !ends(text) && !is_number
            }
            _ => false,
        };
        is_plain.then_some(())
    }
}

/// A key and what is behind its colon.
fn key(text: &str) -> Option<(&str, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (key, rest) = quoted.split_once('"')?;
        let value = rest.strip_prefix(':').filter(|value| is_end(value))?;
        return (!key.contains('\\') && key.len() <= MAX_KEY).then_some((key, value));
    }
    let is_of_key =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
    let length = text.bytes().take_while(is_of_key).count();
    let (key, rest) = text.split_at(length);
    let value = rest.strip_prefix(':').filter(|value| is_end(value))?;
    let is_text = key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_null = key.eq_ignore_ascii_case("null");
    (is_text && !is_null && length <= MAX_KEY).then_some((key, value))
}

/// Whether a colon ends a scalar without quotes in this line.
fn ends(text: &str) -> bool {
    text.contains(": ") || text.trim_end_matches(' ').ends_with(':')
}

/// Whether an indicator that stands before this is one.
fn is_end(behind: &str) -> bool {
    behind.is_empty() || behind.starts_with(' ')
}

#[cfg(test)]
mod tests {
    use super::super::head::Head;
    use super::entries;

    fn kind(text: &str) -> Option<String> {
        entries(text.as_bytes(), |key| key == "kind")
    }

    #[test]
    fn of_a_plain_map_only_the_wanted_entries_are_left() {
        let text = "# who\nspec:\n  list:\n  - a: 1\n    b: |\n\n      x: [\n     # text\n";
        assert_eq!(kind(text), None, "a comment within a block scalar is less indented than it");
        let text = "# who\nspec:\n  list:\n  - a: 1\n    b: >-\n\n      x: [\n\n  - --c=d:e # f\n\
                    kind: A\nnext:\n- - \"é\"\n  -\n    - 'x'\n  - {}\nempty:\n  \"a: b\":\n    .c\n    - d\n\n   e\n";
        assert_eq!(kind(text).as_deref(), Some("# who\nkind: A\n"));
    }

    #[test]
    fn what_only_a_reader_of_yaml_understands_is_not_plain() {
        for text in [
            "",
            "- kind: A\n",
            "kind\n",
            " kind: A\n",
            "kind: A\n  b # c\n",
            "kind: A\n  b\n  # c\n  d\n",
            "kind: \"A\"\n  b\n",
            "kind: A\n  b: c\n",
            "kind: a: b\n",
            "kind: &a b\n",
            "kind: *a\n",
            "kind: !!str a\n",
            "kind: [a, b]\n",
            "kind: \"a\nb\"\n",
            "kind: 'a''\n",
            "kind: \"a\\q\"\n",
            "kind: 'a' b\n",
            "kind: .nan\n",
            "kind: .NaN # no\n",
            "\"kind\\x20\": a\n",
            "kind:\na\n",
            "kind: -.inf\n",
            "null: a\n",
            "1: a\n",
            "? a\n",
            "kind:\tA\n",
            "kind: A\r\n",
            "kind: \u{85}\n",
            "kind: |2\n   a\n",
            "kind: |\n   \n a\n",
            "kind: |\n  a\n b\n",
            "kind:\n    a: b\n  c: d\n",
            "kind:\n  - a\n b: c\n",
            "kind:\n  a: b\n  - c\n",
            "kind:\n  - a\n  b: c\n",
            "kind: A\n---\nkind: B\n",
            "kind: A\n...\n",
            "<<: a\n",
        ] {
            assert_eq!(kind(text), None, "{text:?}");
        }
    }

    #[test]
    fn every_plain_text_is_one_that_can_be_read_and_says_the_same() {
        // All texts of a few lines of these.
        const LINES: [&str; 22] = [
            "kind: A",
            "kind:",
            "spec:",
            "- a",
            "- kind: B",
            "  kind: C",
            "  - a: |",
            "  - - b",
            "    c: d",
            "    e",
            " f:",
            "",
            "   ",
            "# g",
            "  # h",
            "metadata: >-",
            "  name: 'i'",
            "-",
            "\"kind\": j",
            "  {}",
            "  k: 'l ''m",
            "   n: \"",
        ];
        let mut plain = 0;
        for number in (0..LINES.len().pow(4)).step_by(7) {
            let mut left = number;
            let mut text = String::new();
            for _ in 0..4 {
                text.push_str(LINES[left % LINES.len()]);
                text.push('\n');
                left /= LINES.len();
            }
            let Some(kept) = entries(text.as_bytes(), super::super::head::is_read) else {
                continue;
            };
            plain += 1;
            let whole = Head::read(text.as_bytes());
            assert!(whole.is_ok() || Head::read(kept.as_bytes()).is_err(), "{text:?}");
            if let Ok(head) = Head::read(kept.as_bytes()) {
                assert_eq!(Ok(head), whole, "{text:?}");
            }
        }
        assert!(plain > 1000, "{plain} texts are plain");
    }
}
