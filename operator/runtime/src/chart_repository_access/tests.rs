//! Tests of the search for a HelmRepository by its address.

use serde_json::json;

use super::*;

#[test]
fn a_repository_is_known_by_its_address_however_it_is_written() {
    let of = |kind: Option<&str>, own: &str, url: &str| {
        let type_ = kind.map(|kind| serde_json::from_value(json!(kind)).unwrap());
        let spec = HelmRepositorySpec { url: own.to_owned(), type_, ..Default::default() };
        is_address_of(&HelmRepository::new("app", spec), url)
    };
    let (charts, oci) = ("https://example.com/charts", "oci://example.com/charts");
    for url in [charts, "https://example.com/charts/", "https://EXAMPLE.com:443/charts"] {
        assert!(of(None, charts, url), "{url}");
    }
    assert!(of(Some("oci"), oci, "oci://example.com/charts/") && of(Some("oci"), oci, oci));
    for (kind, own, url) in [
        (None, charts, "https://example.com/other"),
        (None, charts, "http://example.com/charts"),
        (None, charts, "https://example.com/charts/../x"),
        (None, charts, oci),
        (Some("oci"), oci, charts),
        (Some("oci"), oci, "oci://example.com/charts/app"),
        (None, "", ""),
    ] {
        assert!(!of(kind, own, url), "{url}");
    }
}
