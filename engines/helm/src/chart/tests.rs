//! Charts: damaged bytes, limits, and what templates see of files. Messages of errors are those of Helm.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use golang::GoRuntimeValue;
use golang::value::GoObject as _;
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use proptest::prelude::*;
use std::sync::Arc;

use super::load::{ChartLoadError, MAX_DEPTH, archive, folder};
use super::{ChartArchiveError, ChartFile, ChartFiles, crds, read_values};

const CHART: &str = "apiVersion: v2\nname: app\nversion: 0.1.0\n";

fn file(name: &str, text: impl AsRef<[u8]>) -> ChartFile {
    ChartFile { name: name.to_owned(), data: text.as_ref().into() }
}

fn packed(files: &[ChartFile]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for file in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(file.data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("app/{}", file.name), &file.data[..]).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

fn sample() -> Vec<ChartFile> {
    let inner = packed(&[file("Chart.yaml", CHART.replace("app", "inner"))]);
    vec![
        file("Chart.yaml", format!("{CHART}dependencies: [{{name: inner, version: 1.x}}]\n")),
        file("values.yaml", "a: {b: 1}\n---\na: {c: 2}\n"),
        file("crds/a.yaml", "kind: CustomResourceDefinition\n"),
        file("templates/a.yaml", "a: {{ .Values.a }}\n"),
        file("charts/inner.tgz", inner),
    ]
}

#[test]
fn a_folder_and_its_archive_are_the_same_chart() {
    let from_folder = folder("/app", sample()).unwrap().chart;
    let from_archive = archive(&packed(&sample())).unwrap().chart;
    assert_eq!(format!("{from_folder:?}"), format!("{from_archive:?}"));
    let Some(GoRuntimeValue::Map(a)) = from_folder.values.get(b"a") else { panic!("a table") };
    assert_eq!(a.len(), 2);
    assert_eq!(from_folder.charts[0].metadata.name, "inner");
    assert_eq!(crds(&from_folder)[0].path, "app/crds/a.yaml");
}

#[test]
fn charts_in_charts_are_bounded() {
    let nested = |levels: usize| {
        let prefixes = (0..=levels).map(|level| "charts/x/".repeat(level));
        let files = prefixes.map(|prefix| file(&format!("{prefix}Chart.yaml"), CHART));
        folder("/app", files.collect())
    };
    assert!(nested(MAX_DEPTH).is_ok());
    assert!(nested(MAX_DEPTH + 1).unwrap_err().to_string().ends_with("deeper than 64"));
}

#[test]
fn an_archive_that_unpacks_to_too_much_is_refused() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let mut header = tar::Header::new_gnu();
    header.set_path("app/x").unwrap();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    gzip.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..220 {
        gzip.write_all(&zeros).unwrap();
    }
    let bomb = gzip.finish().unwrap();
    assert_eq!(archive(&bomb).unwrap_err(), ChartLoadError::BadStream(ChartArchiveError::TooMuch));
}

#[test]
fn files_are_an_object_with_methods() {
    let files = Arc::new(ChartFiles::new(&[file("a/x.txt", "1\n2\n"), file("b.bin", [0xff])]));
    assert_eq!(files.type_name(), "engine.files");
    let call = |name: &str, arguments: &[GoRuntimeValue]| {
        let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
        let text = Arc::clone(&files).method(name).unwrap().call(&mut meter, arguments);
        text.map(|value| {
            String::from_utf8_lossy(&golang::fmt::sprint(&[value]).unwrap()).into_owned()
        })
    };
    assert_eq!(call("Get", &["a/x.txt".into()]).unwrap(), "1\n2\n");
    assert_eq!(call("Get", &["nope".into()]).unwrap(), "");
    assert_eq!(call("Lines", &["a/x.txt".into()]).unwrap(), "[1 2]");
    assert_eq!(call("AsConfig", &[]).unwrap(), "b.bin: \u{fffd}\nx.txt: |\n  1\n  2");
    assert_eq!(call("AsSecrets", &[]).unwrap(), "b.bin: /w==\nx.txt: MQoyCg==");
    assert_eq!(call("Glob", &["*.bin".into()]).unwrap(), "map[b.bin:[255]]");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_archives_never_panic(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = packed(&sample());
        for (at, byte) in &edits {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        drop(archive(&bytes));
    }

    #[test]
    fn damaged_files_never_panic(which in 0_usize..5, edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut files = sample();
        let mut bytes = files[which].data.to_vec();
        for (at, byte) in &edits {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        files[which].data = bytes.into();
        drop(archive(&packed(&files)));
        drop(folder("/app", files));
    }

    #[test]
    fn any_archive_of_any_tar_never_panics(tar in prop::collection::vec(any::<u8>(), 0..2048)) {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&tar).unwrap();
        drop(archive(&gzip.finish().unwrap()));
    }
}

#[test]
fn a_last_line_of_values_counts_whatever_its_length() {
    // Helm 4.2.4 loses such a line of 4 096 or 8 192 bytes (helm#32506).
    for length in [4_095, 4_096, 4_097, 8_192] {
        let line = format!("b: {}", "x".repeat(length - 3));
        for text in [format!("a: 1\n{line}"), line] {
            let values = read_values(text.as_bytes()).unwrap();
            let values = crate::values::to_json(&values).unwrap();
            assert_eq!(values["b"], "x".repeat(length - 3), "{length} bytes");
        }
    }
}
