//! Which version an index gives, and invalid indexes.

use super::*;

const YAML: &str = r#"apiVersion: v1
generated: "2026-01-01T00:00:00Z"
entries:
  app:
  - apiVersion: v2
    appVersion: 1.10
    created: "2026-01-01T00:00:00.5+01:00"
    digest: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
    description: |
      long
    dependencies: [{name: lib, version: 1.x, repository: ""}]
    name: app
    urls: [charts/app-1.2.0.tgz, https://mirror/app.tgz]
    version: 1.2.0
  - {name: app, version: 2.0.0-rc.1, urls: ["https://x/app-2.tgz"]}
  - {name: app, version: 1.10.0+old, created: "2025-01-01T00:00:00Z", urls: [old]}
  - {name: app, version: 1.10.0+new, created: "2026-01-01T00:00:00Z", urls: [new]}
  - {name: app, version: 1.10.0+mid, created: "2025-06-01T00:00:00Z", urls: [mid]}
  - {name: app, version: not one, urls: [x]}
  - {name: ../app, version: 9.0.0, urls: [x]}
  - {name: app, version: 1.1}
  - null
  empty: []
  none: ~
"#;

fn chosen(index: &ChartIndex, chart: &str, range: &str) -> String {
    match index.choose(chart, range) {
        Ok(found) => format!("{} {}", found.version, found.url.unwrap_or("nowhere")),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_version_that_is_asked_for_is_found_in_yaml_and_in_json() {
    let json = serde_json::to_vec(&goyaml::to_json(YAML.as_bytes()).unwrap()).unwrap();
    // Of JSON, Go makes no strings of numbers.
    let json = String::from_utf8(json).unwrap().replace("\"version\":1.1}", "\"version\":\"1.1\"}");
    for text in [YAML.as_bytes(), json.as_bytes()] {
        let index = ChartIndex::parse(text).unwrap();
        assert_eq!(index.len(), 6);
        for (chart, range, expected) in [
            ("app", "", "1.10.0+new new"),
            ("app", "*", "1.10.0+new new"),
            ("app", ">0.0.0-0", "2.0.0-rc.1 https://x/app-2.tgz"),
            ("app", "<1.10", "1.2.0 charts/app-1.2.0.tgz"),
            ("app", "1.10.0+mid", "1.10.0+mid mid"),
            ("app", "1.1", "1.1 nowhere"),
            ("app", "3.x", "no 'app' chart with version matching '3.x' found"),
            ("other", "*", "chart `other` not found in the repository"),
            ("empty", "*", "no version of chart `empty` found in the repository"),
            ("none", "*", "no version of chart `none` found in the repository"),
        ] {
            assert_eq!(chosen(&index, chart, range), expected, "{chart} {range}");
        }
        assert!(matches!(index.choose("app", "latest"), Err(NoChartVersionError::BadRange { .. })));
        let first = index.choose("app", "1.2.0").unwrap();
        assert_eq!(first.digest.map(str::len), Some(64));
        assert_eq!(index.choose("app", "1.10.0+mid").unwrap().digest, None);
    }
}

#[test]
fn what_is_no_index_is_refused() {
    for (text, expected) in [
        ("", "the index is empty"),
        ("# nothing", "the index is empty"),
        ("null", "the index has no `apiVersion`; it is not the index of a chart repository"),
        ("entries: {}", "the index has no `apiVersion`; it is not the index of a chart repository"),
        (
            "{\"entries\": {}}",
            "the index has no `apiVersion`; it is not the index of a chart repository",
        ),
        ("apiVersion: v1\nentries: {a: [], a: []}", "the index lists the chart `a` twice"),
        ("{\"entries\": {\"a\": [], \"a\": []}}", "the index lists the chart `a` twice"),
    ] {
        assert_eq!(ChartIndex::parse(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
    }
    for text in [
        "<html></html>",
        "apiVersion: v1\nentries: []",
        "apiVersion: v1\nentries: {a: {}}",
        "apiVersion: v1\nentries: {a: [text]}",
        "apiVersion: v1\nentries: {a: [{urls: text}]}",
        "apiVersion: v1\nentries: {a: [{version: {}}]}",
        "{\"apiVersion\": \"v1\", \"entries\": {\"a\": [{\"version\": 1}]}}",
        "{\"apiVersion\": \"v1\", \"entries\": [",
        "apiVersion: v1\nentries: {a: [{version: 1, version: 2}]}",
    ] {
        assert!(ChartIndex::parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(ChartIndex::parse(b"{apiVersion: v1, entries: {}}").is_ok(), "YAML may begin so too");
}

#[test]
fn depth_costs_no_stack_and_one_version_no_memory_without_end() {
    let deep =
        format!("apiVersion: v1\nx: {}{}\nentries: {{}}", "[".repeat(9000), "]".repeat(9000));
    assert!(ChartIndex::parse(deep.as_bytes()).is_ok());
    let far = format!("{{\"apiVersion\": \"v1\", \"x\": {}", "[".repeat(300_000));
    assert!(ChartIndex::parse(far.as_bytes()).is_err());
    let inside = format!("apiVersion: v1\nentries: {{a: [{{x: {}", "[".repeat(300_000));
    assert!(ChartIndex::parse(inside.as_bytes()).is_err());
    let wide = format!("apiVersion: v1\nentries: {{a: [{{x: [{}]}}]}}", "1,".repeat(MAX_NODES));
    let error = ChartIndex::parse(wide.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("more than 100000 nodes"), "{error}");
}

#[test]
fn thousands_of_versions_take_a_fraction_of_their_text() {
    let mut text = "apiVersion: v1\nentries:\n".to_owned();
    for chart in 0..40 {
        text.push_str(&format!("  chart-{chart}:\n"));
        for version in 0..50 {
            text.push_str(&format!(
                "  - name: chart-{chart}\n    version: 1.{version}.0\n    created: \"2026-01-01T00:00:00Z\"\n    \
                 description: {}\n    digest: {}\n    urls: [https://example.com/c/chart-{chart}-1.{version}.0.tgz]\n",
                "words ".repeat(20),
                "0a".repeat(32),
            ));
        }
    }
    let index = ChartIndex::parse(text.as_bytes()).unwrap();
    assert_eq!(index.len(), 2_000);
    assert_eq!(
        chosen(&index, "chart-7", "~1.42"),
        "1.42.0 https://example.com/c/chart-7-1.42.0.tgz"
    );
    let held = index.size();
    let length = text.len() as u64;
    assert!(held * 2 < length, "{held} of {length}");
}
