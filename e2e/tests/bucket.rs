//! Buckets on a server that verifies signatures: the fetched files, the number of requests, the keys that may read, and errors.
//!
//! Here: S3. In the folder: credentials from the environment, Google and Azure. Elsewhere: a Bucket in a cluster
//! (`tests/stories/bucket.rs`), hostile servers (`sources/tests`).

mod aws_environment_credentials;
mod clouds;
mod google_and_azure_credentials;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use artifacts::archive::{self, ExtractOptions, extract};
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::servers::aws_identity::{AwsIdentityServer, LDAP_PASSWORD, LDAP_USER};
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http_client::TlsConfig;
use objects::RedactedValue;
use sources::bucket::{
    BucketClientCache, BucketCredentialSource, BucketEndpoint, BucketFetchResult, BucketFetchState,
    BucketServerSettings, Error, LdapUserLogin, PreviousArtifact, RemoteBucket, bucket_archive,
    fetch, list,
};
use tree::{FileTree, MemoryTree, RelPath};
use url::Url;

const BUCKET: &str = "app";

fn keys(access: &str, secret: &str) -> BucketCredentialSource {
    let secret = RedactedValue::new(secret.to_owned());
    BucketCredentialSource::Keys { access: access.to_owned(), secret, session: None }
}

fn remote(endpoint: &str, identity: BucketCredentialSource) -> Result<RemoteBucket> {
    let endpoint = BucketEndpoint::parse(endpoint, true)?;
    Ok(RemoteBucket {
        server: BucketServerSettings {
            endpoint,
            region: None,
            identity,
            tls: TlsConfig::default(),
            proxy: None,
        },
        bucket: BUCKET.to_owned(),
        prefix: String::new(),
        timeout: Duration::from_secs(30),
        limits: tree::TreeLimits::default(),
    })
}

async fn server() -> Result<(S3Server, RemoteBucket)> {
    let server = S3Server::start().await?;
    server.bucket(BUCKET).await?;
    let remote = remote(&server.endpoint(), keys(ACCESS, SECRET))?;
    Ok((server, remote))
}

/// The files of an artifact, unpacked as a client would do it.
fn packed(fetched: &BucketFetchResult) -> Result<MemoryTree> {
    let load = |_: &RelPath, body: &_| fetched.load(body);
    let archive = archive::write(Vec::new(), &fetched.contents, load)?;
    Ok(extract(&archive[..], &ExtractOptions::default())?)
}

fn strings(files: &MemoryTree) -> Result<Vec<String>> {
    let paths = files.walk().filter(|(_, entry)| matches!(entry, tree::FileMetadata::File { .. }));
    let text = |(path, _): (&RelPath, _)| {
        let text = files.read(path)?;
        Ok(format!("{path}={}", String::from_utf8_lossy(&text)))
    };
    paths.map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_changed_is_downloaded_and_an_unchanged_bucket_costs_one_listing() -> Result<()> {
    let (server, remote) = server().await?;
    for (key, body) in [("a.yaml", "1"), ("deep/b.yaml", "2"), ("deep/ü c.yaml", "3")] {
        server.put(BUCKET, key, body).await?;
    }
    let known = BucketClientCache::default();
    let listed = list(&remote, None, &BucketFetchState::default(), &known).await?;
    let revision = listed.revision();
    let first = fetch(&remote, listed, PreviousArtifact::default(), &known).await?;
    ensure!((first.count, first.downloaded) == (3, 3), "{} {}", first.count, first.downloaded);
    ensure!(first.revision == revision, "{} {revision}", first.revision);
    let files = packed(&first)?;
    ensure!(
        strings(&files)? == ["a.yaml=1", "deep/b.yaml=2", "deep/ü c.yaml=3"],
        "{:?}",
        strings(&files)?
    );

    let before = server.requests(BUCKET)?.len();
    let listed = list(&remote, None, &first.note, &known).await?;
    ensure!(listed.revision() == revision);
    let asked = server.requests(BUCKET)?.split_off(before);
    ensure!(asked.len() == 1 && asked[0].contains("list-type=2"), "{asked:?}");

    server.put(BUCKET, "deep/b.yaml", "changed").await?;
    server.delete(BUCKET, "a.yaml").await?;
    let before = server.requests(BUCKET)?.len();
    let listed = list(&remote, None, &first.note, &known).await?;
    ensure!(listed.revision() != revision);
    let previous = PreviousArtifact { files: Some(Arc::new(files)), note: first.note };
    let second = fetch(&remote, listed, previous, &known).await?;
    let asked = server.requests(BUCKET)?.split_off(before);
    ensure!(asked.len() == 2 && asked[1].starts_with("GET /app/deep/b.yaml"), "{asked:?}");
    ensure!((second.count, second.downloaded) == (2, 1));
    let files = packed(&second)?;
    ensure!(
        strings(&files)? == ["deep/b.yaml=changed", "deep/ü c.yaml=3"],
        "{:?}",
        strings(&files)?
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ignored_is_not_downloaded_and_patterns_are_fetched_once() -> Result<()> {
    let (server, mut remote) = server().await?;
    for key in ["a.yaml", "a.png", "docs/a.md", "apps/b.yaml", "apps/c.txt", "empty/"] {
        server.put(BUCKET, key, if key.ends_with('/') { "" } else { "x" }).await?;
    }
    server.put(BUCKET, ".sourceignore", "docs/\n").await?;
    let known = BucketClientCache::default();
    let listed = list(&remote, Some("*.txt\n"), &BucketFetchState::default(), &known).await?;
    let fetched = fetch(&remote, listed, PreviousArtifact::default(), &known).await?;
    let expected = [".sourceignore=docs/\n", "a.png=x", "a.yaml=x", "apps/b.yaml=x"];
    ensure!(strings(&packed(&fetched)?)? == expected, "{:?}", strings(&packed(&fetched)?)?);
    let patterns =
        |requests: Vec<String>| requests.iter().filter(|it| it.contains("/.sourceignore")).count();
    ensure!(patterns(server.requests(BUCKET)?) == 1);
    let again = list(&remote, Some("*.txt\n"), &fetched.note, &known).await?;
    ensure!(again.revision() == fetched.revision);
    ensure!(patterns(server.requests(BUCKET)?) == 1, "{:?}", server.requests(BUCKET)?);

    // With a prefix, the ignore patterns at the root still apply.
    remote.prefix = "apps/".to_owned();
    let listed = list(&remote, None, &fetched.note, &known).await?;
    ensure!(listed.len() == 2, "{listed:?}");
    let ruled = list(&remote, Some("*.txt"), &fetched.note, &known).await?;
    ensure!(ruled.len() == 1, "{ruled:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_more_than_a_thousand_objects_is_listed_by_pages() -> Result<()> {
    let (server, remote) = server().await?;
    let put =
        async |n: usize| server.put(BUCKET, &format!("d{}/{n}.yaml", n % 7), format!("{n}")).await;
    let puts = stream::iter(0..1003).map(put).buffer_unordered(8);
    puts.try_collect::<Vec<()>>().await?;
    let known = BucketClientCache::default();
    let listed = list(&remote, None, &BucketFetchState::default(), &known).await?;
    ensure!(listed.len() == 1003, "{}", listed.len());
    ensure!(server.requests(BUCKET)?.len() == 2, "{:?}", server.requests(BUCKET)?);
    let fetched = fetch(&remote, listed, PreviousArtifact::default(), &known).await?;
    let strings = strings(&packed(&fetched)?)?;
    ensure!(
        strings.len() == 1003 && strings.contains(&"d6/1000.yaml=1000".to_owned()),
        "{strings:?}"
    );
    Ok(())
}

async fn failure(remote: &RemoteBucket) -> Result<Error> {
    let listed =
        list(remote, None, &BucketFetchState::default(), &BucketClientCache::default()).await;
    listed.err().context("it was listed")
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_and_missing_objects_are_reported() -> Result<()> {
    let (server, remote) = server().await?;
    let endpoint = server.endpoint();
    let as_user = |identity| -> Result<RemoteBucket> { self::remote(&endpoint, identity) };

    let error = failure(&RemoteBucket { bucket: "other".to_owned(), ..remote.clone() }).await?;
    ensure!(matches!(error, Error::NoBucket { .. }), "{error:?}");
    ensure!(error.to_string() == format!("bucket 'other' not found at {endpoint}"), "{error}");

    let error = failure(&as_user(keys(ACCESS, "hunter2"))?).await?;
    ensure!(matches!(error, Error::BadCredentials { .. }), "{error:?}");
    ensure!(!error.to_string().contains("hunter2"), "{error}");
    let error = failure(&as_user(BucketCredentialSource::Anonymous)?).await?;
    ensure!(matches!(error, Error::Denied { .. }), "{error:?}");
    ensure!(error.to_string().starts_with("access to bucket 'app' at "), "{error}");

    let error = bucket_archive::ask(&remote, "gone.zip", &BucketClientCache::default()).await.err();
    let error = error.context("it is there")?;
    ensure!(error.to_string() == "object 'gone.zip' not found in bucket 'app'", "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_an_authority_of_its_own_is_trusted_by_that() -> Result<()> {
    let authority = TestCertificateAuthority::generate()?;
    let server = S3Server::start_with(Some(&authority)).await?;
    server.bucket(BUCKET).await?;
    server.put(BUCKET, "a.yaml", "1").await?;
    let mut remote = remote(&server.endpoint(), keys(ACCESS, SECRET))?;
    remote.server.endpoint = BucketEndpoint::parse(&server.endpoint(), false)?;
    let error = failure(&remote).await?;
    ensure!(matches!(error, Error::Distrusted { .. }), "{error:?}");
    ensure!(error.to_string().contains("spec.certSecretRef"), "{error}");
    let before = server.requests(BUCKET)?;
    ensure!(before.is_empty(), "{before:?}");

    remote.server.tls.ca = Some(authority.certificate().as_bytes().to_vec());
    let listed =
        list(&remote, None, &BucketFetchState::default(), &BucketClientCache::default()).await?;
    ensure!(listed.len() == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_the_artifact_and_costs_one_head_while_it_stays() -> Result<()> {
    let (server, remote) = server().await?;
    let folder = tempfile::tempdir()?;
    std::fs::create_dir(folder.path().join("app"))?;
    let tar = |text: &str| -> Result<Vec<u8>> {
        std::fs::write(folder.path().join("app/a.yaml"), text)?;
        let output = Command::new("tar").arg("-czC").arg(folder.path()).arg("app").output()?;
        ensure!(output.status.success());
        Ok(output.stdout)
    };
    server.put(BUCKET, "v/bundle.tar.gz", tar("1")?).await?;
    server.put(BUCKET, "other.yaml", "x").await?;
    let known = BucketClientCache::default();
    let revision = bucket_archive::ask(&remote, "v/bundle.tar.gz", &known).await?;
    let fetched = bucket_archive::fetch(&remote, "v/bundle.tar.gz", None, &known).await?;
    ensure!(fetched.revision == revision && fetched.count == 1);
    let path = RelPath::parse("app/a.yaml")?;
    ensure!(&*fetched.load(&path)? == b"1");

    let before = server.requests(BUCKET)?.len();
    ensure!(bucket_archive::ask(&remote, "v/bundle.tar.gz", &known).await? == revision);
    let asked = server.requests(BUCKET)?.split_off(before);
    ensure!(asked == ["HEAD /app/v/bundle.tar.gz"], "{asked:?}");

    server.put(BUCKET, "v/bundle.tar.gz", tar("2")?).await?;
    ensure!(bucket_archive::ask(&remote, "v/bundle.tar.gz", &known).await? != revision);

    server.put(BUCKET, "v/bundle.tar.gz", "no archive").await?;
    let error = bucket_archive::fetch(&remote, "v/bundle.tar.gz", None, &known).await.err();
    let error = error.context("it was taken")?.to_string();
    ensure!(error.starts_with("bundle 'v/bundle.tar.gz' cannot be unpacked: "), "{error}");
    Ok(())
}

/// The token service is a fake, because MinIO is not available here.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_a_directory_is_given_keys_once_for_many_runs() -> Result<()> {
    let (server, _) = server().await?;
    server.put(BUCKET, "a.yaml", "1").await?;
    let identity = AwsIdentityServer::start().await?;
    let user = |password: &str| -> Result<RemoteBucket> {
        let ldap = LdapUserLogin {
            endpoint: Url::parse(&identity.url())?,
            username: LDAP_USER.to_owned(),
            password: RedactedValue::new(password.to_owned()),
            tls: TlsConfig::default(),
        };
        remote(&server.endpoint(), BucketCredentialSource::Ldap(ldap))
    };
    let right = user(LDAP_PASSWORD)?;
    let known = BucketClientCache::default();
    for _again in 0..3 {
        let listed = list(&right, None, &BucketFetchState::default(), &known).await?;
        ensure!(listed.len() == 1, "{listed:?}");
    }
    ensure!(identity.asked() == ["POST /"], "{:?}", identity.asked());
    let error = list(&user("hunter2")?, None, &BucketFetchState::default(), &known).await.err();
    let error = error.context("a wrong password is taken")?;
    ensure!(matches!(error, Error::NoCredentials { .. }), "{error:?}");
    let text = error.to_string();
    ensure!(text.contains("the STS endpoint 127.0.0.1 responded with 400"), "{text}");
    ensure!(text.contains("LDAP server error: no such user"), "{text}");
    ensure!(!format!("{text} {error:?}").contains("hunter2"), "{text}");
    Ok(())
}
