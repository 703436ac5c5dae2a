//! The accepted host keys of SSH servers, from `known_hosts` in a Secret.
//!
//! It supports plain names with wildcards and negations, hashed names, `[host]:port`, and `@revoked`. `@cert-authority` lines
//! are skipped, because windlass asks for no certificates.

use russh::keys::ssh_key::known_hosts::{Entry, HostPatterns, Marker};
use russh::keys::{Algorithm, HashAlg, PublicKey};

use super::Error;

/// The lines of a `known_hosts` for one host.
#[derive(Debug, Clone)]
pub(super) struct KnownHost {
    /// The name as `known_hosts` contains it: the name alone, or `[name]:port` unless the port is 22.
    name: String,
    accepted: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
}

impl KnownHost {
    /// Picks the lines of one host.
    ///
    /// # Errors
    /// [`Error::BadSecret`] naming the line that cannot be read.
    pub(super) fn read(known_hosts: &str, host: &str, port: u16) -> Result<Self, Error> {
        let host = host.to_ascii_lowercase();
        let name = if port == 22 { host } else { format!("[{host}]:{port}") };
        let mut known = Self { name, accepted: Vec::new(), revoked: Vec::new() };
        for (index, line) in known_hosts.lines().enumerate() {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let entry: Entry = line.parse().map_err(|_malformed| {
                Error::BadSecret(format!("line {} of `known_hosts` is invalid", index + 1))
            })?;
            if !is_about(entry.host_patterns(), &known.name) {
                continue;
            }
            let key = entry.public_key().clone();
            match entry.marker() {
                None => known.accepted.push(key),
                Some(Marker::Revoked) => known.revoked.push(key),
                Some(Marker::CertAuthority) => {}
            }
        }
        Ok(known)
    }

    /// Judges the key that the host offers.
    ///
    /// # Errors
    /// Names the host and the fingerprint of the offered key.
    pub(super) fn check(&self, offered: &PublicKey) -> Result<(), Error> {
        let host = self.name.clone();
        let algorithm = offered.algorithm().to_string();
        let fingerprint = offered.fingerprint(HashAlg::Sha256).to_string();
        let is_offered = |key: &PublicKey| key.key_data() == offered.key_data();
        if self.revoked.iter().any(is_offered) {
            Err(Error::HostKeyRevoked { host, algorithm, fingerprint })
        } else if self.accepted.iter().any(is_offered) {
            Ok(())
        } else if self.accepted.is_empty() {
            Err(Error::HostKeyUnknown { host, algorithm, fingerprint })
        } else {
            Err(Error::HostKeyChanged { host, algorithm, fingerprint })
        }
    }

    /// The order in which to ask for the host's keys. A host with several keys should show one that is known.
    pub(super) fn preferred(&self, usual: &[Algorithm]) -> Vec<Algorithm> {
        let is_known = |algorithm: &Algorithm| {
            self.accepted.iter().any(|key| match (key.algorithm(), algorithm) {
                // One RSA key signs with any hash.
                (Algorithm::Rsa { .. }, Algorithm::Rsa { .. }) => true,
                (known, algorithm) => known == *algorithm,
            })
        };
        let (mut known, unknown): (Vec<_>, Vec<_>) = usual.iter().cloned().partition(is_known);
        known.extend(unknown);
        known
    }
}

fn is_about(patterns: &HostPatterns, name: &str) -> bool {
    match patterns {
        HostPatterns::Patterns(patterns) => {
            let lists = |negated: bool| {
                patterns
                    .iter()
                    .filter(|pattern| pattern.starts_with('!') == negated)
                    .any(|pattern| matches(pattern.trim_start_matches('!'), name))
            };
            lists(false) && !lists(true)
        }
        HostPatterns::HashedName { salt, hash } => {
            hmac_sha1(salt, name.as_bytes()).is_some_and(|expected| expected == *hash)
        }
    }
}

/// Matches OpenSSH's patterns, in which `*` is any text and `?` is any character. The time is linear in the product of the
/// lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    let name = name.as_bytes();
    let pattern = pattern.as_bytes();
    let mut p = 0;
    let mut n = 0;
    // The place after the last `*`, and the length of the text that this `*` has matched so far. Matching continues there
    // after a mismatch.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((after, swallowed)) => {
                    star = Some((after, swallowed + 1));
                    p = after;
                    n = swallowed + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// The HMAC with SHA-1 (RFC 2104), with which `known_hosts` hashes names. Security does not depend on it here. `None`
/// if SHA-1 fails.
fn hmac_sha1(key: &[u8], message: &[u8]) -> Option<[u8; 20]> {
    const HMAC_BLOCK_BYTES: usize = 64;
    let digest = |parts: [&[u8]; 2]| {
        let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
        parts.into_iter().for_each(|part| hasher.update(part));
        hasher.try_finalize().ok().and_then(|id| <[u8; 20]>::try_from(id.as_slice()).ok())
    };
    let mut block = [0; HMAC_BLOCK_BYTES];
    if key.len() > HMAC_BLOCK_BYTES {
        block[..20].copy_from_slice(&digest([key, b""])?);
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = digest([&block.map(|byte| byte ^ 0x36), message])?;
    digest([&block.map(|byte| byte ^ 0x5c), &inner])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const OTHER: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILIG2T/B0l0gaqj3puu510tu9N1OkQ4znY3LYuEm5zCF";
    /// `example.com`, hashed by OpenSSH.
    const HASHED: &str = "|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak=";

    fn key(text: &str) -> PublicKey {
        text.parse().unwrap()
    }

    fn verdict(known_hosts: &str, host: &str, port: u16, offered: &str) -> &'static str {
        match KnownHost::read(known_hosts, host, port).and_then(|k| k.check(&key(offered))) {
            Ok(()) => "known",
            Err(Error::HostKeyUnknown { .. }) => "unknown",
            Err(Error::HostKeyChanged { .. }) => "changed",
            Err(Error::HostKeyRevoked { .. }) => "revoked",
            Err(_) => "unreadable",
        }
    }

    #[test]
    fn hosts_are_found_under_every_form_of_their_name() {
        for (line, host, port, expected) in [
            ("example.com", "example.com", 22, "known"),
            ("Example.COM", "EXAMPLE.com", 22, "known"),
            ("a.com,example.com", "example.com", 22, "known"),
            ("[example.com]:2222", "example.com", 2222, "known"),
            ("example.com", "example.com", 2222, "unknown"),
            ("[example.com]:2222", "example.com", 22, "unknown"),
            ("*.example.com", "git.example.com", 22, "known"),
            ("*.example.com,!git.example.com", "git.example.com", 22, "unknown"),
            ("git?.example.com", "git1.example.com", 22, "known"),
            ("other.com", "example.com", 22, "unknown"),
            (HASHED, "example.com", 22, "known"),
            (HASHED, "example.org", 22, "unknown"),
        ] {
            let known_hosts = format!("# a comment\n\n{line}\t{ONE} somebody@somewhere\r\n");
            assert_eq!(verdict(&known_hosts, host, port, ONE), expected, "{line} for {host}");
        }
    }

    #[test]
    fn another_key_than_the_recorded_one_is_a_changed_key() {
        assert_eq!(verdict(&format!("h {ONE}\n"), "h", 22, OTHER), "changed");
        assert_eq!(verdict(&format!("h {ONE}\nh {OTHER}\n"), "h", 22, OTHER), "known");
        assert_eq!(verdict(&format!("h {ONE}\n@revoked h {ONE}\n"), "h", 22, ONE), "revoked");
        assert_eq!(verdict(&format!("@cert-authority h {ONE}\n"), "h", 22, ONE), "unknown");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named() {
        let error = KnownHost::read(&format!("h {ONE}\nh ssh-ed25519 !!!\n"), "h", 22).unwrap_err();
        assert_eq!(error.to_string(), "the Secret is invalid: line 2 of `known_hosts` is invalid");
    }

    #[test]
    fn the_error_names_host_and_fingerprint() {
        let known = KnownHost::read("", "example.com", 2222).unwrap();
        let message = known.check(&key(ONE)).unwrap_err().to_string();
        assert!(message.contains("[example.com]:2222"), "{message}");
        assert!(message.contains(&key(ONE).fingerprint(HashAlg::Sha256).to_string()), "{message}");
    }

    #[test]
    fn keys_that_are_known_are_asked_for_first() {
        let rsa = Algorithm::Rsa { hash: Some(HashAlg::Sha512) };
        let known = KnownHost::read(&format!("h {ONE}\n"), "h", 22).unwrap();
        assert_eq!(known.preferred(&[rsa.clone(), Algorithm::Ed25519]), [Algorithm::Ed25519, rsa]);
    }

    #[test]
    fn many_stars_do_not_blow_up() {
        assert!(!matches(&"*a".repeat(2000), &"a".repeat(1999)));
        assert!(matches(&"*a".repeat(100), &"a".repeat(1000)));
    }
}
