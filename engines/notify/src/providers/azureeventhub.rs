//! Type `azureeventhub`: the event as a message for an Event Hub, over AMQP.

use std::collections::BTreeMap;

use crate::event::Event;
use crate::http::Flow;
use crate::options::Options;
use crate::parcel::{EventHubLogin, EventHubMessage, Parcel};

pub(super) fn flow(options: Options, event: Event) -> Flow {
    let shared = options.url.contains("SharedAccessKey");
    if let Err(error) = check(&options, shared) {
        return Flow::refused(format!("invalid authentication options: {error}"));
    }
    let data = event.to_json();
    let message = if shared {
        match by_shared_key(&options.url, data) {
            Ok(message) => message,
            Err(error) => {
                return Flow::refused(format!("failed to create a eventhub using SAS: {error}"));
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
    let message = Parcel::EventHub(Box::new(message));
    Flow::Publish(
        message,
        Box::new(|result| {
            Flow::end(result.map_err(|error| format!("failed to send msg: {error}")))
        }),
    )
}

fn check(options: &Options, shared: bool) -> Result<(), &'static str> {
    let (has_account, has_token) = (!options.service_account.is_empty(), !options.token.is_empty());
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

fn host(namespace: &str) -> String {
    if namespace.contains(".servicebus.") {
        return namespace.to_owned();
    }
    format!("{namespace}.servicebus.windows.net")
}

/// Reads a connection string: pairs with `=`, separated by `;`.
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
    let (name, key) = (take("SharedAccessKeyName"), take("SharedAccessKey"));
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
