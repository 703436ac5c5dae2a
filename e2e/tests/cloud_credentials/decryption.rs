//! Secrets that SOPS encrypted with keys of Vault, AWS, Google and Azure. windlass decrypts them with credentials of a Secret
//! or with the identity of the machine. The stories also test services that refuse or do not answer.
//!
//! Elsewhere: age and OpenPGP (`stories/decryption.rs`), who may not decrypt (`tenants`), the protocols (`e2e::servers::kms`).

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::public_host_names::PublicHostNames;
use e2e::servers::kms::{
    AZURE_SECRET, AZURE_TENANT, KmsServer, MACHINE_TOKEN, NAMES, OTHER_TOKEN, ROLE, VAULT_TOKEN,
};
use e2e::servers::s3::{ACCESS, SECRET};
use serde_json::{Value, json};

use super::encrypted_secrets::{
    CANARY, EncryptedDataKey, await_message, ensure_plain, ensure_silent, of_aws, of_azure,
    of_clouds, of_google, of_vault, put_keys, spec,
};

/// The fake services under the host names of the clouds, through a proxy and with certificates that windlass trusts.
pub(crate) struct FakeCloudKmsServices {
    pub(crate) server: KmsServer,
    names: PublicHostNames,
}

impl FakeCloudKmsServices {
    pub(crate) async fn start() -> Result<Self> {
        let server = KmsServer::start().await?;
        let names = PublicHostNames::give(server.address(), &NAMES).await?;
        Ok(Self { server, names })
    }

    pub(crate) async fn windlass(
        &self,
        story: &Story,
        flags: &[&str],
        more: &[(&str, &str)],
    ) -> Result<WindlassProcess> {
        let mut environment = self.names.environment().to_vec();
        environment.extend(more);
        WindlassProcess::start_for_with(story, flags, &environment).await
    }

    /// Makes the service decrypt a data key.
    pub(crate) fn know(&self, sealed: &EncryptedDataKey) {
        self.server.seal(&sealed.encrypted, &sealed.data_key);
    }

    /// How often each request was sent since the last call.
    fn asked(&self) -> BTreeMap<String, usize> {
        let mut asked = BTreeMap::new();
        for line in self.server.asked() {
            *asked.entry(line).or_default() += 1;
        }
        asked
    }
}

fn service_account() -> Result<String> {
    let algorithm = &rcgen::PKCS_RSA_SHA256;
    let key = rcgen::KeyPair::generate_rsa_for(algorithm, rcgen::RsaKeySize::_2048)?;
    let key = json!({"type": "service_account", "client_email": "reader@shop.example",
        "private_key_id": "1", "private_key": key.serialize_pem()});
    Ok(key.to_string())
}

/// The right credentials for all services.
fn credentials() -> Result<Value> {
    let azure = format!("tenantId: {AZURE_TENANT}\nclientId: c\nclientSecret: {AZURE_SECRET}\n");
    Ok(json!({
        "sops.vault-token": format!("{VAULT_TOKEN}\n"),
        "sops.aws-kms": format!("aws_access_key_id: {ACCESS}\naws_secret_access_key: {SECRET}\n"),
        "sops.azure-kv": azure,
        "sops.gcp-kms": service_account()?,
    }))
}

/// How many builds of a Kustomization there were.
async fn builds(windlass: &WindlassProcess, name: &str) -> Result<usize> {
    let text = windlass.metrics().await?;
    let ours = format!("name=\"{name}\"");
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("windlass_builds") && line.contains(&ours));
    let line = line.context("there is no metric of builds")?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

const SECRETS: [&str; 6] = [CANARY, VAULT_TOKEN, OTHER_TOKEN, SECRET, AZURE_SECRET, MACHINE_TOKEN];

#[tokio::test(flavor = "multi_thread")]
async fn what_each_service_encrypted_is_plain_and_a_build_asks_for_it_once() -> Result<()> {
    let (clouds, story) =
        (FakeCloudKmsServices::start().await?, Story::begin("decryption-clouds").await?);
    let windlass = clouds.windlass(&story, &[], &[]).await?;
    let vault = of_vault(&clouds.server.url(), "shop", "vault");
    let mut files = vec![
        ("all/vault.yaml".to_owned(), vault.secret("vault")?),
        ("all/again.yaml".to_owned(), vault.secret("again")?),
    ];
    clouds.know(&vault);
    for (name, sealed) in of_clouds() {
        clouds.know(&sealed);
        files.push((format!("all/{name}.yaml"), sealed.secret(name)?));
        files.push((format!("all/{name}-2.yaml"), sealed.secret(&format!("{name}-2"))?));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("app", &files).await?;
    put_keys(&story, "keys", &credentials()?).await?;
    story.kustomization("all", "app", spec("all", Some("keys"))).await?;
    story.await_ready(&StoryObject::kustomization("all")).await?;
    for secret in ["vault", "again", "aws", "aws-2", "google", "google-2", "azure", "azure-2"] {
        ensure_plain(&story, secret).await?;
    }
    let asked = clouds.asked();
    // If one service fails, for example with a timeout, the build is repeated and asks the earlier services again.
    let builds = builds(&windlass, "all").await?;
    let what = || format!("{asked:?} in {builds} builds\n{}", windlass.operator.tail(100));
    ensure!(asked.len() == 5, "{}", what());
    ensure!(asked.contains_key("PUT /v1/team/sops/decrypt/shop"), "{}", what());
    for (request, count) in &asked {
        // Each service gets a login request and a key request. Both of AWS's requests have the path `/`.
        let each = if request == "POST /" { 2 } else { 1 };
        ensure!((each..=each * builds).contains(count), "{request}: {}", what());
    }
    ensure_silent(&story, &windlass, &SECRETS).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_of_vault_is_reported_and_a_right_token_heals() -> Result<()> {
    let clouds = FakeCloudKmsServices::start().await?;
    let story = Story::begin("decryption-vault").await?;
    let windlass = clouds.windlass(&story, &[], &[]).await?;
    let address = clouds.server.url();
    let right = of_vault(&address, "shop", "vault");
    clouds.know(&right);
    let files = [
        ("right/s.yaml", right.secret("right")?),
        // Another key encrypted this file.
        ("wrong/s.yaml", of_vault(&address, "shop", "unknown").secret("wrong")?),
        ("machine/s.yaml", of_vault("http://169.254.169.254", "shop", "vault").secret("machine")?),
        ("stalled/s.yaml", of_vault(&address, "stalled", "vault").secret("stalled")?),
        ("stalled/t.yaml", of_vault(&address, "stalled", "other").secret("stalled-too")?),
    ];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("right", "app", spec("right", Some("keys"))).await?;
    for (token, wanted) in [
        ("", "add `sops.vault-token` to the Secret of `spec.decryption.secretRef`"),
        (
            "hvs.wr0ng",
            "403: permission denied: invalid token; check that the token in `sops.vault-token` is valid",
        ),
        (OTHER_TOKEN, "that its policies allow `update` of `team/sops/decrypt/shop`"),
    ] {
        put_keys(&story, "keys", &json!({"sops.vault-token": token})).await?;
        let text = await_message(&story, "right", wanted).await?;
        ensure!(text.starts_with("decryption failed for 'Secret.v1.[noGrp]/right'"), "{text}");
        let read = story.read(&StoryObject::new("v1", "Secret", "right")).await?;
        ensure!(read.is_none(), "a Secret was applied that is still encrypted");
        ensure_silent(&story, &windlass, &[CANARY, OTHER_TOKEN, "hvs.wr0ng"]).await?;
    }
    put_keys(&story, "keys", &json!({"sops.vault-token": VAULT_TOKEN})).await?;
    story.await_ready(&StoryObject::kustomization("right")).await?;
    ensure_plain(&story, "right").await?;

    clouds.server.hold("/stalled");
    for (path, wanted) in [
        ("wrong", "HTTP status 400: cipher: message authentication failed"),
        ("machine", "`169.254.169.254` resolves to a link-local or cloud metadata address"),
        ("stalled", "did not respond within 10s"),
    ] {
        story.kustomization(path, "app", spec(path, Some("keys"))).await?;
        await_message(&story, path, wanted).await?;
    }
    // Meanwhile, other objects do not wait.
    story.request(&StoryObject::kustomization("right")).await?;
    story.await_ready(&StoryObject::kustomization("right")).await?;
    ensure_silent(&story, &windlass, &SECRETS).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_a_cloud_is_named_that_rejects_a_request() -> Result<()> {
    let clouds = FakeCloudKmsServices::start().await?;
    let story = Story::begin("decryption-refused").await?;
    let windlass = clouds.windlass(&story, &[], &[]).await?;
    for (_, sealed) in of_clouds() {
        clouds.know(&sealed);
    }
    let no_role = "arn:aws:iam::123456789012:role/other";
    let cases: [(&str, EncryptedDataKey, Value, &str); 6] = [
        (
            "role",
            of_aws(no_role, "shop"),
            json!({}),
            "is not granted: not authorized to perform sts:AssumeRole",
        ),
        (
            "no-role",
            of_aws("", "shop"),
            json!({}),
            "AccessDeniedException not authorized to perform: kms:Decrypt; check that",
        ),
        ("context", of_aws(ROLE, "other"), json!({}), "status 400: InvalidCiphertextException"),
        (
            "signature",
            of_aws("", "shop"),
            json!({"sops.aws-kms": "aws_access_key_id: a\naws_secret_access_key: b\n"}),
            "InvalidSignatureException",
        ),
        (
            "google",
            of_google("unknown"),
            json!({}),
            "Decryption failed: the ciphertext is invalid.",
        ),
        (
            "azure",
            of_azure(),
            json!({"sops.azure-kv": format!("tenantId: {AZURE_TENANT}\nclientId: c\nclientSecret: wr0ng-{AZURE_SECRET}\n")}),
            "AADSTS7000215: Invalid client secret",
        ),
    ];
    let mut files = Vec::new();
    for (name, sealed, _, _) in &cases {
        files.push((format!("{name}/s.yaml"), sealed.secret(name)?));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("app", &files).await?;
    for (name, _, other, _) in &cases {
        let mut entries = credentials()?;
        for (entry, value) in other.as_object().into_iter().flatten() {
            entries[entry] = value.clone();
        }
        put_keys(&story, &format!("keys-{name}"), &entries).await?;
        story.kustomization(name, "app", spec(name, Some(&format!("keys-{name}")))).await?;
    }
    for (name, _, _, wanted) in &cases {
        let failure = await_message(&story, name, wanted).await?;
        ensure!(failure.contains("failed to decrypt sops data key with "), "{failure}");
    }
    ensure_silent(&story, &windlass, &SECRETS).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_secret_the_machine_decrypts_unless_tenants_are_separated() -> Result<()> {
    let clouds = FakeCloudKmsServices::start().await?;
    let story = Story::begin("decryption-machine").await?;
    let machine = clouds.server.address().to_string();
    let environment = [
        ("AWS_ACCESS_KEY_ID", ACCESS),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("GCE_METADATA_HOST", &machine),
        ("AZURE_TENANT_ID", AZURE_TENANT),
        ("AZURE_CLIENT_ID", "c"),
        ("AZURE_CLIENT_SECRET", AZURE_SECRET),
    ];
    let windlass = clouds.windlass(&story, &[], &environment).await?;
    let mut files = Vec::new();
    for (name, sealed) in of_clouds() {
        clouds.know(&sealed);
        files.push((format!("{name}/s.yaml"), sealed.secret(name)?));
    }
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let _upstream = story.follow("app", &files).await?;
    for (name, _) in of_clouds() {
        story.kustomization(name, "app", spec(name, None)).await?;
        story.await_ready(&StoryObject::kustomization(name)).await?;
        ensure_plain(&story, name).await?;
    }
    ensure_silent(&story, &windlass, &SECRETS).await?;
    drop(windlass);

    clouds.asked();
    let flags = ["--no-cross-namespace-refs=true"];
    let windlass = clouds.windlass(&story, &flags, &environment).await?;
    for (name, entry) in
        [("aws", "sops.aws-kms"), ("google", "sops.gcp-kms"), ("azure", "sops.azure-kv")]
    {
        let wanted = format!(
            "the identity of windlass is not used with --no-cross-namespace-refs; add credentials to `{entry}`"
        );
        await_message(&story, name, &wanted).await?;
    }
    let asked = clouds.asked();
    ensure!(asked.is_empty(), "{asked:?}");
    ensure_silent(&story, &windlass, &SECRETS).await?;
    story.end().await
}
