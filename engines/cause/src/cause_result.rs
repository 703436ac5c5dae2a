//! The result of the walk: the state of the subject, the path to the cause, the next run, and advice.

use objects::ObjectId;
use reconcile::Time;
use serde::{Serialize, Serializer};

/// The state of the object that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ExaminedObjectState {
    /// The object has the state that its spec asks for, and so do the objects that it applied.
    Ready,
    /// The object is ready, but it does not get newer revisions.
    Stale,
    /// The object is ready, but an object that it applied is not.
    Degraded,
    /// The object is suspended.
    Suspended,
    /// The object is on its way to the state that its spec asks for.
    Progressing,
    /// The object is not ready.
    NotReady,
    /// There is no such object.
    Missing,
    /// The user may not read the object.
    Hidden,
}

/// The kind of problem that a cause is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CauseKind {
    /// An object that another one names does not exist.
    Missing,
    /// The object is being deleted.
    Deletion,
    /// The object is suspended.
    Suspension,
    /// A suspension that has expired and is still in the spec.
    ExpiredHold,
    /// No reconciliation window is open.
    ClosedWindow,
    /// A Freeze denies the run.
    Freeze,
    /// A wave of a rollout is not open.
    Wave,
    /// The windows cannot be read.
    InvalidWindow,
    /// The spec has not been reconciled.
    NotReconciled,
    /// The remote cannot be reached or refuses.
    Fetch,
    /// The remote does not accept the credentials.
    Credentials,
    /// A signature or a digest does not match.
    Verification,
    /// A source is ready, but its artifact is not what its consumers need.
    Artifact,
    /// Objects depend on each other in a cycle.
    Cycle,
    /// A dependency of the object is not ready.
    Dependency,
    /// The build, a template or a patch fails.
    Build,
    /// The values of a release cannot be used.
    Values,
    /// The spec of the object is invalid or not supported.
    Spec,
    /// The object refers to an object that it may not use.
    Access,
    /// The object waits for a lifecycle, or a lifecycle stopped the operation.
    Lifecycle,
    /// The API server refuses an object, or a hook fails.
    Apply,
    /// An applied object belongs to another owner, or another owner applies it, too.
    Ownership,
    /// A test of the release fails.
    Test,
    /// An object is not healthy.
    Health,
    /// An image cannot be pulled.
    Image,
    /// A container exits or does not start.
    Container,
    /// No node takes the Pod.
    Scheduling,
    /// Pods may not be created, because a quota or an admission webhook refuses them.
    Admission,
    /// A volume cannot be provided.
    Volume,
    /// The service of a Provider does not accept notifications.
    Delivery,
    /// None of the other kinds.
    Other,
}

/// One object on the path to the cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseStep {
    /// The object.
    #[serde(serialize_with = "subject")]
    pub object: ObjectId,
    /// Since when the object is in this state.
    #[serde(serialize_with = "moment")]
    pub since: Option<Time>,
    /// The message of the object.
    pub text: String,
}

/// The deepest cause of an object's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootCause {
    /// The object that has to be corrected.
    #[serde(serialize_with = "subject")]
    pub object: ObjectId,
    /// The kind of problem.
    pub problem: CauseKind,
    /// What happened.
    pub text: String,
    /// Since when the problem exists.
    #[serde(serialize_with = "moment")]
    pub since: Option<Time>,
    /// The last lines that the container printed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// The newest warning event about the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// Advice that would help against a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseAdvice {
    /// The sentence for users.
    pub text: String,
    /// The one command, if a command helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A second cause, such as the reason why a suspended object fails, a source that is down while containers crash, or a
/// second dependency that is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecondCause {
    /// The second cause itself.
    pub cause: RootCause,
    /// Advice against the second cause.
    pub advice: Option<CauseAdvice>,
}

/// The explanation of an object's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateExplanation {
    /// The object that the user asked about.
    #[serde(serialize_with = "subject")]
    pub object: ObjectId,
    /// The state of the object.
    pub state: ExaminedObjectState,
    /// The message of the object itself.
    pub message: String,
    /// The deepest cause. `None` if the object is healthy, or if no cause is known.
    pub cause: Option<RootCause>,
    /// The objects from the subject to the cause.
    pub path: Vec<CauseStep>,
    /// The next automatic run, and when it begins.
    pub next: Option<String>,
    /// Advice against the cause.
    pub advice: Option<CauseAdvice>,
    /// The second cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<SecondCause>,
    /// Applied objects that could not be read, as `Kind/namespace/name`. Their state is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// Further remarks for the user, such as which objects could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl std::fmt::Display for CauseKind {
    /// Writes the name of the variant.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

fn subject<S: Serializer>(id: &ObjectId, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&id.subject())
}

#[expect(clippy::ref_option, reason = "serde calls it so")]
fn moment<S: Serializer>(at: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
    at.map(crate::cause_walk::seconds).serialize(to)
}

impl RootCause {
    /// One line with the object and its problem. The object is named only once.
    pub fn line(&self, subject: &ObjectId) -> String {
        let object = self.object.subject();
        let is_named = self.object == *subject || self.text.contains(&object);
        if is_named { self.text.clone() } else { format!("{object}: {}", self.text) }
    }
}

impl StateExplanation {
    /// One line that names the object, its state and the cause.
    pub fn line(&self) -> String {
        let object = self.object.subject();
        let is_taken = self.cause.as_ref().is_some_and(|it| it.problem == CauseKind::Ownership);
        let state = match self.state {
            ExaminedObjectState::Ready => "is ready",
            ExaminedObjectState::Stale => "is ready, but newer revisions do not reach it",
            ExaminedObjectState::Degraded if is_taken => {
                "is ready, but another owner has what it applied"
            }
            ExaminedObjectState::Degraded => "is ready, but what it applied is not",
            ExaminedObjectState::Suspended => "is suspended",
            ExaminedObjectState::Progressing => "is being reconciled",
            ExaminedObjectState::NotReady => "is not ready",
            ExaminedObjectState::Missing => "does not exist",
            ExaminedObjectState::Hidden => "cannot be read",
        };
        let text = match &self.cause {
            // The text of a suspension names the object and its state already.
            Some(cause)
                if cause.problem == CauseKind::Suspension && cause.object == self.object =>
            {
                return format!("{object} is {}", cause.text);
            }
            Some(_) if self.state == ExaminedObjectState::Missing => {
                return format!("{object} {state}");
            }
            Some(cause) => cause.line(&self.object),
            None => self.message.clone(),
        };
        if text.is_empty() {
            format!("{object} {state}")
        } else {
            format!("{object} {state}: {text}")
        }
    }

    /// Whether the explanation shows a problem: the object is not ready, or there is a cause.
    pub fn is_finding(&self) -> bool {
        self.state != ExaminedObjectState::Ready || self.cause.is_some()
    }
}
