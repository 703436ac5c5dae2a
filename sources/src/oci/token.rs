//! Requests tokens of registries from token services, and tracks how long the tokens last.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use objects::RedactedValue;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request};
use serde::Deserialize;
use url::Url;

use super::http_request::{bare, is_off_limits};
use super::registry_response::{accepted_text, read_text, shown};
use super::{Error, RegistryAuth, RegistrySession};

/// Bytes of an answer.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// The life of a token that does not have one.
const USUAL_LIFE: u64 = 60;
/// The longest accepted lifetime of a token in seconds.
const LONGEST_LIFE: u64 = 24 * 3600;

/// A value of the `Authorization` header, and how long it can be used.
pub(super) struct RegistryToken {
    pub(super) header: RedactedValue<String>,
    pub(super) life: Duration,
}

#[derive(Deserialize)]
struct RegistryTokenResponse {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

/// The header value for a user and a password.
pub(super) fn basic(username: &str, password: &RedactedValue<String>) -> RedactedValue<String> {
    let pair = format!("{username}:{}", password.expose());
    RedactedValue::new(format!("Basic {}", STANDARD.encode(pair)))
}

/// Requests a token that only allows to pull from the client's repository.
pub(super) async fn fetch(
    client: &RegistrySession<'_>,
    is_plain: bool,
    realm: &str,
    service: Option<&str>,
) -> Result<RegistryToken, Error> {
    let about = format!("the challenge of {}", client.remote.repository.registry());
    let mut url = Url::parse(realm).map_err(|_unread| Error::Protocol {
        request: about.clone(),
        reason: "it has no token URL".to_owned(),
    })?;
    if let Some(reason) = is_off_limits(&url, is_plain) {
        return Err(Error::Redirected { request: about, to: shown(&bare(&url)), reason });
    }
    let scope = format!("repository:{}:pull", client.remote.repository.path());
    let place = shown(&bare(&url));
    let mut request = match client.auth() {
        RegistryAuth::Identity(refresh) => {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.append_pair("grant_type", "refresh_token")
                .append_pair("client_id", "windlass")
                .append_pair("refresh_token", refresh.expose())
                .append_pair("scope", &scope)
                .append_pair("service", service.unwrap_or_default());
            let mut request = Request::new(Method::POST, url);
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().insert(CONTENT_TYPE, kind);
            *request.body_mut() = Some(form.finish().into());
            request
        }
        RegistryAuth::Anonymous
        | RegistryAuth::Basic { .. }
        | RegistryAuth::Login { .. }
        | RegistryAuth::Bearer(_) => {
            {
                let mut query = url.query_pairs_mut();
                query.append_pair("scope", &scope);
                if let Some(service) = service {
                    query.append_pair("service", service);
                }
            }
            Request::new(Method::GET, url)
        }
    };
    if let RegistryAuth::Basic { username, password } | RegistryAuth::Login { username, password } =
        client.auth()
    {
        request.headers_mut().insert(AUTHORIZATION, value(&basic(username, password))?);
    }
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let asked = format!("{} {place}", request.method());
    let answer = client.execute(request).await?;
    let answer = accepted_text(client, &asked, answer).await?;
    let bytes = read_text(client, &asked, answer, MAX_RESPONSE_BYTES).await?;
    parse(&bytes).ok_or_else(|| Error::Protocol {
        request: asked,
        reason: "its token is invalid".to_owned(),
    })
}

/// Parses the token in a response. `None` if it cannot be parsed, so that no part of it is repeated in an error.
fn parse(bytes: &[u8]) -> Option<RegistryToken> {
    let answer: RegistryTokenResponse = serde_json::from_slice(bytes).ok()?;
    let given = [answer.token, answer.access_token].into_iter().flatten();
    let token = given.into_iter().find(|token| !token.is_empty())?;
    let header = RedactedValue::new(format!("Bearer {token}"));
    value(&header).ok()?;
    let life = answer.expires_in.filter(|life| *life > 0).unwrap_or(USUAL_LIFE);
    // A request with the token may take a while, so its last fifth is not used.
    let life = Duration::from_secs(life.min(LONGEST_LIFE)) * 4 / 5;
    Some(RegistryToken { header, life })
}

/// A sensitive header, which is left out where requests are printed.
pub(super) fn value(header: &RedactedValue<String>) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(header.expose()).map_err(|_unprintable| {
        Error::BadSecret("the credentials of the registry cannot be sent in a header".to_owned())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lasts_four_fifths_of_its_life() {
        let life = |text: &str| parse(text.as_bytes()).map(|token| token.life.as_secs());
        assert_eq!(life(r#"{"token":"a","expires_in":300}"#), Some(240));
        assert_eq!(life(r#"{"access_token":"a"}"#), Some(48));
        assert_eq!(life(r#"{"token":"","access_token":"a","expires_in":0}"#), Some(48));
        assert_eq!(life(r#"{"token":"a","expires_in":18446744073709551615}"#), Some(69_120));
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"token":"a\nb"}"#,
            r#"{"token":1}"#,
            r#"{"token":"a","expires_in":-1}"#,
        ] {
            assert_eq!(life(bad), None, "{bad}");
        }
    }
}
