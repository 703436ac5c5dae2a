//! CEL as cel-go evaluates it. Flux judges health and readiness by such expressions.
//!
//! Here: expressions ([`CelExpression`]), and the health of objects by expressions ([`SpecHealthChecks`]). Elsewhere:
//! which objects are judged, and acting on the result (`apply`, the program).
//!
//! The `cel` crate reads the syntax, with the grammar and the messages of cel-go. Types, evaluation and functions are
//! implemented here, so that their messages agree, too, and every evaluation ends. There are the functions of the
//! standard library, and those of the extensions that Flux turns on (`Strings`, `Sets`, `Encoders`, optional values).
//!
//! Source of the semantics: fluxcd/pkg/runtime 0.110 `cel`, cel-go 0.26.
//!
//! ```
//! use gocel::CelExpression;
//! use serde_json::json;
//!
//! let ready = CelExpression::compile("dep.status.replicas == self.spec.replicas", &["self", "dep"])?;
//! let (one, two) = (json!({"spec": {"replicas": 2}}), json!({"status": {"replicas": 2}}));
//! assert_eq!(ready.evaluate_bool(&[("self", &one), ("dep", &two)]), Ok(true));
//! # Ok::<(), gocel::Error>(())
//! ```

mod budget;
mod eval;
mod evaluation_plan;
mod expression;
mod expression_types;
mod functions;
mod health;
mod overloads;
mod parse;
mod syntax_depth;
mod type_check;
mod value;

pub use expression::{CelExpression, Error, READING, REQUIRED_STACK_BYTES};
pub use health::{HealthCheckError, HealthJudgement, KindHealthCheck, SpecHealthChecks};
