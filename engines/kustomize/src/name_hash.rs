//! The hash in the names of generated ConfigMaps and Secrets.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::field_edit;
use crate::resource::BuildResource;
use crate::yaml_output;

/// The hash of an object's content, as ten characters for its name.
///
/// # Errors
/// The data cannot be read, or the object is neither a ConfigMap nor a Secret.
///
/// Differs(kustomize): in kustomize other kinds have hashes, too, which depend on Go's memory layout.
pub(crate) fn hash(resource: &BuildResource) -> Result<String> {
    let (own, optional): (&[&str], &str) = match resource.kind() {
        "ConfigMap" => (&["data"], "binaryData"),
        "Secret" => (&["data", "type"], "stringData"),
        kind => {
            let text = format!("{kind} `{}` cannot have a hash in its name", resource.name());
            return Err(Error::new(text));
        }
    };
    let mut content = Map::new();
    content.insert("kind".to_owned(), resource.kind().into());
    // Parity(kustomize): the name is looked up by a path that never exists.
    content.insert("name".to_owned(), "".into());
    for name in own {
        content.insert((*name).to_owned(), field(resource, name)?);
    }
    let value = field(resource, optional)?;
    if value.is_object() {
        content.insert(optional.to_owned(), value);
    }
    let text = go_json(&Value::Object(content));
    let digest = hex::encode(Sha256::digest(text));
    let ten = digest.chars().take(10);
    Ok(ten.map(replaced).collect())
}

/// Replaces characters that could form offensive words.
fn replaced(digit: char) -> char {
    match digit {
        '0' => 'g',
        '1' => 'h',
        '3' => 'k',
        'a' => 'm',
        'e' => 't',
        digit => digit,
    }
}

fn field(resource: &BuildResource, name: &str) -> Result<Value> {
    let Some(node) = field_edit::at(&resource.node, &[name]) else { return Ok("".into()) };
    if node.kind == goyaml::v3::YamlNodeKind::Scalar {
        return Ok(node.value.as_str().into());
    }
    let value = yaml_output::value(node)?;
    Ok(if value.is_object() { value } else { Value::Null })
}

/// Writes JSON like Go, with characters escaped that have a meaning in HTML.
pub(crate) fn go_json(value: &Value) -> String {
    html_safe(&value.to_string())
}

/// Escapes characters of a JSON text that have a meaning in HTML.
pub(crate) fn html_safe(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => result.push_str("\\u003c"),
            '>' => result.push_str("\\u003e"),
            '&' => result.push_str("\\u0026"),
            '\u{2028}' => result.push_str("\\u2028"),
            '\u{2029}' => result.push_str("\\u2029"),
            character => result.push(character),
        }
    }
    result
}
