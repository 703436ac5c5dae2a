//! Azure's blobs, by their REST interface.

use std::env;
use std::sync::Arc;

use http_client::{EgressRules, HostBudgets};
use object_store::azure::{
    AzureAccessKey, AzureAuthorizer, AzureCredential, AzureCredentialProvider,
    MicrosoftAzureBuilder,
};
use object_store::client::{HttpRequest, HttpRequestBody};
use objects::RedactedValue;
use percent_encoding::percent_decode_str;
use reqwest::header::{AUTHORIZATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use reqwest::{Method, Response};
use serde::Deserialize;
use url::{Url, form_urlencoded};

use super::cloud_login::{self, NoTokenProviderError, TokenHttpClient, retries};
use super::credential_request_tracker::CredentialRequestTracker;
use super::http_request::{BucketHttpClient, is_relative, path, segment};
use super::request_context::{BucketRequestContext, printable};
use super::{
    BucketObjectDownload, BucketObjectPage, BucketServerSettings, Error, ListedBucketObject,
    RemoteBucket, unquoted,
};

/// The version of the interface.
const VERSION: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-ms-version"), HeaderValue::from_static("2023-11-03"));

/// Objects of a page. Five times as many may be asked for, at the cost of answers of many megabytes.
const PAGE: &str = "1000";

/// The name of an error, which answers to HEAD have as well.
const CODE: &str = "x-ms-error-code";

/// The advice if the credentials are not accepted.
const CHECK: &str = "the Secret of spec.secretRef, and that a `sasKey` is valid for the container in spec.bucketName";

/// The credentials with which a bucket of Azure is read.
#[derive(Debug, Clone)]
pub enum AzureCredentialSource {
    /// Anonymous.
    Anonymous,
    /// The credentials of the environment: a client secret, a workload identity, or else the managed identity of the machine.
    Environment {
        /// The managed identity, where the machine has several.
        client: Option<String>,
    },
    /// The key of the account.
    Key {
        /// The name of the account.
        account: String,
        /// The key in base64.
        key: RedactedValue<String>,
    },
    /// A shared access signature, which is a query.
    Signature(RedactedValue<String>),
    /// An application that is registered in Entra.
    Application {
        /// The directory.
        tenant: String,
        /// The application.
        client: String,
        /// The secret of the application.
        secret: RedactedValue<String>,
        /// The login server, instead of the one of the public cloud.
        authority: Option<Url>,
    },
}

/// One server and one user.
#[derive(Debug)]
pub(crate) struct AzureBlobClient {
    exchange: BucketHttpClient,
    credentials: AzureCredentials,
    waiting: CredentialRequestTracker,
}

/// The credentials that are added to requests.
#[derive(Debug)]
enum AzureCredentials {
    Anonymous,
    Key {
        account: String,
        key: RedactedValue<AzureCredential>,
    },
    Signature(RedactedValue<Vec<(String, String)>>),
    Tokens {
        provider: RedactedValue<AzureCredentialProvider>,
        secret: Option<RedactedValue<String>>,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AzureBlobListing {
    blobs: AzureBlobs,
    /// The marker of the next page. It is empty on the last page, and always present. A list without it may be incomplete.
    next_marker: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AzureBlobs {
    #[serde(default)]
    blob: Vec<AzureBlob>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AzureBlob {
    name: AzureBlobName,
    properties: AzureBlobProperties,
}

#[derive(Deserialize)]
struct AzureBlobName {
    /// Whether the name is encoded, because it has characters that XML does not allow.
    #[serde(rename = "@Encoded", default)]
    is_encoded: bool,
    #[serde(rename = "$text", default)]
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AzureBlobProperties {
    #[serde(rename = "Content-Length", default)]
    length: u64,
    #[serde(default)]
    etag: String,
    /// `directory` where an account has those.
    resource_type: Option<String>,
}

/// The message of an error.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AzureErrorBody {
    message: String,
}

impl AzureBlob {
    /// The listed object that this blob is. `None` if it is a directory.
    ///
    /// Differs(flux): Flux fetches a directory of an account with hierarchical namespaces as a file.
    fn object(self) -> Option<ListedBucketObject> {
        let Self { name, properties } = self;
        let is_file = properties.resource_type.is_none_or(|it| it != "directory");
        let key = match name.is_encoded {
            true => percent_decode_str(&name.text).decode_utf8_lossy().into_owned(),
            false => name.text,
        };
        let etag = tag(&properties.etag);
        let size = properties.length;
        is_file.then_some(ListedBucketObject { key, etag, size, generation: None })
    }
}

/// An entity tag as revisions have it.
///
/// Parity(flux): with its quotes, since revisions are of the tags that came with the bytes, and not of those of a listing.
fn tag(etag: &str) -> String {
    match unquoted(Some(etag)) {
        etag if etag.is_empty() => etag,
        etag => format!("\"{etag}\""),
    }
}

impl AzureCredentials {
    fn new(
        server: &BucketServerSettings,
        identity: &AzureCredentialSource,
        egress: &EgressRules,
        waiting: &CredentialRequestTracker,
    ) -> Result<Self, Error> {
        let secret = match identity {
            AzureCredentialSource::Anonymous => return Ok(Self::Anonymous),
            AzureCredentialSource::Key { account, key } => {
                let key = AzureAccessKey::try_new(key.expose().trim())
                    .map_err(|_unread| Error::BadSecret("`accountKey` is not base64".to_owned()))?;
                let key = RedactedValue::new(AzureCredential::AccessKey(key));
                return Ok(Self::Key { account: checked_account(account)?, key });
            }
            AzureCredentialSource::Signature(signature) => {
                let query = signature.expose().trim().trim_start_matches('?');
                let pairs = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
                return Ok(Self::Signature(RedactedValue::new(pairs)));
            }
            AzureCredentialSource::Application { secret, .. } => Some(secret.clone()),
            AzureCredentialSource::Environment { .. } => None,
        };
        let provider = provider(identity, None, egress, waiting).map_err(|why| match why {
            NoTokenProviderError::Secret(why) => Error::BadSecret(why),
            NoTokenProviderError::Environment(why) => {
                Error::NoCredentials { endpoint: server.endpoint.to_string(), why }
            }
            NoTokenProviderError::Client(error) => error.into(),
        })?;
        Ok(Self::Tokens { provider, secret })
    }
}

/// The token provider for the store or for another service, with the credentials of an application or of the environment.
pub(crate) fn provider(
    identity: &AzureCredentialSource,
    audience: Option<&'static str>,
    egress: &EgressRules,
    waiting: &CredentialRequestTracker,
) -> Result<RedactedValue<AzureCredentialProvider>, NoTokenProviderError> {
    // The library requires names, and uses them only for requests of its own.
    let builder = MicrosoftAzureBuilder::new().with_account("none").with_container_name("none");
    let builder = builder.with_retry(retries());
    let builder = match identity {
        AzureCredentialSource::Application { tenant, client, secret, authority } => {
            let bad = |key: &str, why: &str| NoTokenProviderError::Secret(format!("`{key}` {why}"));
            let tenant = checked_tenant(tenant).map_err(|why| bad("tenantId", why))?;
            let login = TokenHttpClient::of_secret(egress, waiting)?.for_audience(audience);
            let builder = builder
                .with_tenant_id(tenant)
                .with_client_id(client)
                .with_client_secret(secret.expose())
                .with_http_connector(login);
            match authority {
                Some(authority) => {
                    let authority = checked_authority(authority.as_str());
                    let authority = authority.map_err(|why| bad("authorityHost", why))?;
                    builder.with_authority_host(authority)
                }
                None => builder,
            }
        }
        AzureCredentialSource::Environment { client } => {
            let login = TokenHttpClient::of_machine(waiting)?.for_audience(audience);
            let builder = builder.with_http_connector(login);
            of_environment(builder, client.as_deref()).map_err(NoTokenProviderError::Environment)?
        }
        AzureCredentialSource::Anonymous
        | AzureCredentialSource::Key { .. }
        | AzureCredentialSource::Signature(_) => {
            return Err(NoTokenProviderError::Secret(
                "it has no credentials that give tokens".to_owned(),
            ));
        }
    };
    let store = builder
        .build()
        .map_err(|error| NoTokenProviderError::Environment(cloud_login::why(&error)))?;
    Ok(RedactedValue::new(store.credentials().clone()))
}

/// The credentials of the environment.
///
/// Parity(flux): a client secret goes before a workload identity, and that before the identity of the machine.
fn of_environment(
    builder: MicrosoftAzureBuilder,
    client: Option<&str>,
) -> Result<MicrosoftAzureBuilder, String> {
    let given = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let mut builder = builder;
    if let Some(client) = client {
        return Ok(builder.with_client_id(client));
    }
    let tenant = given("AZURE_TENANT_ID");
    let application = given("AZURE_CLIENT_ID");
    if let Some(authority) = given("AZURE_AUTHORITY_HOST") {
        let authority = checked_authority(&authority);
        let authority = authority.map_err(|why| format!("AZURE_AUTHORITY_HOST {why}"))?;
        builder = builder.with_authority_host(authority);
    }
    if let Some(application) = application {
        builder = builder.with_client_id(application);
    }
    let Some(tenant) = tenant else { return Ok(builder) };
    let tenant = checked_tenant(&tenant).map_err(|why| format!("AZURE_TENANT_ID {why}"))?;
    builder = builder.with_tenant_id(tenant);
    Ok(match (given("AZURE_CLIENT_SECRET"), given("AZURE_FEDERATED_TOKEN_FILE")) {
        (Some(secret), _) => builder.with_client_secret(secret),
        (None, Some(file)) => builder.with_federated_token_file(file),
        (None, None) => builder,
    })
}

/// A name of an account, which is a part of a header.
fn checked_account(account: &str) -> Result<String, Error> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if account.is_empty() || account.len() > 64 || !account.chars().all(is_name) {
        let why = "`accountName` is not a valid account name: use lower-case letters and digits";
        return Err(Error::BadSecret(why.to_owned()));
    }
    Ok(account.to_owned())
}

/// A directory, which is a part of a URL.
fn checked_tenant(tenant: &str) -> Result<&str, &'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let tenant = tenant.trim();
    match is_relative(tenant) || !tenant.chars().all(is_name) {
        true => Err("is neither a tenant id nor a domain"),
        false => Ok(tenant),
    }
}

/// Checks the server at which applications log in, with their secrets.
fn checked_authority(url: &str) -> Result<String, &'static str> {
    let wrong = "is not a URL such as `https://login.microsoftonline.com`";
    let url = Url::parse(url).map_err(|_unread| wrong)?;
    let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if url.scheme() != "https" || url.host_str().is_none() || !is_bare || url.fragment().is_some() {
        return Err(wrong);
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

impl AzureBlobClient {
    pub(super) fn new(
        server: &BucketServerSettings,
        identity: &AzureCredentialSource,
        budgets: &Arc<HostBudgets>,
    ) -> Result<Self, Error> {
        let waiting = CredentialRequestTracker::default();
        let credentials = AzureCredentials::new(server, identity, budgets.egress(), &waiting)?;
        Ok(Self { exchange: BucketHttpClient::new(server, budgets)?, credentials, waiting })
    }

    /// The service that was asked for a token and has not answered yet. `None` if no answer is awaited.
    pub(super) fn waits_for(&self) -> Option<String> {
        self.waiting.on()
    }

    pub(super) async fn page(
        &self,
        remote: &RemoteBucket,
        next: Option<String>,
    ) -> Result<BucketObjectPage, Error> {
        let asked = BucketRequestContext::listing(remote);
        let mut url = self.url(&asked)?;
        {
            let mut query = url.query_pairs_mut();
            query.append_pair("restype", "container").append_pair("comp", "list");
            query.append_pair("maxresults", PAGE);
            if !remote.prefix.is_empty() {
                query.append_pair("prefix", &remote.prefix);
            }
            if let Some(marker) = next {
                query.append_pair("marker", &marker);
            }
        }
        let answer = self.ask(&asked, Method::GET, url, None).await?;
        let Some(answer) = answer else {
            return Err(asked.unreadable("unexpected HTTP status 304".to_owned()));
        };
        let text = BucketHttpClient::whole(&asked, answer).await?;
        page(&text).map_err(|why| asked.unreadable(printable(&why)))
    }

    pub(super) async fn head(
        &self,
        remote: &RemoteBucket,
        key: &str,
    ) -> Result<ListedBucketObject, Error> {
        let asked = BucketRequestContext::object(remote, key, "HEAD");
        let answer = self.ask(&asked, Method::HEAD, self.url(&asked)?, None).await?;
        let Some(answer) = answer else {
            return Err(asked.unreadable("unexpected HTTP status 304".to_owned()));
        };
        let size = answer.headers().get("content-length").and_then(|it| it.to_str().ok());
        let size = size.and_then(|size| size.parse().ok()).unwrap_or_default();
        Ok(ListedBucketObject {
            key: key.to_owned(),
            etag: tag_of(&answer),
            size,
            generation: None,
        })
    }

    pub(super) async fn get(
        &self,
        remote: &RemoteBucket,
        key: &str,
        unless: Option<&str>,
    ) -> Result<Option<BucketObjectDownload>, Error> {
        let asked = BucketRequestContext::object(remote, key, "GET");
        let answer = self.ask(&asked, Method::GET, self.url(&asked)?, unless).await?;
        Ok(answer.map(|answer| BucketObjectDownload {
            etag: tag_of(&answer),
            body: BucketHttpClient::body(&asked, answer),
        }))
    }

    /// The URL of an object, or of the container.
    fn url(&self, asked: &BucketRequestContext<'_>) -> Result<Url, Error> {
        let bucket = &asked.remote.bucket;
        if is_relative(bucket) {
            return Err(asked.no_bucket());
        }
        match asked.key {
            Some(key) if is_relative(key) => Err(asked.missing()),
            Some(key) => self.exchange.url(asked, &format!("/{}/{}", segment(bucket), path(key))),
            None => self.exchange.url(asked, &format!("/{}", segment(bucket))),
        }
    }

    /// A successful response. `None` if the object still has this entity tag.
    async fn ask(
        &self,
        asked: &BucketRequestContext<'_>,
        method: Method,
        mut url: Url,
        unless: Option<&str>,
    ) -> Result<Option<Response>, Error> {
        let mut headers = HeaderMap::from_iter([VERSION]);
        if let Some(unless) = unless.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            headers.insert(IF_NONE_MATCH, unless);
        }
        self.authorize(asked, &method, &mut url, &mut headers).await?;
        let answer = self.exchange.send(asked, method, url, headers).await?;
        let status = answer.status().as_u16();
        match status {
            200 => return Ok(Some(answer)),
            304 if unless.is_some() => return Ok(None),
            _ => {}
        }
        let code = answer.headers().get(CODE).and_then(|code| code.to_str().ok());
        let code = printable(code.unwrap_or_default());
        Err(match (code.as_str(), status) {
            ("ContainerNotFound", _) => asked.no_bucket(),
            ("AuthenticationFailed" | "InvalidAuthenticationInfo", _) => asked.refused(code, CHECK),
            // Azure reports objects that are not public as not found to anonymous requests.
            ("PublicAccessNotPermitted" | "ResourceNotFound", _) | (_, 401 | 403) => {
                asked.denied(if code.is_empty() { status.to_string() } else { code })
            }
            // Every error of Azure has a code. A 404 without a code does not prove that the object is missing.
            (_, 404) if !code.is_empty() => asked.missing(),
            _ => {
                let text = BucketHttpClient::error(answer).await;
                let text = quick_xml::de::from_reader::<_, AzureErrorBody>(text_of(&text));
                let text = text.map(|failure| failure.message).unwrap_or_default();
                // The lines below the first differ each time.
                asked.answer(status, code, text.lines().next().unwrap_or_default())
            }
        })
    }

    /// Adds the credentials to the URL or the headers of a request.
    async fn authorize(
        &self,
        asked: &BucketRequestContext<'_>,
        method: &Method,
        url: &mut Url,
        headers: &mut HeaderMap,
    ) -> Result<(), Error> {
        match &self.credentials {
            AzureCredentials::Anonymous => {}
            AzureCredentials::Signature(pairs) => {
                url.query_pairs_mut().extend_pairs(pairs.expose());
            }
            AzureCredentials::Key { account, key } => {
                let request = http::Request::builder().method(method).uri(url.as_str());
                let request = request.body(HttpRequestBody::empty());
                let mut request: HttpRequest =
                    request.map_err(|error| asked.unreachable(error.to_string()))?;
                *request.headers_mut() = std::mem::take(headers);
                let signed =
                    AzureAuthorizer::new(key.expose(), account).try_authorize(&mut request);
                signed.map_err(|error| asked.no_credentials(&error))?;
                *headers = std::mem::take(request.headers_mut());
            }
            AzureCredentials::Tokens { provider, secret } => {
                let refused = |error: object_store::Error| {
                    let why = cloud_login::why(&error);
                    let why = match secret {
                        Some(secret) if !secret.expose().is_empty() => {
                            why.replace(secret.expose(), "***")
                        }
                        _ => why,
                    };
                    Error::NoCredentials { endpoint: asked.endpoint(), why }
                };
                let token = self.waiting.during(provider.expose().get_credential()).await;
                let token = token.map_err(refused)?;
                let AzureCredential::BearerToken(token) = &*token else { return Ok(()) };
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|error| asked.no_credentials(&error))?;
                value.set_sensitive(true);
                headers.insert(AUTHORIZATION, value);
            }
        }
        Ok(())
    }
}

fn tag_of(answer: &Response) -> String {
    tag(answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default())
}

/// Text without the mark at its beginning.
fn text_of(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Parses one page of the list of a container's objects. The error says why it cannot be read.
fn page(text: &[u8]) -> Result<BucketObjectPage, String> {
    let listing: AzureBlobListing =
        quick_xml::de::from_reader(text_of(text)).map_err(|error| error.to_string())?;
    let objects = listing.blobs.blob.into_iter().filter_map(AzureBlob::object).collect();
    Ok(BucketObjectPage {
        objects,
        next: Some(listing.next_marker).filter(|marker| !marker.is_empty()),
    })
}

#[cfg(test)]
mod tests;
