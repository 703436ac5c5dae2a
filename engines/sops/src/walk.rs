//! Decrypting a tree in place, and its MAC.

use sha2::{Digest as _, Sha512};
use zeroize::Zeroizing;

use crate::cipher::{self, CipherError};
use crate::limits::Until;
use crate::metadata::Metadata;
use crate::rule::Rule;
use crate::value::{Bytes, Comment, Item, Key, Value};
use golang::strconv::{FloatForm, format_float};

/// What a MAC over encrypted values begins with, so that it differs from one over all: the SHA-256 of `sops`.
const MAC_OF_ENCRYPTED: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b,
    0x0b, 0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// Why a tree was not decrypted. Displays in the words of sops, without values.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum WalkError {
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

/// Decrypts documents in place, and keeps the encrypted texts of values. Returns their MAC, in hexadecimal.
pub(crate) fn decrypt(
    documents: &mut [Vec<Item>],
    metadata: &Metadata,
    key: &[u8],
    encrypted: Option<&mut Vec<Vec<u8>>>,
    until: Until<'_>,
) -> Result<String, WalkError> {
    let mut walk = Walk {
        rule: &metadata.rule,
        key,
        hash: Sha512::new(),
        only_encrypted: metadata.mac_covers_encrypted,
        path: Vec::new(),
        comments: Vec::new(),
        encrypted,
        until,
    };
    if walk.only_encrypted {
        walk.hash.update(MAC_OF_ENCRYPTED);
    }
    for document in documents {
        walk.map(document)?;
    }
    Ok(walk.hash.finalize().iter().map(|byte| format!("{byte:02X}")).collect())
}

struct Walk<'w> {
    rule: &'w Rule,
    key: &'w [u8],
    hash: Sha512,
    only_encrypted: bool,
    path: Vec<String>,
    /// Comments above the current value, a list for each map and list around it.
    comments: Vec<Vec<Bytes>>,
    encrypted: Option<&'w mut Vec<Vec<u8>>>,
    until: Until<'w>,
}

impl Walk<'_> {
    fn note(&mut self, comment: &Comment) {
        if let Some(innermost) = self.comments.last_mut() {
            innermost.push(comment.text.clone());
        }
    }

    fn forget_notes(&mut self) {
        if let Some(innermost) = self.comments.last_mut() {
            innermost.clear();
        }
    }

    fn map(&mut self, items: &mut [Item]) -> Result<(), WalkError> {
        self.comments.push(Vec::new());
        for item in items {
            match &mut item.key {
                Key::Comment(comment) => {
                    self.note(comment);
                    match self.comment(comment) {
                        Value::Comment(plain) => *comment = plain,
                        Value::Text(text) => comment.text = text,
                        other => return Err(WalkError::Comment(other.type_name())),
                    }
                }
                Key::Other(name) => return Err(WalkError::Key(name)),
                Key::Text(key) => {
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

    fn list(&mut self, values: &mut [Value]) -> Result<(), WalkError> {
        self.comments.push(Vec::new());
        for value in values {
            if let Value::Comment(comment) = value {
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

    /// What a comment becomes; one that does not decrypt stays, as it may never have been encrypted.
    fn comment(&mut self, comment: &Comment) -> Value {
        let stays = || Value::Comment(comment.clone());
        if !self.rule.encrypts(&self.path, &self.comments, true) {
            return stays();
        }
        let path = self.joined_path();
        let plain = std::str::from_utf8(&comment.text);
        let plain = plain.map(|_| cipher::decrypt(&comment.text, self.key, &path));
        plain.map_or_else(|_| stays(), |plain| plain.unwrap_or_else(|_| stays()))
    }

    /// What is authenticated with a value; it ends with a colon also where it is empty.
    fn joined_path(&self) -> String {
        format!("{}:", self.path.join(":"))
    }

    fn value(&mut self, value: &mut Value) -> Result<(), WalkError> {
        if self.until.is_over() {
            return Err(WalkError::Stopped);
        }
        match value {
            Value::Null => return Ok(()),
            Value::Map(items) => return self.map(items),
            Value::List(values) => return self.list(values),
            Value::Uint(_) => return Err(WalkError::Unknown(value.type_name())),
            _ => {}
        }
        let encrypted = self.rule.encrypts(&self.path, &self.comments, false);
        if encrypted {
            let Value::Text(text) = value else { return Err(WalkError::NoText(value.type_name())) };
            let plain = cipher::decrypt(text, self.key, &self.joined_path())?;
            if let Some(encrypted) = &mut self.encrypted {
                encrypted.push(text.to_vec());
            }
            *value = plain;
        }
        if encrypted || !self.only_encrypted {
            let bytes = hashed(value);
            self.hash.update(bytes.as_slice());
        }
        Ok(())
    }
}

/// A value as the MAC covers it.
fn hashed(value: &Value) -> Bytes {
    match value {
        Value::Bool(truth) => {
            Zeroizing::new(if *truth { b"True".to_vec() } else { b"False".to_vec() })
        }
        Value::Float(float) => {
            Zeroizing::new(format_float(*float, FloatForm::Fixed, None).into_bytes())
        }
        Value::Time(time) => Zeroizing::new(time.clone().into_bytes()),
        other => other.shown(),
    }
}
