//! Reads a text as plain pieces and expressions.
//!
//! Here: the grammar, and what it refuses. Elsewhere: tokens (`scan.rs`), evaluating an expression (`run.rs`).

use golang::unicode::{is_digit, is_letter};

use crate::error::{Error, LimitError, SyntaxError};
use crate::limits::SubstitutionLimits;
use crate::scan::{Escapes, Rules, Scanner, SubstitutionToken};

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextNode {
    Text(Vec<u8>),
    Expression(Expression),
}

/// What stands between `${` and `}`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expression {
    pub(crate) name: String,
    pub(crate) operator: Operator,
    /// What the operator works with.
    pub(crate) arguments: Vec<TextNode>,
}

/// What is done with the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    /// Nothing.
    Value,
    /// The arguments, joined, stand in for an empty value.
    Default,
    Length,
    UpperFirst,
    Upper,
    LowerFirst,
    Lower,
    Substring,
    StripShortest(Side),
    StripLongest(Side),
    ReplaceFirst,
    ReplaceAll,
    ReplaceAt(Side),
}

/// The beginning or the end of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Prefix,
    Suffix,
}

/// Reads a text.
pub(crate) fn parse(text: &[u8], limits: &SubstitutionLimits) -> Result<Vec<TextNode>, Error> {
    let rules = Rules { open: true, escapes: Escapes::Dollar, ..Rules::word(|_, _| true) };
    let depth = limits.depth.min(SubstitutionLimits::MAX_DEPTH);
    let mut parser = Parser { scanner: Scanner::new(text), depth, left: depth };
    let mut nodes = Vec::new();
    loop {
        match parser.scanner.scan(rules) {
            SubstitutionToken::Word(text) => nodes.push(TextNode::Text(text)),
            SubstitutionToken::Open => {
                let begin = parser.scanner.at();
                let expression = parser.expression().map_err(|fault| match fault {
                    ParseFault::Syntax(fault) => {
                        Error::Syntax { fault, line: line(&text[..begin]) }
                    }
                    ParseFault::Limit(limit) => limit.into(),
                })?;
                nodes.push(TextNode::Expression(expression));
            }
            // Every other character is part of a word.
            SubstitutionToken::End | SubstitutionToken::Close | SubstitutionToken::Other => {
                return Ok(nodes);
            }
        }
    }
}

/// The line, from 1, on which a text ends.
fn line(text: &[u8]) -> usize {
    1 + text.iter().filter(|byte| **byte == b'\n').count()
}

enum ParseFault {
    Syntax(SyntaxError),
    Limit(LimitError),
}

impl From<SyntaxError> for ParseFault {
    fn from(fault: SyntaxError) -> Self {
        Self::Syntax(fault)
    }
}

struct Parser<'t> {
    scanner: Scanner<'t>,
    depth: usize,
    /// How much deeper expressions may be nested.
    left: usize,
}

impl Parser<'_> {
    /// The expression after a `${`.
    fn expression(&mut self) -> Result<Expression, ParseFault> {
        self.left =
            self.left.checked_sub(1).ok_or(ParseFault::Limit(LimitError::Depth(self.depth)))?;
        let expression = match self.scanner.peek() {
            '#' => self.length()?,
            _ => self.named()?,
        };
        self.left += 1;
        Ok(expression)
    }

    fn length(&mut self) -> Result<Expression, ParseFault> {
        self.word(|character, at| character == '#' && at == 1)?;
        let name = self.word(is_name)?;
        self.close(name, Operator::Length, Vec::new())
    }

    fn named(&mut self) -> Result<Expression, ParseFault> {
        let name = self.word(is_name).map_err(|_| SyntaxError::VariableName)?;
        match self.scanner.peek() {
            ':' => match self.scanner.peek_second() {
                ('=' | '-' | '?' | '+', _) => self.default(name),
                // Parity(flux): upstream goes back by the width of the wrong character here.
                (_, 0 | 2..) => Err(SyntaxError::BadSubstitution.into()),
                (_, 1) => self.substring(name),
            },
            '=' => self.default(name),
            ',' | '^' => self.casing(name),
            '/' => self.replacing(name),
            '#' | '%' => self.stripping(name),
            _ if self.scanner.scan(Rules::CLOSE) == SubstitutionToken::Close => {
                Ok(Expression { name, operator: Operator::Value, arguments: Vec::new() })
            }
            _ => Err(SyntaxError::MissingClosingBrace.into()),
        }
    }

    fn default(&mut self, name: String) -> Result<Expression, ParseFault> {
        if self.scanner.peek() == '=' {
            self.word(|character, at| character == '=' && at == 1)?;
        } else {
            self.word(|character, at| match at {
                1 => character == ':',
                2 => matches!(character, '=' | '-' | '?' | '+'),
                _ => false,
            })?;
        }
        let mut arguments = Vec::new();
        while self.scanner.peek() != '}' {
            arguments.push(self.argument(is_not_closing, Escapes::None)?);
        }
        self.close(name, Operator::Default, arguments)
    }

    fn substring(&mut self, name: String) -> Result<Expression, ParseFault> {
        self.word(|character, at| character == ':' && at == 1)?;
        let offset =
            self.argument(|character, _| !matches!(character, ':' | '}'), Escapes::None)?;
        let delimiter = Rules { close: true, ..Rules::word(|character, _| character == ':') };
        match self.scanner.scan(delimiter) {
            SubstitutionToken::Close => {
                Ok(Expression { name, operator: Operator::Substring, arguments: vec![offset] })
            }
            SubstitutionToken::Word(_) => {
                let length = self.argument(is_not_closing, Escapes::None)?;
                self.close(name, Operator::Substring, vec![offset, length])
            }
            SubstitutionToken::End | SubstitutionToken::Open | SubstitutionToken::Other => {
                Err(SyntaxError::BadSubstitution.into())
            }
        }
    }

    fn casing(&mut self, name: String) -> Result<Expression, ParseFault> {
        let operator =
            match self.word(|character, at| matches!(character, ',' | '^') && at < 3)?.as_str() {
                "^" => Operator::UpperFirst,
                "^^" => Operator::Upper,
                "," => Operator::LowerFirst,
                ",," => Operator::Lower,
                // Parity(flux): `^,` and `,^` are read, and change nothing.
                _ => Operator::Value,
            };
        self.close(name, operator, Vec::new())
    }

    fn stripping(&mut self, name: String) -> Result<Expression, ParseFault> {
        let side = if self.scanner.peek() == '#' { Side::Prefix } else { Side::Suffix };
        let mark = match side {
            Side::Prefix => self.word(|character, at| character == '#' && at < 3)?,
            Side::Suffix => self.word(|character, at| character == '%' && at < 3)?,
        };
        let operator = match mark.len() {
            1 => Operator::StripShortest(side),
            _ => Operator::StripLongest(side),
        };
        let pattern = self.argument(is_not_closing, Escapes::None)?;
        self.close(name, operator, vec![pattern])
    }

    fn replacing(&mut self, name: String) -> Result<Expression, ParseFault> {
        let mark = self.word(|character, at| match at {
            1 => character == '/',
            2 => matches!(character, '/' | '#' | '%'),
            _ => false,
        })?;
        let operator = match mark.as_str() {
            "//" => Operator::ReplaceAll,
            "/#" => Operator::ReplaceAt(Side::Prefix),
            "/%" => Operator::ReplaceAt(Side::Suffix),
            _ => Operator::ReplaceFirst,
        };
        let escapes = Escapes::DollarAndBackslash;
        let mut arguments = vec![self.argument(|character, _| character != '/', escapes)?];
        self.word(|character, _| character == '/')?;
        if self.scanner.peek() != '}' {
            arguments.push(self.argument(is_not_closing, escapes)?);
        }
        self.close(name, operator, arguments)
    }

    /// An expression, or the text up to the next one or to a character that is not accepted.
    fn argument(
        &mut self,
        word: fn(char, usize) -> bool,
        escapes: Escapes,
    ) -> Result<TextNode, ParseFault> {
        match self.scanner.scan(Rules { open: true, escapes, ..Rules::word(word) }) {
            SubstitutionToken::Open => Ok(TextNode::Expression(self.expression()?)),
            SubstitutionToken::Word(text) => Ok(TextNode::Text(text)),
            SubstitutionToken::End | SubstitutionToken::Close | SubstitutionToken::Other => {
                Err(SyntaxError::Argument.into())
            }
        }
    }

    /// Names and operators: words of characters that are valid.
    fn word(&mut self, accepts: fn(char, usize) -> bool) -> Result<String, SyntaxError> {
        match self.scanner.scan(Rules::word(accepts)) {
            SubstitutionToken::Word(word) => Ok(String::from_utf8_lossy(&word).into_owned()),
            SubstitutionToken::End
            | SubstitutionToken::Open
            | SubstitutionToken::Close
            | SubstitutionToken::Other => Err(SyntaxError::BadSubstitution),
        }
    }

    fn close(
        &mut self,
        name: String,
        operator: Operator,
        arguments: Vec<TextNode>,
    ) -> Result<Expression, ParseFault> {
        match self.scanner.scan(Rules::CLOSE) {
            SubstitutionToken::Close => Ok(Expression { name, operator, arguments }),
            SubstitutionToken::End
            | SubstitutionToken::Open
            | SubstitutionToken::Word(_)
            | SubstitutionToken::Other => Err(SyntaxError::BadSubstitution.into()),
        }
    }
}

fn is_name(character: char, _: usize) -> bool {
    is_letter(character) || is_digit(character) || character == '_'
}

fn is_not_closing(character: char, _: usize) -> bool {
    character != '}'
}
