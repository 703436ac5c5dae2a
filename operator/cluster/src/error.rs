//! Errors of requests to the API server, with messages for users.

use std::time::Duration;

use kube::core::Status;

/// Why a request to the API server failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterError {
    /// The API server refused the request. The text of its answer says why.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// The API server does not serve the kind.
    #[error(
        "no matches for kind \"{kind}\" in version \"{api_version}\": is its CustomResourceDefinition installed?"
    )]
    NoSuchKind {
        /// The `apiVersion` in the manifest.
        api_version: String,
        /// The `kind` in the manifest.
        kind: String,
    },
    /// windlass cannot read the answer of the API server. Repeating the request would bring the same answer.
    #[error("cannot decode the response of the API server: {0}")]
    Unreadable(String),
    /// windlass did not send the request, because it found that the request would do harm.
    #[error("{0}")]
    Withheld(String),
    /// The API server answered an access review, but an authorizer failed that might have allowed the access.
    #[error("the access review could not be evaluated: {0}")]
    AccessNotEvaluated(String),
    /// There was no answer, because of the network, TLS or a time limit.
    #[error("request to the API server failed: {0}")]
    NoAnswer(String),
}

/// Whether an error 500 says that an object does not fit its schema, such as for an undeclared field. A server-side apply of
/// that object fails each time.
fn is_about_schema(code: u16, message: &str) -> bool {
    code == 500 && message.starts_with("failed to create typed ")
}

impl ClusterError {
    /// The HTTP status with which the API server refused the request.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::NoSuchKind { .. }
            | Self::Unreadable(_)
            | Self::Withheld(_)
            | Self::AccessNotEvaluated(_)
            | Self::NoAnswer(_) => None,
        }
    }

    /// Whether the same request may succeed later, because the API server or the network is at fault.
    pub fn is_transient(&self) -> bool {
        match self {
            // 401 means an expired token, which its issuer renews.
            Self::Refused(status) => {
                matches!(status.code, 401 | 429)
                    || (status.code >= 500 && !is_about_schema(status.code, &status.message))
            }
            Self::NoSuchKind { .. } | Self::Unreadable(_) | Self::Withheld(_) => false,
            Self::AccessNotEvaluated(_) | Self::NoAnswer(_) => true,
        }
    }

    /// Whether the API server did not handle the request. The 500 of a failed admission webhook does not count, because it is
    /// about one object.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Refused(status) => matches!(status.code, 401 | 429 | 503 | 504),
            Self::NoSuchKind { .. } | Self::Unreadable(_) | Self::Withheld(_) => false,
            Self::AccessNotEvaluated(_) | Self::NoAnswer(_) => true,
        }
    }

    /// Whether something that serves or admits this one object may be at fault, such as a webhook or an aggregated API server
    /// that is down. Requests about other objects may still succeed.
    pub fn is_of_object(&self) -> bool {
        matches!(self.code(), Some(500 | 503 | 504))
    }

    /// Whether to repeat the request, because the API server or the network is at fault. A failed webhook does not count,
    /// since it fails for this object.
    pub fn is_of_server(&self) -> bool {
        let is_of_webhook =
            matches!(self, Self::Refused(status) if status.message.contains("webhook"));
        self.is_busy() || (self.is_transient() && !is_of_webhook)
    }

    /// Whether a write may have taken effect although it failed. The API server did not answer, or reports that something
    /// behind it timed out. Only reading the object shows the result.
    pub fn may_be_done(&self) -> bool {
        let is_put_off = matches!(self.code(), Some(401 | 429));
        self.is_of_server() && !is_put_off
    }

    /// Whether the API server says that the object itself does not exist.
    ///
    /// A 404 for a path that is not served says nothing about the object. A removed API version or a proxy can cause it.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Refused(status) => {
                let names_it = status.details.as_ref().is_some_and(|it| !it.name.is_empty());
                status.code == 404 && status.reason == "NotFound" && names_it
            }
            Self::NoSuchKind { .. }
            | Self::NoAnswer(_)
            | Self::AccessNotEvaluated(_)
            | Self::Withheld(_)
            | Self::Unreadable(_) => false,
        }
    }

    /// Whether the API server serves nothing at the path of the request.
    pub fn is_unserved(&self) -> bool {
        self.code() == Some(404) && !self.is_not_found()
    }

    /// Whether another write came in between, such as an update of a namespace's quota. The same request may succeed now. It
    /// does not count if the object exists already.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 409 && status.reason != "AlreadyExists")
    }

    /// Whether the object cannot be created because its namespace is being deleted.
    pub fn is_of_terminating_namespace(&self) -> bool {
        let Self::Refused(status) = self else { return false };
        let causes = status.details.iter().flat_map(|it| &it.causes);
        status.code == 403 && causes.into_iter().any(|it| it.reason == "NamespaceTerminating")
    }

    /// How long the API server wants no requests. `None` if it gave no time.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Refused(status) = self else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Whether the API server would refuse the same request again. Only another manifest, other rights or another policy
    /// helps.
    pub fn is_permanent(&self) -> bool {
        matches!(self.code(), Some(400 | 403 | 422))
    }
}

impl From<kube::Error> for ClusterError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(mut status) => {
                if !is_of_kubernetes(&status) {
                    status.message = format!(
                        "the server responded with HTTP status {} and no Kubernetes Status",
                        status.code
                    );
                }
                Self::Refused(status)
            }
            // An incomplete answer counts as no answer. A proxy may also answer with an HTML page.
            kube::Error::SerdeError(error) if error.is_syntax() && is_too_deep(&error) => {
                Self::Unreadable("it is nested more than 127 levels deep".to_owned())
            }
            // The text of the library may quote the content that it could not read.
            kube::Error::SerdeError(error) => Self::NoAnswer(format!(
                "unexpected response (line {}, column {})",
                error.line(),
                error.column()
            )),
            other => Self::NoAnswer(chain(&other)),
        }
    }
}

/// Whether a JSON text was nested too deeply. `serde_json` shows this only in the text of its error.
fn is_too_deep(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("recursion limit exceeded")
}

/// Whether a refusal comes from a Kubernetes API server. Answers of other servers are not shown to the user. A kubeconfig may
/// name any server, and its author may not have the right to see what that server says.
fn is_of_kubernetes(status: &Status) -> bool {
    // kube represents an answer that is not a Status in this way. The code of a real Status is never zero.
    status.reason != "Failed to parse error data" && status.code != 0
}

/// An error and its causes on one line, in the words of a Kubernetes user. A repeated cause appears once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    plain(&text)
}

/// Phrases in the error texts of libraries, and plain words that replace them.
const WORDS: [(&str, &str); 9] = [
    ("ServiceError: ", ""),
    ("HyperError: ", ""),
    ("client error (Connect)", "cannot connect"),
    ("client error (SendRequest)", "the connection was lost"),
    ("tcp connect error: ", ""),
    ("error trying to connect: ", ""),
    ("deadline has elapsed", "timed out"),
    ("failed to fill whole buffer", "it ends too early"),
    ("operation timed out", "timed out"),
];

/// An error text in plain words, without the phrases of libraries and the error numbers of the operating system.
pub fn plain(text: &str) -> String {
    let mut text = text.to_owned();
    for (word, meaning) in WORDS {
        text = text.replace(word, meaning);
    }
    while let Some((before, rest)) = text.split_once(" (os error ") {
        let Some((number, after)) = rest.split_once(')') else { break };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        text = format!("{before}{after}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_no_api_server_gives_is_not_repeated() {
        let error_of = |status: Status| ClusterError::from(kube::Error::Api(Box::new(status)));
        let text = Status::failure("hunter2", "Failed to parse error data").with_code(404);
        let expected = "the server responded with HTTP status 404 and no Kubernetes Status";
        assert_eq!(error_of(text.clone()).to_string(), expected);
        assert!(error_of(text).is_unserved());
        let json: Status = serde_json::from_str(r#"{"message": "hunter2"}"#).unwrap();
        assert!(!error_of(json).to_string().contains("hunter2"));
        let own = Status::failure("secrets \"a\" not found", "NotFound").with_code(404);
        assert_eq!(error_of(own).to_string(), "secrets \"a\" not found");
        let unread = serde_json::from_str::<u8>("\"hunter2\"").unwrap_err();
        let error = ClusterError::from(kube::Error::SerdeError(unread)).to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn errors_have_no_words_of_libraries() {
        let text = "ServiceError: client error (Connect): tcp connect error: Connection refused (os error 111)";
        assert_eq!(plain(text), "cannot connect: Connection refused");
        assert_eq!(plain("read: failed to fill whole buffer"), "read: it ends too early");
        assert_eq!(plain("it took 3 s: deadline has elapsed"), "it took 3 s: timed out");
        assert_eq!(plain("a (os error x)"), "a (os error x)");
    }

    #[test]
    fn faults_of_the_request_are_distinguished_from_others() {
        let refused = |code| ClusterError::Refused(Box::new(Status { code, ..Status::default() }));
        for (code, transient, busy) in [
            (400, false, false),
            (401, true, true),
            (403, false, false),
            (404, false, false),
            (409, false, false),
            (422, false, false),
            (429, true, true),
            (500, true, false),
            (503, true, true),
        ] {
            let error = refused(code);
            assert_eq!((error.is_transient(), error.is_busy()), (transient, busy), "{code}");
        }
        assert!(ClusterError::NoAnswer(String::new()).is_busy());
    }

    #[test]
    fn a_write_may_be_done_unless_it_was_refused() {
        let refused = |code: u16, message: &str| {
            ClusterError::Refused(Status::failure(message, "").with_code(code).boxed())
        };
        assert!(ClusterError::NoAnswer("the connection was lost".to_owned()).may_be_done());
        assert!(refused(500, "etcdserver: request timed out").may_be_done());
        assert!(refused(504, "Timeout: request did not complete within 34s").may_be_done());
        for code in [400, 401, 403, 404, 409, 422, 429] {
            assert!(!refused(code, "no").may_be_done(), "{code}");
        }
        assert!(!refused(500, "failed calling webhook \"a.example.com\"").may_be_done());
        assert!(!ClusterError::Withheld(String::new()).may_be_done());
    }

    #[test]
    fn an_object_that_its_schema_does_not_know_is_at_fault_itself() {
        let refused = |message: &str| {
            ClusterError::Refused(Status::failure(message, "").with_code(500).boxed())
        };
        let message = "failed to create typed patch object (apps/web; apps/v1, Kind=Deployment): .spec.replicaz: field \
                       not declared in schema";
        let error = refused(message);
        assert!(!error.is_transient() && !error.is_of_server() && !error.is_busy());
        assert!(refused("etcdserver: no leader").is_of_server());
    }

    #[test]
    fn an_object_that_is_there_already_is_no_conflict() {
        let refused = |reason: &str| {
            ClusterError::Refused(Status::failure("no", reason).with_code(409).boxed())
        };
        assert!(refused("Conflict").is_conflict());
        assert!(!refused("AlreadyExists").is_conflict());
        let invalid = Status::failure("no", "Conflict").with_code(422).boxed();
        assert!(!ClusterError::Refused(invalid).is_conflict());
    }

    #[test]
    fn an_answer_that_is_nested_too_deeply_is_not_asked_for_again() {
        let read = |text: &str| {
            let error = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
            ClusterError::from(kube::Error::SerdeError(error))
        };
        let deep = read(&"[".repeat(200));
        assert!(matches!(deep, ClusterError::Unreadable(_)) && !deep.is_of_server(), "{deep}");
        assert!(matches!(read("[1"), ClusterError::NoAnswer(_)));
        assert!(matches!(read("<html>"), ClusterError::NoAnswer(_)));
    }

    #[test]
    fn only_what_the_server_says_of_the_object_itself_means_that_it_is_gone() {
        let answer = |json: serde_json::Value| {
            ClusterError::Refused(Box::new(serde_json::from_value(json).unwrap()))
        };
        let details = serde_json::json!({"name": "web", "group": "apps", "kind": "deployments"});
        let of_object = serde_json::json!({"code": 404, "reason": "NotFound", "details": details});
        assert!(answer(of_object.clone()).is_not_found() && !answer(of_object).is_unserved());
        // A 404 for a path without a handler, from the API server and from kube's client, and the page of a proxy.
        for (reason, message) in [
            ("NotFound", "the server could not find the requested resource"),
            ("Failed to parse error data", "404 page not found"),
            ("Failed to parse error data", "<html>no such host</html>"),
        ] {
            let status = serde_json::json!({"code": 404, "reason": reason, "message": message, "details": {}});
            let error = answer(status);
            assert!(!error.is_not_found() && error.is_unserved(), "{error}");
        }
        let busy = serde_json::json!({"code": 503, "reason": "NotFound", "details": details});
        assert!(!answer(busy).is_not_found());
    }
}
