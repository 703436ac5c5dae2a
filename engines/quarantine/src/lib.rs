//! Decides what windlass does after a failed apply or release: whether it returns to the last good revision, and
//! quarantines the failed one, which then is not applied again. Without I/O.
//!
//! Here: the user's choice by annotation ([`on_failure_annotation`]), which inputs results were built from and which result
//! was good ([`build_inputs_record`]), whether a rollback helps ([`rollback_decision`]), which objects a rollback keeps
//! ([`rollback_protected_objects`]).
//! Elsewhere: Quarantines as objects (`operator/quarantine`), health (engine `apply`), remediation of releases (engine
//! `release`).

pub mod build_inputs_record;
pub mod on_failure_annotation;
pub mod rollback_decision;
pub mod rollback_protected_objects;

use sha2::{Digest as _, Sha256};

/// The longest part of the name of an applier in the name of its Quarantine, in characters. Names of objects are ASCII.
const MAX_NAME_LENGTH: usize = 40;

/// How many hexadecimal digits of a digest the name of a Quarantine has.
const DIGEST_LENGTH: usize = 24;

/// The name of the Quarantine of a failed result. It depends on the uid of the applier and on the result, so that a crash does
/// not lead to a second Quarantine. The applier's name is included for users.
#[must_use]
pub fn quarantine_name(applier: &str, uid: &str, result: &str) -> String {
    let mut hash = Sha256::new();
    for part in [uid, result] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hex::encode(hash.finalize());
    let digest: String = digest.chars().take(DIGEST_LENGTH).collect();
    let applier: String = applier.chars().take(MAX_NAME_LENGTH).collect();
    format!("{}-{digest}", applier.trim_end_matches(['.', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_of_an_applier_has_one_name() {
        let name = quarantine_name("shop", "u1", "sha256:a");
        assert_eq!(name, quarantine_name("shop", "u1", "sha256:a"));
        assert!(name.starts_with("shop-") && name.len() == "shop-".len() + DIGEST_LENGTH, "{name}");
        for other in [
            quarantine_name("shop", "u2", "sha256:a"),
            quarantine_name("shop", "u1", "sha256:b"),
            quarantine_name("shop", "u1s", "ha256:a"),
        ] {
            assert_ne!(name, other);
        }
    }

    #[test]
    fn a_long_name_makes_a_name_that_the_api_server_takes() {
        let long = format!("{}.{}", "a".repeat(39), "b".repeat(200));
        let name = quarantine_name(&long, "u", "sha256:a");
        assert!(name.starts_with(&format!("{}-", "a".repeat(39))), "{name}");
        assert!(name.len() <= 253);
    }
}
