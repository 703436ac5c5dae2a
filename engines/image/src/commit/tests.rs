//! Messages beyond the recorded ones: limits, and what is drawn.

use super::*;
use crate::result::{Change, ObjectIdentifier};

fn environment() -> CommitEnvironment {
    let random = Arc::new(|buffer: &mut [u8]| buffer.fill(7));
    CommitEnvironment { now: Time::from_unix(0, 0, Zone::Utc), random }
}

/// The message of one change, on a thread with the stack that it needs.
fn message(template: &str) -> Result<String, CommitMessageError> {
    let mut changed = UpdateResult::default();
    let object = ObjectIdentifier { kind: "Pod".to_owned(), ..ObjectIdentifier::default() };
    let [old_value, new_value, setter] = ["a:1", "a:2", "ns:p"].map(str::to_owned);
    changed.add(&"a.yaml".into(), &Arc::new(object), Change { old_value, new_value, setter });
    let data = CommitData { namespace: "ns", name: "auto", changed: &changed, values: None };
    std::thread::scope(|scope| {
        let work = || commit_message(template, &data, &environment());
        let thread = std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

#[test]
fn a_message_lists_what_changed() {
    assert_eq!(message("").unwrap(), DEFAULT_MESSAGE);
    let template = "{{ range $o, $c := .Changed.Objects }}{{ $o.Kind }}: {{ (first $c).NewValue }}{{ end }} {{ .AutomationObject.String }}";
    assert_eq!(message(template).unwrap(), "Pod: a:2 ns/auto");
    assert_eq!(message("{{ randInt 0 9 }}").unwrap(), message("{{ randInt 0 9 }}").unwrap());
}

#[test]
fn functions_of_helm_and_of_the_environment_are_not_available() {
    for function in ["toYaml", "now", "env", "randAlpha", "getHostByName", "include", "lookup"] {
        let error = message(&format!("{{{{ {function} }}}}")).unwrap_err().to_string();
        assert!(error.ends_with(&format!("function \"{function}\" not defined")), "{error}");
    }
    assert_eq!(message(r#"{{ fromJson "[1]" }}{{ fromJson "x" }}"#).unwrap(), "[1]<no value>");
}

#[test]
fn templates_that_do_not_end_or_make_too_much_are_errors() {
    for template in [
        r#"{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}"#,
        r#"{{ range until 100000000 }}{{ end }}"#,
        r#"{{ repeat 100000000 "x" }}"#,
        r#"{{ $l := list 1 }}{{ range until 100000 }}{{ $l = concat $l $l }}{{ end }}"#,
    ] {
        assert!(matches!(message(template), Err(CommitMessageError::Run(_))), "{template}");
    }
    let long = "x".repeat(MAX_TEMPLATE_BYTES + 1);
    assert!(matches!(message(&long), Err(CommitMessageError::Template(_))));
}
