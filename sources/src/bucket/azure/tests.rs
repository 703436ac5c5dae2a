//! Listings as Azure writes them; what of a Secret can be used.

use super::*;

#[test]
fn a_listing_has_blobs_and_what_comes_next_and_no_directories() {
    let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"https://a/\" \
                ContainerName=\"c\"><Blobs><Blob><Name>a &amp; b/\u{fc}.yaml</Name><Properties><Creation-Time>x</Creation-Time>\
                <Etag>0x8D1</Etag><Content-Length>12</Content-Length></Properties><OrMetadata /></Blob>\
                <Blob><Name Encoded=\"true\">e%EF%BF%BE</Name><Properties><Etag>\"0x8D2\"</Etag></Properties></Blob>\
                <Blob><Name> spaced </Name><Properties><Etag>0x8D4</Etag></Properties></Blob>\
                <Blob><Name>dir</Name><Properties><Etag>0x8D3</Etag><ResourceType>directory</ResourceType></Properties></Blob>\
                </Blobs><NextMarker>2!more</NextMarker></EnumerationResults>";
    let found = page(text.as_bytes()).unwrap();
    let objects: Vec<_> =
        found.objects.iter().map(|it| (it.key.as_str(), it.etag.as_str(), it.size)).collect();
    assert_eq!(
        objects,
        [
            ("a & b/\u{fc}.yaml", "\"0x8D1\"", 12),
            ("e\u{fffe}", "\"0x8D2\"", 0),
            (" spaced ", "\"0x8D4\"", 0),
        ]
    );
    assert_eq!(found.next.as_deref(), Some("2!more"));

    let last = page(b"<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>").unwrap();
    assert!(last.objects.is_empty() && last.next.is_none());
    for broken in [
        "<html>",
        "<html></html>",
        "<EnumerationResults></EnumerationResults>",
        "<EnumerationResults><Blobs /></EnumerationResults>",
        "<EnumerationResults><NextMarker /></EnumerationResults>",
    ] {
        assert!(page(broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn an_unusable_entry_of_a_secret_is_reported_by_its_key_and_not_shown() {
    let server = crate::bucket::tests::remote("b").server;
    let secret = RedactedValue::new("hunter2!".to_owned());
    let application = |tenant: &str, authority: &str| AzureCredentialSource::Application {
        tenant: tenant.to_owned(),
        client: "c".to_owned(),
        secret: secret.clone(),
        authority: Some(Url::parse(authority).unwrap()),
    };
    let public = "https://login.microsoftonline.com/";
    let key = |account: &str, key: &str| AzureCredentialSource::Key {
        account: account.to_owned(),
        key: RedactedValue::new(key.to_owned()),
    };
    for (identity, says) in [
        (key("a", "hunter2!"), "`accountKey`"),
        (key("a\nb", "aHVudGVyMg=="), "`accountName`"),
        (application("../x", public), "`tenantId`"),
        (application("t", "http://login.example"), "`authorityHost`"),
        (application("t", "https://login.example/?hunter2!"), "`authorityHost`"),
    ] {
        let error = AzureCredentials::new(
            &server,
            &identity,
            &EgressRules::default(),
            &CredentialRequestTracker::default(),
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains(says), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    for identity in [
        key("a", " aHVudGVyMg==\n"),
        application("t.example", public),
        AzureCredentialSource::Signature(RedactedValue::new("?sv=1&sig=hunter2%2B".to_owned())),
    ] {
        let credentials = AzureCredentials::new(
            &server,
            &identity,
            &EgressRules::default(),
            &CredentialRequestTracker::default(),
        )
        .unwrap();
        assert!(!format!("{identity:?} {credentials:?}").contains("hunter2"));
    }
}
