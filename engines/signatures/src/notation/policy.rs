//! Trust policies, version 1.0.
//!
//! Parity(flux): the order of the checks and their texts; what is set to `skip` loses stores and identities first.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};

use super::x509_distinguished_name::{self, DistinguishedName};
use crate::x509::ParsedCertificate;

/// The most identities of a statement, because each is compared with every other one. Differs(flux): Flux has no limit.
const MOST_IDENTITIES: usize = 100;
/// Bytes of a policy.
const MOST_BYTES: usize = 1 << 20;

/// A trust policy of Notation, which is a list of statements.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TrustPolicy {
    version: String,
    #[serde(deserialize_with = "or_default")]
    trust_policies: Vec<TrustPolicyStatement>,
}

/// The statement of a policy: which signers are trusted in some repositories.
#[derive(Debug, Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct TrustPolicyStatement {
    name: String,
    #[serde(deserialize_with = "or_default")]
    registry_scopes: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    signature_verification: TrustPolicyVerification,
    #[serde(deserialize_with = "or_default")]
    trust_stores: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    trusted_identities: Vec<String>,
}

#[derive(Debug, Clone, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct TrustPolicyVerification {
    level: String,
    #[serde(rename = "override", deserialize_with = "or_default")]
    changes: BTreeMap<String, String>,
    verify_timestamp: String,
}

fn or_default<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: Deserializer<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The checks of a signature whose integrity has been verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NotationCheck {
    Authenticity,
    Timestamp,
    Expiry,
    Revocation,
}

/// How a failed check is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedCheckAction {
    Enforce,
    Log,
    Skip,
}

/// How each failed check is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerificationLevel {
    is_skip: bool,
    actions: BTreeMap<NotationCheck, FailedCheckAction>,
}

const CHECKS: [(&str, Option<NotationCheck>); 5] = [
    ("integrity", None),
    ("authenticity", Some(NotationCheck::Authenticity)),
    ("authenticTimestamp", Some(NotationCheck::Timestamp)),
    ("expiry", Some(NotationCheck::Expiry)),
    ("revocation", Some(NotationCheck::Revocation)),
];
const ACTIONS: [(&str, FailedCheckAction); 3] = [
    ("enforce", FailedCheckAction::Enforce),
    ("log", FailedCheckAction::Log),
    ("skip", FailedCheckAction::Skip),
];

impl VerificationLevel {
    /// Whether this level means that nothing is verified.
    pub(super) fn is_skip(&self) -> bool {
        self.is_skip
    }

    pub(super) fn action(&self, check: NotationCheck) -> FailedCheckAction {
        self.actions.get(&check).copied().unwrap_or(FailedCheckAction::Enforce)
    }

    fn named(name: &str) -> Option<Self> {
        use FailedCheckAction::{Enforce, Log, Skip};
        let (authenticity, others) = match name {
            "strict" => (Enforce, Enforce),
            "permissive" => (Enforce, Log),
            "audit" => (Log, Log),
            "skip" => (Skip, Skip),
            _ => return None,
        };
        let others = [NotationCheck::Timestamp, NotationCheck::Expiry, NotationCheck::Revocation]
            .map(|it| (it, others));
        let mut actions = BTreeMap::from(others);
        actions.insert(NotationCheck::Authenticity, authenticity);
        Some(Self { is_skip: name == "skip", actions })
    }
}

/// A list in Go's notation.
fn quoted<'t>(names: impl Iterator<Item = &'t str>) -> String {
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    format!("[{}]", names.join(" "))
}

impl TrustPolicyVerification {
    fn level(&self) -> Result<VerificationLevel, String> {
        let name = &self.level;
        if name.is_empty() {
            return Err(
                "signature verification level is empty or missing in the trust policy statement"
                    .to_owned(),
            );
        }
        let mut level = VerificationLevel::named(name)
            .ok_or_else(|| format!("invalid signature verification level {name:?}"))?;
        if !self.changes.is_empty() && level.is_skip {
            return Err(format!(
                "signature verification level {name:?} can't be used to customize signature verification"
            ));
        }
        let of_custom = "in custom signature verification";
        for (key, value) in &self.changes {
            let check = CHECKS.iter().find(|(name, _)| name == key).ok_or_else(|| {
                let known = quoted(CHECKS.iter().map(|(name, _)| *name));
                format!("verification type {key:?} {of_custom} is not supported, supported values are {known}")
            })?;
            let action = ACTIONS.iter().find(|(name, _)| name == value).ok_or_else(|| {
                let known = quoted(ACTIONS.iter().map(|(name, _)| *name));
                format!("verification action {value:?} {of_custom} is not supported, supported values are {known}")
            })?;
            let Some(check) = check.1 else {
                return Err(format!("{key:?} verification can not be overridden {of_custom}"));
            };
            if check != NotationCheck::Revocation && action.1 == FailedCheckAction::Skip {
                return Err(format!("{key:?} verification can not be skipped {of_custom}"));
            }
            level.actions.insert(check, action.1);
        }
        Ok(level)
    }
}

impl TrustPolicy {
    /// Parses a policy without validating it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let unusable =
            |why: String| format!("error occurred while parsing trustpolicy.json: {why}");
        if text.len() > MOST_BYTES {
            return Err(unusable(format!("it is larger than {MOST_BYTES} bytes")));
        }
        let mut policy: Self =
            serde_json::from_slice(text).map_err(|error| unusable(error.to_string()))?;
        for statement in &mut policy.trust_policies {
            if statement.signature_verification.level == "skip" {
                statement.trust_stores.clear();
                statement.trusted_identities.clear();
            }
        }
        Ok(policy)
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        match self.version.as_str() {
            "" => {
                return Err(
                    "trust policy document has empty version, version must be specified".to_owned()
                );
            }
            "1.0" => {}
            other => {
                return Err(format!("trust policy document uses unsupported version {other:?}"));
            }
        }
        if self.trust_policies.is_empty() {
            return Err(
                "trust policy document can not have zero trust policy statements".to_owned()
            );
        }
        let mut names = BTreeSet::new();
        for statement in &self.trust_policies {
            if !names.insert(&statement.name) {
                return Err(format!(
                    "multiple trust policy statements use the same name {:?}, statement names must be unique",
                    statement.name
                ));
            }
            statement.validate().map_err(|why| format!("trust policy: {why}"))?;
        }
        self.validate_scopes()
    }

    fn validate_scopes(&self) -> Result<(), String> {
        let mut scopes = BTreeSet::new();
        let mut twice = None;
        for TrustPolicyStatement { name, registry_scopes, .. } in &self.trust_policies {
            if registry_scopes.is_empty() {
                return Err(format!(
                    "trust policy statement {name:?} has zero registry scopes, it must specify registry scopes with at least one value"
                ));
            }
            if registry_scopes.len() > 1 && registry_scopes.iter().any(|scope| scope == "*") {
                return Err(format!(
                    "trust policy statement {name:?} uses wildcard registry scope '*', a wildcard scope cannot be used in conjunction with other scope values"
                ));
            }
            for scope in registry_scopes {
                if scope != "*" {
                    validate_scope(scope)?;
                }
                if !scopes.insert(scope) {
                    twice = twice.or(Some(scope));
                }
            }
        }
        match twice {
            Some(scope) => Err(format!(
                "registry scope {scope:?} is present in multiple trust policy statements, one registry scope value can only be associated with one statement"
            )),
            None => Ok(()),
        }
    }

    /// The statement for the image `repository@digest`: the one that names its repository, or else the one for all
    /// repositories.
    pub(super) fn applicable(&self, image: &str) -> Result<&TrustPolicyStatement, String> {
        let repository = image.split_once('@').map_or(image, |(repository, _)| repository);
        let of = |scope: &str| {
            let has = |statement: &&TrustPolicyStatement| {
                statement.registry_scopes.iter().any(|it| it == scope)
            };
            self.trust_policies.iter().find(has)
        };
        of(repository).or_else(|| of("*")).ok_or_else(|| {
            format!(
                "artifact {image:?} has no applicable trust policy statement. Trust policy applicability for a given artifact is determined by registryScopes. To create a trust policy, see: https://notaryproject.dev/docs/quickstart/#create-a-trust-policy"
            )
        })
    }
}

fn validate_scope(scope: &str) -> Result<(), String> {
    let tail = "make sure it is a fully qualified repository without the scheme, protocol or tag. For example domain.com/my/repository or a local scope like local/myOCILayout";
    if scope.len() > 1 && scope.contains('*') {
        return Err(format!("registry scope {scope:?} with wild card(s) is not valid, {tail}"));
    }
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let is_valid = scope.split_once('/').is_some_and(|(domain, repository)| {
        let (host, port) = domain.split_once(':').unwrap_or((domain, "0"));
        let edges = |c: char| c.is_ascii_alphanumeric();
        let is_label = |label: &str| {
            label.starts_with(edges) && label.ends_with(edges) && label.chars().all(is_host)
        };
        let is_part = |part: &str| {
            let is_known = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '.' | '_' | '-');
            part.starts_with(edges) && part.ends_with(edges) && part.chars().all(is_known)
        };
        let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        host.split('.').all(is_label) && is_port && repository.split('/').all(is_part)
    });
    if is_valid { Ok(()) } else { Err(format!("registry scope {scope:?} is not valid, {tail}")) }
}

impl TrustPolicyStatement {
    pub(super) fn level(&self) -> Result<VerificationLevel, String> {
        self.signature_verification.level()
    }

    /// Kinds and names of trust stores.
    pub(super) fn stores(&self) -> impl Iterator<Item = (&str, &str)> {
        self.trust_stores.iter().filter_map(|store| store.split_once(':'))
    }

    pub(super) fn wants_timestamp_after_expiry(&self) -> bool {
        self.signature_verification.verify_timestamp == "afterCertExpiry"
    }

    fn validate(&self) -> Result<(), String> {
        let name = &self.name;
        if name.is_empty() {
            return Err(
                "a trust policy statement is missing a name, every statement requires a name"
                    .to_owned(),
            );
        }
        let statement = format!("trust policy statement {name:?}");
        let invalid = |why: String| format!("{statement} has invalid signatureVerification: {why}");
        let level = self.level().map_err(invalid)?;
        let timestamp = &self.signature_verification.verify_timestamp;
        if !matches!(timestamp.as_str(), "" | "always" | "afterCertExpiry") {
            return Err(invalid(format!(
                "verifyTimestamp must be \"always\" or \"afterCertExpiry\", but got {timestamp:?}"
            )));
        }
        if level.is_skip {
            return Ok(());
        }
        if self.trust_stores.is_empty() || self.trusted_identities.is_empty() {
            return Err(format!(
                "{statement} is either missing trust stores or trusted identities, both must be specified"
            ));
        }
        self.validate_stores(&statement)?;
        self.validate_identities(&statement)
    }

    fn validate_stores(&self, statement: &str) -> Result<(), String> {
        for store in &self.trust_stores {
            let Some((kind, name)) = store.split_once(':') else {
                return Err(format!(
                    "{statement} has malformed trust store value {store:?}. The required format is <TrustStoreType>:<TrustStoreName>"
                ));
            };
            if !matches!(kind, "ca" | "signingAuthority" | "tsa") {
                return Err(format!(
                    "{statement} uses an unsupported trust store type {kind:?} in trust store value {store:?}"
                ));
            }
            let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
            if name.is_empty() || !name.chars().all(is_known) {
                return Err(format!(
                    "{statement} uses an unsupported trust store name {name:?} in trust store value {store:?}. Named store name needs to follow [a-zA-Z0-9_.-]+ format"
                ));
            }
        }
        Ok(())
    }

    fn validate_identities(&self, statement: &str) -> Result<(), String> {
        let identities = &self.trusted_identities;
        if identities.len() > 1 && identities.iter().any(|identity| identity == "*") {
            return Err(format!(
                "{statement} uses a wildcard trusted identity '*', a wildcard identity cannot be used in conjunction with other values"
            ));
        }
        if identities.len() > MOST_IDENTITIES {
            return Err(format!(
                "{statement} has more than {MOST_IDENTITIES} trusted identities; split it by registryScopes"
            ));
        }
        let mut names: Vec<(&String, DistinguishedName)> = Vec::new();
        for identity in identities {
            if identity.is_empty() {
                return Err(format!("{statement} has an empty trusted identity"));
            }
            if identity == "*" {
                continue;
            }
            let Some((kind, value)) = identity.split_once(':') else {
                return Err(format!(
                    "{statement} has trusted identity {identity:?} missing separator"
                ));
            };
            if kind != SUBJECT {
                continue;
            }
            if value.is_empty() {
                return Err(format!(
                    "{statement} has trusted identity {identity:?} without an identity value"
                ));
            }
            let name = x509_distinguished_name::parse(value).map_err(|why| {
                format!("{statement} has trusted identity {identity:?} with invalid identity value: {why}")
            })?;
            let overlaps = |other: &&(&String, DistinguishedName)| {
                x509_distinguished_name::has_all(&name, &other.1)
                    || x509_distinguished_name::has_all(&other.1, &name)
            };
            if let Some((other, _)) = names.iter().find(overlaps) {
                return Err(format!(
                    "{statement} has overlapping x509 trustedIdentities, {other:?} overlaps with {identity:?}"
                ));
            }
            names.push((identity, name));
        }
        Ok(())
    }

    /// Checks that the subject of a certificate is one of the identities.
    pub(super) fn is_identity(&self, certificate: &ParsedCertificate) -> Result<(), String> {
        if self.trusted_identities.iter().any(|identity| identity == "*") {
            return Ok(());
        }
        let subjects = self.trusted_identities.iter().filter_map(|it| it.split_once(':'));
        let subjects = subjects.filter(|(kind, _)| *kind == SUBJECT);
        let trusted = subjects
            .map(|(_, value)| x509_distinguished_name::parse(value))
            .collect::<Result<Vec<_>, _>>()?;
        let policy = &self.name;
        if trusted.is_empty() {
            return Err(format!(
                "no x509 trusted identities are configured in the trust policy {policy:?}"
            ));
        }
        let subject = x509_distinguished_name::parse(&certificate.subject_text).map_err(|why| {
            format!("error while parsing the certificate subject from the digital signature. error : {why:?}")
        })?;
        if trusted.iter().any(|name| x509_distinguished_name::has_all(&subject, name)) {
            return Ok(());
        }
        Err(format!(
            "signing certificate from the digital signature does not match the X.509 trusted identities {} defined in the trust policy {policy:?}",
            x509_distinguished_name::shown(&trusted)
        ))
    }
}

/// The kind of identities that are known.
const SUBJECT: &str = "x509.subject";
