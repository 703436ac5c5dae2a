//! Signed calls to AWS services by their JSON protocol. It is for services of which windlass needs only one action, since a
//! library for each would be too much.
//!
//! Elsewhere: the credentials (`credentials`), the requests and the meaning of the answers (`oci::ecr`, `kms::aws`).

use std::env;
use std::time::SystemTime;

use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use aws_smithy_runtime_api::client::identity::Identity;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use serde::Deserialize;
use url::Url;

const MEDIA_TYPE: &str = "application/x-amz-json-1.1";
const TARGET: &str = "x-amz-target";

/// A signed call of an AWS service that takes and returns JSON.
pub(crate) struct AwsJsonCall<'a> {
    pub(crate) url: &'a Url,
    pub(crate) region: &'a str,
    /// The name of the service in signatures.
    pub(crate) service: &'a str,
    /// The action.
    pub(crate) target: &'a str,
    pub(crate) body: &'a [u8],
}

impl AwsJsonCall<'_> {
    /// The request, signed with these credentials.
    ///
    /// # Errors
    /// Why it cannot be signed.
    pub(crate) fn signed(&self, keys: &Identity) -> Result<Request, String> {
        let unsigned = |why: &dyn std::error::Error| format!("cannot sign the request: {why}");
        let parameters = SigningParams::builder()
            .identity(keys)
            .region(self.region)
            .name(self.service)
            .time(SystemTime::now())
            .settings(SigningSettings::default())
            .build();
        let parameters = parameters.map_err(|error| unsigned(&error))?.into();
        let headers = [(CONTENT_TYPE.as_str(), MEDIA_TYPE), (TARGET, self.target)];
        let method = Method::POST;
        let body = SignableBody::Bytes(self.body);
        let signable =
            SignableRequest::new(method.as_str(), self.url.as_str(), headers.into_iter(), body);
        let signature = sign(signable.map_err(|error| unsigned(&error))?, &parameters);
        let (additions, _) = signature.map_err(|error| unsigned(&error))?.into_parts();
        let mut request = Request::new(method, self.url.clone());
        for (name, value) in headers.into_iter().chain(additions.headers()) {
            let name = HeaderName::try_from(name).map_err(|error| unsigned(&error))?;
            // Keys of the environment are any text.
            let mut value = HeaderValue::from_str(value).map_err(|error| unsigned(&error))?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        *request.body_mut() = Some(self.body.to_vec().into());
        Ok(request)
    }
}

/// The endpoint of a service in the environment, as AWS's own programs read it. It is in the variable `own` of the service, or
/// in `AWS_ENDPOINT_URL`.
///
/// # Errors
/// The variable with this name is not a URL.
pub(crate) fn endpoint_of_environment(own: &str) -> Result<Option<Url>, String> {
    for name in [own, "AWS_ENDPOINT_URL"] {
        if let Some(url) = env::var(name).ok().filter(|url| !url.is_empty()) {
            let bad = |error| format!("environment variable {name}: {error}");
            return Url::parse(&url).map(Some).map_err(bad);
        }
    }
    Ok(None)
}

/// The message in an error response, with a colon before it.
pub(crate) fn said(text: &[u8]) -> String {
    #[derive(Deserialize)]
    struct AwsJsonErrorBody {
        #[serde(rename = "__type", default)]
        kind: String,
        #[serde(alias = "Message", default)]
        message: String,
    }
    let Ok(AwsJsonErrorBody { kind, message }) = serde_json::from_slice(text) else {
        return String::new();
    };
    format!(": {}", [kind, message].join(" ").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_says_is_its_type_and_message() {
        assert_eq!(said(br#"{"__type":"Denied","message":"no"}"#), ": Denied no");
        assert_eq!(said(b"<html>"), "");
    }
}
