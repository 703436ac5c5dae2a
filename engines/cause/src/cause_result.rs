//! The result of the walk: the state of the subject, the way to the cause, what happens next and what would help.

use objects::ObjectId;
use reconcile::Time;
use serde::{Serialize, Serializer};

/// The state of the object that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ExaminedObjectState {
    /// It is what its spec asks for, and so is what it applied.
    Ready,
    /// It is ready, but newer revisions do not reach it.
    Stale,
    /// It is ready, but something that it applied is not.
    Degraded,
    /// It is suspended.
    Suspended,
    /// It is on its way.
    Progressing,
    /// It is not ready.
    NotReady,
    /// There is no such object.
    Missing,
    /// It may not be read.
    Hidden,
}

/// What kind of cause it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CauseKind {
    /// Something that is named does not exist.
    Missing,
    /// It is being deleted.
    Deletion,
    /// A suspension.
    Suspension,
    /// A suspension that has expired and is still in the spec.
    ExpiredHold,
    /// No window is open.
    ClosedWindow,
    /// A Freeze denies.
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
    /// A signature or digest does not match.
    Verification,
    /// A source is ready, but what it has is not what objects expect of it.
    Artifact,
    /// Objects depend on each other.
    Cycle,
    /// Something that it depends on is not ready.
    Dependency,
    /// The build, a template or a patch fails.
    Build,
    /// The values fail.
    Values,
    /// The spec cannot be followed.
    Spec,
    /// The object refers to what it may not use.
    Access,
    /// A lifecycle is awaited, or did not let an operation continue.
    Lifecycle,
    /// The API server refuses an object, or a hook fails.
    Apply,
    /// Another owner has an object that was applied, or applies it, too.
    Ownership,
    /// A test of the release fails.
    Test,
    /// An object is not healthy.
    Health,
    /// An image cannot be pulled.
    Image,
    /// A container ends or does not start.
    Container,
    /// A Pod finds no node.
    Scheduling,
    /// Pods may not be created: a quota or an admission webhook.
    Admission,
    /// A volume cannot be provided.
    Volume,
    /// A service does not accept notifications.
    Delivery,
    /// None of the others.
    Other,
}

/// One object on the way to the cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseStep {
    /// The object.
    #[serde(serialize_with = "subject")]
    pub object: ObjectId,
    /// Since when it is so.
    #[serde(serialize_with = "moment")]
    pub since: Option<Time>,
    /// Its text.
    pub text: String,
}

/// The deepest cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootCause {
    /// The object that has to be mended.
    #[serde(serialize_with = "subject")]
    pub object: ObjectId,
    /// What kind of cause it is.
    pub problem: CauseKind,
    /// What happened.
    pub text: String,
    /// Since when.
    #[serde(serialize_with = "moment")]
    pub since: Option<Time>,
    /// The last lines that the container printed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// The newest warning event about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
}

/// The advice about what would help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseAdvice {
    /// For people.
    pub text: String,
    /// The one command, if a command helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// A second cause: why a suspended object fails, a source that is down while containers crash, or a second dependency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecondCause {
    /// What it is.
    pub cause: RootCause,
    /// What would help.
    pub advice: Option<CauseAdvice>,
}

/// Why an object is in its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StateExplanation {
    /// The object that was asked about.
    #[serde(serialize_with = "subject")]
    pub object: ObjectId,
    /// Its state.
    pub state: ExaminedObjectState,
    /// Its own message.
    pub message: String,
    /// The deepest cause; none if all is well, or nothing more is known.
    pub cause: Option<RootCause>,
    /// The objects from the subject to the cause.
    pub path: Vec<CauseStep>,
    /// What happens next, and when.
    pub next: Option<String>,
    /// What would help.
    pub advice: Option<CauseAdvice>,
    /// The second cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<SecondCause>,
    /// Applied objects that could not be read, so that they may be otherwise, as `Kind/namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
    /// What is worth knowing besides, such as what could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl std::fmt::Display for CauseKind {
    /// The word of the variant.
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
    /// The object and what happened to it, the object named once.
    pub fn line(&self, subject: &ObjectId) -> String {
        let object = self.object.subject();
        let is_named = self.object == *subject || self.text.contains(&object);
        if is_named { self.text.clone() } else { format!("{object}: {}", self.text) }
    }
}

impl StateExplanation {
    /// The one line that names the object, its state and the cause.
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
            // The text of a suspension has both.
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

    /// Whether the explanation shows something to mend: the object is not ready, or there is a cause.
    pub fn is_finding(&self) -> bool {
        self.state != ExaminedObjectState::Ready || self.cause.is_some()
    }
}
