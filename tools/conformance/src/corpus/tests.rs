//! Tests that the project has enough charts and overlays, and a recorded answer for every run.

use std::collections::BTreeSet;

use super::*;

const BOTH: [(CorpusKind, usize); 2] = [(CorpusKind::Charts, 45), (CorpusKind::Overlays, 85)];

#[test]
fn every_run_of_every_case_is_recorded() {
    for (corpus, enough) in BOTH {
        let cases = CorpusCase::load(corpus, &[]).unwrap();
        assert!(cases.len() >= enough, "only {} {}", cases.len(), corpus.noun());
        for case in cases {
            let recorded = read_recorded(&case).unwrap();
            let runs: BTreeSet<&String> = case.runs().keys().collect();
            assert_eq!(runs, recorded.keys().collect::<BTreeSet<_>>(), "{}", case.name);
        }
    }
}

#[test]
fn recorded_files_belong_to_a_run() {
    for case in BOTH.iter().flat_map(|(corpus, _)| CorpusCase::load(*corpus, &[]).unwrap()) {
        for path in read_folder(&case.recorded()).unwrap().keys() {
            let run = path.split(['.', '/']).next().unwrap();
            assert!(
                case.runs().contains_key(run) || path == "answers.json",
                "{}: {path}",
                case.name
            );
        }
    }
}

#[test]
fn an_archive_is_the_same_bytes_each_time() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "a/c"] {
        write(&folder.path().join("chart").join(name), b"text").unwrap();
    }
    let one = pack(&folder.path().join("chart")).unwrap();
    assert_eq!(one, pack(&folder.path().join("chart")).unwrap());
    let files = tar::Archive::new(flate2::read::GzDecoder::new(&*one))
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect::<Vec<_>>();
    assert_eq!(files, ["chart/a/c", "chart/b"]);
}

#[test]
fn the_large_chart_is_as_large_as_promised_and_the_same_each_time() {
    let chart = large_chart();
    assert_eq!(chart, large_chart());
    let templates =
        chart.keys().filter(|path| path.ends_with(".yaml") && path.contains("/templates/"));
    assert_eq!(templates.count(), 200);
}

#[test]
fn an_answer_does_not_depend_on_where_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("program");
    let text = "#!/bin/sh\npwd\necho no >&2\nmkdir out\necho new > out/file\nexit 3\n";
    testbed::script::write_executable(&script, text).unwrap();
    let answer = ask(CorpusKind::Charts, &script, folder.path(), &["rel"], None).unwrap();
    let written = BTreeMap::from([("out/file".to_owned(), b"new\n".to_vec())]);
    let [stdout, stderr] = ["${DIR}\n", "no\n"].map(|text| text.as_bytes().to_owned());
    assert_eq!(answer, ProgramOutput { status: Some(3), stdout, stderr, written });
}

#[test]
fn a_large_overlay_has_as_many_objects_as_promised() {
    for (wanted, is_plain) in [(2, true), (200, true), (1000, false)] {
        let files = overlay(wanted, is_plain);
        assert_eq!(files, overlay(wanted, is_plain));
        let apps = files.iter().filter(|(path, _)| path.contains("/app-"));
        let objects = apps.map(|(_, text)| {
            String::from_utf8_lossy(text).lines().filter(|line| line.starts_with("kind:")).count()
        });
        assert_eq!(objects.sum::<usize>(), usize::from(wanted));
    }
}

#[test]
fn times_in_a_log_and_addresses_in_an_error_are_no_answer() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("program");
    let text = "#!/bin/sh\necho '2026/01/02 03:04:05 no'\necho 2026/01/02\necho '&{0x2c8f4a0472b0 0x12}' >&2\n";
    testbed::script::write_executable(&script, text).unwrap();
    let answer = ask(CorpusKind::Overlays, &script, folder.path(), &["dir"], None).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "${TIME} no\n2026/01/02\n");
    assert_eq!(String::from_utf8_lossy(&answer.stderr), "&{${ADDRESS} 0x12}\n");
}
