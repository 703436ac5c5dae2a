//! Templates of commit messages (`image`).

use std::sync::Arc;

use golang::time::{GoTime, GoTimeZone};
use image::{
    CommitMessageData, CommitMessageEnvironment, ImageValueChange, ObjectIdentifier,
    REQUIRED_STACK_BYTES, UpdateResult, commit_message,
};

use super::FuzzTarget;

pub(super) const TARGET: FuzzTarget = FuzzTarget {
    name: "commit-template",
    stack: REQUIRED_STACK_BYTES,
    words: &[
        b"{{",
        b"}}",
        b"{{ . }}",
        b"{{ .AutomationObject }}",
        b"{{ .AutomationObject.MarshalLog }}",
        b"{{ range .Changed.Changes }}",
        b"{{ range $o, $c := .Changed.Objects }}",
        b"{{ range $f, $o := .Changed.FileChanges }}",
        b"{{ end }}",
        b"{{ $o.Kind }}",
        b"{{ .NewValue | splitList \":\" | last }}",
        b"{{ .Values.a }}",
        b"{{ .Changed | toJson }}",
        b"{{ printf \"%#v %+v\" .Changed.Objects . }}",
        b"{{ len .Changed.Objects }}",
        b"{{ index .Changed.FileChanges \"a\" }}",
        b"{{ if .Changed.Objects }}",
        b"{{ .Updated }}",
        b"{{ define \"x\" }}{{ template \"x\" . }}{{ end }}",
        b"{{ template \"x\" . }}",
        b"{{ range until 100000000 }}x{{ end }}",
        b"{{ repeat 100000000 \"x\" }}",
        b"{{ regexMatch \"(a{900}){900}\" \"a\" }}",
        b"{{ printf \"%999999999d\" 1 }}",
        b"{{ genCA \"a\" 1 }}",
        b" | first",
        b" | keys",
        b" | default .",
        b"$x := ",
        b"(",
        b")",
        b"\"",
        b"`",
        b"-1",
        b"\n",
        b"\xff",
    ],
    recorded: &["image/commit-template.jsonl"],
    read,
};

fn read(input: &[u8]) {
    let [kind, old_value, new_value, setter] = ["Pod", "a:1", "a:2", "ns:p:tag"].map(str::to_owned);
    let object = ObjectIdentifier { kind, ..ObjectIdentifier::default() };
    let mut changed = UpdateResult::default();
    changed.add(
        &"a.yaml".into(),
        &Arc::new(object),
        ImageValueChange { old_value, new_value, setter },
    );
    let values = [("a".to_owned(), "b".to_owned())].into();
    let data = CommitMessageData {
        namespace: "ns",
        name: "auto",
        changed: &changed,
        values: Some(&values),
    };
    let random = Arc::new(|buffer: &mut [u8]| buffer.fill(7));
    let environment =
        CommitMessageEnvironment { now: GoTime::from_unix(0, 0, GoTimeZone::Utc), random };
    drop(commit_message(&String::from_utf8_lossy(input), &data, &environment));
}
