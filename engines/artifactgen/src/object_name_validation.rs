//! Checks names of objects and labels, with Kubernetes' messages about invalid ones.
//!
//! Source of the semantics: apimachinery 0.36, `util/validation` for names and `api/validate/content` for labels. The
//! kustomize engine uses an older version of the messages about labels.

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL_NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const MAX_SUBDOMAIN_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Parity(kubernetes): it counts bytes in either case, and calls them so for labels only.
const LONG_SUBDOMAIN: &str = "must be no more than 253 characters";
const LONG_LABEL: &str = "must be no more than 63 bytes";

/// What is wrong with the name of an object. `None` if the name is valid.
pub(crate) fn subdomain_problem(name: &str) -> Option<String> {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(is_alphanumeric)
            && bytes.last().is_some_and(is_alphanumeric)
            && bytes.iter().all(|byte| is_alphanumeric(byte) || *byte == b'-')
    };
    let too_long = (name.len() > MAX_SUBDOMAIN_BYTES).then(|| LONG_SUBDOMAIN.to_owned());
    joined(too_long, (!name.split('.').all(is_label)).then_some(SUBDOMAIN))
}

/// What is wrong with a label key that has no prefix. `None` if the key is valid.
pub(crate) fn label_name_problem(name: &str) -> Option<String> {
    let too_long = (name.len() > MAX_LABEL_BYTES).then(|| format!("name part {LONG_LABEL}"));
    joined(too_long, (!is_label_text(name)).then_some(LABEL_NAME))
}

/// What is wrong with the value of a label. `None` if the value is valid.
pub(crate) fn label_value_problem(value: &str) -> Option<String> {
    let too_long = (value.len() > MAX_LABEL_BYTES).then(|| LONG_LABEL.to_owned());
    let is_valid = value.is_empty() || is_label_text(value);
    joined(too_long, (!is_valid).then_some(LABEL_VALUE))
}

fn is_label_text(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(is_inner)
}

fn joined(too_long: Option<String>, malformed: Option<&str>) -> Option<String> {
    match (too_long, malformed) {
        (Some(too_long), Some(malformed)) => Some(format!("{too_long}; {malformed}")),
        (Some(too_long), None) => Some(too_long),
        (None, malformed) => malformed.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_kubernetes_does() {
        for good in ["a", "a-b.c", "0.0", &"a".repeat(253)] {
            assert_eq!(subdomain_problem(good), None, "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a.", "a..b", "ü"] {
            assert_eq!(subdomain_problem(bad).as_deref(), Some(SUBDOMAIN), "{bad}");
        }
        let long = subdomain_problem(&"a".repeat(254));
        assert_eq!(long.as_deref(), Some(LONG_SUBDOMAIN));
        let both = format!("must be no more than 63 bytes; {LABEL_VALUE}");
        assert_eq!(label_value_problem(&"-".repeat(64)), Some(both));
        assert!(["", "a_B.c-1", "x"].iter().all(|it| label_value_problem(it).is_none()));
        assert_eq!(label_name_problem("app_1"), None);
        assert_eq!(label_name_problem("_app").as_deref(), Some(LABEL_NAME));
        let long = label_name_problem(&"a".repeat(64));
        assert_eq!(long.as_deref(), Some("name part must be no more than 63 bytes"));
    }
}
