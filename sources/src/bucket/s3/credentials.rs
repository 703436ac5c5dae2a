//! The credentials for an S3 server.
//!
//! Credentials of the environment are requested with a separate HTTP client. Neither the proxy nor the certificate authority
//! of a spec may come between windlass and the credentials of its machine.

use std::env;
use std::sync::Arc;
use std::time::SystemTime;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::provider_config::ProviderConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_sdk_s3::config::{BehaviorVersion, Region};
use aws_sdk_sts::error::ProvideErrorMetadata as _;
use http_client::{EgressRules, HostBudgets, HttpProxy, TlsConfig};
use tokio::sync::OnceCell;
use url::Url;

use super::aws_json_call::endpoint_of_environment;
use super::ldap::LdapCredentialProvider;
use super::sdk_transport::AwsSdkTransport;
use crate::bucket::credential_request_tracker::CredentialRequestTracker;
use crate::bucket::request_context::printable;
use crate::bucket::{BucketCredentialSource, Error};

/// The provider of credentials. `None` for requests without credentials. Proxy and budgets apply to services that a spec
/// names. `waiting` records the service that is asked.
pub(crate) fn provider(
    identity: &BucketCredentialSource,
    region: &str,
    proxy: Option<&HttpProxy>,
    budgets: &Arc<HostBudgets>,
    waiting: &CredentialRequestTracker,
) -> Result<Option<SharedCredentialsProvider>, Error> {
    Ok(match identity {
        // Google and Azure have clients of their own.
        BucketCredentialSource::Anonymous
        | BucketCredentialSource::Google(_)
        | BucketCredentialSource::Azure(_) => None,
        BucketCredentialSource::Keys { access, secret, session } => {
            let session = session.as_ref().map(|session| session.expose().clone());
            let keys = Credentials::new(access, secret.expose(), session, None, "Secret");
            Some(SharedCredentialsProvider::new(keys))
        }
        BucketCredentialSource::Environment { sts: None } => {
            let transport = of_machine(waiting)?;
            let region = region.to_owned();
            Some(waiting.watch(AwsCredentialChain { transport, region, chain: Arc::default() }))
        }
        BucketCredentialSource::Environment { sts: Some(endpoint) } => {
            Some(waiting.watch(WebIdentityCredentials::new(
                endpoint,
                region,
                of_spec(budgets, waiting)?,
            )))
        }
        // Parity(flux): what the service of a spec is asked goes through the proxy of the spec.
        BucketCredentialSource::Ldap(ldap) => {
            let user = LdapCredentialProvider::new(ldap.clone(), proxy, budgets.clone())?;
            waiting.ask(user.place());
            Some(waiting.watch(user))
        }
    })
}

/// The transport for requesting the credentials of the machine.
fn of_machine(waiting: &CredentialRequestTracker) -> Result<AwsSdkTransport, Error> {
    let transport =
        AwsSdkTransport::new(&TlsConfig::default(), None, &EgressRules::Anywhere, Arc::default())?;
    Ok(transport.telling(waiting))
}

/// The transport for requests to a service that a spec names.
fn of_spec(
    budgets: &Arc<HostBudgets>,
    waiting: &CredentialRequestTracker,
) -> Result<AwsSdkTransport, Error> {
    let transport =
        AwsSdkTransport::new(&TlsConfig::default(), None, budgets.egress(), budgets.clone())?;
    Ok(transport.telling(waiting))
}

/// The credentials of a role, which are requested with other credentials.
///
/// # Errors
/// Why the role was not given.
pub(crate) async fn assume(
    keys: Credentials,
    region: &str,
    role: &str,
    session: &str,
    budgets: &Arc<HostBudgets>,
    waiting: &CredentialRequestTracker,
) -> Result<Credentials, String> {
    let transport = of_spec(budgets, waiting).map_err(|error| error.to_string())?;
    let config = aws_sdk_sts::Config::builder()
        .behavior_version(aws_sdk_sts::config::BehaviorVersion::v2026_01_12())
        .region(aws_sdk_sts::config::Region::new(region.to_owned()))
        .credentials_provider(keys)
        .http_client(transport);
    let config = match endpoint_of_environment("AWS_ENDPOINT_URL_STS")? {
        Some(endpoint) => config.endpoint_url(endpoint.as_str().trim_end_matches('/')),
        None => config,
    };
    let client = aws_sdk_sts::Client::from_conf(config.build());
    let answer = client.assume_role().role_arn(role).role_session_name(session).send().await;
    let answer = answer.map_err(|error| {
        let said = error.message().map(str::to_owned);
        let why = said.unwrap_or_else(|| http_client::root_cause(&error));
        format!("the role '{}' is not granted: {}", printable(role), printable(&why))
    })?;
    let none = || "the STS endpoint returned no credentials".to_owned();
    let given = answer.credentials.ok_or_else(none)?;
    let access = given.access_key_id;
    let secret = given.secret_access_key;
    Ok(Credentials::new(access, secret, Some(given.session_token), None, "AssumedRole"))
}

/// AWS's own order of places, set up when credentials are first needed, since that reads files.
#[derive(Debug)]
struct AwsCredentialChain {
    transport: AwsSdkTransport,
    region: String,
    chain: Arc<OnceCell<DefaultCredentialsChain>>,
}

impl AwsCredentialChain {
    async fn credentials(&self) -> provider::Result {
        let set_up = || async {
            let region = Region::new(self.region.clone());
            let config = ProviderConfig::without_region()
                .with_behavior_version(Some(BehaviorVersion::v2026_01_12()))
                .with_region(Some(region))
                .with_http_client(self.transport.clone());
            DefaultCredentialsChain::builder().configure(config).build().await
        };
        self.chain.get_or_init(set_up).await.provide_credentials().await
    }
}

impl ProvideCredentials for AwsCredentialChain {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}

/// The web identity of the environment, exchanged at the STS endpoint of the spec.
#[derive(Debug)]
struct WebIdentityCredentials {
    client: aws_sdk_sts::Client,
}

impl WebIdentityCredentials {
    fn new(endpoint: &Url, region: &str, transport: AwsSdkTransport) -> Self {
        let config = aws_sdk_sts::Config::builder()
            .behavior_version(aws_sdk_sts::config::BehaviorVersion::v2026_01_12())
            .region(aws_sdk_sts::config::Region::new(region.to_owned()))
            .endpoint_url(endpoint.as_str().trim_end_matches('/'))
            .http_client(transport);
        Self { client: aws_sdk_sts::Client::from_conf(config.build()) }
    }

    async fn credentials(&self) -> provider::Result {
        let given = |name: &str| {
            let value = env::var(name).ok().filter(|value| !value.is_empty());
            value.ok_or_else(|| {
                CredentialsError::not_loaded(format!(
                    "spec.sts requires a web identity, and the environment variable {name} of windlass is not set"
                ))
            })
        };
        let role = given("AWS_ROLE_ARN")?;
        let file = given("AWS_WEB_IDENTITY_TOKEN_FILE")?;
        let token = tokio::fs::read_to_string(&file).await.map_err(|error| {
            CredentialsError::provider_error(format!("cannot read the token {file}: {error}"))
        })?;
        let session = env::var("AWS_ROLE_SESSION_NAME").unwrap_or_else(|_| "windlass".to_owned());
        let exchange = self.client.assume_role_with_web_identity();
        let exchange = exchange.role_arn(role).role_session_name(session);
        let answer = exchange.web_identity_token(token.trim()).send().await;
        let answer = answer.map_err(CredentialsError::provider_error)?;
        let none = || CredentialsError::unhandled("the STS endpoint returned no credentials");
        let given = answer.credentials.ok_or_else(none)?;
        let expiry = SystemTime::try_from(given.expiration).map_err(CredentialsError::unhandled)?;
        let token = Some(given.session_token);
        Ok(Credentials::new(
            given.access_key_id,
            given.secret_access_key,
            token,
            Some(expiry),
            "WebIdentityOfSpecSts",
        ))
    }
}

impl ProvideCredentials for WebIdentityCredentials {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}
