//! Compares windlass with the original programs.
//! * [`replay`] replays recorded answers through the engines.
//! * [`corpus`] has the project's own charts and overlays.
//! * [`compare`] runs the original programs side by side with windlass.
//! * [`health_cases`] compares the rules of health with Argo CD's test data.
//!
//! The recorded answers are in `e2e/conformance`, `e2e/charts` and `e2e/overlays`. `testbed` builds the programs.

pub mod compare;
pub mod corpus;
pub mod health_cases;
pub mod replay;
