//! Computes how deep the syntax tree of a text will be, from its tokens, before any function recurses over the tree.
//!
//! Here: the tokens of the grammar, and their effect on the depth. Elsewhere: the parser. This limit bounds its stack,
//! and that of every walk over the tree.
//!
//! Source of the grammar: cel-go's `CEL.g4`.

/// How deep an expression may nest.
///
/// The depth counts open brackets, conditions, and operators in a chain such as `a.b + c.d`, which makes a tree as deep
/// as the chain is long. A chain ends at a logical operator, a comma or a condition. Differs(cel-go): in cel-go each
/// rule of the grammar may recurse 250 times; here all of them together.
pub(crate) const MAX_DEPTH: usize = 250;

/// Why the parser does not get a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadableExpression {
    /// The text nests deeper than [`MAX_DEPTH`].
    TooDeep,
    /// No token begins at this byte. The rest of the text is so long that the parser might nest it too deeply.
    NoToken(usize),
}

/// Whether the parser can handle a text. The computed depth is an upper bound, and real expressions are far below the
/// limit.
pub(crate) fn check(source: &str) -> Result<(), UnreadableExpression> {
    let mut nesting = ExpressionNesting::default();
    let mut lexer = CelLexer { source, at: 0 };
    loop {
        lexer.skip_hidden();
        let begin = lexer.at;
        match lexer.next() {
            Ok(Some(token)) => nesting.take(token),
            Ok(None) => return Ok(()),
            // The parser's own lexer skips the text until it finds a token again. In the worst case, every
            // remaining byte nests.
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

/// The effect of a token on the depth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DepthToken {
    /// An opening bracket of any kind. It also continues a chain, as in `a[0]`.
    Open,
    Close,
    Comma,
    Colon,
    Question,
    /// `&&` and `||`. Their operands do not form a chain.
    Logic,
    /// An operator that continues a chain, or one that precedes its operand.
    Operator,
    /// The operator `.`. A question mark after it means an optional field.
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
    /// The open brackets around the present position, with the depth of each.
    around: Vec<BracketLevel>,
    /// The sum of their depths, plus one for each bracket.
    held: usize,
    own: BracketLevel,
    /// Whether a question mark would mean an optional field or element, according to the token before.
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

/// No token begins at the position.
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

    /// Skips spaces and comments of the expression.
    fn skip_hidden(&mut self) {
        loop {
            self.skip(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'\x0c'));
            if !self.rest().starts_with(b"//") {
                return;
            }
            self.skip(|byte| *byte != b'\n');
        }
    }

    /// Reads the next token. `None` at the end of the text.
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

    /// Reads a number exactly as far as the grammar does, because the operator `in` may follow it: `1in[1]`.
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

    /// Reads a name in backquotes.
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

    /// Reads a text or bytes literal, if one begins here.
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

    /// Reads an escape sequence of a text.
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
