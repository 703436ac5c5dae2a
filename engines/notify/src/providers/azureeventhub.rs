//! Type `azureeventhub`: sends the event as a message to an Event Hub.
//!
//! Differs(flux): the message is sent to the REST interface of the hub, not over AMQP; consumers see the same body.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use crate::delivery_message::{DeliveryMessage, EventHubLogin, EventHubMessage};
use crate::event::FluxEvent;
use crate::event_delivery::{ProviderNextAction, ProviderRequest};
use crate::go_string_functions::{is_relative, path_element};
use crate::provider_options::ProviderOptions;

/// How long a token made from a shared key is valid, in seconds.
const TOKEN_LIFE: i64 = 300;

/// The ends of the host names in Azure's clouds.
const DOMAINS: [&str; 4] = [
    ".servicebus.windows.net",
    ".servicebus.chinacloudapi.cn",
    ".servicebus.usgovcloudapi.net",
    ".servicebus.cloudapi.de",
];

impl EventHubMessage {
    /// The request that sends the message. `now` is in seconds since 1970. `token` is the token of the sending identity, which
    /// [`EventHubLogin::Identity`] needs.
    pub fn request(&self, now: i64, token: &str) -> ProviderRequest {
        let hub = format!("https://{}/{}", self.host, path_element(&self.hub));
        let authorization = match &self.login {
            EventHubLogin::SharedKey(name, key) => signature(&hub, name, key, now + TOKEN_LIFE),
            EventHubLogin::Token(token) if token.starts_with("SharedAccessSignature ") => {
                token.clone()
            }
            EventHubLogin::Token(token) => format!("Bearer {token}"),
            EventHubLogin::Identity(_) => format!("Bearer {token}"),
        };
        ProviderRequest::new("POST", format!("{hub}/messages?timeout=60&api-version=2014-01"))
            .header("Authorization", authorization)
            .header("Content-Type", "application/json")
            .body(self.data.clone())
    }
}

/// A shared access signature: the resource, the end of its validity, and the name of the key.
fn signature(resource: &str, name: &str, key: &str, until: i64) -> String {
    let encoded = |bytes: &[u8]| percent_encode(bytes, NON_ALPHANUMERIC).to_string();
    let resource = encoded(resource.as_bytes());
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let tag = hmac::sign(&key, format!("{resource}\n{until}").as_bytes());
    let tag = encoded(STANDARD.encode(tag).as_bytes());
    format!(
        "SharedAccessSignature sr={resource}&sig={tag}&se={until}&skn={}",
        encoded(name.as_bytes())
    )
}

pub(super) fn flow(options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    let shared = options.url.contains("SharedAccessKey");
    if let Err(error) = check(&options, shared) {
        return ProviderNextAction::refused(format!("invalid authentication options: {error}"));
    }
    let data = event.to_json();
    let message = if shared {
        match by_shared_key(&options.url, data) {
            Ok(message) => message,
            Err(error) => {
                return ProviderNextAction::refused(format!(
                    "failed to create a eventhub using SAS: {error}"
                ));
            }
        }
    } else {
        let login = if options.token.is_empty() {
            EventHubLogin::Identity(options.service_account)
        } else {
            EventHubLogin::Token(options.token)
        };
        EventHubMessage { host: host(&options.channel), hub: options.url, login, data }
    };
    if is_relative(&message.hub) {
        return ProviderNextAction::refused(
            "failed to create a eventhub: the name of the hub is invalid",
        );
    }
    if message.host.contains(['/', '?', '#', '@', '\\']) {
        return ProviderNextAction::refused(
            "failed to create a eventhub: the namespace is not a host name",
        );
    }
    if matches!(message.login, EventHubLogin::Identity(_)) && !is_of_azure(&message.host) {
        return ProviderNextAction::refused(
            "failed to create a eventhub: without a token, the channel has to be an Event Hubs namespace of Azure",
        );
    }
    let message = DeliveryMessage::EventHub(Box::new(message));
    ProviderNextAction::Publish(
        message,
        Box::new(|result| {
            ProviderNextAction::end(result.map_err(|error| format!("failed to send msg: {error}")))
        }),
    )
}

fn check(options: &ProviderOptions, shared: bool) -> Result<(), &'static str> {
    let has_account = !options.service_account.is_empty();
    let has_token = !options.token.is_empty();
    match (shared, has_account, has_token) {
        _ if options.url.is_empty() => Err("endpoint URL cannot be empty"),
        (true, true, _) => {
            Err("serviceAccountName and SAS authentication cannot be set at the same time")
        }
        (true, _, true) => Err("jwt token and SAS authentication cannot be set at the same time"),
        (false, true, true) => {
            Err("serviceAccountName and jwt token authentication cannot be set at the same time")
        }
        _ => Ok(()),
    }
}

/// Whether a host belongs to Azure. No other host may receive a token of the machine's identity.
fn is_of_azure(host: &str) -> bool {
    let is_label = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    DOMAINS.iter().any(|domain| host.strip_suffix(domain).is_some_and(is_label))
}

fn host(namespace: &str) -> String {
    if namespace.contains(".servicebus.") {
        return namespace.to_owned();
    }
    format!("{namespace}.servicebus.windows.net")
}

/// Reads a connection string: pairs of the form `key=value`, separated by `;`.
fn by_shared_key(text: &str, data: Vec<u8>) -> Result<EventHubMessage, String> {
    let mut pairs = BTreeMap::new();
    for pair in text.split(';').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or(
            "failed parsing connection string due to unmatched key value separated by '='",
        )?;
        pairs.insert(key.to_lowercase(), value.to_owned());
    }
    let mut take = |key: &str| pairs.remove(&key.to_lowercase()).filter(|it| !it.is_empty());
    let endpoint = take("Endpoint").ok_or("key \"Endpoint\" must not be empty")?;
    let name = take("SharedAccessKeyName");
    let key = take("SharedAccessKey");
    let signature = take("SharedAccessSignature");
    let login = match (name, key, signature) {
        (Some(name), Some(key), _) => EventHubLogin::SharedKey(name, key),
        (_, _, Some(signature)) => EventHubLogin::Token(signature),
        (None, ..) => return Err("key \"SharedAccessKeyName\" must not be empty".to_owned()),
        (_, None, _) => {
            return Err(
                "key \"SharedAccessKey\" or \"SharedAccessSignature\" cannot both be empty"
                    .to_owned(),
            );
        }
    };
    let hub = take("EntityPath").ok_or(
        "connection string does not contain an EntityPath. eventHub cannot be an empty string",
    )?;
    let host = endpoint.split_once("://").map_or(&*endpoint, |(_, rest)| rest);
    Ok(EventHubMessage { host: host.trim_end_matches('/').to_owned(), hub, login, data })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(login: EventHubLogin) -> EventHubMessage {
        let host = "ns.servicebus.windows.net".to_owned();
        let hub = "events".to_owned();
        EventHubMessage { host, hub, login, data: b"{}".to_vec() }
    }

    /// The tag was computed with Python's `hmac` from the documented string to sign.
    #[test]
    fn a_shared_key_signs_the_address_of_the_hub_and_a_time() {
        let login = EventHubLogin::SharedKey("send".to_owned(), "c2VjcmV0".to_owned());
        let request = message(login).request(1_800_000_000, "");
        assert_eq!(
            request.url,
            "https://ns.servicebus.windows.net/events/messages?timeout=60&api-version=2014-01"
        );
        assert_eq!(
            request.get("authorization"),
            Some(
                "SharedAccessSignature sr=https%3A%2F%2Fns%2Eservicebus%2Ewindows%2Enet%2Fevents&sig=3Xmb0EFSPFp7mPwzLMamsebS5sTHMoPMWllWs9Uc5Rc%3D&se=1800000300&skn=send"
            )
        );
    }

    #[test]
    fn the_token_of_the_machine_is_for_hosts_of_azure() {
        assert!(is_of_azure("shop.servicebus.windows.net"));
        for host in [
            "x.servicebus.evil.example",
            "evil.example/.servicebus.windows.net",
            "evil.example#.servicebus.windows.net",
            ".servicebus.windows.net",
            "a@evil.example.servicebus.windows.net",
        ] {
            assert!(!is_of_azure(host), "{host}");
        }
    }

    #[test]
    fn a_token_is_shown_as_it_was_given() {
        for (login, shown) in [
            (EventHubLogin::Token("ey.a.b".to_owned()), "Bearer ey.a.b"),
            (
                EventHubLogin::Token("SharedAccessSignature sr=a".to_owned()),
                "SharedAccessSignature sr=a",
            ),
            (EventHubLogin::Identity(String::new()), "Bearer of-the-machine"),
        ] {
            assert_eq!(
                message(login).request(0, "of-the-machine").get("authorization"),
                Some(shown)
            );
        }
    }
}
