//! Divides a text into plain pieces and expressions.
//!
//! Here: the grammar, and refusing what does not follow it. Elsewhere: tokens (`scan.rs`), and evaluating an expression
//! (`substitution_run.rs`).

use golang::unicode::{is_digit, is_letter};

use crate::error::{Error, LimitError, SyntaxError};
use crate::limits::SubstitutionLimits;
use crate::scan::{EscapeSyntax, ScanRules, SubstitutionToken, TextScanner};

/// A piece of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextNode {
    Text(Vec<u8>),
    Expression(SubstitutionExpression),
}

/// The content between `${` and `}`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SubstitutionExpression {
    pub(crate) name: String,
    pub(crate) operator: SubstitutionOperator,
    /// The arguments of the operator.
    pub(crate) arguments: Vec<TextNode>,
}

/// What an expression does with the value of its variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubstitutionOperator {
    /// It gives the value itself.
    Value,
    /// It gives the joined arguments if the value is empty.
    Default,
    Length,
    UpperFirst,
    Upper,
    LowerFirst,
    Lower,
    Substring,
    StripShortest(ValueSide),
    StripLongest(ValueSide),
    ReplaceFirst,
    ReplaceAll,
    ReplaceAt(ValueSide),
}

/// The beginning or the end of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueSide {
    Prefix,
    Suffix,
}

/// Divides a text into plain pieces and expressions.
pub(crate) fn parse(text: &[u8], limits: &SubstitutionLimits) -> Result<Vec<TextNode>, Error> {
    let rules =
        ScanRules { open: true, escapes: EscapeSyntax::Dollar, ..ScanRules::word(|_, _| true) };
    let depth = limits.depth.min(SubstitutionLimits::MAX_DEPTH);
    let mut parser = ExpressionParser { scanner: TextScanner::new(text), depth, left: depth };
    let mut nodes = Vec::new();
    loop {
        match parser.scanner.scan(rules) {
            SubstitutionToken::Word(text) => nodes.push(TextNode::Text(text)),
            SubstitutionToken::Open => {
                let begin = parser.scanner.at();
                let expression = parser.expression().map_err(|fault| match fault {
                    ExpressionParseFault::Syntax(fault) => {
                        Error::Syntax { fault, line: line(&text[..begin]) }
                    }
                    ExpressionParseFault::Limit(limit) => limit.into(),
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

/// The number of the line, counted from 1, on which a text ends.
fn line(text: &[u8]) -> usize {
    1 + text.iter().filter(|byte| **byte == b'\n').count()
}

enum ExpressionParseFault {
    Syntax(SyntaxError),
    Limit(LimitError),
}

impl From<SyntaxError> for ExpressionParseFault {
    fn from(fault: SyntaxError) -> Self {
        Self::Syntax(fault)
    }
}

struct ExpressionParser<'t> {
    scanner: TextScanner<'t>,
    depth: usize,
    /// How much deeper expressions may be nested.
    left: usize,
}

impl ExpressionParser<'_> {
    /// Reads the expression after a `${`.
    fn expression(&mut self) -> Result<SubstitutionExpression, ExpressionParseFault> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or(ExpressionParseFault::Limit(LimitError::Depth(self.depth)))?;
        let expression = match self.scanner.peek() {
            '#' => self.length()?,
            _ => self.named()?,
        };
        self.left += 1;
        Ok(expression)
    }

    fn length(&mut self) -> Result<SubstitutionExpression, ExpressionParseFault> {
        self.word(|character, at| character == '#' && at == 1)?;
        let name = self.word(is_name)?;
        self.close(name, SubstitutionOperator::Length, Vec::new())
    }

    fn named(&mut self) -> Result<SubstitutionExpression, ExpressionParseFault> {
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
            _ if self.scanner.scan(ScanRules::CLOSE) == SubstitutionToken::Close => {
                Ok(SubstitutionExpression {
                    name,
                    operator: SubstitutionOperator::Value,
                    arguments: Vec::new(),
                })
            }
            _ => Err(SyntaxError::MissingClosingBrace.into()),
        }
    }

    fn default(&mut self, name: String) -> Result<SubstitutionExpression, ExpressionParseFault> {
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
            arguments.push(self.argument(is_not_closing, EscapeSyntax::None)?);
        }
        self.close(name, SubstitutionOperator::Default, arguments)
    }

    fn substring(&mut self, name: String) -> Result<SubstitutionExpression, ExpressionParseFault> {
        self.word(|character, at| character == ':' && at == 1)?;
        let offset =
            self.argument(|character, _| !matches!(character, ':' | '}'), EscapeSyntax::None)?;
        let delimiter =
            ScanRules { close: true, ..ScanRules::word(|character, _| character == ':') };
        match self.scanner.scan(delimiter) {
            SubstitutionToken::Close => Ok(SubstitutionExpression {
                name,
                operator: SubstitutionOperator::Substring,
                arguments: vec![offset],
            }),
            SubstitutionToken::Word(_) => {
                let length = self.argument(is_not_closing, EscapeSyntax::None)?;
                self.close(name, SubstitutionOperator::Substring, vec![offset, length])
            }
            SubstitutionToken::End | SubstitutionToken::Open | SubstitutionToken::Other => {
                Err(SyntaxError::BadSubstitution.into())
            }
        }
    }

    fn casing(&mut self, name: String) -> Result<SubstitutionExpression, ExpressionParseFault> {
        let operator =
            match self.word(|character, at| matches!(character, ',' | '^') && at < 3)?.as_str() {
                "^" => SubstitutionOperator::UpperFirst,
                "^^" => SubstitutionOperator::Upper,
                "," => SubstitutionOperator::LowerFirst,
                ",," => SubstitutionOperator::Lower,
                // Parity(flux): `^,` and `,^` are read, and change nothing.
                _ => SubstitutionOperator::Value,
            };
        self.close(name, operator, Vec::new())
    }

    fn stripping(&mut self, name: String) -> Result<SubstitutionExpression, ExpressionParseFault> {
        let side = if self.scanner.peek() == '#' { ValueSide::Prefix } else { ValueSide::Suffix };
        let mark = match side {
            ValueSide::Prefix => self.word(|character, at| character == '#' && at < 3)?,
            ValueSide::Suffix => self.word(|character, at| character == '%' && at < 3)?,
        };
        let operator = match mark.len() {
            1 => SubstitutionOperator::StripShortest(side),
            _ => SubstitutionOperator::StripLongest(side),
        };
        let pattern = self.argument(is_not_closing, EscapeSyntax::None)?;
        self.close(name, operator, vec![pattern])
    }

    fn replacing(&mut self, name: String) -> Result<SubstitutionExpression, ExpressionParseFault> {
        let mark = self.word(|character, at| match at {
            1 => character == '/',
            2 => matches!(character, '/' | '#' | '%'),
            _ => false,
        })?;
        let operator = match mark.as_str() {
            "//" => SubstitutionOperator::ReplaceAll,
            "/#" => SubstitutionOperator::ReplaceAt(ValueSide::Prefix),
            "/%" => SubstitutionOperator::ReplaceAt(ValueSide::Suffix),
            _ => SubstitutionOperator::ReplaceFirst,
        };
        let escapes = EscapeSyntax::DollarAndBackslash;
        let mut arguments = vec![self.argument(|character, _| character != '/', escapes)?];
        self.word(|character, _| character == '/')?;
        if self.scanner.peek() != '}' {
            arguments.push(self.argument(is_not_closing, escapes)?);
        }
        self.close(name, operator, arguments)
    }

    /// Reads an argument: an expression, or the text up to the next expression or to a character that is not accepted.
    fn argument(
        &mut self,
        word: fn(char, usize) -> bool,
        escapes: EscapeSyntax,
    ) -> Result<TextNode, ExpressionParseFault> {
        match self.scanner.scan(ScanRules { open: true, escapes, ..ScanRules::word(word) }) {
            SubstitutionToken::Open => Ok(TextNode::Expression(self.expression()?)),
            SubstitutionToken::Word(text) => Ok(TextNode::Text(text)),
            SubstitutionToken::End | SubstitutionToken::Close | SubstitutionToken::Other => {
                Err(SyntaxError::Argument.into())
            }
        }
    }

    /// Reads a name or an operator: a word of accepted characters.
    fn word(&mut self, accepts: fn(char, usize) -> bool) -> Result<String, SyntaxError> {
        match self.scanner.scan(ScanRules::word(accepts)) {
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
        operator: SubstitutionOperator,
        arguments: Vec<TextNode>,
    ) -> Result<SubstitutionExpression, ExpressionParseFault> {
        match self.scanner.scan(ScanRules::CLOSE) {
            SubstitutionToken::Close => Ok(SubstitutionExpression { name, operator, arguments }),
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
