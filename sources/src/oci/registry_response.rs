//! Answers of registries: bodies of a bounded size, digests in headers, and the messages of refusals.

use std::time::Duration;

use objects::RedactedValue;
use reqwest::header::RETRY_AFTER;
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;

use super::http_request::bare;
use super::{Error, OciDigest, RegistryAuth, RegistrySession};

/// Bytes of a refusal that are read.
const LONGEST_REFUSAL: u64 = 64 << 10;
/// Characters of a foreign text that are shown.
const MOST_SHOWN: usize = 300;
/// The longest time that a registry may ask us to stay away.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The error body of the specification.
#[derive(Deserialize)]
struct RegistryErrorBody {
    #[serde(default)]
    errors: Vec<RegistryErrorDetail>,
}

#[derive(Deserialize)]
struct RegistryErrorDetail {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// The digest in the response's header. `None` if the header is missing or not valid.
pub(super) fn digest(answer: &Response) -> Option<OciDigest> {
    let header = answer.headers().get("docker-content-digest")?;
    OciDigest::parse(header.to_str().ok()?).ok()
}

/// A text of the registry as messages show it: short, and on one line.
pub(super) fn shown(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut shown: String = clean.take(MOST_SHOWN).collect();
    if shown.len() < text.len() && shown.chars().count() == MOST_SHOWN {
        shown.push('…');
    }
    shown
}

/// The body of an answer about a path of the repository.
pub(super) async fn read(
    client: &RegistrySession<'_>,
    path: &str,
    answer: Response,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    let what = format!("{}: {path}", client.remote.repository);
    read_text(client, &what, answer, limit).await
}

/// The body of an answer.
pub(super) async fn read_text(
    client: &RegistrySession<'_>,
    what: &str,
    mut answer: Response,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| client.unanswered(&error))? {
        if (bytes.len() + chunk.len()) as u64 > limit {
            return Err(Error::TooLarge { what: what.to_owned(), limit });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// A successful response, to a request for a path of the repository.
pub(super) async fn accepted(
    client: &RegistrySession<'_>,
    method: Method,
    path: &str,
    answer: Response,
) -> Result<Response, Error> {
    let url = client.url(path).map(|url| bare(&url)).unwrap_or_default();
    accepted_text(client, &format!("{method} {url}"), answer).await
}

/// Returns a successful response. Any other response becomes an error.
pub(super) async fn accepted_text(
    client: &RegistrySession<'_>,
    request: &str,
    mut answer: Response,
) -> Result<Response, Error> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    let retry_after = seconds.map(|it| Duration::from_secs(it).min(LONGEST_WAIT));
    let mut body = Vec::new();
    // A body that cannot be read completely adds nothing to the error.
    while let Ok(Some(chunk)) = answer.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() as u64 > LONGEST_REFUSAL {
            break;
        }
    }
    let said = hidden(client.auth(), &said(status, &body));
    let request = request.to_owned();
    Err(match status.as_u16() {
        401 | 403 => Error::Unauthorized { request, said },
        404 => Error::NotFound { request, said },
        408 | 429 | 500.. => Error::Unavailable { request, said, retry_after },
        _ => Error::Refused { request, said },
    })
}

/// Parity(flux): the codes and messages of the registry, else the status.
fn said(status: StatusCode, body: &[u8]) -> String {
    let errors =
        serde_json::from_slice::<RegistryErrorBody>(body).map(|it| it.errors).unwrap_or_default();
    let strings: Vec<String> =
        errors.iter().take(4).map(|it| format!("{}: {}", it.code, it.message)).collect();
    match strings.as_slice() {
        [] => {
            let text = status.canonical_reason().unwrap_or_default();
            format!("unexpected status code {} {text}", status.as_u16()).trim_end().to_owned()
        }
        [one] => shown(one),
        several => shown(&format!("multiple errors returned: {}", several.join("; "))),
    }
}

/// Removes the credentials from a text in which a registry may have repeated them.
fn hidden(auth: &RegistryAuth, text: &str) -> String {
    let secret: Option<&RedactedValue<String>> = match auth {
        RegistryAuth::Anonymous => None,
        RegistryAuth::Basic { password: secret, .. }
        | RegistryAuth::Login { password: secret, .. }
        | RegistryAuth::Identity(secret)
        | RegistryAuth::Bearer(secret) => Some(secret),
    };
    match secret.map(RedactedValue::expose).filter(|secret| !secret.is_empty()) {
        Some(secret) => text.replace(secret.as_str(), "****"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_the_registry_says_and_no_secret() {
        let said =
            |code: u16, body: &str| said(StatusCode::from_u16(code).unwrap(), body.as_bytes());
        let body = r#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required","detail":[{"x":1}]}]}"#;
        assert_eq!(said(401, body), "UNAUTHORIZED: authentication required");
        let two = r#"{"errors":[{"code":"A","message":"a\nb"},{"code":"B"}]}"#;
        assert_eq!(said(400, two), "multiple errors returned: A: a b; B: ");
        assert_eq!(said(502, "<html>"), "unexpected status code 502 Bad Gateway");
        assert_eq!(said(404, r#"{"errors":null}"#), "unexpected status code 404 Not Found");
        assert!(
            said(400, &format!(r#"{{"errors":[{{"message":"{}"}}]}}"#, "x".repeat(9000))).len()
                < 400
        );
        let auth = RegistryAuth::Basic {
            username: "me".into(),
            password: RedactedValue::new("hunter2".into()),
        };
        assert_eq!(hidden(&auth, "no hunter2 here"), "no **** here");
    }
}
