//! Access to OCIRepositories and charts in AWS registries with the identity of the machine (`provider: aws`).
//!
//! The proxy of the environment knows the registries and their login services by name. The region in a name decides the result
//! of the login, and the account decides the result of the registry.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::Result;
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::forward_proxy::TestForwardProxy;
use e2e::harness::Story;
use e2e::servers::aws_identity::AwsIdentityServer;
use e2e::servers::registry::RegistryServer;
use e2e::servers::s3::{ACCESS, SECRET};
use e2e::tcp_relay::TcpRelay;
use e2e::tls_proxy::TlsProxyListener;
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use super::oci::filled;
use super::{
    API, AccessServerUrl, PASSWORD, SourceAccessCase, SourceAccessFailure, SourceAccessKind, USER,
    WRONG, closed_port, plain, silent, tell_within,
};

const DENIED: &str = "AuthenticationFailed";

/// The accounts: a registry that works, a missing one, and one that does not answer. The regions are the same for logins.
const ACCOUNTS: [&str; 3] = ["111111111111", "222222222222", "333333333333"];
const REGIONS: [&str; 3] = ["eu-west-1", "eu-west-2", "eu-west-3"];

fn registry(account: &str, region: &str) -> String {
    format!("{account}.dkr.ecr.{region}.amazonaws.com")
}

fn repositories(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"url": format!("oci://{}/app", url.server), "provider": "aws",
        "insecure": true, "timeout": super::timeout(name)});
    vec![super::object(API, "OCIRepository", name, spec, &own)]
}

fn charts(name: &str, url: AccessServerUrl<'_>, spec: Map<String, Value>) -> Vec<Value> {
    let own = json!({"type": "oci", "url": format!("oci://{}/charts", url.server),
        "provider": "aws", "insecure": true, "timeout": super::timeout(name)});
    let chart = json!({"chart": "app", "sourceRef": {"kind": "HelmRepository", "name": name}});
    vec![
        super::object(API, "HelmRepository", name, spec, &own),
        super::object(API, "HelmChart", name, Map::new(), &chart),
    ]
}

/// The parts of AWS that the story needs.
struct FakeAwsServices {
    proxy: TestForwardProxy,
    trusted: NamedTempFile,
    _registry: RegistryServer,
    _service: AwsIdentityServer,
    _front: TlsProxyListener,
    _silent: [TcpRelay; 2],
}

impl FakeAwsServices {
    async fn start() -> Result<Self> {
        let registry = filled(RegistryServer::start_with_password().await?).await?;
        let service = AwsIdentityServer::start().await?;
        let authority = TestCertificateAuthority::generate()?;
        let names = REGIONS.map(|region| format!("api.ecr.{region}.amazonaws.com"));
        let of_front = names.each_ref().map(String::as_str);
        let front = TlsProxyListener::start_as(service.address(), &authority, &of_front).await?;
        let address: SocketAddr = registry.host().parse()?;
        let silent = [silent(address).await?, silent(front.address()).await?];
        let there = [address, closed_port()?, silent[0].address()];
        let logins = [front.address(), closed_port()?, silent[1].address()];
        let mut places: BTreeMap<String, SocketAddr> = names.into_iter().zip(logins).collect();
        for (account, place) in ACCOUNTS.iter().zip(there) {
            places.extend(REGIONS.map(|region| (self::registry(account, region), place)));
        }
        let lead = move |asked: &str| {
            let host = asked.split(':').next().unwrap_or_default();
            places.get(host).map_or_else(|| asked.to_owned(), ToString::to_string)
        };
        let proxy = TestForwardProxy::start_to(USER, PASSWORD, lead).await?;
        let trusted = NamedTempFile::new()?;
        std::fs::write(trusted.path(), authority.certificate())?;
        Ok(Self {
            proxy,
            trusted,
            _registry: registry,
            _service: service,
            _front: front,
            _silent: silent,
        })
    }

    async fn tell(
        &self,
        story: &Story,
        subject: &SourceAccessKind,
        secret: &str,
        cells: &[SourceAccessCase],
    ) -> Result<()> {
        let through = self.proxy.url().replace("//", &format!("//{USER}:{PASSWORD}@"));
        let trusted = self.trusted.path().display().to_string();
        let environment = [
            ("AWS_ACCESS_KEY_ID", ACCESS),
            ("AWS_SECRET_ACCESS_KEY", secret),
            ("SSL_CERT_FILE", &trusted),
            ("HTTP_PROXY", &through),
            ("HTTPS_PROXY", &through),
            ("NO_PROXY", "127.0.0.1,localhost"),
        ];
        tell_within(story, subject, cells, &environment).await
    }
}

/// `unreachable` and `stalled` are failures of the registry itself.
async fn reached(
    name: &str,
    subject: &SourceAccessKind,
    unreachable: SourceAccessFailure,
    stalled: SourceAccessFailure,
) -> Result<()> {
    let story = Story::begin(name).await?;
    let aws = FakeAwsServices::start().await?;
    let ([there, gone, silent], [right, closed, slow]) = (ACCOUNTS, REGIONS);
    let fails = |says| SourceAccessFailure { reason: DENIED, says };
    let cells = [
        plain("works", registry(there, right)),
        plain("login-unreachable", registry(there, closed))
            .fails(fails("cannot connect to api.ecr.eu-west-2.amazonaws.com")),
        plain("login-stalled", registry(there, slow)).fails(fails(
            "api.ecr.eu-west-3.amazonaws.com did not respond within spec.timeout (2s)",
        )),
        plain("registry-unreachable", registry(gone, right)).fails(unreachable),
        plain("registry-stalled", registry(silent, right)).fails(stalled),
    ];
    aws.tell(&story, subject, SECRET, &cells).await?;
    let refused = [plain("keys-wrong", registry(there, right))
        .fails(fails("InvalidSignatureException not for you"))];
    aws.tell(&story, subject, WRONG, &refused).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_of_a_registry_of_aws_is_reached_as_the_machine() -> Result<()> {
    let fails = |says| SourceAccessFailure { reason: "OCIArtifactPullFailed", says };
    let subject = super::oci::repositories_of(repositories);
    let unreachable = fails("cannot connect to 222222222222.dkr.ecr.eu-west-1.amazonaws.com");
    reached("access-ecr", &subject, unreachable, fails("did not respond within 2s")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_of_a_registry_of_aws_is_reached_as_the_machine() -> Result<()> {
    let fails = |says| SourceAccessFailure { reason: "ChartPullError", says };
    let subject = super::oci::charts_of(charts);
    let unreachable = fails("cannot connect to 222222222222.dkr.ecr.eu-west-1.amazonaws.com");
    reached("access-ecr-charts", &subject, unreachable, fails("did not respond within 2s")).await
}
