//! Functions for commit statuses and comments that all Git services share: addresses, revisions, numbers, lists in responses.

use golang::regexp::GoRegexp;
use golang::strconv;
use golang::url::GoUrl;
use serde_json::Value;

use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, ProviderNextAction};

/// Schemes under which Git is reached.
const GIT_URL_SCHEMES: [&[u8]; 9] =
    [b"ssh", b"git", b"git+ssh", b"http", b"https", b"ftp", b"ftps", b"rsync", b"file"];

/// A repository: its scheme and host, and its path without `.git`.
pub(super) struct GitRepositoryAddress {
    pub(super) host: String,
    pub(super) id: String,
}

impl GitRepositoryAddress {
    /// Reads the address of a repository: a URL, the form of `scp`, or else a path. For an SSH address, HTTPS is used.
    pub(super) fn parse(address: &str) -> Self {
        let url = transport(address).or_else(|| scp(address)).unwrap_or_else(|| GoUrl {
            scheme: b"file".to_vec(),
            path: address.as_bytes().to_vec(),
            ..GoUrl::default()
        });
        let lossy = String::from_utf8_lossy;
        let scheme = if url.scheme == b"ssh" { "https".into() } else { lossy(&url.scheme) };
        let path = lossy(&url.path);
        let path = path.trim_start_matches('/');
        Self {
            host: format!("{scheme}://{}", lossy(&url.host)),
            id: path.strip_suffix(".git").unwrap_or(path).to_owned(),
        }
    }

    /// The owner and the name of a repository. `None` if its path does not consist of exactly these.
    pub(super) fn owner_and_name(&self) -> Option<(&str, &str)> {
        self.id.split_once('/').filter(|(_, name)| !name.contains('/'))
    }
}

fn transport(address: &str) -> Option<GoUrl> {
    GoUrl::parse(address.as_bytes()).ok().filter(|url| GIT_URL_SCHEMES.contains(&&*url.scheme))
}

/// Reads an address of a repository such as `git@host:owner/name`. `None` if the address has another form.
///
/// Parity(git-urls): a character that is not allowed in paths ends the path, and the rest is dropped.
fn scp(address: &str) -> Option<GoUrl> {
    const LONGEST_ADDRESS: usize = 2048;
    const SCP_SYNTAX: &str = "^([a-zA-Z0-9-._~]+@)?([a-zA-Z0-9._-]+):([a-zA-Z0-9./._-]+)";
    if address.len() > LONGEST_ADDRESS || address.contains('\n') {
        return None;
    }
    let pattern = GoRegexp::new(SCP_SYNTAX).ok()?;
    let groups = pattern.find_groups(address)?;
    let [_, _, Some(host), Some(path)] = &*groups else { return None };
    Some(GoUrl {
        scheme: b"ssh".to_vec(),
        host: host.as_bytes().to_vec(),
        path: path.as_bytes().to_vec(),
        ..GoUrl::default()
    })
}

/// The commit hash in the revision of an event.
///
/// # Errors
/// If there is no revision, or it does not end in forty bytes. Parity(flux): they need not be hexadecimal. Differs(flux): signs
/// of ASCII are none of them, because the commit becomes part of URLs, and it may be an annotation of the object.
pub(super) fn commit(event: &FluxEvent) -> Result<String, String> {
    let revision = event.revision().ok_or("missing revision metadata")?;
    let after = |mark| revision.rsplit_once(mark).map(|(_, hash)| hash);
    let hash = after(':').or_else(|| after('/')).unwrap_or(revision);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || !byte.is_ascii();
    if hash.len() != 40 || !hash.bytes().all(is_plain) {
        return Err(format!("failed to extract commit hash from '{revision}' revision"));
    }
    Ok(hash.to_owned())
}

/// The commit state for a severity: information and errors each have their own state.
///
/// # Errors
/// `message`, for all other severities.
pub(super) fn state(
    event: &FluxEvent,
    [info, error]: [&'static str; 2],
    message: &str,
) -> Result<&'static str, String> {
    match &*event.severity {
        "info" => Ok(info),
        "error" => Ok(error),
        _ => Err(message.to_owned()),
    }
}

/// The number of the pull request.
///
/// # Errors
/// Flux's message if the number is missing or not a number.
pub(super) fn number(event: &FluxEvent, function: &str) -> Result<i64, String> {
    let text = event.meta("change_request").ok_or("missing \"change_request\" metadata key")?;
    strconv::parse_int(text, 10, 64).map_err(|error| {
        let shown = crate::go_string_functions::quoted(text);
        format!(
            "invalid \"change_request\" metadata value {shown}: strconv.{function}: parsing \
             {shown}: {}",
            error.reason
        )
    })
}

/// The string at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The JSON of a response.
///
/// # Errors
/// If the body is not JSON.
pub(super) fn json(answer: &HttpResponse) -> Result<Value, String> {
    if answer.body.is_empty() {
        return Err("EOF".to_owned());
    }
    serde_json::from_slice(&answer.body).map_err(|error| error.to_string())
}

/// Accepts a response whose body is empty or JSON.
///
/// # Errors
/// If the body is not JSON.
pub(super) fn readable(answer: &HttpResponse) -> Result<(), String> {
    if answer.body.is_empty() { Ok(()) } else { json(answer).map(drop) }
}

/// The list in a response. An empty body and `null` count as an empty list.
///
/// # Errors
/// If the body is not a list.
pub(super) fn list(answer: &HttpResponse) -> Result<Vec<Value>, String> {
    if answer.body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Vec::new());
    }
    match json(answer)? {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(Vec::new()),
        _ => Err("json: cannot unmarshal object into Go value of type []*Status".to_owned()),
    }
}

/// Ends the conversation with the result of a request. `judge` turns the response into an error.
pub(super) fn ended(
    answer: Result<HttpResponse, String>,
    words: &str,
    judge: impl Fn(&HttpResponse) -> Result<(), String>,
) -> ProviderNextAction {
    let result = answer.and_then(|answer| judge(&answer));
    ProviderNextAction::end(result.map_err(|error| format!("{words}{error}")))
}
