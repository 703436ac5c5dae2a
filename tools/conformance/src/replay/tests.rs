//! Tests the replay with the recorded cases of the repository, and with faulty cases.

use expect_test::{expect, expect_file};
use tempfile::TempDir;

use super::case::same;
use super::*;

/// A folder with one recorded file.
fn recorded(file: &str, text: impl AsRef<[u8]>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    folder
}

fn replayed(folder: &TempDir) -> ReplayTallies {
    replay(&topics(), &[folder.path().to_owned()]).unwrap()
}

#[test]
fn every_recorded_case_is_answered_as_recorded() {
    let folders = [root().join("e2e/conformance")];
    let tallies = replay(&topics(), &folders).unwrap();
    let failed: usize = tallies.values().map(|tally| tally.failures.len()).sum();
    assert_eq!(failed, 0, "{}", table::table(&tallies));
    let counts = tallies.iter().map(|(name, tally)| {
        let not_run: usize = tally.not_run.values().sum();
        format!("{name}: {} of {} passed, {not_run} not run\n", tally.passed, tally.run())
    });
    expect_file!["counts.txt"].assert_eq(&counts.collect::<String>());
}

#[test]
fn an_answer_that_is_not_the_recorded_one_fails_its_topic() {
    let case = r#"{"name":"wrong","yaml":"a: 1\n","v2_json":"{\"a\":2}","v2_round_trip":"a: 1\n"}"#;
    let folder = recorded("yaml/read.jsonl", case);
    let tallies = replayed(&folder);
    let wanted = "values: {\"a\":2}".to_owned();
    let got = "values: {\"a\":1}".to_owned();
    let fault = CaseFailure::Mismatch { wanted, got };
    assert_eq!(tallies["yaml/read v2"].failures, [("wrong".to_owned(), fault)]);
    assert!(run(&[folder.path().to_owned()]).is_err());
}

#[test]
fn a_line_that_is_no_json_fails_and_the_others_are_run() {
    let good = br#"{"name":"good","op":"parse","in":"a_b_c_D","out":{"group":"c","kind":"D","name":"b","namespace":"a"}}"#;
    let lines = [good.as_slice(), b"{", b"\xff", b"[]", b"  ", good].join(&b'\n');
    let folder = recorded("recorded/objectid.jsonl", lines);
    let tallies = replayed(&folder);
    let tally = &tallies["recorded/objectid"];
    let failures: Vec<&str> =
        tally.failures.iter().filter_map(|(place, _)| place.rsplit(": ").next()).collect();
    assert_eq!((tally.passed, failures), (2, vec!["line 2", "line 3", "line 4"]));
}

#[test]
fn what_a_topic_does_not_know_is_not_run_and_said() {
    let lines = [
        r#"{"op":"melt","object":{}}"#,
        r#"{"op":"fmt","object":{"kind":"A","name":"b"},"colour":"red","out":"A/b"}"#,
        r#"{"op":"fmt","out":"A/b"}"#,
        r#"{"op":"fmt","object":{"kind":"A","name":"b"}}"#,
        r#"{"op":"fmt","object":{"kind":"A","name":"b"},"out":"A/b"}"#,
    ];
    let tallies = replayed(&recorded("recorded/ssa-normalize.jsonl", lines.join("\n")));
    let tally = &tallies["recorded/ssa-normalize"];
    assert_eq!((tally.passed, tally.run()), (1, 1));
    let reasons = tally.not_run.iter().map(|(reason, count)| format!("{count} {reason}\n"));
    expect![[r#"
        1 a form that is not known: missing field `object`
        1 a form that is not known: unknown field `colour`, expected `object`
        1 no answer is recorded
        1 unknown op `melt`
    "#]]
    .assert_eq(&reasons.collect::<String>());
}

#[test]
fn an_exception_stands_beside_its_case_with_the_reason() {
    let topic = Topic {
        name: "topic",
        path: "cases.jsonl",
        judge: |case| same("a", &case.name),
        exceptions: &[("b", "because")],
    };
    let folder = recorded("cases.jsonl", "{\"name\":\"a\"}\n{\"name\":\"b\"}\n{\"name\":\"c\"}");
    let tallies = replay(&[topic], &[folder.path().to_owned()]).unwrap();
    let tally = &tallies["topic"];
    assert_eq!((tally.passed, tally.run(), tally.failures.len()), (1, 3, 1));
    assert_eq!(tally.excepted, [("b".to_owned(), "because")]);
}

#[test]
fn one_of_several_answers_that_were_seen_is_due() {
    let topic = Topic {
        name: "topic",
        path: "cases.jsonl",
        judge: |case| {
            case.judge(if case.name == "b" { Err("b".to_owned()) } else { Ok("a".into()) })
        },
        exceptions: &[],
    };
    let lines = [
        r#"{"name":"a","anyOf":[{"out":"x"},{"out":"a"}]}"#,
        r#"{"name":"b","anyOf":[{"out":"b"},{"err":"b"}]}"#,
        r#"{"name":"c","anyOf":[{"out":"x"},{"err":"a"}]}"#,
        r#"{"name":"d","anyOf":[]}"#,
    ];
    let tallies = replay(&[topic], &[recorded("cases.jsonl", lines.join("\n")).path().to_owned()]);
    let tallies = tallies.unwrap();
    let tally = &tallies["topic"];
    let not_run: usize = tally.not_run.values().sum();
    assert_eq!((tally.passed, tally.failures.len(), not_run), (2, 1, 1));
}

#[test]
fn a_panic_fails_its_case_only() {
    let topic = Topic {
        name: "topic",
        path: "cases.jsonl",
        judge: |case| if case.name == "b" { panic!("b") } else { Ok(()) },
        exceptions: &[],
    };
    let folder = recorded("cases.jsonl", "{\"name\":\"a\"}\n{\"name\":\"b\"}\n{\"name\":\"c\"}");
    let tallies = replay(&[topic], &[folder.path().to_owned()]).unwrap();
    assert_eq!((tallies["topic"].passed, tallies["topic"].failures.len()), (2, 1));
}

#[test]
fn the_same_topic_of_two_folders_is_counted_together() {
    let case = r#"{"json":"1","yaml":"1\n"}"#;
    let folders = [recorded("yaml/emit.jsonl", case), recorded("yaml/emit.jsonl", case)];
    let paths: Vec<PathBuf> = folders.iter().map(|folder| folder.path().to_owned()).collect();
    assert_eq!(replay(&topics(), &paths).unwrap()["yaml/emit v2"].passed, 2);
    assert!(run(&paths).is_ok());
}

#[test]
fn a_folder_in_which_nothing_is_recorded_is_an_error() {
    let empty = tempfile::tempdir().unwrap();
    let good = recorded("yaml/emit.jsonl", r#"{"json":"1","yaml":"1\n"}"#);
    let paths = [good.path().to_owned(), empty.path().to_owned()];
    assert!(run(&paths).unwrap_err().to_string().starts_with("nothing is recorded in "));
    assert!(run(&[empty.path().join("absent")]).is_err());
    let later = recorded("recorded/sprig.jsonl", "{}");
    let error = run(&[later.path().to_owned()]).unwrap_err();
    assert_eq!(error.to_string(), "no recorded case of a known topic was run");
}

#[test]
fn files_that_belong_to_no_topic_are_named() {
    let folder = recorded("recorded/unknown.jsonl", "{}");
    std::fs::write(folder.path().join("recorded/yaml2-emit.jsonl"), "").unwrap();
    std::fs::write(folder.path().join("recorded/notes.txt"), "").unwrap();
    assert_eq!(unknown_files(folder.path()).unwrap(), ["recorded/unknown.jsonl"]);
    let error = run(&[folder.path().to_owned()]).unwrap_err();
    assert_eq!(error.to_string(), "not a known topic: recorded/unknown.jsonl");
}
