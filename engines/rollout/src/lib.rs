//! Staged rollouts: appliers take a new revision of their source in waves. Without I/O.
//!
//! Below: in which wave an applier is ([`wave_assignment`]), which appliers may take the revision now ([`wave_decision`]).
//! Elsewhere: rollouts as objects, and what holds an applier (`operator/rollout`).

pub mod wave_assignment;
pub mod wave_decision;
