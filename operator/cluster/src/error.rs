//! What a request to the API server can come to, in words for a person.

use std::time::Duration;

use kube::core::Status;

/// Why a request did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClusterError {
    /// The API server answered with a refusal; its own words say why.
    #[error("{}", .0.message)]
    Refused(Box<Status>),
    /// The kind is not served.
    #[error(
        "no matches for kind \"{kind}\" in version \"{api_version}\": is its CustomResourceDefinition installed?"
    )]
    NoSuchKind {
        /// As the manifest has it.
        api_version: String,
        /// As the manifest has it.
        kind: String,
    },
    /// There is an answer, and it is nothing that windlass can read: asking again brings the same.
    #[error("cannot decode the response of the API server: {0}")]
    Unreadable(String),
    /// windlass has not sent it: by what it found, it would do harm.
    #[error("{0}")]
    Withheld(String),
    /// No answer: the network, TLS, or a time limit.
    #[error("request to the API server failed: {0}")]
    NoAnswer(String),
}

/// Whether a 500 says that an object cannot be read by its schema, such as for a field that is not declared: a server-side
/// apply of it fails as often as it is tried.
fn is_about_schema(code: u16, message: &str) -> bool {
    code == 500 && message.starts_with("failed to create typed ")
}

impl ClusterError {
    /// The HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(status) => Some(status.code),
            Self::NoSuchKind { .. }
            | Self::Unreadable(_)
            | Self::Withheld(_)
            | Self::NoAnswer(_) => None,
        }
    }

    /// Whether the server, or the way to it, is at fault and not the request: the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            // 401: a token expired, which its issuer renews.
            Self::Refused(status) => {
                matches!(status.code, 401 | 429)
                    || (status.code >= 500 && !is_about_schema(status.code, &status.message))
            }
            Self::NoSuchKind { .. } | Self::Unreadable(_) | Self::Withheld(_) => false,
            Self::NoAnswer(_) => true,
        }
    }

    /// Whether the server has not handled the request. An admission webhook that fails is another matter: its 500 says
    /// which object it was about.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::Refused(status) => matches!(status.code, 401 | 429 | 503 | 504),
            Self::NoSuchKind { .. } | Self::Unreadable(_) | Self::Withheld(_) => false,
            Self::NoAnswer(_) => true,
        }
    }

    /// Whether what serves or admits this object is at fault, such as an aggregated API server or a webhook that is down.
    /// The API server may well answer requests about other objects.
    pub fn is_of_object(&self) -> bool {
        matches!(self.code(), Some(500 | 503 | 504))
    }

    /// Whether the server is at fault and not the request, so that the request is repeated. A webhook that fails is another
    /// matter, since it fails for this object.
    pub fn is_of_server(&self) -> bool {
        let is_of_webhook =
            matches!(self, Self::Refused(status) if status.message.contains("webhook"));
        self.is_busy() || (self.is_transient() && !is_of_webhook)
    }

    /// Whether a write that failed with this error may have taken effect: the server did not answer, or says that
    /// something behind it did not answer in time. Only reading the object tells.
    pub fn may_be_done(&self) -> bool {
        let is_put_off = matches!(self.code(), Some(401 | 429));
        self.is_of_server() && !is_put_off
    }

    /// Whether the server says that the object itself does not exist.
    ///
    /// The 404 of a path that is not served (a version that is gone, a proxy in between) says nothing about objects.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Refused(status) => {
                let names_it = status.details.as_ref().is_some_and(|it| !it.name.is_empty());
                status.code == 404 && status.reason == "NotFound" && names_it
            }
            Self::NoSuchKind { .. }
            | Self::NoAnswer(_)
            | Self::Withheld(_)
            | Self::Unreadable(_) => false,
        }
    }

    /// Whether nothing is served at the path of the request.
    pub fn is_unserved(&self) -> bool {
        self.code() == Some(404) && !self.is_not_found()
    }

    /// Whether something was written in between, such as the quota of a namespace: the same request may succeed now. An
    /// object that exists already is another matter.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(status) if status.code == 409 && status.reason != "AlreadyExists")
    }

    /// Whether the object cannot be created because its namespace is being deleted.
    pub fn is_of_terminating_namespace(&self) -> bool {
        let Self::Refused(status) = self else { return false };
        let causes = status.details.iter().flat_map(|it| &it.causes);
        status.code == 403 && causes.into_iter().any(|it| it.reason == "NamespaceTerminating")
    }

    /// The time for which the server wants no requests; `None` if it does not say one.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Refused(status) = self else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Whether the server understood the request and would refuse it again: only a change of the manifest, of rights or of
    /// a policy helps.
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
            // Half an answer is none, and a proxy in between may answer with a page for people.
            kube::Error::SerdeError(error) if error.is_syntax() && is_too_deep(&error) => {
                Self::Unreadable("it is nested more than 127 levels deep".to_owned())
            }
            // Its text may repeat what it met.
            kube::Error::SerdeError(error) => Self::NoAnswer(format!(
                "unexpected response (line {}, column {})",
                error.line(),
                error.column()
            )),
            other => Self::NoAnswer(chain(&other)),
        }
    }
}

/// `serde_json` has no other sign of it.
fn is_too_deep(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("recursion limit exceeded")
}

/// Whether a refusal is an API server's. Answers of other servers are not repeated to the user: a kubeconfig may name
/// any server, and its author may not be entitled to see what that server says.
fn is_of_kubernetes(status: &Status) -> bool {
    // How kube represents an answer that is not a Status; the code of a real Status is never zero.
    status.reason != "Failed to parse error data" && status.code != 0
}

/// An error and its causes on one line, each said once, in words of the field.
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

/// What libraries say of themselves, and what it means to a person.
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

/// A text without the words of libraries, and without the numbers that an operating system has for what is said in words.
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
        // A path without a handler, as the API server and kube's client tell it, and a proxy's page.
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
