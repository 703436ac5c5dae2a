//! Expressions that are read once and evaluated many times.

use std::fmt;

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use serde_json::{Map, Value as Json};

use crate::budget::EVALUATION;
use crate::eval::{CelEvaluation, ExpressionVariables};
use crate::evaluation_plan::{self, CelPlanNode};
use crate::expression_types::CelType;
use crate::parse;
use crate::syntax_depth::MAX_DEPTH;
use crate::type_check;
use crate::value::CelValue;

/// Why a text is not an expression, or why an expression has no value. The messages are Flux's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text cannot be read, or its names or types are wrong.
    #[error("failed to parse the CEL expression '{expression}': {complaints}")]
    Parse {
        /// The expression.
        expression: String,
        /// The problems, each with its position and its line.
        complaints: String,
    },
    /// The expression can be read, but never be evaluated.
    #[error("failed to create CEL program: {0}")]
    Program(String),
    /// The expression has another type than the requested one.
    #[error("CEL expression output type mismatch: expected {expected}, got {found}")]
    OutputType {
        /// The requested type.
        expected: &'static str,
        /// The type of the expression.
        found: String,
    },
    /// The expression has no value for these variables, or costs too much.
    #[error("failed to evaluate the CEL expression '{expression}': {reason}")]
    Evaluate {
        /// The expression.
        expression: String,
        /// Why.
        reason: String,
    },
    /// The run has too little of its budget left to read the expression.
    #[error("the CEL expressions of one object are too long together; make them fewer or shorter")]
    TooMuch,
    /// The value is not a boolean.
    #[error("failed to evaluate CEL expression as boolean: '{0}'")]
    NotBoolean(String),
    /// The value is not a text.
    #[error("failed to evaluate CEL expression as string: '{0}'")]
    NotText(String),
    /// JSON cannot represent the value.
    #[error("failed to evaluate the CEL expression '{0}': its value cannot be kept")]
    NotData(String),
}

/// The budget for reading the expressions of one object: about two hundred thousand bytes of text, and some hundred
/// patterns.
pub const READING: WorkAllowance = WorkAllowance { steps: 200_000_000, bytes: 256 << 20 };

/// How many steps and bytes it costs to read one byte of an expression.
const READ_STEPS: u64 = 1_000;
const READ_BYTES: u64 = 1_000;

/// The stack size of a thread that may read or evaluate any expression. The parser needs most of it, for the deepest
/// expression that is accepted.
pub const REQUIRED_STACK_BYTES: usize = 64 << 20;

/// An expression that can be evaluated.
///
/// An evaluation costs at most a million steps and 64 MiB of memory, or less if a run has less left. It has no side
/// effects. Deeply nested expressions and data need a thread with a stack of [`REQUIRED_STACK_BYTES`].
#[derive(Debug)]
pub struct CelExpression {
    text: String,
    plan: CelPlanNode,
}

impl CelExpression {
    /// Reads an expression without knowing its variables. Types are not checked.
    ///
    /// # Errors
    /// The text is not an expression, or is too long or too deep.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::parse_within(text, &mut one_reading())
    }

    /// Like [`CelExpression::parse`], but the work counts against `run`, the budget that all expressions of one object share.
    ///
    /// # Errors
    /// As for [`CelExpression::parse`], and if too little of that budget is left.
    pub fn parse_within(text: &str, run: &mut WorkMeter) -> Result<Self, Error> {
        let parsed = parsed(text, run)?;
        Self::planned(text, &parsed, false, run)
    }

    /// Reads an expression with these variables, and checks that it gives a boolean. Each variable is a map from text
    /// to any value.
    ///
    /// Parity(flux): a plain field such as `self.ready` has no known type, so it is refused. The expression has to be
    /// `self.ready == true` instead.
    ///
    /// # Errors
    /// The text is not an expression, its names or types are wrong, or it does not give a boolean.
    pub fn compile(text: &str, variables: &[&str]) -> Result<Self, Error> {
        Self::compile_within(text, variables, &mut one_reading())
    }

    /// Like [`CelExpression::compile`], within the budget of a run.
    ///
    /// # Errors
    /// As for [`CelExpression::compile`], and if the run has too little of its budget left.
    pub fn compile_within(
        text: &str,
        variables: &[&str],
        run: &mut WorkMeter,
    ) -> Result<Self, Error> {
        Self::checked(text, variables, Some(CelType::Bool), run)
    }

    /// Reads an expression with these variables, and checks that it gives a text.
    ///
    /// # Errors
    /// As for [`CelExpression::compile`].
    pub fn compile_text(text: &str, variables: &[&str]) -> Result<Self, Error> {
        Self::checked(text, variables, Some(CelType::String), &mut one_reading())
    }

    /// Reads an expression with these variables that may give any value, within the budget of a run.
    ///
    /// # Errors
    /// The text is not an expression, its names or types are wrong, or the run has too little of its budget left.
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

    /// The text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Evaluates the expression with these variables.
    ///
    /// # Errors
    /// The evaluation fails, for example because a field is missing, or the value is not a boolean.
    pub fn evaluate_bool(&self, variables: &[(&str, &Json)]) -> Result<bool, Error> {
        self.evaluate_bool_within(variables, &mut one_evaluation())
    }

    /// Like [`CelExpression::evaluate_bool`]. The expressions of a run share its budget.
    ///
    /// # Errors
    /// As for [`CelExpression::evaluate_bool`], and if the run has too little of its budget left.
    pub fn evaluate_bool_within(
        &self,
        variables: &[(&str, &Json)],
        run: &mut WorkMeter,
    ) -> Result<bool, Error> {
        self.evaluate(ExpressionVariables::Named(variables), run)
    }

    /// Evaluates the expression with the fields of an object as variables.
    ///
    /// # Errors
    /// As for [`CelExpression::evaluate_bool`].
    pub fn evaluate_bool_over(&self, fields: &Map<String, Json>) -> Result<bool, Error> {
        self.evaluate_bool_over_within(fields, &mut one_evaluation())
    }

    /// Like [`CelExpression::evaluate_bool_over`], within the budget of a run.
    ///
    /// # Errors
    /// As for [`CelExpression::evaluate_bool_within`].
    pub(crate) fn evaluate_bool_over_within(
        &self,
        fields: &Map<String, Json>,
        run: &mut WorkMeter,
    ) -> Result<bool, Error> {
        self.evaluate(ExpressionVariables::Fields(fields), run)
    }

    /// Evaluates the expression with these variables to a text.
    ///
    /// # Errors
    /// The evaluation fails, or the value is not a text.
    pub fn evaluate_text(&self, variables: &[(&str, &Json)]) -> Result<String, Error> {
        match self.value(ExpressionVariables::Named(variables), &mut one_evaluation())? {
            CelValue::String(text) => Ok(text.to_string()),
            _ => Err(Error::NotText(self.text.clone())),
        }
    }

    /// Evaluates the expression with these variables to a JSON value, within the budget of a run. Other expressions can
    /// use that value as a variable.
    ///
    /// # Errors
    /// The evaluation fails, JSON cannot represent the value, or the run has too little of its budget left.
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

/// The budget for reading one expression of the greatest length.
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

/// The name of a type as cel-go's `Type.String` shows it. The checker of cel-go shows it differently.
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
