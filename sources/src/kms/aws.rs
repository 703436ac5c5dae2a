//! AWS KMS: `Decrypt`, with the key's own region, an encryption context, and a role to assume.
//!
//! Elsewhere: where credentials come from, and signing (`bucket::s3`). The semantics are those of sops's `kms`.

use std::collections::BTreeMap;
use std::env;

use aws_credential_types::Credentials as Login;
use aws_credential_types::provider::ProvideCredentials as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_client::root_cause;
use objects::RedactedValue;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::{DataKey, IDENTITY, KmsFailureReason, KmsSession, encrypted};
use crate::bucket::BucketCredentialSource;
use crate::bucket::request_context::printable;
use crate::bucket::s3::aws_json_call::{AwsJsonCall, endpoint_of_environment, said};
use crate::bucket::s3::credentials;

/// The entry of the Secret.
const ENTRY: &str = "sops.aws-kms";

/// The longest name of a session.
const LONGEST_SESSION: usize = 64;

/// Logins by region and role.
pub(super) type AwsRoleLogins = BTreeMap<(String, String), Login>;

/// A key, and the role that may use it.
pub(super) struct AwsKmsKey<'k> {
    arn: &'k str,
    region: &'k str,
    /// The suffix of the names of its servers.
    domain: &'static str,
    role: &'k str,
}

/// The domains by the prefix of ARNs.
const PARTITIONS: [(&str, &str); 8] = [
    ("aws", "amazonaws.com"),
    ("aws-us-gov", "amazonaws.com"),
    ("aws-cn", "amazonaws.com.cn"),
    ("aws-eusc", "amazonaws.eu"),
    ("aws-iso", "c2s.ic.gov"),
    ("aws-iso-b", "sc2s.sgov.gov"),
    ("aws-iso-e", "cloud.adc-e.uk"),
    ("aws-iso-f", "csp.hci.ic.gov"),
];

#[derive(Deserialize)]
struct AwsDecryptResponse {
    #[serde(rename = "Plaintext")]
    plaintext: String,
}

impl<'k> AwsKmsKey<'k> {
    /// Parses an ARN. The ARN decides the server, which is always a server of AWS.
    pub(super) fn new(arn: &'k str, role: &'k str) -> Result<Self, KmsFailureReason> {
        let bad = || {
            let arn = printable(arn);
            KmsFailureReason::BadKey(format!("`{arn}` is not the ARN of a KMS key or alias"))
        };
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        let &["arn", partition, "kms", region, account, name] = parts.as_slice() else {
            return Err(bad());
        };
        let domain = PARTITIONS.iter().find(|(known, _)| *known == partition);
        let is_region = !region.is_empty() && region.bytes().all(is_letter);
        let is_account = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit());
        let is_key = ["key/", "alias/"]
            .iter()
            .any(|kind| name.strip_prefix(kind).is_some_and(|name| !name.is_empty()));
        match domain {
            Some((_, domain)) if is_region && is_account && is_key => {
                Ok(Self { arn, region, domain: *domain, role })
            }
            _ => Err(bad()),
        }
    }

    fn url(&self) -> Result<Url, KmsFailureReason> {
        if let Some(url) =
            endpoint_of_environment("AWS_ENDPOINT_URL_KMS").map_err(KmsFailureReason::Login)?
        {
            return Ok(url);
        }
        let url = Url::parse(&format!("https://kms.{}.{}/", self.region, self.domain));
        url.map_err(|error| KmsFailureReason::BadKey(error.to_string()))
    }
}

pub(super) async fn decrypt(
    session: &mut KmsSession<'_>,
    key: &AwsKmsKey<'_>,
    context: &BTreeMap<String, String>,
    text: &str,
) -> Result<DataKey, KmsFailureReason> {
    let blob = STANDARD.encode(encrypted(text, &STANDARD)?);
    let url = key.url()?;
    let login = login(session, key).await?;
    let mut body = json!({"KeyId": key.arn, "CiphertextBlob": blob});
    if let Some(members) = body.as_object_mut().filter(|_| !context.is_empty()) {
        members.insert("EncryptionContext".to_owned(), json!(context));
    }
    let body = body.to_string();
    let call = AwsJsonCall {
        url: &url,
        region: key.region,
        service: "kms",
        target: "TrentService.Decrypt",
        body: body.as_bytes(),
    };
    let request = call.signed(&login.clone().into()).map_err(KmsFailureReason::Login)?;
    let answer = session.wire.send(request).await?;
    if answer.is_success() {
        return answer.data_key(|read: AwsDecryptResponse| read.plaintext, &STANDARD);
    }
    let said = said(&answer.body);
    let advice = match answer.status {
        400 if said.contains("AccessDenied") => {
            "; check that its credentials allow `kms:Decrypt` with the key".to_owned()
        }
        _ => String::new(),
    };
    let secrets = [login.secret_access_key(), login.session_token().unwrap_or_default()];
    Err(answer.refused(said.trim_start_matches(": "), &secrets, advice))
}

/// The credentials for a key. All keys of a region and role share them.
async fn login(
    session: &mut KmsSession<'_>,
    key: &AwsKmsKey<'_>,
) -> Result<Login, KmsFailureReason> {
    let wanted = (key.region.to_owned(), key.role.to_owned());
    if let Some(known) = session.aws.get(&wanted) {
        return Ok(known.clone());
    }
    let identity = match &session.credentials.aws_kms {
        Some(text) => keys(text)?,
        None => {
            session.own(IDENTITY, ENTRY)?;
            BucketCredentialSource::Environment { sts: None }
        }
    };
    let budgets = &session.wire.budgets;
    let waiting = &session.wire.waiting;
    let provider = credentials::provider(&identity, key.region, None, budgets, waiting);
    let provider = provider.map_err(|error| KmsFailureReason::Login(error.to_string()))?;
    let provider = provider.ok_or(KmsFailureReason::NoCredentials(ENTRY))?;
    let given = provider.provide_credentials().await;
    let mut given =
        given.map_err(|error| KmsFailureReason::Login(printable(&root_cause(&error))))?;
    if !key.role.is_empty() {
        let name = session_name();
        let assumed =
            credentials::assume(given, key.region, key.role, &name, budgets, waiting).await;
        given = assumed.map_err(KmsFailureReason::Login)?;
    }
    session.aws.insert(wanted, given.clone());
    Ok(given)
}

/// The keys in the Secret, in Flux's format.
fn keys(text: &[u8]) -> Result<BucketCredentialSource, KmsFailureReason> {
    let read = goyaml::to_json(text).unwrap_or_default();
    let member = |name: &str| {
        read.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let names = ("aws_access_key_id", "aws_secret_access_key");
    let (Some(access), Some(secret)) = (member(names.0), member(names.1)) else {
        let problem = format!("it has no `{}` or no `{}`", names.0, names.1);
        return Err(KmsFailureReason::BadSecret { entry: ENTRY, problem });
    };
    let secret = RedactedValue::new(secret);
    let session = member("aws_session_token").map(RedactedValue::new);
    Ok(BucketCredentialSource::Keys { access, secret, session })
}

/// The name of a session in the form of sops. Roles may be limited to it.
fn session_name() -> String {
    let host = env::var("HOSTNAME").unwrap_or_default();
    let is_allowed = |char: &char| char.is_ascii_alphanumeric() || "=,.@-_".contains(*char);
    let name = "sops@".chars().chain(host.chars().filter(is_allowed));
    name.take(LONGEST_SESSION).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_leads_to_a_server_of_aws_or_nowhere() {
        for (arn, url) in [
            ("arn:aws:kms:eu-west-1:123456789012:key/a-b", "https://kms.eu-west-1.amazonaws.com/"),
            (
                "arn:aws:kms:eu-west-1:123456789012:alias/a/b:c",
                "https://kms.eu-west-1.amazonaws.com/",
            ),
            ("arn:aws-cn:kms:cn-north-1:1:key/a", "https://kms.cn-north-1.amazonaws.com.cn/"),
        ] {
            assert_eq!(AwsKmsKey::new(arn, "").ok().unwrap().url().unwrap().as_str(), url);
        }
        for arn in [
            "",
            "arn:aws:kms:evil.example/x:1:key/a",
            "arn:aws:kms::1:key/a",
            "arn:aws:kms:eu-west-1:1:grant/a",
            "arn:aws:kms:eu-west-1:1:key/",
            "arn:aws:kms:eu-west-1:x:key/a",
            "arn:aws:s3:eu-west-1:1:key/a",
            "arn:aws-other:kms:eu-west-1:1:key/a",
            "arn:aws:kms:eu-west-1@evil.example:1:key/a",
        ] {
            let why = AwsKmsKey::new(arn, "").err().unwrap().to_string();
            assert!(why.contains("is not the ARN of a KMS key"), "{arn}: {why}");
        }
    }

    #[test]
    fn keys_of_a_secret_are_read_as_flux_reads_them_and_never_shown() {
        let text =
            b"aws_access_key_id: A\naws_secret_access_key: hunter2\naws_session_token: t0ken\n";
        let Ok(BucketCredentialSource::Keys { access, secret, session }) = keys(text) else {
            panic!()
        };
        assert_eq!((access.as_str(), secret.expose().as_str()), ("A", "hunter2"));
        assert_eq!(session.unwrap().expose(), "t0ken");
        for text in ["aws_secret_access_key: hunter2", "", "[hunter2", "aws_access_key_id: hunter2"]
        {
            let why = keys(text.as_bytes()).err().unwrap().to_string();
            assert!(why.contains("`sops.aws-kms`") && !why.contains("hunter2"), "{why}");
        }
    }
}
