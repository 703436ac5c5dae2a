//! Checks the names of objects by the rules of their kinds in Kubernetes.

use crate::chart::quoted;

const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

/// What is wrong with the name of an object of this kind, in the words of the API server. `None` if the name is valid.
pub(super) fn problem(kind: &str, name: &str) -> Option<String> {
    let problems = match kind.to_ascii_lowercase().as_str() {
        "service" => dns_1035_label(name),
        "namespace" => dns_label(name),
        "certificatesigningrequest" => Vec::new(),
        "role" | "clusterrole" | "rolebinding" | "clusterrolebinding" => path_segment(name),
        _ => dns_subdomain(name),
    };
    let name = quoted(name);
    let mut problems: Vec<String> = problems
        .into_iter()
        .map(|problem| format!("metadata.name: Invalid value: {name}: {problem}"))
        .collect();
    let all = match problems.len() {
        0 => return None,
        1 => problems.remove(0),
        _ => format!("[{}]", problems.join(", ")),
    };
    Some(format!("object name does not conform to Kubernetes naming requirements: {name}: {all}"))
}

/// Whether a text consists of letters and digits, with dashes between them.
fn is_label(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let bytes = text.as_bytes();
    is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| is_end(Some(byte)) || *byte == b'-')
}

fn too_long(name: &str, most: usize) -> Option<String> {
    (name.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn dns_subdomain(name: &str) -> Vec<String> {
    let mut problems: Vec<String> = too_long(name, 253).into_iter().collect();
    if !name.split('.').all(is_label) {
        problems.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN}')"
        ));
    }
    problems
}

fn dns_label(name: &str) -> Vec<String> {
    let mut problems: Vec<String> = too_long(name, 63).into_iter().collect();
    if is_label(name) {
        return problems;
    }
    problems.push(match name.split('.').all(is_label) {
        true => "must not contain dots".to_owned(),
        false => "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                  and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                  '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .to_owned(),
    });
    problems
}

fn dns_1035_label(name: &str) -> Vec<String> {
    let mut problems: Vec<String> = too_long(name, 63).into_iter().collect();
    if !is_label(name) || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        problems.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    problems
}

fn path_segment(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let found = ["/", "%"].into_iter().filter(|part| name.contains(part));
    found.map(|part| format!("may not contain '{part}'")).collect()
}
