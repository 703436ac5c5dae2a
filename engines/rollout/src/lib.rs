//! Staged rollouts: appliers take a new revision of their source in waves, one wave after another. Without I/O.
//!
//! Below: which wave an applier belongs to ([`wave_assignment`]), which appliers may take the revision now ([`wave_decision`]).
//! Elsewhere: rollouts as objects, and holding appliers back (`operator/rollout`).

pub mod wave_assignment;
pub mod wave_decision;
