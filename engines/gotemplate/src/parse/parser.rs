//! The grammar of templates, with the messages of Go's parser.
//!
//! [`ParseSettings::nesting`] bounds the recursion.

use std::collections::BTreeMap;
use std::sync::Arc;

use golang::strconv::{QuotingStyle, quote, unquote};

use super::lex::{LexToken, LexTokenKind, TemplateLexer};
use super::node::{
    ControlBranch, ControlKeyword, NodeListSpan, TemplateNode, TemplateNodeForm, TemplateNodeId,
    TemplatePipeline, TemplateTextAndNodes, TemplateTree,
};
use super::{ParseSettings, TemplateNumber};
use crate::error::TemplateParseError;

type Result<T> = std::result::Result<T, TemplateParseError>;

/// How deep parentheses may be nested. The number is Go's.
const MAX_NESTED_PARENTHESES: usize = 10_000;

/// The state of parsing one text.
pub(super) struct TemplateParser<'a> {
    settings: &'a ParseSettings<'a>,
    name: &'a str,
    text: &'a [u8],
    lexer: TemplateLexer<'a>,
    /// The nodes so far. The text is added at the end.
    source: TemplateTextAndNodes,
    /// The children of incomplete nodes. Those of the innermost node are last.
    open: Vec<TemplateNodeId>,
    roots: BTreeMap<Arc<str>, TemplateNodeId>,
    /// The template that is being parsed. The caller keeps the templates around it.
    scope: ParseScope<'a>,
    nesting: usize,
}

/// The state that belongs to one template.
struct ParseScope<'a> {
    name: Arc<str>,
    /// Tokens that were put back. The last one is read first.
    tokens: [LexToken; 3],
    ahead: usize,
    variables: DeclaredVariables<'a>,
    /// The line on which the open action began. It is zero if none is open.
    action_line: u32,
    ranges: usize,
    parentheses: usize,
}

/// The declared variables, in the order of their declaration. There may be very many.
#[derive(Default)]
struct DeclaredVariables<'a> {
    names: Vec<&'a [u8]>,
    /// How many declared variables have each name.
    counts: BTreeMap<&'a [u8], usize>,
}

impl<'a> DeclaredVariables<'a> {
    fn push(&mut self, name: &'a [u8]) {
        self.names.push(name);
        *self.counts.entry(name).or_default() += 1;
    }

    fn truncate(&mut self, length: usize) {
        for name in self.names.drain(length.min(self.names.len())..) {
            if let Some(count) = self.counts.get_mut(name) {
                *count -= 1;
            }
        }
    }

    fn has(&self, name: &[u8]) -> bool {
        name == b"$" || self.counts.get(name).is_some_and(|count| *count > 0)
    }
}

impl ParseScope<'_> {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            tokens: [LexToken::NONE, LexToken::NONE, LexToken::NONE],
            ahead: 0,
            variables: DeclaredVariables::default(),
            action_line: 0,
            ranges: 0,
            parentheses: 0,
        }
    }
}

/// The token that ended a list of nodes.
struct NodeListEnd {
    at: u32,
    is_else: bool,
}

impl NodeListEnd {
    fn shown(&self) -> &'static str {
        if self.is_else { "{{else}}" } else { "{{end}}" }
    }
}

/// A node, or the token that ends a list of nodes.
enum ParsedItem {
    Node(TemplateNodeId),
    End(NodeListEnd),
}

impl<'a> TemplateParser<'a> {
    pub(super) fn new(name: &'a str, text: &'a [u8], settings: &'a ParseSettings<'a>) -> Self {
        let mut lexer =
            TemplateLexer::new(text, settings.left.as_bytes(), settings.right.as_bytes());
        lexer.has_break = settings.functions.callee("break").is_some();
        lexer.has_continue = settings.functions.callee("continue").is_some();
        Self {
            settings,
            name,
            text,
            lexer,
            source: TemplateTextAndNodes {
                name: name.into(),
                text: Arc::default(),
                nodes: Vec::with_capacity(text.len() / 16),
                ids: Vec::with_capacity(text.len() / 16),
                names: Vec::with_capacity(text.len() / 64),
                numbers: Vec::new(),
                strings: Vec::new(),
                templates: Vec::new(),
            },
            open: Vec::new(),
            roots: BTreeMap::new(),
            scope: ParseScope::new(name.into()),
            nesting: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<(TemplateTree, BTreeMap<Arc<str>, TemplateTree>)> {
        let at = self.peek().start;
        while self.peek().kind != LexTokenKind::Eof {
            if self.peek().kind == LexTokenKind::LeftDelim {
                let delimiter = self.next();
                if self.next_non_space().kind == LexTokenKind::Define {
                    self.definition()?;
                    continue;
                }
                self.backup2(delimiter);
            }
            match self.text_or_action()? {
                ParsedItem::Node(id) => self.open.push(id),
                ParsedItem::End(end) => {
                    return Err(self.error(format!("unexpected {}", end.shown())));
                }
            }
        }
        let ids = self.children(0);
        let root = self.node(at, TemplateNodeForm::List(ids));
        self.add(root)?;
        let mut source = self.source;
        source.text = self.text.into();
        source.nodes.shrink_to_fit();
        source.ids.shrink_to_fit();
        source.names.shrink_to_fit();
        let source = Arc::new(source);
        let tree = |name: Arc<str>, root| TemplateTree { name, source: Arc::clone(&source), root };
        let all = self.roots.into_iter().map(|(name, root)| (Arc::clone(&name), tree(name, root)));
        Ok((tree(self.scope.name, root), all.collect()))
    }

    fn node(&mut self, at: u32, form: TemplateNodeForm) -> TemplateNodeId {
        self.source.nodes.push(TemplateNode { at, form });
        TemplateNodeId(count(self.source.nodes.len() - 1))
    }

    /// Takes the children that were found since `from`.
    fn children(&mut self, from: usize) -> NodeListSpan {
        let start = count(self.source.ids.len());
        self.source.ids.extend(self.open.drain(from..));
        NodeListSpan { start, end: count(self.source.ids.len()) }
    }

    /// Adds a name to the names of the present node. `first` is the index of its first name.
    fn name(&mut self, first: u32, name: NodeListSpan) -> NodeListSpan {
        self.source.names.push(name);
        NodeListSpan { start: first, end: count(self.source.names.len()) }
    }

    fn next_name(&self) -> u32 {
        count(self.source.names.len())
    }

    // Tokens.

    fn next(&mut self) -> LexToken {
        if self.scope.ahead > 0 {
            self.scope.ahead -= 1;
        } else {
            self.scope.tokens[0] = self.lexer.next_token();
        }
        self.scope.tokens[self.scope.ahead]
    }

    fn backup(&mut self) {
        self.scope.ahead += 1;
    }

    fn backup2(&mut self, first: LexToken) {
        self.scope.tokens[1] = first;
        self.scope.ahead = 2;
    }

    fn backup3(&mut self, first: LexToken, second: LexToken) {
        self.scope.tokens[1] = second;
        self.scope.tokens[2] = first;
        self.scope.ahead = 3;
    }

    fn peek(&mut self) -> &LexToken {
        if self.scope.ahead == 0 {
            self.scope.ahead = 1;
            self.scope.tokens[0] = self.lexer.next_token();
        }
        &self.scope.tokens[self.scope.ahead - 1]
    }

    fn next_non_space(&mut self) -> LexToken {
        loop {
            let token = self.next();
            if token.kind != LexTokenKind::Space {
                return token;
            }
        }
    }

    fn peek_non_space(&mut self) -> LexToken {
        let token = self.next_non_space();
        self.backup();
        token
    }

    fn expect(&mut self, kinds: &[LexTokenKind], context: &str) -> Result<LexToken> {
        let token = self.next_non_space();
        if kinds.contains(&token.kind) { Ok(token) } else { Err(self.unexpected(&token, context)) }
    }

    // Messages.

    fn error(&self, message: impl Into<String>) -> TemplateParseError {
        TemplateParseError {
            template: self.name.to_owned(),
            line: self.scope.tokens[0].line as usize,
            message: message.into(),
        }
    }

    fn unexpected(&self, token: &LexToken, context: &str) -> TemplateParseError {
        let shown = match token.kind {
            LexTokenKind::Error => self.lexer.problem().to_owned(),
            _ => token.shown(self.text),
        };
        if token.kind != LexTokenKind::Error {
            return self.error(format!("unexpected {shown} in {context}"));
        }
        let started = self.scope.action_line;
        if started == 0 || started == token.line {
            return self.error(shown);
        }
        // The message may already mention an action.
        let within = if shown.ends_with(" action") { "" } else { " in action" };
        self.error(format!("{shown}{within} started at {}:{started}", self.name))
    }

    /// Enters one level deeper of nested blocks. The error says that the limit of levels is exceeded.
    fn enter(&mut self) -> Result<()> {
        self.nesting += 1;
        if self.nesting > self.settings.nesting {
            // Differs(go): blocks can be nested without end there; here they take stack.
            return Err(
                self.error(format!("max nesting of blocks exceeded ({})", self.settings.nesting))
            );
        }
        Ok(())
    }

    // Templates.

    fn add(&mut self, root: TemplateNodeId) -> Result<()> {
        let name = Arc::clone(&self.scope.name);
        let is_empty = |id: TemplateNodeId| match self.source.form(id) {
            TemplateNodeForm::List(ids) => {
                self.source.ids(ids).iter().all(|id| match self.source.form(*id) {
                    TemplateNodeForm::Text(text) => {
                        let text = &self.text[text.start as usize..text.end as usize];
                        String::from_utf8_lossy(text).trim().is_empty()
                    }
                    _ => false,
                })
            }
            _ => false,
        };
        match self.roots.get(&name) {
            Some(known) if !is_empty(*known) => {
                if !is_empty(root) {
                    let shown = quote(name.as_bytes(), QuotingStyle::Printable);
                    let shown = String::from_utf8_lossy(&shown);
                    return Err(
                        self.error(format!("template: multiple definition of template {shown}"))
                    );
                }
            }
            _ => _ = self.roots.insert(name, root),
        }
        Ok(())
    }

    /// Parses the body of a template within another one, up to its `end`.
    fn body(&mut self, context: &str) -> Result<()> {
        let (root, end) = self.list()?;
        if end.is_else {
            return Err(self.error(format!("unexpected {} in {context}", end.shown())));
        }
        self.add(root)
    }

    fn definition(&mut self) -> Result<()> {
        const CONTEXT: &str = "define clause";
        let outer = std::mem::replace(&mut self.scope, ParseScope::new("definition".into()));
        let name = self.expect(&[LexTokenKind::String, LexTokenKind::RawString], CONTEXT)?;
        self.scope.name = self.unquoted(&name)?;
        self.expect(&[LexTokenKind::RightDelim], CONTEXT)?;
        self.body(CONTEXT)?;
        self.scope = outer;
        Ok(())
    }

    fn block(&mut self) -> Result<TemplateNodeId> {
        const CONTEXT: &str = "block clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let pipe = self.pipeline(CONTEXT, LexTokenKind::RightDelim)?;
        let outer = std::mem::replace(&mut self.scope, ParseScope::new(Arc::clone(&name)));
        self.body(CONTEXT)?;
        self.scope = outer;
        let name = self.template_node(name);
        Ok(self.node(token.start, TemplateNodeForm::Template(name, Some(pipe))))
    }

    fn template(&mut self) -> Result<TemplateNodeId> {
        const CONTEXT: &str = "template clause";
        let token = self.next_non_space();
        let name = self.template_name(&token, CONTEXT)?;
        let mut pipe = None;
        if self.next_non_space().kind != LexTokenKind::RightDelim {
            self.backup();
            pipe = Some(self.pipeline(CONTEXT, LexTokenKind::RightDelim)?);
        }
        let name = self.template_node(name);
        Ok(self.node(token.start, TemplateNodeForm::Template(name, pipe)))
    }

    fn template_node(&mut self, name: Arc<str>) -> u32 {
        self.source.templates.push(name);
        count(self.source.templates.len() - 1)
    }

    fn template_name(&self, token: &LexToken, context: &str) -> Result<Arc<str>> {
        match token.kind {
            LexTokenKind::String | LexTokenKind::RawString => self.unquoted(token),
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn unquoted(&self, token: &LexToken) -> Result<Arc<str>> {
        let bytes = unquote(token.of(self.text)).map_err(|error| self.error(error.to_string()))?;
        Ok(String::from_utf8_lossy(&bytes).into())
    }

    // Lists and actions.

    fn list(&mut self) -> Result<(TemplateNodeId, NodeListEnd)> {
        self.enter()?;
        let at = self.peek_non_space().start;
        let outer = self.open.len();
        while self.peek_non_space().kind != LexTokenKind::Eof {
            match self.text_or_action()? {
                ParsedItem::Node(id) => self.open.push(id),
                ParsedItem::End(end) => {
                    self.nesting -= 1;
                    let ids = self.children(outer);
                    return Ok((self.node(at, TemplateNodeForm::List(ids)), end));
                }
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action(&mut self) -> Result<ParsedItem> {
        let token = self.next_non_space();
        match token.kind {
            LexTokenKind::Text => {
                Ok(ParsedItem::Node(self.node(token.start, TemplateNodeForm::Text(span(token)))))
            }
            LexTokenKind::LeftDelim => {
                self.scope.action_line = token.line;
                let item = self.action();
                self.scope.action_line = 0;
                item
            }
            _ => Err(self.unexpected(&token, "input")),
        }
    }

    fn action(&mut self) -> Result<ParsedItem> {
        let token = self.next_non_space();
        let id = match token.kind {
            LexTokenKind::Block => self.block()?,
            LexTokenKind::Break => self.leave(&token, "{{break}}", TemplateNodeForm::Break)?,
            LexTokenKind::Continue => {
                self.leave(&token, "{{continue}}", TemplateNodeForm::Continue)?
            }
            LexTokenKind::Else => return self.otherwise(),
            LexTokenKind::End => {
                let at = self.expect(&[LexTokenKind::RightDelim], "end")?.start;
                return Ok(ParsedItem::End(NodeListEnd { at, is_else: false }));
            }
            LexTokenKind::If => self.control(ControlKeyword::If)?,
            LexTokenKind::Range => self.control(ControlKeyword::Range)?,
            LexTokenKind::Template => self.template()?,
            LexTokenKind::With => self.control(ControlKeyword::With)?,
            _ => {
                self.backup();
                let at = self.peek().start;
                let pipe = self.pipeline("command", LexTokenKind::RightDelim)?;
                self.node(at, TemplateNodeForm::Action(pipe))
            }
        };
        Ok(ParsedItem::Node(id))
    }

    fn leave(
        &mut self,
        word: &LexToken,
        shown: &str,
        form: TemplateNodeForm,
    ) -> Result<TemplateNodeId> {
        let token = self.next_non_space();
        if token.kind != LexTokenKind::RightDelim {
            return Err(self.unexpected(&token, shown));
        }
        if self.scope.ranges == 0 {
            return Err(self.error(format!("{shown} outside {{{{range}}}}")));
        }
        Ok(self.node(word.start, form))
    }

    fn otherwise(&mut self) -> Result<ParsedItem> {
        let mut token = self.peek_non_space();
        // The caller reads the second word of `else if` and `else with`.
        if !matches!(token.kind, LexTokenKind::If | LexTokenKind::With) {
            token = self.expect(&[LexTokenKind::RightDelim], "else")?;
        }
        Ok(ParsedItem::End(NodeListEnd { at: token.start, is_else: true }))
    }

    fn control(&mut self, control: ControlKeyword) -> Result<TemplateNodeId> {
        let known = self.scope.variables.names.len();
        let pipe = self.pipeline(control.word(), LexTokenKind::RightDelim)?;
        let is_range = control == ControlKeyword::Range;
        self.scope.ranges += usize::from(is_range);
        let (list, end) = self.list()?;
        self.scope.ranges -= usize::from(is_range);
        let mut otherwise = None;
        if end.is_else {
            let next = self.peek().kind;
            let chained = matches!(
                (control, next),
                (ControlKeyword::If, LexTokenKind::If) | (ControlKeyword::With, LexTokenKind::With)
            );
            otherwise = Some(if chained {
                self.next();
                self.enter()?;
                let inner = self.control(control)?;
                self.nesting -= 1;
                let outer = self.open.len();
                self.open.push(inner);
                let ids = self.children(outer);
                self.node(end.at, TemplateNodeForm::List(ids))
            } else {
                let (list, end) = self.list()?;
                if end.is_else {
                    return Err(self.error(format!("expected end; found {}", end.shown())));
                }
                list
            });
        }
        self.scope.variables.truncate(known);
        let at = self.source.nodes[pipe.0 as usize].at;
        Ok(self
            .node(at, TemplateNodeForm::Branch(ControlBranch { control, pipe, list, otherwise })))
    }

    // Pipelines.

    fn pipeline(&mut self, context: &str, end: LexTokenKind) -> Result<TemplateNodeId> {
        let at = self.peek_non_space().start;
        let (is_assignment, variables) = self.declarations(context)?;
        let outer = self.open.len();
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => break,
                LexTokenKind::Bool
                | LexTokenKind::CharConstant
                | LexTokenKind::Complex
                | LexTokenKind::Dot
                | LexTokenKind::Field
                | LexTokenKind::Identifier
                | LexTokenKind::Number
                | LexTokenKind::Nil
                | LexTokenKind::RawString
                | LexTokenKind::String
                | LexTokenKind::Variable
                | LexTokenKind::LeftParen => {
                    self.backup();
                    let command = self.command()?;
                    self.open.push(command);
                }
                _ => return Err(self.unexpected(&token, context)),
            }
        }
        let commands = self.children(outer);
        if self.source.ids(commands).is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        for (index, command) in self.source.ids(commands).iter().enumerate().skip(1) {
            let TemplateNodeForm::Command(arguments) = self.source.form(*command) else { continue };
            let first = self.source.ids(arguments).first().map(|id| self.source.form(*id));
            if let Some(
                TemplateNodeForm::Bool(_)
                | TemplateNodeForm::Dot
                | TemplateNodeForm::Nil
                | TemplateNodeForm::Number(..)
                | TemplateNodeForm::String(..),
            ) = first
            {
                let stage = index + 1;
                return Err(self.error(format!("non executable command in pipeline stage {stage}")));
            }
        }
        Ok(self.node(
            at,
            TemplateNodeForm::Pipe(TemplatePipeline { is_assignment, variables, commands }),
        ))
    }

    /// Reads the variables that a pipeline declares or assigns, and whether they existed before.
    fn declarations(&mut self, context: &str) -> Result<(bool, NodeListSpan)> {
        let first = self.next_name();
        let mut names = NodeListSpan { start: first, end: first };
        loop {
            let variable = self.peek_non_space();
            if variable.kind != LexTokenKind::Variable {
                return Ok((false, names));
            }
            self.next();
            let adjacent = *self.peek();
            let next = self.peek_non_space();
            match next.kind {
                LexTokenKind::Assign | LexTokenKind::Declare => {
                    self.next_non_space();
                    names = self.name(first, span(variable));
                    self.scope.variables.push(variable.of(self.text));
                    return Ok((next.kind == LexTokenKind::Assign, names));
                }
                LexTokenKind::Char if next.of(self.text) == b"," => {
                    self.next_non_space();
                    names = self.name(first, span(variable));
                    self.scope.variables.push(variable.of(self.text));
                    if context != "range" || names.end - names.start >= 2 {
                        return Err(self.error(format!("too many declarations in {context}")));
                    }
                    match self.peek_non_space().kind {
                        LexTokenKind::Variable
                        | LexTokenKind::RightDelim
                        | LexTokenKind::RightParen => {}
                        _ => return Err(self.error("range can only initialize variables")),
                    }
                }
                _ if adjacent.kind == LexTokenKind::Space => {
                    self.backup3(variable, adjacent);
                    return Ok((false, names));
                }
                _ => {
                    self.backup2(variable);
                    return Ok((false, names));
                }
            }
        }
    }

    fn command(&mut self) -> Result<TemplateNodeId> {
        let at = self.peek_non_space().start;
        let outer = self.open.len();
        loop {
            self.peek_non_space();
            let operand = self.operand()?;
            self.open.extend(operand);
            let token = self.next();
            match token.kind {
                LexTokenKind::Space => continue,
                LexTokenKind::RightDelim | LexTokenKind::RightParen => self.backup(),
                LexTokenKind::Pipe => {}
                _ => return Err(self.unexpected(&token, "operand")),
            }
            break;
        }
        if self.open.len() == outer {
            return Err(self.error("empty command"));
        }
        let arguments = self.children(outer);
        Ok(self.node(at, TemplateNodeForm::Command(arguments)))
    }

    fn operand(&mut self) -> Result<Option<TemplateNodeId>> {
        let Some(id) = self.term()? else { return Ok(None) };
        if self.peek().kind != LexTokenKind::Field {
            return Ok(Some(id));
        }
        let at = self.peek().start;
        let form = self.source.form(id);
        // The names of this field or variable are the last ones so far, so more can be appended.
        let first = match form {
            TemplateNodeForm::Field(known) | TemplateNodeForm::Variable(known) => known.start,
            _ => self.next_name(),
        };
        let mut names = NodeListSpan { start: first, end: self.next_name() };
        while self.peek().kind == LexTokenKind::Field {
            let token = self.next();
            names = self.name(first, field(token));
        }
        let form = match form {
            TemplateNodeForm::Field(_) => TemplateNodeForm::Field(names),
            TemplateNodeForm::Variable(_) => TemplateNodeForm::Variable(names),
            TemplateNodeForm::Bool(_)
            | TemplateNodeForm::String(..)
            | TemplateNodeForm::Number(..)
            | TemplateNodeForm::Nil
            | TemplateNodeForm::Dot => {
                let shown = self.shown_constant(form);
                let shown = quote(shown.as_bytes(), QuotingStyle::Printable);
                let shown = String::from_utf8_lossy(&shown);
                return Err(self.error(format!("unexpected . after term {shown}")));
            }
            _ => return Ok(Some(self.node(at, TemplateNodeForm::Chain(id, names)))),
        };
        self.source.nodes[id.0 as usize] = TemplateNode { at, form };
        Ok(Some(id))
    }

    fn shown_constant(&self, form: TemplateNodeForm) -> String {
        match form {
            TemplateNodeForm::Bool(truth) => truth.to_string(),
            TemplateNodeForm::Number(_, text) | TemplateNodeForm::String(text, _) => {
                let text = &self.text[text.start as usize..text.end as usize];
                String::from_utf8_lossy(text).into_owned()
            }
            TemplateNodeForm::Nil => "nil".to_owned(),
            _ => ".".to_owned(),
        }
    }

    fn term(&mut self) -> Result<Option<TemplateNodeId>> {
        let token = self.next_non_space();
        let text = token.of(self.text);
        let quoted = || {
            let quoted = quote(String::from_utf8_lossy(text).as_bytes(), QuotingStyle::Printable);
            String::from_utf8_lossy(&quoted).into_owned()
        };
        let form = match token.kind {
            LexTokenKind::Identifier => {
                let name = std::str::from_utf8(text).ok();
                let Some(callee) = name.and_then(|name| self.settings.functions.callee(name))
                else {
                    return Err(self.error(format!("function {} not defined", quoted())));
                };
                TemplateNodeForm::Identifier(span(token), callee)
            }
            LexTokenKind::Dot => TemplateNodeForm::Dot,
            LexTokenKind::Nil => TemplateNodeForm::Nil,
            LexTokenKind::Variable => {
                if !self.scope.variables.has(text) {
                    return Err(self.error(format!("undefined variable {}", quoted())));
                }
                let first = self.next_name();
                TemplateNodeForm::Variable(self.name(first, span(token)))
            }
            LexTokenKind::Field => {
                let first = self.next_name();
                TemplateNodeForm::Field(self.name(first, field(token)))
            }
            LexTokenKind::Bool => TemplateNodeForm::Bool(text == b"true"),
            LexTokenKind::CharConstant | LexTokenKind::Complex | LexTokenKind::Number => {
                let number =
                    TemplateNumber::parse(text, token.kind).map_err(|error| self.error(error))?;
                self.source.numbers.push(number);
                TemplateNodeForm::Number(count(self.source.numbers.len() - 1), span(token))
            }
            LexTokenKind::LeftParen => return self.parenthesis().map(Some),
            LexTokenKind::String | LexTokenKind::RawString => {
                let meant = unquote(text).map_err(|error| self.error(error.to_string()))?;
                self.source.strings.push(meant.into());
                TemplateNodeForm::String(span(token), count(self.source.strings.len() - 1))
            }
            _ => {
                self.backup();
                return Ok(None);
            }
        };
        Ok(Some(self.node(token.start, form)))
    }

    fn parenthesis(&mut self) -> Result<TemplateNodeId> {
        if self.scope.parentheses >= MAX_NESTED_PARENTHESES {
            return Err(self.error("max expression depth exceeded"));
        }
        self.scope.parentheses += 1;
        let id = self.pipeline("parenthesized pipeline", LexTokenKind::RightParen)?;
        self.scope.parentheses -= 1;
        Ok(id)
    }
}

/// A number of parts of a text. It is smaller than the length of the text, which the caller keeps below 4 GiB.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn span(token: LexToken) -> NodeListSpan {
    NodeListSpan { start: token.start, end: token.end }
}

/// The name of a field, without its dot.
fn field(token: LexToken) -> NodeListSpan {
    NodeListSpan { start: token.start + 1, end: token.end }
}
