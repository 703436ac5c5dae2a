//! Changes: one revision of a source, all appliers that it changes, and one verdict about them. There is no I/O here.
//!
//! Here: the name of a change, and the command that rolls it back. Below: the commit of a change ([`commit_metadata`]),
//! the progress of a member ([`member_state`]), changed builds ([`build_change`]), the lines about members
//! ([`change_set_member_lines`]), and the verdict ([`change_verdict`]). Elsewhere: ChangeSet objects, and which appliers are
//! members (`operator/changes`); results that are not applied again (engine `quarantine`).

pub mod build_change;
pub mod change_set_member_lines;
pub mod change_verdict;
pub mod commit_metadata;
pub mod member_state;

use sha2::{Digest as _, Sha256};

/// How many characters of the source's name a change's name has at most. Names of objects are ASCII.
const MAX_NAME_LENGTH: usize = 40;

/// How many hexadecimal digits of the digest the name of a change has.
const DIGEST_LENGTH: usize = 8;

/// The name of a change of a source. It depends on the source's uid and on the sequence number, so that a crash does
/// not lead to a second change. It also has the source's name, for users.
#[must_use]
pub fn change_name(source: &str, uid: &str, sequence: i64) -> String {
    let digest = digest_of(&[uid, &sequence.to_string()], DIGEST_LENGTH);
    let source: String = source.chars().take(MAX_NAME_LENGTH).collect();
    format!("{}-{sequence}-{digest}", source.trim_end_matches(['.', '-']))
}

/// The command that rolls a change back, for messages. `None` if it is the first change of its source, so that there is
/// no earlier result.
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
