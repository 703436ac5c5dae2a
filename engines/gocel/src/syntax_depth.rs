//! How deep the syntax tree of a text will be, found from its tokens before anything recurses over it.
//!
//! Here: the tokens of the grammar, and what nests. Elsewhere: the parser, whose stack, and that of every walk over its
//! tree, is bounded by this.
//!
//! Source of the grammar: cel-go's `CEL.g4`.

/// How deep an expression may nest.
///
/// Counted are brackets that are open, conditions, and operators that lean on the one before, such as in `a.b + c.d`:
/// such a chain makes a tree as deep as it is long. It ends at a logical operator, a comma or a condition.
/// Differs(cel-go): in cel-go each rule of the grammar may recurse 250 times; here all of them together.
pub(crate) const MAX_DEPTH: usize = 250;

/// Why a text is not given to the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadableExpression {
    /// It nests deeper than [`MAX_DEPTH`].
    TooDeep,
    /// No token begins at this byte, and the text after it is too long to know how deep the parser would nest it.
    NoToken(usize),
}

/// Whether the parser can handle a text. An upper bound is enough: no expression that people write comes near it.
pub(crate) fn check(source: &str) -> Result<(), UnreadableExpression> {
    let mut nesting = ExpressionNesting::default();
    let mut lexer = CelLexer { source, at: 0 };
    loop {
        lexer.skip_hidden();
        let begin = lexer.at;
        match lexer.next() {
            Ok(Some(token)) => nesting.take(token),
            Ok(None) => return Ok(()),
            // What the parser's own lexer skips until it finds a token again is its business: at worst every byte from
            // here on nests.
            Err(NoTokenFound) if nesting.deepest() + (source.len() - begin) <= MAX_DEPTH => {
                return Ok(());
            }
            Err(NoTokenFound) => return Err(UnreadableExpression::NoToken(begin)),
        }
        if nesting.deepest() > MAX_DEPTH {
            return Err(UnreadableExpression::TooDeep);
        }
    }
}

/// What a token does to the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DepthToken {
    /// A bracket of any kind, which also leans on what is before it, as in `a[0]`.
    Open,
    Close,
    Comma,
    Colon,
    Question,
    /// `&&` and `||`, whose operands lie side by side.
    Logic,
    /// An operator that takes what is before it as its operand, or one before its operand.
    Operator,
    /// The operator `.`, after which a question mark is that of an optional field.
    Dot,
    /// Names and literals.
    Operand,
}

#[derive(Debug, Default)]
struct BracketLevel {
    chain: usize,
    conditions: usize,
}

impl BracketLevel {
    fn depth(&self) -> usize {
        self.chain + self.conditions
    }
}

#[derive(Debug, Default)]
struct ExpressionNesting {
    /// Levels around the one that is read, with the depth of each.
    around: Vec<BracketLevel>,
    /// Their depth together, and one for each.
    held: usize,
    own: BracketLevel,
    /// The token before says that a question mark is that of an optional field or element.
    is_optional: bool,
}

impl ExpressionNesting {
    fn deepest(&self) -> usize {
        self.held + self.own.depth()
    }

    fn take(&mut self, token: DepthToken) {
        match token {
            DepthToken::Open => {
                self.own.chain += 1;
                self.held += self.own.depth() + 1;
                self.around.push(std::mem::take(&mut self.own));
            }
            DepthToken::Close => {
                if let Some(level) = self.around.pop() {
                    self.held -= level.depth() + 1;
                    self.own = level;
                }
            }
            DepthToken::Comma => self.own = BracketLevel::default(),
            DepthToken::Question if self.is_optional => self.own.chain += 1,
            DepthToken::Question => {
                self.own = BracketLevel { chain: 0, conditions: self.own.conditions + 1 };
            }
            DepthToken::Colon | DepthToken::Logic => self.own.chain = 0,
            DepthToken::Operator | DepthToken::Dot => self.own.chain += 1,
            DepthToken::Operand => {}
        }
        self.is_optional = matches!(token, DepthToken::Open | DepthToken::Comma | DepthToken::Dot);
    }
}

/// There is no token where one was looked for.
#[derive(Debug)]
struct NoTokenFound;

struct CelLexer<'s> {
    source: &'s str,
    at: usize,
}

impl CelLexer<'_> {
    fn rest(&self) -> &[u8] {
        self.source.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.rest().get(ahead).copied().unwrap_or_default()
    }

    fn skip(&mut self, fits: impl Fn(&u8) -> bool) -> usize {
        let length = self.rest().iter().take_while(|byte| fits(byte)).count();
        self.at += length;
        length
    }

    /// Spaces and comments.
    fn skip_hidden(&mut self) {
        loop {
            self.skip(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'\x0c'));
            if !self.rest().starts_with(b"//") {
                return;
            }
            self.skip(|byte| *byte != b'\n');
        }
    }

    /// The token that is here; none at the end.
    fn next(&mut self) -> Result<Option<DepthToken>, NoTokenFound> {
        let Some(first) = self.rest().first().copied() else { return Ok(None) };
        if self.string()? {
            return Ok(Some(DepthToken::Operand));
        }
        let (length, token) = match (first, self.peek(1)) {
            (b'a'..=b'z' | b'A'..=b'Z' | b'_', _) => return Ok(Some(self.word())),
            (b'0'..=b'9', _) | (b'.', b'0'..=b'9') => {
                self.number();
                return Ok(Some(DepthToken::Operand));
            }
            (b'`', _) => {
                self.escaped()?;
                return Ok(Some(DepthToken::Operand));
            }
            (b'&', b'&') | (b'|', b'|') => (2, DepthToken::Logic),
            (b'=' | b'!' | b'<' | b'>', b'=') => (2, DepthToken::Operator),
            (b'!' | b'<' | b'>' | b'+' | b'-' | b'*' | b'/' | b'%', _) => (1, DepthToken::Operator),
            (b'.', _) => (1, DepthToken::Dot),
            (b'(' | b'[' | b'{', _) => (1, DepthToken::Open),
            (b')' | b']' | b'}', _) => (1, DepthToken::Close),
            (b',', _) => (1, DepthToken::Comma),
            (b':', _) => (1, DepthToken::Colon),
            (b'?', _) => (1, DepthToken::Question),
            _ => return Err(NoTokenFound),
        };
        self.at += length;
        Ok(Some(token))
    }

    fn word(&mut self) -> DepthToken {
        let begin = self.at;
        self.skip(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        match self.source.get(begin..self.at) {
            Some("in") => DepthToken::Operator,
            _ => DepthToken::Operand,
        }
    }

    /// As long as the grammar makes it, since what follows may be the operator `in`: `1in[1]`.
    fn number(&mut self) {
        if self.peek(0) == b'0' && self.peek(1) == b'x' && self.peek(2).is_ascii_hexdigit() {
            self.at += 2;
            self.skip(u8::is_ascii_hexdigit);
            self.skip_one(b"uU");
            return;
        }
        let whole = self.skip(u8::is_ascii_digit);
        let mut is_float = false;
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            self.at += 1;
            self.skip(u8::is_ascii_digit);
            is_float = true;
        }
        let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
        if matches!(self.peek(0), b'e' | b'E') && self.peek(1 + sign).is_ascii_digit() {
            self.at += 1 + sign;
            self.skip(u8::is_ascii_digit);
            is_float = true;
        }
        if whole > 0 && !is_float {
            self.skip_one(b"uU");
        }
    }

    fn skip_one(&mut self, of: &[u8]) {
        self.at += usize::from(of.contains(&self.peek(0)));
    }

    /// A name in backquotes.
    fn escaped(&mut self) -> Result<(), NoTokenFound> {
        self.at += 1;
        let length = self.skip(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'/' | b' ')
        });
        if length == 0 || self.peek(0) != b'`' {
            return Err(NoTokenFound);
        }
        self.at += 1;
        Ok(())
    }

    /// Takes a text or bytes, if one begins here.
    fn string(&mut self) -> Result<bool, NoTokenFound> {
        let bytes = usize::from(matches!(self.peek(0), b'b' | b'B'));
        let raw = usize::from(matches!(self.peek(bytes), b'r' | b'R'));
        let mark = self.peek(bytes + raw);
        if !matches!(mark, b'"' | b'\'') {
            return Ok(false);
        }
        self.at += bytes + raw;
        let is_raw = raw == 1;
        let is_long = self.peek(1) == mark && self.peek(2) == mark;
        let marks = if is_long { 3 } else { 1 };
        self.at += marks;
        loop {
            let byte = self.rest().first().copied().ok_or(NoTokenFound)?;
            if byte == mark && (!is_long || (self.peek(1) == mark && self.peek(2) == mark)) {
                self.at += marks;
                return Ok(true);
            }
            match byte {
                b'\n' | b'\r' if !is_long => return Err(NoTokenFound),
                b'\\' if !is_raw => self.escape()?,
                _ => self.at += 1,
            }
        }
    }

    /// An escape sequence of a text.
    fn escape(&mut self) -> Result<(), NoTokenFound> {
        let digits = |from: usize, count: usize, fits: fn(&u8) -> bool| {
            let digits = self.rest().get(from..from + count);
            digits.is_some_and(|digits| digits.iter().all(fits)).then_some(from + count)
        };
        let is_octal: fn(&u8) -> bool = |byte| matches!(byte, b'0'..=b'7');
        let length = match self.peek(1) {
            b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => {
                Some(2)
            }
            b'x' | b'X' => digits(2, 2, u8::is_ascii_hexdigit),
            b'u' => digits(2, 4, u8::is_ascii_hexdigit),
            b'U' => digits(2, 8, u8::is_ascii_hexdigit),
            b'0'..=b'3' => digits(2, 2, is_octal),
            _ => None,
        };
        self.at += length.ok_or(NoTokenFound)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
