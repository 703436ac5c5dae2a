//! The transit engine of HashiCorp Vault and OpenBao.
//!
//! The semantics are those of sops's `hcvault`, which uses Vault's own client.

use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use reqwest::header::{HeaderName, LOCATION};
use serde::Deserialize;
use serde_json::json;
use sops::KeyServiceCredentials;
use url::Url;

use super::{DataKey, KmsFailureReason, KmsHttpClient, KmsResponse, authorize, request, server};
use crate::bucket::http_request::{is_relative, path, segment};

/// The entry of the Secret.
const ENTRY: &str = "sops.vault-token";

const TOKEN: HeaderName = HeaderName::from_static("x-vault-token");

/// The most redirects. A standby server redirects to the active one.
const MAX_REDIRECTS: usize = 1;

/// A key of a transit engine.
pub(super) struct VaultTransitKey<'k> {
    pub(super) address: &'k str,
    pub(super) engine_path: &'k str,
    pub(super) key_name: &'k str,
}

#[derive(Deserialize)]
struct VaultDecryptResponse {
    data: VaultPlaintext,
}

#[derive(Deserialize)]
struct VaultPlaintext {
    plaintext: String,
}

#[derive(Default, Deserialize)]
struct VaultErrorBody {
    #[serde(default)]
    errors: Vec<String>,
}

impl VaultTransitKey<'_> {
    /// The place of the action, below the address of the server.
    fn action(&self) -> String {
        format!("{}/decrypt/{}", self.engine_path.trim_matches('/'), self.key_name)
    }

    /// Differs(flux): a path is never resolved. A file must not lead the token of a Secret to anything but a transit engine.
    fn url(&self) -> Result<Url, KmsFailureReason> {
        let engine = self.engine_path.trim_matches('/');
        let bad = |what: &str, text: &str| {
            KmsFailureReason::BadKey(format!(
                "`{}` is not {what}",
                crate::bucket::request_context::printable(text)
            ))
        };
        if is_relative(engine) || engine.split('/').any(str::is_empty) {
            return Err(bad("the path of a transit engine", self.engine_path));
        }
        if is_relative(self.key_name) || self.key_name.contains('/') {
            return Err(bad("the name of a transit key", self.key_name));
        }
        let address = || bad("the address of a Vault server", self.address);
        let base = server(self.address).ok_or_else(address)?;
        let base = base.as_str().trim_end_matches('/');
        let url = format!("{base}/v1/{}/decrypt/{}", path(engine), segment(self.key_name));
        Url::parse(&url).map_err(|_unread| address())
    }
}

/// Differs(flux): only a token of the Secret is sent. The file names the server, which must not get one of the environment.
pub(super) async fn decrypt(
    wire: &KmsHttpClient,
    credentials: &KeyServiceCredentials,
    transit: &VaultTransitKey<'_>,
    encrypted: &str,
) -> Result<DataKey, KmsFailureReason> {
    let token = credentials.vault_token.as_deref().filter(|token| !token.is_empty());
    let token = token.ok_or(KmsFailureReason::NoCredentials(ENTRY))?;
    let body = json!({"ciphertext": encrypted}).to_string().into_bytes();
    let mut url = transit.url()?;
    for left in (0..=MAX_REDIRECTS).rev() {
        let mut request = request(Method::PUT, url.clone(), body.clone());
        authorize(&mut request, TOKEN, token).map_err(|_unsent| {
            let problem = "it has characters that no token has".to_owned();
            KmsFailureReason::BadSecret { entry: ENTRY, problem }
        })?;
        let answer = wire.send(request).await?;
        match redirected(&answer, &url) {
            Some(next) if left > 0 => url = next,
            _ => return read(&answer, token, transit),
        }
    }
    Err(KmsFailureReason::Unsupported)
}

/// The URL of the active server, if a response of Vault redirects to it. `None` if it does not, or if TLS would be
/// left.
fn redirected(answer: &KmsResponse, from: &Url) -> Option<Url> {
    if !matches!(answer.status, 301 | 302 | 307 | 308) {
        return None;
    }
    let next = from.join(answer.headers.get(LOCATION)?.to_str().ok()?).ok()?;
    // Parity(flux): TLS is never left.
    let is_kept = matches!((from.scheme(), next.scheme()), ("http", "http") | (_, "https"));
    is_kept.then_some(next)
}

fn read(
    answer: &KmsResponse,
    token: &[u8],
    transit: &VaultTransitKey<'_>,
) -> Result<DataKey, KmsFailureReason> {
    if answer.is_success() {
        return answer.data_key(|read: VaultDecryptResponse| read.data.plaintext, &STANDARD);
    }
    let refusal: VaultErrorBody = serde_json::from_slice(&answer.body).unwrap_or_default();
    let advice = match answer.status {
        401 | 403 => format!(
            "; check that the token in `{ENTRY}` is valid, and that its policies allow `update` of `{}`",
            transit.action()
        ),
        _ => String::new(),
    };
    let said = refusal.errors.join(", ");
    Err(answer.refused(&said, &[&*String::from_utf8_lossy(token)], advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_leads_a_token_to_transit_engines_only() {
        let url = |address, engine_path, key_name| {
            let url = VaultTransitKey { address, engine_path, key_name }.url();
            url.map(String::from).map_err(|why| why.to_string())
        };
        let of = |path: &str| Ok(format!("https://vault.example:8200/v1/{path}"));
        let at = "https://vault.example:8200";
        assert_eq!(url(at, "sops", "one"), of("sops/decrypt/one"));
        assert_eq!(
            url("https://vault.example:8200/", "/team/sops/", "a b"),
            of("team/sops/decrypt/a%20b")
        );
        for (address, engine, key) in [
            (at, "sops/../../sys/policy", "one"),
            (at, "", "one"),
            (at, "a//b", "one"),
            (at, "sops", ".."),
            (at, "sops", "../../auth/token/revoke-self"),
            (at, "sops", ""),
            ("https://user:pw@vault.example", "sops", "one"),
            ("https://vault.example/?a=", "sops", "one"),
            ("https://vault.example/#", "sops", "one"),
            ("file:///etc", "sops", "one"),
            ("vault.example", "sops", "one"),
        ] {
            let why = url(address, engine, key).unwrap_err();
            assert!(why.contains(" is not the ") && why.contains("correct the file"), "{why}");
        }
        assert_eq!(url(at, "a/%2e%2e/b", "?x#y"), of("a/%252e%252e/b/decrypt/%3Fx%23y"));
    }

    #[test]
    fn a_standby_may_name_the_active_server_and_tls_is_never_left() {
        let answer = |status, location: &str| KmsResponse {
            host: String::new(),
            status,
            headers: [(LOCATION, location.parse().unwrap())].into_iter().collect(),
            body: Vec::new().into(),
        };
        let from = Url::parse("https://one.example/v1/sops/decrypt/k").unwrap();
        let next =
            |status, location| redirected(&answer(status, location), &from).map(String::from);
        let active = "https://two.example/v1/sops/decrypt/k";
        assert_eq!(next(307, active).as_deref(), Some(active));
        assert_eq!(next(307, "http://two.example/v1/sops/decrypt/k"), None);
        assert_eq!(next(307, "file:///etc"), None);
        assert_eq!(next(200, active), None);
    }
}
