//! Expressions that are read once and evaluated many times.

use std::fmt;

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use serde_json::{Map, Value as Json};

use crate::budget::EVALUATION;
use crate::eval::{CelEvaluation, ExpressionVariables};
use crate::evaluation_plan::{self, CelNode};
use crate::expression_types::CelType;
use crate::parse;
use crate::syntax_depth::MAX_DEPTH;
use crate::type_check;
use crate::value::CelValue;

/// Why a text is not an expression, or the expression has no value. The messages are Flux's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be read, or names or types in it are wrong.
    #[error("failed to parse the CEL expression '{expression}': {complaints}")]
    Parse {
        /// The expression.
        expression: String,
        /// What is wrong at which place, with the line shown.
        complaints: String,
    },
    /// It can be read, but never evaluated.
    #[error("failed to create CEL program: {0}")]
    Program(String),
    /// The type of its value differs from the requested one.
    #[error("CEL expression output type mismatch: expected {expected}, got {found}")]
    OutputType {
        /// The type that was asked for.
        expected: &'static str,
        /// The type that it is of.
        found: String,
    },
    /// It has no value for what it was evaluated over, or costs too much.
    #[error("failed to evaluate the CEL expression '{expression}': {reason}")]
    Evaluate {
        /// The expression.
        expression: String,
        /// Why.
        reason: String,
    },
    /// What is left to the run was too little for reading it.
    #[error("the CEL expressions of one object are too long together; make them fewer or shorter")]
    TooMuch,
    /// Its value is not a boolean.
    #[error("failed to evaluate CEL expression as boolean: '{0}'")]
    NotBoolean(String),
    /// Its value is not a text.
    #[error("failed to evaluate CEL expression as string: '{0}'")]
    NotText(String),
    /// Its value is nothing that JSON has.
    #[error("failed to evaluate the CEL expression '{0}': its value cannot be kept")]
    NotData(String),
}

/// What reading the expressions of one object may use up: two hundred thousand bytes of text or so, and some hundred
/// patterns.
pub const READING: WorkAllowance = WorkAllowance { steps: 200_000_000, bytes: 256 << 20 };

/// What a byte of an expression costs to read, and what its tree takes.
const READ_STEPS: u64 = 1_000;
const READ_BYTES: u64 = 1_000;

/// Stack size of a thread that reads or evaluates any expression: the parser takes most of it, for the deepest text
/// that is read.
pub const REQUIRED_STACK_BYTES: usize = 64 << 20;

/// An expression, ready to be evaluated.
///
/// An evaluation costs at most a million steps and 64 MiB of memory, less where a run has less left, and has no effect
/// but its value. Strings and data that nest deeply need a [`REQUIRED_STACK_BYTES`] to be read and evaluated on.
#[derive(Debug)]
pub struct CelExpression {
    text: String,
    plan: CelNode,
}

impl CelExpression {
    /// Reads an expression whose variables are not known before it is evaluated; types are not checked.
    ///
    /// # Errors
    /// If it is not in the language, too long or too deep.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_within(text, &mut one_reading())
    }

    /// The same at the cost of a run, whose expressions share what they may use up.
    ///
    /// # Errors
    /// As [`CelExpression::parse`], and when the run has too little left.
    pub fn parse_within(text: &str, run: &mut WorkMeter) -> Result<Self, Error> {
        let parsed = parsed(text, run)?;
        Self::planned(text, &parsed, false, run)
    }

    /// Reads an expression over some variables, each a map from text to anything, and checks that it gives a boolean.
    ///
    /// Parity(flux): a mere field such as `self.ready` has no known type, and is refused; such an expression has to be
    /// written as `self.ready == true`.
    ///
    /// # Errors
    /// If it is not in the language, if its names or types are wrong, or if it would give something else.
    pub fn compile(text: &str, variables: &[&str]) -> Result<Self, Error> {
        Self::compile_within(text, variables, &mut one_reading())
    }

    /// The same at the cost of a run.
    ///
    /// # Errors
    /// As [`CelExpression::compile`], and when the run has too little left.
    pub fn compile_within(
        text: &str,
        variables: &[&str],
        run: &mut WorkMeter,
    ) -> Result<Self, Error> {
        Self::checked(text, variables, Some(CelType::Bool), run)
    }

    /// Reads an expression over some variables, and checks that it gives a text.
    ///
    /// # Errors
    /// As [`CelExpression::compile`].
    pub fn compile_text(text: &str, variables: &[&str]) -> Result<Self, Error> {
        Self::checked(text, variables, Some(CelType::String), &mut one_reading())
    }

    /// Reads an expression over some variables that may give anything, at the cost of a run.
    ///
    /// # Errors
    /// If it is not in the language, if its names or types are wrong, and when the run has too little left.
    pub fn compile_any_within(
        text: &str,
        variables: &[&str],
        run: &mut WorkMeter,
    ) -> Result<Self, Error> {
        Self::checked(text, variables, None, run)
    }

    fn checked(
        text: &str,
        variables: &[&str],
        wanted: Option<CelType>,
        run: &mut WorkMeter,
    ) -> Result<Self, Error> {
        let parsed = parsed(text, run)?;
        let found = type_check::check(&parsed, text, variables)
            .map_err(|complaints| refused(text, &complaints))?;
        if let Some(wanted) = wanted
            && found != wanted
        {
            let expected = if wanted == CelType::String { "string" } else { "bool" };
            return Err(Error::OutputType { expected, found: declared_name(&found) });
        }
        Self::planned(text, &parsed, true, run)
    }

    fn planned(
        text: &str,
        parsed: &parse::ParsedExpression,
        is_checked: bool,
        run: &mut WorkMeter,
    ) -> Result<Self, Error> {
        let plan = evaluation_plan::plan(&parsed.root, is_checked, run).map_err(Error::Program)?;
        Ok(Self { text: text.to_owned(), plan })
    }

    /// The text that it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates it over variables.
    ///
    /// # Errors
    /// If something in it fails, as a field that is missing, or if its value is not a boolean.
    pub fn evaluate_bool(&self, variables: &[(&str, &Json)]) -> Result<bool, Error> {
        self.evaluate_bool_within(variables, &mut one_evaluation())
    }

    /// The same at the cost of a run, whose expressions share what they may use up.
    ///
    /// # Errors
    /// As [`CelExpression::evaluate_bool`], and when the run has too little left.
    pub fn evaluate_bool_within(
        &self,
        variables: &[(&str, &Json)],
        run: &mut WorkMeter,
    ) -> Result<bool, Error> {
        self.evaluate(ExpressionVariables::Named(variables), run)
    }

    /// Evaluates it over an object whose fields are the variables.
    ///
    /// # Errors
    /// As [`CelExpression::evaluate_bool`].
    pub fn evaluate_bool_over(&self, fields: &Map<String, Json>) -> Result<bool, Error> {
        self.evaluate_bool_over_within(fields, &mut one_evaluation())
    }

    /// The same at the cost of a run.
    ///
    /// # Errors
    /// As [`CelExpression::evaluate_bool_within`].
    pub(crate) fn evaluate_bool_over_within(
        &self,
        fields: &Map<String, Json>,
        run: &mut WorkMeter,
    ) -> Result<bool, Error> {
        self.evaluate(ExpressionVariables::Fields(fields), run)
    }

    /// Evaluates it over variables to a text.
    ///
    /// # Errors
    /// If something in it fails, or if its value is not a text.
    pub fn evaluate_text(&self, variables: &[(&str, &Json)]) -> Result<String, Error> {
        match self.value(ExpressionVariables::Named(variables), &mut one_evaluation())? {
            CelValue::String(text) => Ok(text.to_string()),
            _ => Err(Error::NotText(self.text.clone())),
        }
    }

    /// Evaluates it over variables to a value that other expressions can be evaluated over, at the cost of a run.
    ///
    /// # Errors
    /// If something in it fails, if its value is nothing that JSON has, and when the run has too little left.
    pub fn evaluate_json_within(
        &self,
        variables: &[(&str, &Json)],
        run: &mut WorkMeter,
    ) -> Result<Json, Error> {
        let value = self.value(ExpressionVariables::Named(variables), run)?;
        value.to_json(MAX_DEPTH).ok_or_else(|| Error::NotData(self.text.clone()))
    }

    fn evaluate(
        &self,
        variables: ExpressionVariables<'_>,
        run: &mut WorkMeter,
    ) -> Result<bool, Error> {
        match self.value(variables, run)? {
            CelValue::Bool(value) => Ok(value),
            _ => Err(Error::NotBoolean(self.text.clone())),
        }
    }

    fn value<'a>(
        &'a self,
        variables: ExpressionVariables<'a>,
        run: &mut WorkMeter,
    ) -> Result<CelValue<'a>, Error> {
        CelEvaluation::run(&self.plan, variables, run).map_err(|fault| {
            let expression = self.text.clone();
            let reason = fault.to_string();
            Error::Evaluate { expression, reason }
        })
    }
}

impl fmt::Display for CelExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn one_evaluation() -> WorkMeter {
    WorkMeter::new(EVALUATION, StopSignal::default())
}

/// What the longest expression costs to read.
fn one_reading() -> WorkMeter {
    WorkMeter::new(READING, StopSignal::default())
}

fn parsed(text: &str, run: &mut WorkMeter) -> Result<parse::ParsedExpression, Error> {
    let length = text.len().min(parse::MAX_CHARACTERS) as u64;
    let cost = run.steps(length.saturating_mul(READ_STEPS));
    cost.and_then(|()| run.bytes(length.saturating_mul(READ_BYTES))).map_err(|_| Error::TooMuch)?;
    parse::parse(text).map_err(|complaints| refused(text, &complaints))
}

fn refused(text: &str, complaints: &[parse::CelSyntaxProblem]) -> Error {
    let complaints = parse::display(text, complaints);
    Error::Parse { expression: text.to_owned(), complaints }
}

/// A type as cel-go's `Type.String` shows it, unlike its checker.
fn declared_name(found: &CelType) -> String {
    match found {
        CelType::List(of) => format!("list({})", declared_name(of)),
        CelType::Map(of) => format!("map({}, {})", declared_name(&of.0), declared_name(&of.1)),
        CelType::Optional(of) => format!("optional_type({})", declared_name(of)),
        CelType::Of(Some(of)) => format!("type({})", declared_name(of)),
        other => other.runtime_name().to_owned(),
    }
}

#[cfg(test)]
mod tests;
