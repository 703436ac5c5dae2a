//! The keys with which a story has signatures verified. Elsewhere: signing (`e2e::signing_key`).

use anyhow::Result;
use e2e::harness::Story;
use serde_json::{Value, json};

pub(crate) use e2e::signing_key::{SigningKey, signing};

/// Puts public keys into the Secret `keys`.
pub(crate) async fn put_keys(story: &Story, signers: &[&SigningKey]) -> Result<()> {
    let mut data = json!({});
    for (name, key) in signers.iter().map(|signer| signer.public()) {
        data[name] = Value::from(key);
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": data});
    story.apply_value(secret).await.map(drop)
}
