//! What the original programs answer, beside what windlass does.
//!
//! Here: answers that were recorded, replayed through the engines ([`replay`]); our own charts and overlays ([`corpus`]);
//! the original programs themselves, asked side by side with windlass ([`compare`]); test data of Argo CD for rules of health
//! ([`health_cases`]).
//! Elsewhere: the recorded answers (`e2e/conformance`, `e2e/charts`, `e2e/overlays`), how the programs are built (`testbed`).

pub mod compare;
pub mod corpus;
pub mod health_cases;
pub mod replay;
