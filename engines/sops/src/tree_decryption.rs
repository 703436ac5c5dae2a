//! Decrypting a tree in place, and its MAC.

use sha2::{Digest as _, Sha512};
use zeroize::Zeroizing;

use crate::encrypted_value::{self, CipherError};
use crate::encryption_rule::EncryptionRule;
use crate::limits::DecryptionDeadline;
use crate::metadata::SopsMetadata;
use crate::value::{MapItem, MapItemKey, SecretBytes, SopsComment, SopsValue};
use golang::strconv::{FloatTextFormat, format_float};

/// The prefix of the data for a MAC that covers only encrypted values: the SHA-256 of `sops`. It makes such a MAC different
/// from one over all values.
const MAC_OF_ENCRYPTED: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b,
    0x0b, 0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// Why a tree was not decrypted. It displays sops's message without values.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum DecryptionWalkError {
    #[error("it takes too long")]
    Stopped,
    #[error("Could not decrypt value: {0}")]
    Value(#[from] CipherError),
    #[error("Expected encrypted value as string, but got {0}")]
    NoText(&'static str),
    #[error("Cannot walk value, unknown type: {0}")]
    Unknown(&'static str),
    #[error("Tree contains a non-string key (type {0}). Only string keys are supported")]
    Key(&'static str),
    #[error("walkValue of Comment should be either Comment or string, was {0}")]
    Comment(&'static str),
}

/// The data that a file's MAC covers.
pub(crate) struct MacCoverage {
    hash: Sha512,
    only_encrypted: bool,
    strings: Vec<Vec<u8>>,
}

impl MacCoverage {
    /// The coverage of a file with this metadata, before any value was added.
    pub(crate) fn new(metadata: &SopsMetadata) -> Self {
        let only_encrypted = metadata.mac_covers_encrypted;
        let begin: &[u8] = if only_encrypted { &MAC_OF_ENCRYPTED } else { &[] };
        Self { hash: Sha512::new_with_prefix(begin), only_encrypted, strings: Vec::new() }
    }

    /// The MAC, in hexadecimal, and the encrypted strings of values.
    pub(crate) fn end(self) -> (String, Vec<Vec<u8>>) {
        (self.hash.finalize().iter().map(|byte| format!("{byte:02X}")).collect(), self.strings)
    }
}

/// Decrypts documents in place. If the MAC must be valid, also records the data that it covers.
pub(crate) fn decrypt(
    documents: &mut [Vec<MapItem>],
    metadata: &SopsMetadata,
    key: &[u8],
    covered: Option<&mut MacCoverage>,
    until: DecryptionDeadline<'_>,
) -> Result<(), DecryptionWalkError> {
    let rule = &metadata.rule;
    let mut walk =
        DecryptionWalk { rule, key, path: Vec::new(), comments: Vec::new(), covered, until };
    documents.iter_mut().try_for_each(|document| walk.map(document))
}

struct DecryptionWalk<'w> {
    rule: &'w EncryptionRule,
    key: &'w [u8],
    path: Vec<String>,
    /// The comments above the current value, with one list for each map and list around it.
    comments: Vec<Vec<SecretBytes>>,
    covered: Option<&'w mut MacCoverage>,
    until: DecryptionDeadline<'w>,
}

impl DecryptionWalk<'_> {
    fn note(&mut self, comment: &SopsComment) {
        if let Some(innermost) = self.comments.last_mut() {
            innermost.push(comment.text.clone());
        }
    }

    fn forget_notes(&mut self) {
        if let Some(innermost) = self.comments.last_mut() {
            innermost.clear();
        }
    }

    fn map(&mut self, items: &mut [MapItem]) -> Result<(), DecryptionWalkError> {
        self.comments.push(Vec::new());
        for item in items {
            match &mut item.key {
                MapItemKey::Comment(comment) => {
                    self.note(comment);
                    match self.comment(comment) {
                        SopsValue::Comment(plain) => *comment = plain,
                        SopsValue::Text(text) => comment.text = text,
                        other => return Err(DecryptionWalkError::Comment(other.type_name())),
                    }
                }
                MapItemKey::Other(name) => return Err(DecryptionWalkError::Key(name)),
                MapItemKey::Text(key) => {
                    self.path.push(key.clone());
                    self.value(&mut item.value)?;
                    self.path.pop();
                    self.forget_notes();
                }
            }
        }
        self.comments.pop();
        Ok(())
    }

    fn list(&mut self, values: &mut [SopsValue]) -> Result<(), DecryptionWalkError> {
        self.comments.push(Vec::new());
        for value in values {
            if let SopsValue::Comment(comment) = value {
                self.note(comment);
                *value = self.comment(comment);
            } else {
                self.value(value)?;
                self.forget_notes();
            }
        }
        self.comments.pop();
        Ok(())
    }

    /// Decrypts a comment. If that fails, the comment stays unchanged, because it may never have been encrypted.
    fn comment(&mut self, comment: &SopsComment) -> SopsValue {
        let stays = || SopsValue::Comment(comment.clone());
        if !self.rule.encrypts(&self.path, &self.comments, true) {
            return stays();
        }
        let path = self.joined_path();
        let plain = std::str::from_utf8(&comment.text);
        let plain = plain.map(|_| encrypted_value::decrypt(&comment.text, self.key, &path));
        plain.map_or_else(|_| stays(), |plain| plain.unwrap_or_else(|_| stays()))
    }

    /// The path that is authenticated with a value. It ends with a colon even if it is empty.
    fn joined_path(&self) -> String {
        format!("{}:", self.path.join(":"))
    }

    fn value(&mut self, value: &mut SopsValue) -> Result<(), DecryptionWalkError> {
        if self.until.is_over() {
            return Err(DecryptionWalkError::Stopped);
        }
        match value {
            SopsValue::Null => return Ok(()),
            SopsValue::Map(items) => return self.map(items),
            SopsValue::List(values) => return self.list(values),
            SopsValue::Uint(_) => return Err(DecryptionWalkError::Unknown(value.type_name())),
            _ => {}
        }
        let encrypted = self.rule.encrypts(&self.path, &self.comments, false);
        if encrypted {
            let SopsValue::Text(text) = value else {
                return Err(DecryptionWalkError::NoText(value.type_name()));
            };
            let plain = encrypted_value::decrypt(text, self.key, &self.joined_path())?;
            if let Some(covered) = &mut self.covered {
                covered.strings.push(text.to_vec());
            }
            *value = plain;
        }
        if let Some(covered) = &mut self.covered
            && (encrypted || !covered.only_encrypted)
        {
            covered.hash.update(hashed(value).as_slice());
        }
        Ok(())
    }
}

/// A value in the form that the MAC covers.
fn hashed(value: &SopsValue) -> SecretBytes {
    match value {
        SopsValue::Bool(truth) => {
            Zeroizing::new(if *truth { b"True".to_vec() } else { b"False".to_vec() })
        }
        SopsValue::Float(float) => {
            Zeroizing::new(format_float(*float, FloatTextFormat::Fixed, None).into_bytes())
        }
        SopsValue::Time(time) => Zeroizing::new(time.clone().into_bytes()),
        other => other.shown(),
    }
}
