//! Label selectors in Kubernetes' syntax: `app in (a, b), !canary, tier=web`.

use golang::strconv;

use super::label_syntax_validation::{label_key_problems, label_value_problems};

/// Longest selector that is read, in bytes. Differs(kubernetes): it has no limit.
pub(crate) const MAX_SELECTOR: usize = 1 << 20;

/// Why a text is not a label selector. The text is Kubernetes'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LabelSelectorSyntaxError(String);

/// Requirements that all have to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSelector(Vec<LabelRequirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRequirement {
    key: String,
    operator: LabelOperator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelOperator {
    In,
    NotIn,
    Equals,
    NotEquals,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelSelectorToken {
    Error,
    End,
    Close,
    Comma,
    Not,
    Equals,
    Greater,
    Identifier,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

impl LabelSelector {
    /// Reads a selector. An empty text matches everything.
    ///
    /// # Errors
    /// The text is not a selector, or a key or a value is not valid for a label.
    pub fn parse(text: &str) -> Result<Self, LabelSelectorSyntaxError> {
        if text.len() > MAX_SELECTOR {
            return Err(LabelSelectorSyntaxError(format!(
                "selector is longer than {MAX_SELECTOR} bytes"
            )));
        }
        LabelSelectorParser { tokens: tokens(text), at: 0 }.parse()
    }

    /// Whether the labels of an object match. `label` returns the value of a key, or `None` if the label is missing.
    pub fn matches<'v>(&self, label: impl Fn(&str) -> Option<&'v str>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(label(&requirement.key)))
    }
}

impl LabelRequirement {
    fn new(
        key: String,
        operator: LabelOperator,
        values: Vec<String>,
    ) -> Result<Self, LabelSelectorSyntaxError> {
        check_key(&key)?;
        if matches!(operator, LabelOperator::Greater | LabelOperator::Less)
            && values.iter().any(|value| strconv::parse_int(value, 10, 64).is_err())
        {
            let text = "for 'Gt', 'Lt' operators, the value must be an integer";
            return Err(LabelSelectorSyntaxError(text.to_owned()));
        }
        for value in &values {
            let problems = label_value_problems(value);
            if !problems.is_empty() {
                return Err(LabelSelectorSyntaxError(format!(
                    "invalid label value: {}: at key: {}: {}",
                    quoted(value),
                    quoted(&key),
                    problems.join("; ")
                )));
            }
        }
        Ok(Self { key, operator, values })
    }

    fn matches(&self, label: Option<&str>) -> bool {
        let is_one = |label: &str| self.values.iter().any(|value| value == label);
        let number = |text: &str| strconv::parse_int(text, 10, 64).ok();
        let wanted = self.values.first().and_then(|value| number(value));
        let numbers = label.and_then(number).zip(wanted);
        match self.operator {
            LabelOperator::In | LabelOperator::Equals => label.is_some_and(is_one),
            LabelOperator::NotIn | LabelOperator::NotEquals => !label.is_some_and(is_one),
            LabelOperator::Exists => label.is_some(),
            LabelOperator::DoesNotExist => label.is_none(),
            LabelOperator::Greater => numbers.is_some_and(|(found, wanted)| found > wanted),
            LabelOperator::Less => numbers.is_some_and(|(found, wanted)| found < wanted),
        }
    }
}

struct LabelSelectorParser {
    /// Ends with [`LabelSelectorToken::End`].
    tokens: Vec<(LabelSelectorToken, String)>,
    at: usize,
}

impl LabelSelectorParser {
    fn parse(mut self) -> Result<LabelSelector, LabelSelectorSyntaxError> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (LabelSelectorToken::Identifier | LabelSelectorToken::Not, _) => {
                    let requirement =
                        self.requirement().map_err(|LabelSelectorSyntaxError(text)| {
                            LabelSelectorSyntaxError(format!("unable to parse requirement: {text}"))
                        })?;
                    requirements.push(requirement);
                    match self.take() {
                        (LabelSelectorToken::End, _) => break,
                        (LabelSelectorToken::Comma, _) => {
                            let (token, text) = self.peek();
                            if !matches!(
                                token,
                                LabelSelectorToken::Identifier | LabelSelectorToken::Not
                            ) {
                                return Err(expected(&text, "identifier after ','"));
                            }
                        }
                        (_, text) => return Err(expected(&text, "',' or 'end of string'")),
                    }
                }
                (LabelSelectorToken::End, _) => break,
                (_, text) => {
                    return Err(expected(&text, "!, identifier, or 'end of string'"));
                }
            }
        }
        Ok(LabelSelector(requirements))
    }

    fn requirement(&mut self) -> Result<LabelRequirement, LabelSelectorSyntaxError> {
        let (mut token, mut key) = self.take();
        let is_negated = token == LabelSelectorToken::Not;
        if is_negated {
            (token, key) = self.take();
        }
        if token != LabelSelectorToken::Identifier {
            return Err(expected(&key, "identifier"));
        }
        check_key(&key)?;
        if is_negated {
            return LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, LabelSelectorToken::End | LabelSelectorToken::Comma) {
            return LabelRequirement::new(key, LabelOperator::Exists, Vec::new());
        }
        let (token, text) = self.take_operator();
        let operator = match token {
            LabelSelectorToken::In => LabelOperator::In,
            LabelSelectorToken::NotIn => LabelOperator::NotIn,
            LabelSelectorToken::Equals => LabelOperator::Equals,
            LabelSelectorToken::NotEquals => LabelOperator::NotEquals,
            LabelSelectorToken::Greater => LabelOperator::Greater,
            LabelSelectorToken::Less => LabelOperator::Less,
            _ => return Err(expected(&text, "'=', '!=', '==', 'in', notin'")),
        };
        let mut values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.values()?,
            _ => vec![self.value()?],
        };
        values.sort_unstable();
        values.dedup();
        LabelRequirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<String, LabelSelectorSyntaxError> {
        if matches!(self.peek().0, LabelSelectorToken::End | LabelSelectorToken::Comma) {
            return Ok(String::new());
        }
        match self.take() {
            (LabelSelectorToken::Identifier, text) => Ok(text),
            (_, text) => Err(expected(&text, "identifier")),
        }
    }

    fn values(&mut self) -> Result<Vec<String>, LabelSelectorSyntaxError> {
        let (token, text) = self.take();
        if token != LabelSelectorToken::Open {
            return Err(LabelSelectorSyntaxError(format!("found '{text}' expected: '('")));
        }
        let (token, first) = self.peek();
        match token {
            LabelSelectorToken::Identifier | LabelSelectorToken::Comma => {
                let values = self.identifiers()?;
                if self.take().0 != LabelSelectorToken::Close {
                    return Err(expected(&first, "')'"));
                }
                Ok(values)
            }
            LabelSelectorToken::Close => {
                self.take();
                Ok(vec![String::new()])
            }
            _ => Err(expected(&first, "',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<String>, LabelSelectorSyntaxError> {
        let mut values: Vec<String> = Vec::new();
        loop {
            match self.take() {
                (LabelSelectorToken::Identifier, text) => {
                    values.push(text);
                    match self.peek() {
                        (LabelSelectorToken::Comma, _) => {}
                        (LabelSelectorToken::Close, _) => return Ok(values),
                        (_, text) => return Err(expected(&text, "',' or ')'")),
                    }
                }
                (LabelSelectorToken::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        LabelSelectorToken::Close => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        LabelSelectorToken::Comma => {
                            self.take();
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, text) => return Err(expected(&text, "',', or identifier")),
            }
        }
    }

    /// The next token. `in` and `notin` are ordinary words here.
    fn peek(&self) -> (LabelSelectorToken, String) {
        let (token, text) =
            self.tokens.get(self.at).cloned().unwrap_or((LabelSelectorToken::End, String::new()));
        match token {
            LabelSelectorToken::In | LabelSelectorToken::NotIn => {
                (LabelSelectorToken::Identifier, text)
            }
            _ => (token, text),
        }
    }

    fn take(&mut self) -> (LabelSelectorToken, String) {
        let next = self.peek();
        self.at += 1;
        next
    }

    /// The next token, where `in` and `notin` are operators.
    fn take_operator(&mut self) -> (LabelSelectorToken, String) {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned().unwrap_or((LabelSelectorToken::End, String::new()))
    }
}

fn tokens(text: &str) -> Vec<(LabelSelectorToken, String)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        // Parity(kubernetes): a NUL ends the text.
        if rest.is_empty() || rest.starts_with('\0') {
            tokens.push((LabelSelectorToken::End, String::new()));
            return tokens;
        }
        let (token, length, text) = if rest.starts_with(is_special) {
            symbol(rest)
        } else {
            let ends = |c: char| is_special(c) || matches!(c, ' ' | '\t' | '\r' | '\n' | '\0');
            let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
            let token = match word {
                "in" => LabelSelectorToken::In,
                "notin" => LabelSelectorToken::NotIn,
                _ => LabelSelectorToken::Identifier,
            };
            // Parity(kubernetes): a NUL that ends a word is skipped.
            let nul = usize::from(rest[word.len()..].starts_with('\0'));
            (token, word.len() + nul, word.to_owned())
        };
        tokens.push((token, text));
        rest = &rest[length..];
    }
}

/// The longest operator at the beginning of a text, and its length.
fn symbol(text: &str) -> (LabelSelectorToken, usize, String) {
    let two = match text.get(..2) {
        Some("==") => Some(LabelSelectorToken::Equals),
        Some("!=") => Some(LabelSelectorToken::NotEquals),
        _ => None,
    };
    if let Some(token) = two {
        return (token, 2, text[..2].to_owned());
    }
    let token = match text.as_bytes()[0] {
        b')' => LabelSelectorToken::Close,
        b',' => LabelSelectorToken::Comma,
        b'!' => LabelSelectorToken::Not,
        b'=' => LabelSelectorToken::Equals,
        b'>' => LabelSelectorToken::Greater,
        b'<' => LabelSelectorToken::Less,
        b'(' => LabelSelectorToken::Open,
        _ => LabelSelectorToken::Error,
    };
    (token, 1, text[..1].to_owned())
}

fn is_special(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn check_key(key: &str) -> Result<(), LabelSelectorSyntaxError> {
    let problems = label_key_problems(key);
    if problems.is_empty() {
        return Ok(());
    }
    Err(LabelSelectorSyntaxError(format!(
        "invalid label key {}: {}",
        quoted(key),
        problems.join("; ")
    )))
}

fn expected(found: &str, expected: &str) -> LabelSelectorSyntaxError {
    LabelSelectorSyntaxError(format!("found '{found}', expected: {expected}"))
}

/// A text in the form of Go's `%q`.
fn quoted(text: &str) -> String {
    let quoted = strconv::quote(text.as_bytes(), strconv::QuotingStyle::Printable);
    String::from_utf8_lossy(&quoted).into_owned()
}
