//! The metadata of an encrypted file, under the key `sops`.
//!
//! Here: removing it from a tree, and its members. Elsewhere: its flat form (`file_codec/flat_metadata.rs`), weakly typed
//! members (`metadata/weak_decoding.rs`).

mod weak_decoding;

use std::collections::BTreeMap;

use golang::time::{GoTime, GoTimeZone, RFC3339};

use crate::encryption_rule::{EncryptionRule, RulePattern};
use crate::key_service::KeyServiceMasterKey;
use crate::limits::{FileLimitExceeded, SopsLimits};
use crate::value::{MapItem, SopsValue};
use weak_decoding::{WeakDecodingError, WeaklyTypedMap};

/// The key of the metadata.
pub(crate) const SOPS: &str = "sops";

/// Why a file has no usable metadata. It displays sops's message.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum SopsMetadataError {
    #[error("sops metadata not found")]
    Missing,
    #[error("Found duplicate sops entry")]
    Duplicate,
    #[error("Found sops entry that is not a mapping")]
    NoMap,
    #[error("decoding failed due to the following error(s):\n\n{0}")]
    Member(#[from] WeakDecodingError),
    #[error("{0}")]
    Time(#[from] golang::time::TimeParseError),
    #[error("No keys found in file")]
    NoKeys,
    #[error(
        "Cannot use more than one of encrypted_suffix, unencrypted_suffix, encrypted_regex, unencrypted_regex, \
         encrypted_comment_regex, or unencrypted_comment_regex in the same file"
    )]
    Rules,
    #[error("Error while unflattening: {0}")]
    Flat(&'static str),
    #[error("{0}")]
    Exceeded(#[from] FileLimitExceeded),
}

/// A key that encrypts the data key or a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MasterKey {
    Age { recipient: String, encrypted: String },
    Pgp { fingerprint: String, encrypted: String },
    Service(KeyServiceMasterKey),
}

/// The metadata of a file.
#[derive(Debug)]
pub(crate) struct SopsMetadata {
    pub(crate) last_modified: GoTime,
    /// Any key of a group decrypts its part of the data key.
    pub(crate) groups: Vec<Vec<MasterKey>>,
    /// How many parts of the data key are needed; 0 if it is not split.
    pub(crate) threshold: i64,
    pub(crate) rule: EncryptionRule,
    pub(crate) mac: String,
    /// Whether the MAC covers encrypted values only.
    pub(crate) mac_covers_encrypted: bool,
}

/// Removes the entry `sops` from all documents. The one of the first document contains the metadata.
pub(crate) fn take(documents: &mut [Vec<MapItem>]) -> Result<Vec<MapItem>, SopsMetadataError> {
    let mut found = None;
    for (at, document) in documents.iter_mut().enumerate() {
        let (own, rest) = std::mem::take(document).into_iter().partition(|item| item.is(SOPS));
        *document = rest;
        if at > 0 {
            continue;
        }
        let own: Vec<MapItem> = own;
        let mut own = own.into_iter();
        match (own.next().map(|item| item.value), own.next()) {
            (None, _) => {}
            (Some(SopsValue::Map(items)), None) => found = Some(items),
            (Some(SopsValue::Map(_)), Some(_)) => return Err(SopsMetadataError::Duplicate),
            (Some(_), _) => return Err(SopsMetadataError::NoMap),
        }
    }
    found.ok_or(SopsMetadataError::Missing)
}

impl SopsMetadata {
    /// Reads the metadata of an encrypted file from its members. The error says which member is malformed.
    pub(crate) fn read(items: &[MapItem], limits: &SopsLimits) -> Result<Self, SopsMetadataError> {
        let root = WeaklyTypedMap::root(items);
        let text = |name: &str| root.text(name);
        let mac = text("mac")?;
        let last_modified = text("lastmodified")?;
        let mac_covers_encrypted = root.bool("mac_only_encrypted")?;
        let threshold = root.int("shamir_threshold")?;
        let mut rules = Vec::new();
        let kinds: [(&str, EncryptionRuleConstructor); 6] = [
            ("unencrypted_suffix", EncryptionRule::UnencryptedSuffix),
            ("encrypted_suffix", EncryptionRule::EncryptedSuffix),
            ("unencrypted_regex", |text| EncryptionRule::UnencryptedRegex(RulePattern::new(&text))),
            ("encrypted_regex", |text| EncryptionRule::EncryptedRegex(RulePattern::new(&text))),
            ("unencrypted_comment_regex", |text| {
                EncryptionRule::UnencryptedComment(RulePattern::new(&text))
            }),
            ("encrypted_comment_regex", |text| {
                EncryptionRule::EncryptedComment(RulePattern::new(&text))
            }),
        ];
        for (name, rule) in kinds {
            let text = text(name)?;
            if !text.is_empty() {
                rules.push(rule(text));
            }
        }
        let mut group = group(&root)?;
        let mut others = Vec::new();
        for other in root.maps("key_groups")? {
            others.push(self::group(&other)?);
        }
        let last_modified = time(&last_modified)?;
        let whole = check(&mut group)?;
        let groups = if whole {
            vec![group.keys]
        } else {
            let mut groups = Vec::new();
            for mut group in others {
                check(&mut group)?;
                groups.push(group.keys);
            }
            groups
        };
        if groups.is_empty() {
            return Err(SopsMetadataError::NoKeys);
        }
        if groups.iter().map(Vec::len).sum::<usize>() > limits.master_keys {
            return Err(FileLimitExceeded::MasterKeys(limits.master_keys).into());
        }
        let rule = match (rules.pop(), rules.is_empty()) {
            (None, _) => EncryptionRule::UnencryptedSuffix("_unencrypted".to_owned()),
            (Some(rule), true) => rule,
            (Some(_), false) => return Err(SopsMetadataError::Rules),
        };
        Ok(Self { last_modified, groups, threshold, rule, mac, mac_covers_encrypted })
    }
}

fn time(text: &str) -> Result<GoTime, golang::time::TimeParseError> {
    GoTime::parse(RFC3339, text, &GoTimeZone::Utc)
}

/// Makes a rule of its text.
type EncryptionRuleConstructor = fn(String) -> EncryptionRule;

/// A group before the times of its keys are checked.
#[derive(Default)]
struct MetadataKeyGroup {
    keys: Vec<MasterKey>,
    created: Vec<String>,
}

/// Checks the creation times of a group's keys. Returns whether there are any keys.
fn check(group: &mut MetadataKeyGroup) -> Result<bool, SopsMetadataError> {
    for created in group.created.drain(..) {
        time(&created)?;
    }
    Ok(!group.keys.is_empty())
}

/// The keys in one map, in the order in which sops lists them.
fn group(map: &WeaklyTypedMap<'_>) -> Result<MetadataKeyGroup, SopsMetadataError> {
    let mut group = MetadataKeyGroup::default();
    let mut add = |created: String, key: MasterKey| {
        group.created.push(created);
        group.keys.push(key);
    };
    for key in map.maps("kms")? {
        let context = key.strings("context")?;
        add(
            key.text("created_at")?,
            MasterKey::Service(KeyServiceMasterKey::AwsKms {
                arn: key.text("arn")?,
                role: key.text("role")?,
                context,
                profile: key.text("aws_profile")?,
                encrypted: key.text("enc")?,
            }),
        );
    }
    for key in map.maps("gcp_kms")? {
        let resource_id = key.text("resource_id")?;
        let encrypted = key.text("enc")?;
        let gcp = KeyServiceMasterKey::GcpKms { resource_id, encrypted };
        add(key.text("created_at")?, MasterKey::Service(gcp));
    }
    for key in map.maps("hckms")? {
        let key_id = key.text("key_id")?;
        let encrypted = key.text("enc")?;
        let huawei = KeyServiceMasterKey::HuaweiKms { key_id, encrypted };
        add(key.text("created_at")?, MasterKey::Service(huawei));
    }
    for key in map.maps("azure_kv")? {
        let azure = KeyServiceMasterKey::AzureKeyVault {
            vault_url: key.text("vault_url")?,
            name: key.text("name")?,
            version: key.text("version")?,
            encrypted: key.text("enc")?,
        };
        add(key.text("created_at")?, MasterKey::Service(azure));
    }
    for key in map.maps("hc_vault")? {
        let vault = KeyServiceMasterKey::Vault {
            address: key.text("vault_address")?,
            engine_path: key.text("engine_path")?,
            key_name: key.text("key_name")?,
            encrypted: key.text("enc")?,
        };
        add(key.text("created_at")?, MasterKey::Service(vault));
    }
    for key in map.maps("pgp")? {
        let fingerprint = key.text("fp")?;
        let encrypted = key.text("enc")?;
        add(key.text("created_at")?, MasterKey::Pgp { fingerprint, encrypted });
    }
    for key in map.maps("age")? {
        let recipient = key.text("recipient")?;
        let encrypted = key.text("enc")?;
        group.keys.push(MasterKey::Age { recipient, encrypted });
    }
    Ok(group)
}

/// An encryption context, which services authenticate.
pub(crate) type EncryptionContext = BTreeMap<String, String>;
