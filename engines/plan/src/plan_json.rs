//! Reads a plan that was printed as JSON.
//!
//! In CI, the job that posts a plan has a token, so it must not run code of a branch that anyone may propose. It only reads the
//! JSON of another job, which such a branch may manipulate. Bytes, values and nesting are therefore limited, and strings are
//! treated as plain text.
//! Elsewhere: the fields of a plan (`change_plan.rs`), escaping (`untrusted_text.rs`).

use crate::change_plan::ChangePlan;
use crate::plan_finding::plan_findings;

/// A larger file is not read.
pub const MAX_PLAN_BYTES: usize = 32 << 20;

/// The most values in a plan, estimated from its commas and brackets. Each value needs some memory, however short it is.
const MAX_PLAN_VALUES: usize = 4_000_000;

/// The deepest nesting of values. The parser itself stops at 127.
const MAX_PLAN_DEPTH: usize = 100;

/// Why a plan cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PlanJsonError {
    /// The plan has more than [`MAX_PLAN_BYTES`].
    #[error("the plan has more than {most} MiB, which is not read", most = MAX_PLAN_BYTES >> 20)]
    TooLarge,
    /// The plan has too many values.
    #[error("the plan has more than {most} values, which is not read", most = MAX_PLAN_VALUES)]
    TooManyValues,
    /// The values are nested too deeply.
    #[error("the plan is nested deeper than {most} levels, which is not read", most = MAX_PLAN_DEPTH)]
    TooDeep,
    /// The text is not the output of `windlass plan -o json`.
    #[error(
        "this is not a plan as `windlass plan -o json` of this version prints it, so both jobs need the same version: {0}"
    )]
    Unreadable(#[from] serde_json::Error),
}

/// The nesting and size of a JSON text, determined without reading its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonShape {
    /// The deepest nesting of lists and objects.
    pub(crate) depth: usize,
    /// An upper bound on the number of values.
    pub(crate) values: usize,
}

impl JsonShape {
    /// The shape of a text, which need not be valid JSON.
    pub(crate) fn of(text: &[u8]) -> Self {
        let mut shape = Self { depth: 0, values: 1 };
        let mut open: usize = 0;
        let mut is_string = false;
        let mut is_escaped = false;
        for byte in text {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_string => is_escaped = true,
                b'"' => is_string = !is_string,
                _ if is_string => {}
                b'[' | b'{' => {
                    open += 1;
                    shape.depth = shape.depth.max(open);
                    shape.values += 1;
                }
                b']' | b'}' => open = open.saturating_sub(1),
                b',' => shape.values += 1,
                _ => {}
            }
        }
        shape
    }
}

impl ChangePlan {
    /// Reads the output of `windlass plan -o json`. Anyone may have written the text, so only its size and form are checked.
    ///
    /// # Guarantees
    /// The findings are computed again from the appliers. The list of findings in the text is ignored.
    ///
    /// # Errors
    /// The text is too large, or is not a plan.
    pub fn from_untrusted_json(text: &[u8]) -> Result<Self, PlanJsonError> {
        if text.len() > MAX_PLAN_BYTES {
            return Err(PlanJsonError::TooLarge);
        }
        let shape = JsonShape::of(text);
        if shape.values > MAX_PLAN_VALUES {
            return Err(PlanJsonError::TooManyValues);
        }
        if shape.depth > MAX_PLAN_DEPTH {
            return Err(PlanJsonError::TooDeep);
        }
        let mut plan: Self = serde_json::from_slice(text)?;
        plan_findings(&mut plan);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_and_values_are_counted_outside_of_strings() {
        let shape = |text: &str| JsonShape::of(text.as_bytes());
        assert_eq!(shape("1"), JsonShape { depth: 0, values: 1 });
        assert_eq!(shape(r#"{"a": [1, {"b": []}], "c": 2}"#), JsonShape { depth: 4, values: 7 });
        assert_eq!(shape(r#"["[[[,\"[[,", "\\"]"#), JsonShape { depth: 1, values: 3 });
        assert_eq!(shape("]]][").depth, 1);
    }

    #[test]
    fn a_text_that_is_too_large_or_no_plan_is_refused() {
        let error = |text: &str| ChangePlan::from_untrusted_json(text.as_bytes()).unwrap_err();
        assert!(matches!(error(&" ".repeat(MAX_PLAN_BYTES + 1)), PlanJsonError::TooLarge));
        assert!(matches!(error(&",".repeat(MAX_PLAN_VALUES)), PlanJsonError::TooManyValues));
        assert!(matches!(error(&"[".repeat(MAX_PLAN_DEPTH + 1)), PlanJsonError::TooDeep));
        for text in ["", "[]", "{}", r#"{"baseRevision": 1}"#] {
            let error = error(text).to_string();
            assert!(error.starts_with("this is not a plan"), "{error}");
        }
    }
}
