//! Advice about remotes: what to check if a source, a chart or tags cannot be fetched, a commit cannot be pushed, or a
//! service does not accept notifications.
//!
//! The error messages of remotes (`sources`) are read for advice only. Elsewhere: Secrets that do not exist
//! (`missing_objects_and_keys.rs`).

use objects::{Object, ObjectId};
use serde_json::Value;

use super::CauseRelatedObjects;
use crate::cause_result::RootCause;
use crate::condition::text;
use crate::object_references;

/// Part of the message when the server's address belongs to windlass itself (`http_client`).
const OWN_ADDRESS: &str = "resolves to windlass itself or to its node";

/// Parts of error messages of servers that do not accept the credentials, or require some.
const UNAUTHENTICATED: [&str; 4] = [
    "authentication failed",
    "check the registry credentials",
    "cannot log in to ",
    "HTTP status 401",
];

/// Parts of error messages of servers that were reached but do not have the requested repository or file.
const NO_SUCH_PLACE: [&str; 4] =
    ["repository not found at", "HTTP status 404", "NAME_UNKNOWN", "repository name not known"];

/// Parts of error messages about a server's certificate that is not trusted.
const UNTRUSTED: [&str; 2] = ["is not trusted", "invalid peer certificate"];

/// Parts of error messages about a certificate that is not valid at the present time.
const EXPIRED: [&str; 4] =
    ["certificate expired", "it expired at ", "not valid yet", "it is not valid before "];

/// Part of the message when a server shows the certificate of a certificate authority (`http_client`).
const OF_AUTHORITY: &str = "it is the certificate of an authority";

/// The fields of a spec that may have the remote's address. A spec has one of them.
const ADDRESS_FIELDS: [&str; 3] = ["url", "endpoint", "image"];

/// The object whose spec has the address and the credentials.
struct ObjectWithRemoteAddress<'o> {
    /// The object, if it is known.
    object: Option<&'o Object>,
    /// Words that name the object after a field, if it is not the failing object itself.
    of: String,
    /// Whether commits are pushed to the remote.
    is_pushed: bool,
}

impl<'o> ObjectWithRemoteAddress<'o> {
    fn of(about: CauseRelatedObjects<'o>) -> Self {
        let other = about.held.and_then(object_references::remote);
        let is_pushed = about.held.is_some_and(|it| it.kind() == "ImageUpdateAutomation");
        match other {
            Some(id) => {
                Self { object: about.remote, of: format!(" of {}", id.subject()), is_pushed }
            }
            None => Self { object: about.held, of: String::new(), is_pushed },
        }
    }

    fn spec(&self) -> &'o Value {
        self.object.and_then(|it| it.get("spec")).unwrap_or(&Value::Null)
    }

    /// The Secret that a field of the spec names, as text for users. `None` if the field names none.
    fn secret(&self, field: &str) -> Option<String> {
        let name = Some(text(self.spec().get(field)?, "name")).filter(|name| !name.is_empty())?;
        Some(ObjectId::new(self.object?.namespace(), name, "", "Secret").subject())
    }

    /// A field of the spec that says what is fetched, together with its value, as text for users. `None` if the field
    /// is empty, not a text or too long.
    fn value(&self, path: &str) -> Option<String> {
        let mut value = self.spec();
        for part in path.split('.') {
            value = value.get(part)?;
        }
        let value = value.as_str().filter(|it| !it.is_empty() && it.len() < 256)?;
        Some(format!("spec.{path} `{value}`"))
    }
}

/// Advice which fields to check when a remote does not do what is requested. These are the fields that determine the
/// request.
pub(super) fn fetch(cause: &RootCause, about: CauseRelatedObjects<'_>) -> String {
    if cause.text.contains(OWN_ADDRESS) {
        return "name another server; where windlass shall fetch from its own node, such as in tests, start it with \
                --allow-loopback-sources"
            .to_owned();
    }
    if says(&cause.text, &UNAUTHENTICATED) {
        return credentials(cause, about);
    }
    let owner = ObjectWithRemoteAddress::of(about);
    let of = &owner.of;
    if says(&cause.text, &UNTRUSTED) {
        return certificate(&cause.text, &owner);
    }
    if owner.is_pushed && cause.text.contains("command error on") {
        let account = owner.secret("secretRef").unwrap_or_else(|| format!("spec.secretRef{of}"));
        return format!(
            "give the account in {account} the right to push there, follow the rule that the server names, or push to \
             another branch (spec.git.push.branch)"
        );
    }
    if cause.text.contains("the host key of ") {
        let secret = owner.secret("secretRef").unwrap_or_else(|| format!("spec.secretRef{of}"));
        return format!(
            "compare the fingerprint with the one that the server's administrator publishes; if it is right, correct \
             `known_hosts` in {secret}"
        );
    }
    let field = ADDRESS_FIELDS.into_iter().find(|key| !text(owner.spec(), key).is_empty());
    let place = field.map(|field| format!("spec.{field}{of}"));
    if let (Some(field), Some(place)) = (field, &place)
        && let Some(help) = unreachable(&cause.text, &owner, field, place)
    {
        return help;
    }
    // The address of a chart's archive comes from the index of its repository.
    let is_place = about.held.is_none_or(|it| it.kind() != "HelmChart");
    let is_absent = is_place && says(&cause.text, &NO_SUCH_PLACE);
    if let Some(place) = place.as_ref().filter(|_| is_absent) {
        let access = match owner.secret("secretRef") {
            Some(secret) => format!("the credentials in {secret} do not admit to it"),
            None => format!("it is private: name a Secret in spec.secretRef{of}"),
        };
        return format!("correct {place}: the server has nothing there, or {access}");
    }
    let which = [
        "ref.commit",
        "ref.name",
        "ref.semver",
        "ref.tag",
        "ref.digest",
        "ref.branch",
        "bucketName",
    ];
    let which = which.into_iter().find_map(|path| owner.value(path));
    let chart = || {
        let chart = about.held.filter(|it| it.kind() == "HelmChart")?.get("spec")?;
        let name = Some(text(chart, "chart")).filter(|name| !name.is_empty())?;
        Some(match text(chart, "version") {
            "" => format!("spec.chart `{name}`"),
            version => format!("spec.chart `{name}` in spec.version `{version}`"),
        })
    };
    let which = which.or_else(chart);
    // The server has answered, so it is reached.
    let is_answered = cause.text.contains(" not found in ");
    if let Some(which) = which.as_ref().filter(|_| is_answered) {
        return format!("correct {which}{of}, or push what it names");
    }
    match (which, place) {
        (Some(which), Some(place)) => format!(
            "check whether {which} exists, whether {place} is right, and whether the cluster reaches that server"
        ),
        (Some(which), None) => format!("check whether {which} exists there"),
        (None, Some(place)) => {
            format!("check {place}, and whether the cluster reaches that server")
        }
        (None, None) => "check what the spec names, and whether the cluster reaches it".to_owned(),
    }
}

/// Advice when the service of a Provider does not accept notifications.
pub(super) fn delivery(cause: &RootCause, about: CauseRelatedObjects<'_>) -> String {
    let provider = cause.object.subject();
    let of = format!(" of {provider}");
    let owner = ObjectWithRemoteAddress { object: about.held, of, is_pushed: false };
    let address = format!("spec.address of {provider}");
    let place = match (owner.secret("secretRef"), text(owner.spec(), "address")) {
        (None, _) => address,
        (Some(secret), "") => format!("`address` of {secret}"),
        (Some(secret), _) => format!("{address} (or in `address` of {secret}, which counts first)"),
    };
    let what = match cause.text.as_str() {
        said if said.contains("not valid for name") => {
            Some(format!("name a host in {place} that the certificate of the server has"))
        }
        said if says(said, &UNTRUSTED) => Some(certificate(said, &owner)),
        said => unreachable(said, &owner, "address", &place),
    };
    let what = what
        .unwrap_or_else(|| format!("correct {provider} or its Secret by what the service says"));
    format!(
        "{what}; notifications that wait are sent when the service accepts them, those that it refused are not sent again"
    )
}

/// Advice if the message says that no connection can be made, so that nothing can be said about the server's content.
/// `None` if the message is about another failure.
fn unreachable(
    said: &str,
    owner: &ObjectWithRemoteAddress<'_>,
    field: &str,
    place: &str,
) -> Option<String> {
    // A URL may hold credentials.
    let host = match host(text(owner.spec(), field)) {
        Some(host) => format!(" `{host}`"),
        None => String::new(),
    };
    let proxy = match owner.secret("proxySecretRef") {
        Some(secret) => format!(", or the address of the proxy in {secret}"),
        None => String::new(),
    };
    if said.contains("failed to lookup address") {
        return Some(format!(
            "check the host{host} in {place}{proxy}: its name is not resolved where windlass runs"
        ));
    }
    if said.contains("onnection refused") {
        return Some(format!(
            "check host and port{host} in {place}{proxy}: no server listens there, or a firewall rejects the connection"
        ));
    }
    said.contains("cannot connect").then(|| {
        format!(
            "check the host{host} in {place}{proxy}: whether its name is resolved where windlass runs, and whether it is \
             reached from there"
        )
    })
}

/// The host of a URL or an image, with its port. `None` if the text has another form.
fn host(address: &str) -> Option<&str> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let is_host = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']')
    };
    let is_of_url = address.contains("://") || host.contains(['.', ':']) || host == "localhost";
    (is_of_url && !host.is_empty() && host.bytes().all(is_host)).then_some(host)
}

fn certificate(said: &str, owner: &ObjectWithRemoteAddress<'_>) -> String {
    let of = &owner.of;
    let mut fields = ADDRESS_FIELDS.into_iter().chain(["address"]);
    let server = match fields.find_map(|field| host(text(owner.spec(), field))) {
        Some(host) => format!("the server `{host}`"),
        None => "that server".to_owned(),
    };
    if says(said, &EXPIRED) {
        return format!(
            "renew the certificate of {server}, or correct the clock where windlass runs"
        );
    }
    if said.contains("not valid for name") {
        return format!("name a host in spec.url{of} that the certificate of the server has");
    }
    let field = match owner.object.map(Object::kind) {
        Some("GitRepository") => "secretRef",
        _ => "certSecretRef",
    };
    if said.contains(OF_AUTHORITY) {
        let place = match owner.secret(field) {
            Some(secret) => format!("in {secret} (spec.{field}{of})"),
            None => format!("in a Secret that spec.{field}{of} names"),
        };
        return format!(
            "a certificate that is its own authority is not accepted as that of a server: issue the certificate of {server} \
             by an authority, and name the certificate of that one as `ca.crt` {place}"
        );
    }
    match owner.secret(field) {
        Some(secret) => format!(
            "add the certificate of the authority of that server as `ca.crt` to {secret} (spec.{field}{of})"
        ),
        None => format!(
            "name a Secret with the certificate of the authority of that server as `ca.crt` in spec.{field}{of}"
        ),
    }
}

/// Advice when a server does not accept the credentials.
pub(super) fn credentials(cause: &RootCause, about: CauseRelatedObjects<'_>) -> String {
    let owner = ObjectWithRemoteAddress::of(about);
    let of = &owner.of;
    if let Some(secret) = owner.secret("proxySecretRef").filter(|_| is_of_proxy(&cause.text)) {
        return format!(
            "correct `address`, `username` and `password` in {secret} (spec.proxySecretRef{of})"
        );
    }
    let right = if owner.is_pushed { ", which need the right to push" } else { "" };
    if owner.object.is_none() {
        return format!("correct the credentials that spec.secretRef{of} names{right}");
    }
    if let Some(secret) = owner.secret("secretRef") {
        return format!("correct the credentials in {secret} (spec.secretRef{of}){right}");
    }
    let account = text(owner.spec(), "serviceAccountName");
    let is_of_registry =
        owner.object.is_some_and(|it| matches!(it.kind(), "OCIRepository" | "ImageRepository"));
    match text(owner.spec(), "provider") {
        "" | "generic" if is_of_registry && !account.is_empty() => format!(
            "correct the image pull secrets of ServiceAccount {account} (spec.serviceAccountName{of})"
        ),
        "" | "generic" => {
            format!("the server requires credentials{right}: name a Secret in spec.secretRef{of}")
        }
        provider => format!(
            "grant access to the identity with which windlass logs in at {provider} (spec.provider{of})"
        ),
    }
}

fn is_of_proxy(said: &str) -> bool {
    said.contains("the proxy ") && said.contains("rejected the connection")
}

fn says(said: &str, words: &[&str]) -> bool {
    words.iter().any(|it| said.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_without_credentials_and_paths() {
        for (address, expected) in [
            ("https://user:pass@git.test:8443/a?b", Some("git.test:8443")),
            ("ssh://git@git.test/a", Some("git.test")),
            ("http://[::1]:80/a", Some("[::1]:80")),
            ("ghcr.io/acme/web", Some("ghcr.io")),
            ("localhost:5000/web", Some("localhost:5000")),
            ("minio.test:9000", Some("minio.test:9000")),
            // An image of the default registry.
            ("acme/web", None),
            ("https://", None),
            ("https://a`b/c", None),
        ] {
            assert_eq!(host(address), expected, "{address}");
        }
    }
}
