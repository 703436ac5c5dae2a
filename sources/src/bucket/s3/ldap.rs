//! Requests S3 keys for a user of an LDAP directory, by `AssumeRoleWithLDAPIdentity`. MinIO added this action to the actions
//! of AWS's token service.
//!
//! AWS's library does not have this action. So windlass sends a form by POST, as for the other actions, and reads the XML
//! response.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, future};
use aws_smithy_types::date_time::{DateTime, Format};
use aws_smithy_xml::decode::{Document, ScopedDecoder, try_data};
use http_client::{HostBudgets, HttpProxy, is_distrust, root_cause};
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request};
use url::form_urlencoded::Serializer;

use crate::bucket::{Error, LdapUserLogin};

/// Bytes of an answer, which has about one thousand.
const MAX_RESPONSE_BYTES: usize = 1 << 18;

/// The longest text of a service that an error repeats.
const LONGEST_TEXT: usize = 300;

/// A provider of S3 keys for a user of an LDAP directory, by MinIO's action `AssumeRoleWithLDAPIdentity`.
pub(super) struct LdapCredentialProvider {
    ldap: LdapUserLogin,
    client: reqwest::Client,
    budgets: Arc<HostBudgets>,
}

impl fmt::Debug for LdapCredentialProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LdapUser({:?})", self.ldap)
    }
}

impl LdapCredentialProvider {
    pub(super) fn new(
        ldap: LdapUserLogin,
        proxy: Option<&HttpProxy>,
        budgets: Arc<HostBudgets>,
    ) -> Result<Self, Error> {
        // The server receives a password. It must be the server of the spec, and not a name that leads to this machine.
        let client = http_client::client_within(&ldap.tls, proxy, budgets.egress())?;
        Ok(Self { ldap, client, budgets })
    }

    /// The name of the service in messages.
    pub(super) fn place(&self) -> String {
        format!("the STS endpoint {}", self.ldap.endpoint.host_str().unwrap_or_default())
    }

    async fn credentials(&self) -> provider::Result {
        let url = &self.ldap.endpoint;
        let place = self.place();
        let failed = |why: String| CredentialsError::provider_error(format!("{place} {why}"));
        self.budgets
            .egress()
            .admits(url)
            .map_err(|refused| failed(format!("is not allowed: {refused}")))?;
        let form = Serializer::new(String::new())
            .append_pair("Action", "AssumeRoleWithLDAPIdentity")
            .append_pair("Version", "2011-06-15")
            .append_pair("LDAPUsername", &self.ldap.username)
            .append_pair("LDAPPassword", self.ldap.password.expose())
            .finish();
        let mut request = Request::new(Method::POST, url.clone());
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        *request.body_mut() = Some(form.into());
        let answer = self.budgets.execute(&self.client, request).await;
        let mut answer = answer.map_err(|error| {
            let cause = root_cause(&error);
            failed(match is_distrust(&error) {
                true => format!(
                    "is not trusted: {cause}; add its CA as `ca.crt` to the Secret of spec.sts.certSecretRef"
                ),
                false => format!("cannot be reached: {cause}"),
            })
        })?;
        let status = answer.status();
        let mut text = Vec::new();
        let broken = |error: reqwest::Error| {
            failed(format!("closed the connection: {}", root_cause(&error.without_url())))
        };
        while let Some(chunk) = answer.chunk().await.map_err(broken)? {
            text.extend_from_slice(&chunk);
            if text.len() > MAX_RESPONSE_BYTES {
                return Err(failed(format!("sent more than {MAX_RESPONSE_BYTES} bytes")));
            }
        }
        let text = String::from_utf8_lossy(&text);
        if !status.is_success() {
            return Err(failed(format!("responded with {status}{}", said(&text, &self.ldap))));
        }
        read(&text).ok_or_else(|| failed("returned no credentials".to_owned()))
    }
}

impl ProvideCredentials for LdapCredentialProvider {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.credentials())
    }
}

/// The names and texts of the child elements of the first element with this name. `None` if the document has no such
/// element or is malformed.
fn children(text: &str, name: &str) -> Option<Vec<(String, String)>> {
    let mut document = Document::new(text);
    let mut open = document.root_element().ok()?;
    // The wanted element is below the root or a level further down, so two loops are enough.
    let mut found = Vec::new();
    while let Some(mut child) = open.next_tag() {
        if child.start_el().local() == name {
            strings(&mut child, &mut found);
            return Some(found);
        }
        while let Some(mut grandchild) = child.next_tag() {
            if grandchild.start_el().local() == name {
                strings(&mut grandchild, &mut found);
                return Some(found);
            }
        }
    }
    None
}

fn strings(parent: &mut ScopedDecoder<'_, '_>, into: &mut Vec<(String, String)>) {
    while let Some(mut element) = parent.next_tag() {
        let name = element.start_el().local().to_owned();
        let text = try_data(&mut element).map(|text| text.trim().to_owned());
        into.push((name, text.unwrap_or_default()));
    }
}

/// Parses the credentials in a response. `None` if it cannot be parsed, so that no part of it is repeated in an error.
fn read(text: &str) -> Option<Credentials> {
    let given = children(text, "Credentials")?;
    let one = |name: &str| {
        let found = given.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| text.clone()).filter(|text| !text.is_empty())
    };
    // Without an expiration, the keys would be used as long as windlass runs.
    let until = DateTime::from_str(&one("Expiration")?, Format::DateTime).ok()?;
    let until = SystemTime::try_from(until).ok()?;
    let access = one("AccessKeyId")?;
    let secret = one("SecretAccessKey")?;
    let name = "LdapOfSpecSts";
    Some(Credentials::new(access, secret, one("SessionToken"), Some(until), name))
}

/// The message in a response without credentials. The service may repeat the request's secrets in it.
fn said(text: &str, ldap: &LdapUserLogin) -> String {
    let Some(given) = children(text, "Error") else { return String::new() };
    let one = |name: &str| given.iter().find(|(known, _)| known == name).map(|(_, text)| &**text);
    let strings = [one("Code"), one("Message")].map(Option::unwrap_or_default);
    let mut said = strings.join(": ");
    if !ldap.password.expose().is_empty() {
        said = said.replace(ldap.password.expose(), "****");
    }
    let said = said.chars().filter(|c| !c.is_control()).take(LONGEST_TEXT).collect::<String>();
    format!(" ({})", said.trim_matches([':', ' ']))
}

#[cfg(test)]
mod tests {
    use aws_credential_types::Credentials;
    use http_client::TlsConfig;
    use objects::RedactedValue;

    use super::*;

    fn parts(credentials: &Credentials) -> (&str, &str, Option<&str>) {
        let it = credentials;
        (it.access_key_id(), it.secret_access_key(), it.session_token())
    }

    #[test]
    fn keys_are_read_with_their_end_and_not_without() {
        let answer = "<?xml version=\"1.0\"?>\n<AssumeRoleWithLDAPIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
            <AssumeRoleWithLDAPIdentityResult><Credentials><AccessKeyId>a</AccessKeyId>\
            <SecretAccessKey>s&amp;t</SecretAccessKey><Expiration>2030-01-01T00:00:00Z</Expiration>\
            <SessionToken>t</SessionToken></Credentials></AssumeRoleWithLDAPIdentityResult>\
            <ResponseMetadata/></AssumeRoleWithLDAPIdentityResponse>";
        let found = read(answer).unwrap();
        assert_eq!(parts(&found), ("a", "s&t", Some("t")));
        let end = found.expiry().unwrap().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(end.as_secs(), 1_893_456_000);
        for (from, to) in [
            ("<Expiration>2030-01-01T00:00:00Z</Expiration>", ""),
            ("2030-01-01T00:00:00Z", "never"),
            ("<AccessKeyId>a</AccessKeyId>", "<AccessKeyId/>"),
            ("<Credentials>", "<Other>"),
            ("</Credentials>", ""),
        ] {
            let other = answer.replace(from, to);
            let found = read(&other);
            assert!(found.is_none() || from == "</Credentials>", "{other}");
        }
        for text in ["", "<", "hunter2", "<a><b><Credentials>", "{}"] {
            assert!(read(text).is_none(), "{text}");
        }
    }

    #[test]
    fn errors_of_a_service_are_quoted_without_the_password() {
        let ldap = LdapUserLogin {
            endpoint: "https://sts.example.com".parse().unwrap(),
            username: "me".to_owned(),
            password: RedactedValue::new("hunter2".to_owned()),
            tls: TlsConfig::default(),
        };
        let answer = "<ErrorResponse><Error><Type/><Code>InvalidParameterValue</Code>\
            <Message>LDAP server error: no hunter2</Message></Error></ErrorResponse>";
        let expected = " (InvalidParameterValue: LDAP server error: no ****)";
        assert_eq!(said(answer, &ldap), expected);
        assert_eq!(said("no", &ldap), "");
        assert!(!format!("{ldap:?}").contains("hunter2"));
    }
}
