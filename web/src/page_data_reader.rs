//! Reads a cluster for pages. Pages of one user share some results, and read the rest themselves.

use axum::http::StatusCode;
use http_client::EgressRules;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use windlass_answers::command_scope::CommandScope;
use windlass_answers::kind_argument::{self, ResourceArgument};
use windlass_answers::why::unready_objects::{self, UnreadyObjectsOverview, in_words};
use windlass_cluster::ClusterError;

use std::rc::Rc;
use std::time::Duration;

use super::actions::{ActionFormState, FormSeal};
use super::branch_plans::{BranchPlanService, BranchPlans};
use super::frame::SiteFacts;
use super::local_server::PAGE_TIME_LIMIT;
use super::reconciled_object_rows::ReconciledObjectRows;
use super::reconciled_object_rows::reconciled_objects_watcher::{
    ReconciledObjectsWatcher, WatchRightsOwner,
};
use super::shared_read::SharedRead;
use super::shell_line::shell_line;

/// How many pages may predict changes by dry-runs at once.
const MAX_PREDICTIONS_AT_ONCE: usize = 2;

/// The permits for predictions, shared by all users because each prediction keeps an artifact in memory.
static PREDICTIONS: Semaphore = Semaphore::const_new(MAX_PREDICTIONS_AT_ONCE);

/// How soon a page is read again if its data is not watched.
pub(crate) const UNWATCHED_RENEWAL: Duration = Duration::from_secs(30);

/// How soon the page of an unsettled object is read again. Its state depends on objects that are not watched, such as Pods.
pub(crate) const UNSETTLED_RENEWAL: Duration = Duration::from_secs(10);

/// Everything that is not ready, and when it was read.
pub(crate) struct UnreadyObjectsSnapshot {
    pub(crate) overview: UnreadyObjectsOverview,
    pub(crate) read_at: Timestamp,
}

/// Why there is no reader for a logged-in user: the API server does not say who the user is. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnknownUser {
    /// The API server does not accept the token.
    #[error(
        "the API server does not say who you are, because it does not accept your login ({0}): log out and in again; if that \
         does not help, it does not trust the issuer or the client of windlass: check its flags --oidc-issuer-url, \
         --oidc-client-id and --oidc-ca-file, or the issuers and audiences in the file of its --authentication-config"
    )]
    LoginRefused(ClusterError),
    /// The user may not ask.
    #[error(
        "the API server does not say who you are, because you may not ask ({0}): ask an administrator to bind the ClusterRole \
         system:basic-user to you, or to allow `create selfsubjectreviews.authentication.k8s.io`"
    )]
    ReviewForbidden(ClusterError),
    /// The API server refuses the request for another reason, or does not respond.
    #[error("the API server does not say who you are: {0}; reload this page in some seconds")]
    RequestFailed(ClusterError),
    /// The answer has an empty name.
    #[error(
        "the API server does not say who you are: its answer has no user name; reload this page in some seconds"
    )]
    NameMissing,
}

impl UnknownUser {
    fn of(error: ClusterError) -> Self {
        match error.code() {
            Some(401) => Self::LoginRefused(error),
            Some(403) => Self::ReviewForbidden(error),
            _ => Self::RequestFailed(error),
        }
    }

    /// The HTTP status of the answer to the user.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::LoginRefused(_) => StatusCode::UNAUTHORIZED,
            Self::ReviewForbidden(_) => StatusCode::FORBIDDEN,
            Self::RequestFailed(_) | Self::NameMissing => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// How long the answer counts for the session, before the API server is asked once more.
    pub(crate) fn retry_delay(&self) -> Duration {
        match self {
            // The same token is refused again.
            Self::LoginRefused(_) => Duration::from_secs(60),
            Self::ReviewForbidden(_) | Self::RequestFailed(_) | Self::NameMissing => {
                Duration::from_secs(10)
            }
        }
    }
}

/// Reads a cluster with the rights of one user.
pub(crate) struct PageDataReader {
    pub(crate) site: CommandScope,
    pub(crate) facts: SiteFacts,
    /// Watches the objects while pages are in use.
    pub(crate) watcher: ReconciledObjectsWatcher,
    /// The state that forms need.
    pub(crate) actions: ActionFormState,
    /// The plans of branches that the user started.
    pub(crate) branch_plans: BranchPlans,
    unready: SharedRead<UnreadyObjectsSnapshot>,
    /// Permits for predictions by dry-runs.
    pub(crate) predictions: &'static Semaphore,
}

impl PageDataReader {
    /// Makes a reader of one namespace, or of all namespaces. `access` are the flags that a command needs to reach the same
    /// cluster as the same user.
    pub(crate) async fn new(site: CommandScope, access: &[String]) -> Self {
        // The name is only shown to the user of the kubeconfig. The API server knows the user and decides about rights.
        let user = site.cluster.own_name().await.unwrap_or_default();
        // The user reads the Secrets of sources, and the machine is the user's.
        let plans = BranchPlanService::new(EgressRules::with_loopback(), None);
        Self::with(site, user, access, WatchRightsOwner::OfOwnUser, FormSeal::new(), plans)
    }

    /// Makes a reader for a logged-in user, who may lose rights while pages are open. `seal` seals the forms of the session, and
    /// `plans` has the limits of all users.
    ///
    /// # Errors
    /// The API server does not say who the user is.
    pub(crate) async fn for_login(
        site: CommandScope,
        seal: FormSeal,
        plans: BranchPlanService,
    ) -> Result<Self, UnknownUser> {
        let user =
            timeout(PAGE_TIME_LIMIT, site.cluster.own_name()).await.unwrap_or_else(|_elapsed| {
                let seconds = PAGE_TIME_LIMIT.as_secs();
                Err(ClusterError::NoAnswer(format!("no answer within {seconds} s")))
            });
        // Pages show the name, and the log names the user of each form by it.
        let user = user.map_err(UnknownUser::of)?;
        if user.is_empty() {
            return Err(UnknownUser::NameMissing);
        }
        Ok(Self::with(site, user, &[], WatchRightsOwner::OfLogin, seal, plans))
    }

    fn with(
        site: CommandScope,
        user: String,
        access: &[String],
        rights: WatchRightsOwner,
        seal: FormSeal,
        plans: BranchPlanService,
    ) -> Self {
        let words: Vec<&str> = access.iter().map(String::as_str).collect();
        let server = site.cluster.address();
        let branch_plans = BranchPlans::new(plans, &user);
        let facts = SiteFacts {
            place: in_words(&site.namespace),
            cluster: site.cluster.cluster_name().unwrap_or(&server).to_owned(),
            server,
            user,
            flags: shell_line(&words),
            has_login: rights == WatchRightsOwner::OfLogin,
        };
        Self {
            site,
            facts,
            watcher: ReconciledObjectsWatcher::new(rights),
            actions: ActionFormState::new(seal),
            branch_plans,
            unready: SharedRead::default(),
            predictions: &PREDICTIONS,
        }
    }

    /// The rows of all reconciled objects.
    ///
    /// # Errors
    /// The API server did not respond.
    pub(crate) async fn board(&self) -> anyhow::Result<ReconciledObjectRows> {
        self.watcher.board(&self.site).await
    }

    /// How soon a page of the board is read again although no watch reports a change. `None` if all kinds are watched.
    pub(crate) fn board_renewal(&self) -> Option<Duration> {
        self.watcher.renewal()
    }

    /// How soon a page of Incidents, audits and similar objects is read again although no watch reports a change.
    pub(crate) fn record_renewal(&self) -> Option<Duration> {
        (!self.watcher.hears_records()).then_some(UNWATCHED_RENEWAL)
    }

    /// How soon the overview is read again. Pages share the result of one reading, so it may be older than the last change.
    pub(crate) async fn overview_renewal(&self) -> Option<Duration> {
        let unseen = self.unready.shows_in(self.watcher.changed_at()).await;
        [unseen, self.board_renewal(), self.record_renewal()].into_iter().flatten().min()
    }

    /// Everything that is not ready, grouped by cause.
    ///
    /// # Errors
    /// The API server did not respond.
    pub(crate) async fn unready(&self) -> anyhow::Result<Rc<UnreadyObjectsSnapshot>> {
        self.unready
            .get(async || {
                let targets = self.targets(&["all"]).await?;
                let read_at = Timestamp::now();
                let found = unready_objects::find(&self.site, &targets, "").await?;
                anyhow::Ok(UnreadyObjectsSnapshot { overview: found.overview, read_at })
            })
            .await
    }

    /// Resolves kind names as the command line accepts them.
    ///
    /// # Errors
    /// There is no such kind, or the API server did not respond.
    pub(crate) async fn targets(&self, words: &[&str]) -> anyhow::Result<Vec<ResourceArgument>> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        kind_argument::targets(&self.site.cluster, &words).await
    }

    /// The flag with which a command reads the same namespaces.
    pub(crate) fn scope_flag(&self) -> String {
        match self.site.namespace.as_str() {
            "" => "-A".to_owned(),
            namespace => shell_line(&["-n", namespace]),
        }
    }
}
