//! Finds the data key of a file with any of its master keys.
//!
//! Here: trying the master keys in order, and the error if none decrypts. Elsewhere: one master key (`keys`, `key_service`).

use std::fmt;

use crate::key_service::DataKeyServices;
use crate::keys::DecryptionKeys;
use crate::limits::DecryptionDeadline;
use crate::metadata::{MasterKey, SopsMetadata};
use crate::shamir::{self, ShamirCombineError};
use crate::value::SecretBytes;

/// Why there is no data key.
#[derive(Debug, Clone)]
pub(crate) enum DataKeyError {
    /// Too few groups have a key that decrypts. The values are the result of each group, and the number of parts that are
    /// needed.
    Groups(Vec<KeyGroupResult>, i64),
    Combine(ShamirCombineError),
}

/// The result of a group: `None` if a key decrypted its part, else each key with its error.
pub(crate) type KeyGroupResult = Option<Vec<(String, String)>>;

/// Decrypts the data key of a file, with as many of its key groups as it demands.
pub(crate) fn data_key(
    metadata: &SopsMetadata,
    keys: &DecryptionKeys,
    services: &dyn DataKeyServices,
    until: DecryptionDeadline<'_>,
) -> Result<SecretBytes, DataKeyError> {
    let mut parts = Vec::new();
    let mut results = Vec::new();
    for group in &metadata.groups {
        match part(group, keys, services, until) {
            Ok(part) => {
                parts.push(part);
                results.push(None);
            }
            Err(errors) => results.push(Some(errors)),
        }
    }
    if metadata.groups.len() > 1 {
        // Parity(sops 3.13): without a threshold, or with a lower one, too few parts are combined to a wrong key.
        if i64::try_from(parts.len()).unwrap_or(i64::MAX) < metadata.threshold {
            return Err(DataKeyError::Groups(results, metadata.threshold));
        }
        return shamir::combine(&parts).map_err(DataKeyError::Combine);
    }
    parts.pop().ok_or(DataKeyError::Groups(results, metadata.threshold))
}

/// Decrypts the part of a group with any of its keys: first age, then OpenPGP, then services.
fn part(
    group: &[MasterKey],
    keys: &DecryptionKeys,
    services: &dyn DataKeyServices,
    until: DecryptionDeadline<'_>,
) -> Result<SecretBytes, Vec<(String, String)>> {
    let mut ordered: Vec<&MasterKey> = group.iter().collect();
    ordered.sort_by_key(|key| match key {
        MasterKey::Age { .. } => 0,
        MasterKey::Pgp { .. } => 1,
        MasterKey::Service(_) => 2,
    });
    let mut errors = Vec::new();
    for key in ordered {
        // The caller's time limit is over.
        if until.is_over() {
            break;
        }
        let (name, result) = match key {
            MasterKey::Age { recipient, encrypted } => {
                (recipient.clone(), keys.age(encrypted, until))
            }
            MasterKey::Pgp { fingerprint, encrypted } => {
                (fingerprint.clone(), keys.pgp(encrypted, until))
            }
            MasterKey::Service(key) => (key.to_string(), services.decrypt(key)),
        };
        match result {
            Ok(part) => return Ok(part),
            Err(error) => errors.push((name, error)),
        }
    }
    Err(errors)
}

impl fmt::Display for DataKeyError {
    /// The text that sops shows to users.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (results, threshold) = match self {
            Self::Combine(error) => {
                return write!(f, "could not get data key from shamir parts: {error}");
            }
            Self::Groups(results, threshold) => (results, *threshold),
        };
        f.write_str("Failed to get the data key required to decrypt the SOPS file.\n\n")?;
        for (at, result) in results.iter().enumerate() {
            let Some(errors) = result else {
                write!(f, "Group {at}: SUCCESS\n\n")?;
                continue;
            };
            let keys: Vec<String> =
                errors.iter().map(|(name, error)| key_error(name, error)).collect();
            let keys = keys.join("\n\n");
            let lines: Vec<String> = keys.lines().map(|line| format!("  {line}")).collect();
            write!(f, "Group {at}: FAILED\n{}\n\n", lines.join("\n"))?;
        }
        f.write_str(&trailer(results, threshold))
    }
}

/// A key that failed, with its error in a column of its own.
fn key_error(name: &str, error: &str) -> String {
    let wrapped = wrap(error, 60);
    let mut lines = wrapped.lines();
    let first = lines.next().unwrap_or_default();
    let rest: String = lines.map(|line| format!("\n      | {line}")).collect();
    format!("{name}: FAILED\n    - | {first}{rest}")
}

fn trailer(results: &[KeyGroupResult], threshold: i64) -> String {
    let text = if threshold == 0 {
        "Recovery failed because no master key was able to decrypt the file. In order for SOPS to recover the file, at \
         least one key has to be successful, but none were."
            .to_owned()
    } else {
        let found = results.iter().filter(|result| result.is_none()).count();
        format!(
            "Recovery failed because the file was encrypted with a Shamir threshold of {threshold}, but only {found} \
             part(s) were successfully recovered, one for each successful key group. In order for SOPS to recover the \
             file, at least {threshold} groups have to be successful. In order for a group to be successful, \
             decryption has to succeed with any of the keys in that key group."
        )
    };
    wrap(&text, 75)
}

/// Wraps a text at blanks to lines of at most `width` characters. Longer words stay whole.
fn wrap(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut current = String::new();
        for word in line.split(' ') {
            let len = current.chars().count() + 1 + word.chars().count();
            if !current.is_empty() && len > width {
                lines.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        lines.push(current);
    }
    lines.join("\n")
}
