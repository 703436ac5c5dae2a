//! Changes: one revision of a source and the appliers that it changes, with one verdict about all of them. Without I/O.
//!
//! Here: the name of a change, and the command that takes it back. Below: its commit ([`commit_metadata`]), how far a member is
//! ([`member_state`]), whether a build changed ([`build_change`]), the lines about members ([`member_lines`]), the verdict
//! ([`verdict`]).
//! Elsewhere: ChangeSets as objects, and who is a member (`operator/changes`), results that are not applied again (engine
//! `quarantine`).

pub mod build_change;
pub mod commit_metadata;
pub mod member_lines;
pub mod member_state;
pub mod verdict;

use sha2::{Digest as _, Sha256};

/// The longest part of the name of a source in the name of a change, in characters. Names of objects are ASCII.
const MAX_NAME_LENGTH: usize = 40;

/// How many hexadecimal digits of a digest the name of a change has.
const DIGEST_LENGTH: usize = 8;

/// The name of a change of a source: the same for the same source, by its uid, and the same sequence, so that a crash does not
/// lead to a second one. The name of the source is there for people.
#[must_use]
pub fn change_name(source: &str, uid: &str, sequence: i64) -> String {
    let digest = digest_of(&[uid, &sequence.to_string()], DIGEST_LENGTH);
    let source: String = source.chars().take(MAX_NAME_LENGTH).collect();
    format!("{}-{sequence}-{digest}", source.trim_end_matches(['.', '-']))
}

/// The command that takes a change back, for messages; `None` if there was no change of the source before, so that there is
/// nothing to go back to.
#[must_use]
pub fn rollback_command(name: &str, namespace: &str, sequence: i64) -> Option<String> {
    (sequence > 1).then(|| format!("windlass rollback change/{name} -n {namespace}"))
}

/// The first hexadecimal digits of a digest of strings.
fn digest_of(parts: &[&str], length: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize()).chars().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_taken_back_by_one_command_unless_there_was_none_before() {
        let command = rollback_command("fleet-2-a", "shop", 2);
        assert_eq!(command.as_deref(), Some("windlass rollback change/fleet-2-a -n shop"));
        assert_eq!(rollback_command("fleet-1-a", "shop", 1), None);
    }

    #[test]
    fn a_name_is_that_of_one_change_of_one_source() {
        let name = change_name("fleet", "u", 17);
        assert!(name.starts_with("fleet-17-"), "{name}");
        assert_eq!(name, change_name("fleet", "u", 17));
        assert_ne!(name, change_name("fleet", "v", 17), "it was deleted and created again");
        assert_ne!(name, change_name("fleet", "u", 18));
        let long = change_name(&format!("{}.", "x".repeat(39)), "u", i64::MAX);
        assert!(long.len() <= 40 + 1 + 19 + 1 + DIGEST_LENGTH, "{long}");
        assert!(!long.contains(".-"), "{long}");
    }
}
