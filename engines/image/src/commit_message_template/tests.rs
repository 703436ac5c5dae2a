//! Messages beyond the recorded ones: limits, and what is drawn.

use super::*;
use crate::update_result::{ImageValueChange, ObjectIdentifier};

fn environment() -> CommitMessageEnvironment {
    let random = Arc::new(|buffer: &mut [u8]| buffer.fill(7));
    CommitMessageEnvironment { now: GoTime::from_unix(0, 0, GoTimeZone::Utc), random }
}

/// The message of one change.
fn message(template: &str) -> Result<String, CommitMessageError> {
    let mut changed = UpdateResult::default();
    let object = ObjectIdentifier { kind: "Pod".to_owned(), ..ObjectIdentifier::default() };
    let [old_value, new_value, setter] = ["a:1", "a:2", "ns:p"].map(str::to_owned);
    changed.add(
        &"a.yaml".into(),
        &Arc::new(object),
        ImageValueChange { old_value, new_value, setter },
    );
    message_of(template, &changed)
}

/// The message of an update, on a thread with the stack that it needs.
fn message_of(template: &str, changed: &UpdateResult) -> Result<String, CommitMessageError> {
    let data = CommitMessageData { namespace: "ns", name: "auto", changed, values: None };
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

#[test]
fn a_message_has_a_longest_length() {
    let of_length = |length: usize| message(&format!("{{{{ repeat {length} \"x\" }}}}"));
    assert_eq!(of_length(MAX_MESSAGE_BYTES).unwrap().len(), MAX_MESSAGE_BYTES);
    let error = of_length(MAX_MESSAGE_BYTES + 1).unwrap_err().to_string();
    let expected = "failed to run template from spec: the message is longer than 1048576 bytes: shorten \
                    spec.git.commit.messageTemplate";
    assert_eq!(error, expected);
}

/// One change in so many files.
fn repeated(old_value: &str, files: usize) -> UpdateResult {
    let object = ObjectIdentifier { kind: "Pod".to_owned(), ..ObjectIdentifier::default() };
    let object = Arc::new(object);
    let mut changed = UpdateResult::default();
    for at in 0..files {
        let [old_value, new_value, setter] = [old_value, "b", "ns:p"].map(str::to_owned);
        let change = ImageValueChange { old_value, new_value, setter };
        changed.add(&format!("{at}.yaml").into(), &object, change);
    }
    changed
}

#[test]
fn a_change_that_is_made_in_many_files_is_kept_once() {
    let changed = repeated(&"a".repeat(100_000), 100);
    let data = CommitMessageData { namespace: "ns", name: "auto", changed: &changed, values: None };
    let bytes = data::template_data_bytes(&data);
    assert!((100_000..200_000).contains(&bytes), "{bytes}");
    let lengths =
        "{{ range .Changed.Changes }}{{ len .OldValue }} {{ end }}{{ len .Changed.FileChanges }}";
    assert_eq!(message_of(lengths, &changed).unwrap(), "100000 100");
}

#[test]
fn an_update_that_is_too_large_for_a_template_is_refused_before_it_is_made() {
    let half = usize::try_from(MAX_DATA_BYTES).unwrap() / 2;
    let mut changed = repeated(&"a".repeat(half), 1);
    let object = Arc::new(ObjectIdentifier::default());
    let [new_value, setter] = ["b", "ns:p"].map(str::to_owned);
    let change = ImageValueChange { old_value: "c".repeat(half), new_value, setter };
    changed.add(&"z.yaml".into(), &object, change);
    let error = message_of("{{ .Values }}", &changed).unwrap_err();
    assert!(matches!(error, CommitMessageError::Run(_)), "{error}");
    assert_eq!(message_of("", &changed).unwrap(), DEFAULT_MESSAGE);
}
