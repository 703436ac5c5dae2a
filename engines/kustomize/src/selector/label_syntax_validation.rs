//! Valid keys and values of labels, and Kubernetes' messages about others.

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const SUBDOMAIN: &str = "a DNS-1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const MAX_NAME: usize = 63;
const MAX_SUBDOMAIN: usize = 253;

/// The problems of a label's key; none if it is valid.
pub(super) fn label_key_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > MAX_SUBDOMAIN {
                    problems.push(format!("prefix part {}", too_long(MAX_SUBDOMAIN)));
                }
                if !is_subdomain(prefix) {
                    problems.push(format!("prefix part {SUBDOMAIN}"));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_NAME {
        problems.push(format!("name part {}", too_long(MAX_NAME)));
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME}"));
    }
    problems
}

/// The problems of a label's value; none if it is valid.
pub(super) fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > MAX_NAME {
        problems.push(too_long(MAX_NAME));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(VALUE.to_owned());
    }
    problems
}

fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(|byte| is_inner(*byte))
}

fn is_subdomain(text: &str) -> bool {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| is_alphanumeric(*byte));
        is_end(bytes.first())
            && is_end(bytes.last())
            && bytes.iter().all(|byte| is_alphanumeric(*byte) || *byte == b'-')
    })
}

fn too_long(most: usize) -> String {
    format!("must be no more than {most} characters")
}
