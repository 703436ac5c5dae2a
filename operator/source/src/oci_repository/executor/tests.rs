//! What becomes of what a registry on loopback answers: artifacts in a store, and messages of failures.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use artifacts::archive::{ArchiveContents, extract};
use serde_json::{Value, json};
use tree::{FileTree as _, RelPath};

use super::super::referenced_objects::OciRepositoryReferencedSecrets;
use super::super::validated_spec::desired;
use super::*;
use crate::temporary_artifact_store::TemporaryArtifactStore;

/// A registry that answers paths with bytes, and others with what a registry says of what it has not.
fn serve(answers: Vec<(String, Vec<u8>)>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            converse(&stream.unwrap(), &answers);
        }
    });
    address
}

fn converse(mut stream: &TcpStream, answers: &[(String, Vec<u8>)]) {
    let mut head = BufReader::new(stream).lines().map_while(Result::ok);
    // A TLS ClientHello is not text.
    let Some(line) = head.next() else { return };
    head.take_while(|line| !line.is_empty()).for_each(drop);
    let path = line.split(' ').nth(1).unwrap_or_default();
    let found = answers.iter().find(|(known, _)| known == path);
    let missing = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    let (status, body) =
        found.map_or(("404 Not Found", &missing[..]), |(_, body)| ("200 OK", body));
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let body = if line.starts_with("HEAD") { &[] } else { body };
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap_or_default();
}

/// A registry with `team/app`, which has the tags 1.0.0 and 1.1.0 for a manifest with one layer.
fn with_layer(layer: &[u8]) -> (SocketAddr, OciDigest) {
    with_layer_of("m", layer)
}

fn with_layer_of(media_type: &str, layer: &[u8]) -> (SocketAddr, OciDigest) {
    let digest = OciDigest::of(layer);
    let descriptor =
        json!({"mediaType": media_type, "digest": digest.to_string(), "size": layer.len()});
    let annotations = json!({SOURCE: "https://git.example.com", ORIGIN_REVISION: "main@sha1:1"});
    let manifest = json!({"layers": [descriptor], "annotations": annotations}).to_string();
    let name = OciDigest::of(manifest.as_bytes());
    let place = |rest: &str| format!("/v2/team/app/{rest}");
    let address = serve(vec![
        (place("manifests/1.1.0"), manifest.clone().into_bytes()),
        (place(&format!("manifests/{name}")), manifest.into_bytes()),
        (place("tags/list?n=1000"), br#"{"tags":["1.0.0","1.1.0","latest"]}"#.to_vec()),
        (place(&format!("blobs/{digest}")), layer.to_vec()),
    ]);
    (address, name)
}

fn run(
    address: SocketAddr,
    more: &Value,
) -> Result<(StoredArtifact<OCIRepositoryStatus>, Vec<u8>), RunOutcome> {
    let mut spec = json!({"interval": "1m", "url": format!("oci://{address}/team/app")});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object: OCIRepository = serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": "app", "namespace": "shop"}, "spec": spec,
    }))
    .unwrap();
    let work = desired(&object, OciRepositoryReferencedSecrets::default())?.work;
    let known = RegistrySessionCache::default();
    let url = object.spec.url.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (found, pulled) = runtime.block_on(async {
        let found = resolve_tag(&work, &known, &url).await?;
        let pulled = pull(&work, &known, &url, &found).await?;
        Ok((found, pulled))
    })?;
    let kept = TemporaryArtifactStore::new();
    let stored = store(&work, &kept.store, &object, pulled, &found)?;
    assert!(kept.store.verify(&stored.artifact.path, &stored.artifact.digest).unwrap());
    let bytes = std::fs::read(kept.folder.join(&stored.artifact.path)).unwrap();
    Ok((stored, bytes))
}

fn packed(files: &[(&str, &str)]) -> Vec<u8> {
    let mut contents = ArchiveContents::new();
    for (path, text) in files {
        contents.file(RelPath::parse(path).unwrap(), false, (*text).to_owned()).unwrap();
    }
    artifacts::archive::write(Vec::new(), &contents, |_, text: &String| {
        Ok::<_, std::io::Error>(text.clone().into_bytes())
    })
    .unwrap()
}

#[test]
fn the_layer_of_the_highest_version_is_packed_again() {
    let (address, name) = with_layer(&packed(&[("a.yaml", "a: 1"), ("b.md", "x")]));
    let more = json!({"ref": {"semver": "1.x"}, "ignore": "*.md"});
    let (stored, bytes) = run(address, &more).unwrap();
    assert_eq!(stored.artifact.revision, format!("1.1.0@{name}"));
    assert_eq!(stored.artifact.path, format!("ocirepository/shop/app/{name}.tar.gz"));
    assert_eq!(stored.artifact.metadata[ORIGIN_REVISION], "main@sha1:1");
    let expected = format!(
        "stored artifact with revision '1.1.0@{name}' from 'oci://{address}/team/app', \
         origin source 'https://git.example.com', origin revision 'main@sha1:1'"
    );
    assert_eq!(stored.message, expected);
    let tree = extract(&*bytes, &ExtractOptions::default()).unwrap();
    let path = |text| RelPath::parse(text).unwrap();
    assert_eq!(&*tree.read(&path("a.yaml")).unwrap(), b"a: 1");
    assert!(tree.entry(&path("b.md")).is_none());
}

#[test]
fn a_layer_is_copied_as_it_is_and_a_digest_is_its_own_revision() {
    let (address, name) = with_layer(b"no archive at all");
    let more = json!({"ref": {"digest": name.to_string()}, "layerSelector": {"operation": "copy"}});
    let (stored, bytes) = run(address, &more).unwrap();
    assert_eq!(bytes, b"no archive at all");
    assert_eq!(stored.artifact.revision, name.to_string());
}

#[test]
fn failures_are_reported_as_flux_reports_them() {
    let (address, _) = with_layer(b"no archive at all");
    let url = format!("oci://{address}/team/app");
    for (more, reason, text) in [
        (
            json!({}),
            "OCIArtifactPullFailed",
            format!(
                "failed to determine artifact digest: GET http://{address}/v2/team/app/manifests/latest: \
                 MANIFEST_UNKNOWN: manifest unknown"
            ),
        ),
        (
            json!({"ref": {"semver": "2.x"}}),
            "ReadOperationFailed",
            format!(
                "failed to determine the artifact tag for '{url}': no match found for semver: 2.x"
            ),
        ),
        (
            json!({"ref": {"digest": OciDigest::of(b"other").to_string()}}),
            "OCIArtifactPullFailed",
            format!(
                "failed to pull artifact from '{url}': GET http://{address}/v2/team/app/manifests/{}: \
                 MANIFEST_UNKNOWN: manifest unknown",
                OciDigest::of(b"other")
            ),
        ),
        (
            json!({"ref": {"tag": "1.1.0"}, "layerSelector": {"mediaType": "x"}}),
            "OCIArtifactLayerOperationFailed",
            "failed to find layer with media type 'x' in artifact".to_owned(),
        ),
        (
            json!({"ref": {"tag": "1.1.0"}}),
            "OCIArtifactLayerOperationFailed",
            "failed to extract layer contents from artifact: requires gzip-compressed body"
                .to_owned(),
        ),
    ] {
        let outcome = run(address, &more).err().unwrap();
        assert!(matches!(outcome, RunOutcome::Failed(..)), "{outcome:?}");
        assert_eq!((outcome.reason().as_str(), outcome.text()), (reason, text.as_str()));
    }
}

#[test]
fn what_is_not_signed_is_refused_before_it_is_pulled() {
    let (address, name) = with_layer(&packed(&[("a.yaml", "a: 1")]));
    let spec = json!({"interval": "1m", "url": format!("oci://{address}/team/app"),
        "ref": {"tag": "1.1.0"}, "verify": {"provider": "cosign", "secretRef": {"name": "keys"}}});
    let object: OCIRepository = serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": "app", "namespace": "shop"}, "spec": spec,
    }))
    .unwrap();
    let signed = ImageVerificationPolicy::for_tests(&object, BTreeMap::new());
    let resolved = OciRepositoryReferencedSecrets {
        signed: Some(signed),
        ..OciRepositoryReferencedSecrets::default()
    };
    let work = desired(&object, resolved).unwrap_or_else(|_| unreachable!()).work;
    let known = RegistrySessionCache::default();
    let url = object.spec.url.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(async {
        let found = resolve_tag(&work, &known, &url).await?;
        verify(&work, &known, &url, &found).await.map(drop)
    });
    let refused = refused.unwrap_err();
    assert_eq!(refused.reason(), VERIFICATION_ERROR);
    let text = format!(
        "failed to verify the signature using provider 'cosign': no matching signatures were found for \
         '{address}/team/app@{name}'"
    );
    assert_eq!(refused.text(), text);
}

#[test]
fn a_signed_chart_counts_under_the_tag_of_its_own_version_only() {
    let yaml = "apiVersion: v2\nname: app\nversion: 1.1.0\n";
    let layer = packed(&[("app/Chart.yaml", yaml)]);
    for media_type in [chart::CHART, "m"] {
        let (address, _) = with_layer_of(media_type, &layer);
        let spec = json!({"interval": "1m", "url": format!("oci://{address}/team/app"),
            "ref": {"tag": "1.1.0"}});
        let object: OCIRepository = serde_json::from_value(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
            "metadata": {"name": "app", "namespace": "shop"}, "spec": spec,
        }))
        .unwrap();
        let work = desired(&object, OciRepositoryReferencedSecrets::default())
            .unwrap_or_else(|_| unreachable!())
            .work;
        let known = RegistrySessionCache::default();
        let url = object.spec.url.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let pulled = runtime.block_on(async {
            let found = resolve_tag(&work, &known, &url).await?;
            pull(&work, &known, &url, &found).await
        });
        let mut pulled = pulled.unwrap();
        for tag in ["1.1.0", "v1.1.0", "latest", "1.1"] {
            assert_eq!(signed_version::check(&mut pulled, tag), Ok(()), "{tag}");
        }
        let moved = signed_version::check(&mut pulled, "9.9.9");
        if media_type == "m" {
            assert_eq!(moved, Ok(()));
            continue;
        }
        let refused = moved.unwrap_err();
        assert_eq!(refused.reason(), VERIFICATION_ERROR);
        assert!(refused.text().contains("a chart with version '1.1.0'"), "{refused:?}");
    }
}
