//! Buckets of Google and containers of Azure have the same guarantees as S3. The tests use fake-gcs-server and Azurite.
//!
//! fake-gcs-server accepts any credentials, so another fake server rejects them instead. Elsewhere: logins (`logins`).

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use e2e::servers::azurite::{ACCOUNT, AzuriteServer, KEY};
use e2e::servers::gcs::GcsServer;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use objects::RedactedValue;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sources::bucket::{
    BucketClientCache, BucketCredentialSource, BucketEndpoint, BucketFetchState, Error,
    PreviousArtifact, RemoteBucket, azure, bucket_archive, fetch, google, list,
};
use tokio::net::TcpListener;

use super::{BUCKET, failure, packed, remote as of_s3, strings};

/// A store of one of the clouds.
enum CloudBucketServer {
    Google(GcsServer),
    Azure(AzuriteServer),
}

impl CloudBucketServer {
    async fn all() -> Result<[Self; 2]> {
        let stores =
            [Self::Google(GcsServer::start().await?), Self::Azure(AzuriteServer::start().await?)];
        for store in &stores {
            match store {
                Self::Google(server) => server.bucket(BUCKET).await?,
                Self::Azure(server) => server.bucket(BUCKET).await?,
            }
        }
        Ok(stores)
    }

    fn remote(&self) -> Result<RemoteBucket> {
        match self {
            Self::Google(server) => {
                to_google(&server.endpoint(), google::GoogleCredentialSource::Anonymous)
            }
            Self::Azure(server) => to_azure(&server.url(), key(KEY)),
        }
    }

    async fn put(&self, key: &str, body: impl AsRef<[u8]>) -> Result<()> {
        match self {
            Self::Google(server) => server.put(BUCKET, key, body).await,
            Self::Azure(server) => server.put(BUCKET, key, body).await,
        }
    }

    async fn delete(&self, key: &str) -> Result<()> {
        match self {
            Self::Google(server) => server.delete(BUCKET, key).await,
            Self::Azure(server) => server.delete(BUCKET, key).await,
        }
    }

    async fn requests(&self) -> Result<Vec<String>> {
        match self {
            Self::Google(server) => server.requests(BUCKET).await,
            Self::Azure(server) => server.requests(BUCKET).await,
        }
    }

    /// How many listings and how many objects were requested since an earlier count.
    async fn asked(&self, before: usize) -> Result<(usize, usize)> {
        let asked = self.requests().await?.split_off(before);
        let is_listing = |it: &&String| it.contains("maxResults=") || it.contains("comp=list");
        let listings = asked.iter().filter(is_listing).count();
        Ok((listings, asked.len() - listings))
    }
}

pub(super) fn to_google(
    endpoint: &str,
    identity: google::GoogleCredentialSource,
) -> Result<RemoteBucket> {
    of_s3(endpoint, BucketCredentialSource::Google(identity))
}

pub(super) fn to_azure(url: &str, identity: azure::AzureCredentialSource) -> Result<RemoteBucket> {
    let mut remote = of_s3("127.0.0.1", BucketCredentialSource::Azure(identity))?;
    remote.server.endpoint = BucketEndpoint::parse_account(url)?;
    Ok(remote)
}

fn key(key: &str) -> azure::AzureCredentialSource {
    let key = RedactedValue::new(key.to_owned());
    azure::AzureCredentialSource::Key { account: ACCOUNT.to_owned(), key }
}

fn signature(signature: &str) -> azure::AzureCredentialSource {
    azure::AzureCredentialSource::Signature(RedactedValue::new(signature.to_owned()))
}

/// The key of a service account that does not exist.
pub(super) fn service_account() -> Result<String> {
    let algorithm = &rcgen::PKCS_RSA_SHA256;
    let key = rcgen::KeyPair::generate_rsa_for(algorithm, rcgen::RsaKeySize::_2048)?;
    let key = json!({"type": "service_account", "client_email": "reader@shop.example",
        "private_key_id": "1", "private_key": key.serialize_pem()});
    Ok(key.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_changed_is_downloaded_and_an_unchanged_bucket_costs_one_listing() -> Result<()> {
    for store in CloudBucketServer::all().await? {
        for (key, body) in [("a.yaml", "1"), ("deep/b.yaml", "2"), ("deep/ü c+%20&#?.yaml", "3")] {
            store.put(key, body).await?;
        }
        let remote = store.remote()?;
        let known = BucketClientCache::default();
        let listed = list(&remote, None, &BucketFetchState::default(), &known).await?;
        let revision = listed.revision();
        let first = fetch(&remote, listed, PreviousArtifact::default(), &known).await?;
        ensure!((first.count, first.downloaded) == (3, 3), "{} {}", first.count, first.downloaded);
        ensure!(first.revision == revision, "{} {revision}", first.revision);
        let files = packed(&first)?;
        let expected = ["a.yaml=1", "deep/b.yaml=2", "deep/ü c+%20&#?.yaml=3"];
        ensure!(strings(&files)? == expected, "{:?}", strings(&files)?);

        let before = store.requests().await?.len();
        let listed = list(&remote, None, &first.note, &known).await?;
        ensure!(listed.revision() == revision);
        ensure!(store.asked(before).await? == (1, 0), "{:?}", store.requests().await?);

        store.put("deep/b.yaml", "changed").await?;
        store.delete("a.yaml").await?;
        let before = store.requests().await?.len();
        let listed = list(&remote, None, &first.note, &known).await?;
        ensure!(listed.revision() != revision);
        let previous = PreviousArtifact { files: Some(Arc::new(files)), note: first.note };
        let second = fetch(&remote, listed, previous, &known).await?;
        ensure!(store.asked(before).await? == (1, 1), "{:?}", store.requests().await?);
        ensure!((second.count, second.downloaded) == (2, 1));
        let files = packed(&second)?;
        let expected = ["deep/b.yaml=changed", "deep/ü c+%20&#?.yaml=3"];
        ensure!(strings(&files)? == expected, "{:?}", strings(&files)?);
    }
    Ok(())
}

/// Flux computes revisions from the entity tags in Google's metadata and Azure's answers, including the quotes.
#[tokio::test(flavor = "multi_thread")]
async fn revisions_are_of_the_entity_tags_that_flux_takes() -> Result<()> {
    for store in CloudBucketServer::all().await? {
        store.put("a.yaml", "1").await?;
        let etag = match &store {
            CloudBucketServer::Google(server) => {
                let url = format!("http://{}/storage/v1/b/{BUCKET}/o/a.yaml", server.endpoint());
                let metadata: Value = reqwest::get(url).await?.json().await?;
                metadata["etag"].as_str().context("there is no tag")?.to_owned()
            }
            CloudBucketServer::Azure(server) => {
                let query = server.signature(BUCKET)?;
                let answer = reqwest::get(format!("{}/{BUCKET}/a.yaml?{query}", server.url()));
                let etag = answer.await?.error_for_status()?.headers()["etag"].clone();
                etag.to_str()?.to_owned()
            }
        };
        let expected = Sha256::digest(format!("a.yaml {etag}\n"));
        let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        let listed = list(
            &store.remote()?,
            None,
            &BucketFetchState::default(),
            &BucketClientCache::default(),
        )
        .await?;
        ensure!(listed.revision() == format!("sha256:{expected}"), "{etag}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_ignored_is_not_downloaded_and_patterns_are_fetched_once() -> Result<()> {
    for store in CloudBucketServer::all().await? {
        for key in ["a.yaml", "a.png", "docs/a.md", "apps/b.yaml", "apps/c.txt", "empty/"] {
            store.put(key, "x").await?;
        }
        store.put(".sourceignore", "docs/\n").await?;
        let mut remote = store.remote()?;
        let known = BucketClientCache::default();
        let listed = list(&remote, Some("*.txt\n"), &BucketFetchState::default(), &known).await?;
        let fetched = fetch(&remote, listed, PreviousArtifact::default(), &known).await?;
        let expected = [".sourceignore=docs/\n", "a.png=x", "a.yaml=x", "apps/b.yaml=x"];
        ensure!(strings(&packed(&fetched)?)? == expected, "{:?}", strings(&packed(&fetched)?)?);
        let before = store.requests().await?.len();
        let again = list(&remote, Some("*.txt\n"), &fetched.note, &known).await?;
        ensure!(again.revision() == fetched.revision);
        ensure!(store.asked(before).await? == (1, 0), "{:?}", store.requests().await?);

        // With a prefix, the ignore patterns at the root still apply, and windlass requests them.
        remote.prefix = "apps/".to_owned();
        let before = store.requests().await?.len();
        let listed = list(&remote, None, &fetched.note, &known).await?;
        ensure!(listed.len() == 2, "{listed:?}");
        ensure!(store.asked(before).await? == (1, 1), "{:?}", store.requests().await?);
        let ruled = list(&remote, Some("*.txt"), &fetched.note, &known).await?;
        ensure!(ruled.len() == 1, "{ruled:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_more_than_a_thousand_objects_is_listed_by_pages() -> Result<()> {
    for store in CloudBucketServer::all().await? {
        let put = async |n: usize| store.put(&format!("d{}/{n}.yaml", n % 7), format!("{n}")).await;
        let puts = stream::iter(0..1003).map(put).buffer_unordered(8);
        puts.try_collect::<Vec<()>>().await?;
        let remote = store.remote()?;
        let known = BucketClientCache::default();
        let before = store.requests().await?.len();
        let listed = list(&remote, None, &BucketFetchState::default(), &known).await?;
        ensure!(listed.len() == 1003, "{}", listed.len());
        ensure!(store.asked(before).await? == (2, 0), "{:?}", store.requests().await?);
        let fetched = fetch(&remote, listed, PreviousArtifact::default(), &known).await?;
        ensure!(store.asked(before).await? == (2, 1003));
        let strings = strings(&packed(&fetched)?)?;
        ensure!(strings.len() == 1003 && strings.contains(&"d6/1000.yaml=1000".to_owned()));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_while_it_is_fetched_counts_as_it_is_then() -> Result<()> {
    for store in CloudBucketServer::all().await? {
        for key in ["changed.yaml", "gone.yaml", "kept.yaml"] {
            store.put(key, "1").await?;
        }
        let remote = store.remote()?;
        let known = BucketClientCache::default();
        let listed = list(&remote, None, &BucketFetchState::default(), &known).await?;
        let before = listed.revision();
        store.put("changed.yaml", "2").await?;
        store.delete("gone.yaml").await?;
        let fetched = fetch(&remote, listed, PreviousArtifact::default(), &known).await?;
        let found = strings(&packed(&fetched)?)?;
        ensure!(found == ["changed.yaml=2", "kept.yaml=1"], "{found:?}");
        let now = list(&remote, None, &fetched.note, &known).await?.revision();
        ensure!(fetched.revision == now && now != before);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_the_artifact_and_costs_one_request_while_it_stays() -> Result<()> {
    for store in CloudBucketServer::all().await? {
        let zip = |text: &str| -> Result<Vec<u8>> {
            let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
            zip.start_file("app/a.yaml", zip::write::SimpleFileOptions::default())?;
            std::io::Write::write_all(&mut zip, text.as_bytes())?;
            Ok(zip.finish()?.into_inner())
        };
        store.put("v/bundle.zip", zip("1")?).await?;
        let remote = store.remote()?;
        let known = BucketClientCache::default();
        let revision = bucket_archive::ask(&remote, "v/bundle.zip", &known).await?;
        let fetched = bucket_archive::fetch(&remote, "v/bundle.zip", None, &known).await?;
        ensure!(fetched.revision == revision && fetched.count == 1);

        let before = store.requests().await?.len();
        ensure!(bucket_archive::ask(&remote, "v/bundle.zip", &known).await? == revision);
        ensure!(store.asked(before).await? == (0, 1), "{:?}", store.requests().await?);
        store.put("v/bundle.zip", zip("2")?).await?;
        ensure!(bucket_archive::ask(&remote, "v/bundle.zip", &known).await? != revision);

        for key in ["gone.zip", "../gone.zip"] {
            let error =
                bucket_archive::ask(&remote, key, &BucketClientCache::default()).await.err();
            let error = error.context("it is there")?;
            ensure!(
                error.to_string() == format!("object '{key}' not found in bucket 'app'"),
                "{error}"
            );
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden_and_missing_objects_are_reported() -> Result<()> {
    let stores = CloudBucketServer::all().await?;
    for store in &stores {
        for name in ["other", "..", "a/b"] {
            let error =
                failure(&RemoteBucket { bucket: name.to_owned(), ..store.remote()? }).await?;
            let is_missing = matches!(error, Error::NoBucket { .. });
            // Azurite treats a name with a slash as no container name.
            ensure!(is_missing || name == "a/b", "{name}: {error:?}");
        }
    }
    let [_, CloudBucketServer::Azure(azurite)] = &stores else {
        unreachable!("the second is Azure's")
    };
    azurite.put(BUCKET, "a.yaml", "1").await?;
    let wrong = "aHVudGVyMjogbm90IHRoZSBrZXkgb2YgYW55Ym9keSE=";
    let right = azurite.signature(BUCKET)?;
    let (start, _) = right.split_once("&sig=").context("it is signed")?;
    for (identity, is_right) in [
        (key(wrong), false),
        (azure::AzureCredentialSource::Anonymous, false),
        (signature(&right), true),
        (signature(&format!("?{right}")), true),
        (signature(&format!("{start}&sig={wrong}")), false),
    ] {
        let remote = to_azure(&azurite.url(), identity)?;
        let note = BucketFetchState::default();
        let known = BucketClientCache::default();
        match list(&remote, None, &note, &known).await {
            Ok(listed) => ensure!(is_right && listed.len() == 1),
            Err(error) => {
                ensure!(!is_right && error.is_about_credentials(), "{error:?}");
                ensure!(!error.to_string().contains(wrong), "{error}");
            }
        }
    }
    Ok(())
}

/// A fake store that requires a token in Google's format. It records the tokens, and contains one object.
async fn double(is_right: bool) -> Result<(String, Arc<Mutex<Vec<String>>>)> {
    type ReceivedTokens = Arc<Mutex<Vec<String>>>;
    let answer = async move |State(seen): State<ReceivedTokens>, headers: HeaderMap| {
        let token =
            headers.get("authorization").and_then(|it| it.to_str().ok()).unwrap_or_default();
        seen.lock().push(token.to_owned());
        match is_right {
            true => {
                (StatusCode::OK, json!({"items": [{"name": "a.yaml", "etag": "1", "size": "1"}]}))
            }
            false => {
                (StatusCode::UNAUTHORIZED, json!({"error": {"message": "Invalid Credentials"}}))
            }
        }
    };
    let answer = async move |state: State<ReceivedTokens>, headers: HeaderMap| {
        let (status, body) = answer(state, headers).await;
        (status, body.to_string())
    };
    let seen = ReceivedTokens::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = listener.local_addr()?.to_string();
    let router = Router::new().fallback(answer).with_state(seen.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok((endpoint, seen))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_service_account_becomes_a_token_that_is_asked_for_once() -> Result<()> {
    let identity =
        google::GoogleCredentialSource::ServiceAccount(RedactedValue::new(service_account()?));
    let (endpoint, seen) = double(true).await?;
    let remote = to_google(&endpoint, identity.clone())?;
    let known = BucketClientCache::default();
    for _again in 0..2 {
        ensure!(list(&remote, None, &BucketFetchState::default(), &known).await?.len() == 1);
    }
    let seen = seen.lock().clone();
    ensure!(seen.len() == 2 && seen[0] == seen[1], "{}", seen.len());
    let token = seen[0].strip_prefix("Bearer ").context("it is a token")?;
    let claims = token.split('.').nth(1).context("it has claims")?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    ensure!(claims["iss"] == "reader@shop.example", "{claims}");

    let (endpoint, _) = double(false).await?;
    let error = failure(&to_google(&endpoint, identity)?).await?;
    ensure!(matches!(error, Error::BadCredentials { .. }), "{error:?}");
    ensure!(error.to_string().contains("`serviceaccount`"), "{error}");
    Ok(())
}
