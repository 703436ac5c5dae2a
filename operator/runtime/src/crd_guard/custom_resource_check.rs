//! Reads the custom resources of a CRD page by page, and passes each page to the judge.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crdguard::{
    CrdChangeJudge, CrdChangeVerdict, CrdDefinition, CrdGuardFacts, WebhookServicePresence,
    WebhookServiceReference,
};
use golang::work_meter::StopSignal;
use objects::{Gvk, Object};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::error::CrdGuardError;
use crate::time_limit::TimeLimit;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::list_pager::ObjectProjection;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_cluster::run_permits::{GrantedPermit, RunPermits};
use windlass_cluster::{ClusterConnection, ClusterError};

/// How many CRDs are judged at once, because each uses a processor. Waits for custom resources do not count.
static JUDGING: Semaphore = Semaphore::const_new(2);

/// How long judging one CRD may take, without waits.
const SURVEY_WORK_TIMEOUT: Duration = Duration::from_secs(120);

/// The permits for CRDs that are judged or that wait for an API server. Each has a thread. A namespace has two at most, so
/// that its slow API servers do not delay other namespaces.
static SURVEYS: LazyLock<RunPermits> = LazyLock::new(|| RunPermits::shared(8, 2));

/// How long judging one CRD may take, with waits.
const SURVEY_TIMEOUT: Duration = Duration::from_secs(900);

/// How many custom resources of a kind are judged. With more, the CRD cannot be judged.
const MAX_JUDGED_OBJECTS: u64 = 100_000;

/// How many custom resources are counted before a CRD is removed. For more, messages say "at least".
const MAX_COUNTED_OBJECTS: u64 = 10_000;

/// How many pages wait for the judge.
const MAX_QUEUED_PAGES: usize = 2;

/// How many custom resources a message names.
const MAX_NAMED_OBJECTS: usize = 5;

/// A page of custom resources, and the version in which they were read.
type CheckedObjectPage = (String, Vec<DepthPrunedObject>);

/// Judges a new CRD by the custom resources that exist. The namespaces take turns.
///
/// # Errors
/// The reason why the CRD cannot be judged.
pub async fn survey(
    cluster: &ClusterConnection,
    namespace: &str,
    old: Value,
    new: Value,
) -> Result<CrdChangeVerdict, CrdGuardError> {
    let one = SURVEYS.acquire(namespace).await;
    within(SURVEY_TIMEOUT, surveyed(cluster, one, old, new)).await
}

/// Limits the time of a survey. The CRD cannot be judged if the API server is too slow, or if the custom resources cannot be
/// read.
async fn within(
    limit: Duration,
    surveyed: impl Future<Output = Result<CrdChangeVerdict, CrdGuardError>>,
) -> Result<CrdChangeVerdict, CrdGuardError> {
    let Ok(surveyed) = tokio::time::timeout(limit, surveyed).await else {
        let text = format!("reading its objects took more than {} s", limit.as_secs());
        return Err(CrdGuardError::Refused(text));
    };
    match surveyed {
        // Some errors last, such as a failed conversion webhook or a missing right. A repetition would bring the same error.
        Err(CrdGuardError::Cluster(error)) if !error.is_of_server() => {
            Err(CrdGuardError::Refused(format!("its objects cannot be read: {error}")))
        }
        verdict => verdict,
    }
}

async fn surveyed(
    cluster: &ClusterConnection,
    one: GrantedPermit,
    old: Value,
    new: Value,
) -> Result<CrdChangeVerdict, CrdGuardError> {
    let has_objects = is_established(&old);
    let stop = StopSignal::default();
    let limit = Arc::new(TimeLimit::start(SURVEY_WORK_TIMEOUT, &stop));
    // The judge compiles the patterns of the schema, and there may be many.
    let judge = tokio::task::spawn_blocking(move || CrdChangeJudge::new(&old, &new, &stop));
    let judge = match judge.await.map_err(|_| broken(PANICKED))? {
        Ok(judge) => judge,
        Err(fault) => return Err(CrdGuardError::Refused(fault.to_string())),
    };
    let resource = |version: &str| resource(judge.old(), version);
    let total = match judge.counted() {
        Some(version) => match cluster.count(&resource(&version)).await {
            // If the API server never accepted the names of a CRD, the CRD has no custom resources.
            Err(error) if error.code() == Some(404) && !has_objects => 0,
            total => total?,
        },
        None => 0,
    };
    let service = match judge.service().filter(|_| total > 0) {
        Some(service) => presence(cluster, service).await,
        None => WebhookServicePresence::Present,
    };
    let reads: Vec<_> = judge.versions().into_iter().map(|it| (resource(&it), it)).collect();
    let mut facts = CrdGuardFacts { total, service, is_complete: true };
    if reads.is_empty() || total == 0 {
        return Ok(judge.finish(facts));
    }
    let (pages, judged) = on_thread(judge, limit, one)?;
    for (resource, version) in reads {
        facts.is_complete &= read(cluster, &resource, &version, &pages).await?;
    }
    drop(pages);
    let judge = judged.await.map_err(|_| broken(PANICKED))?;
    Ok(judge.finish(facts))
}

const PANICKED: &str = "judging panicked; this is a bug in windlass";

fn broken(text: &str) -> ClusterError {
    ClusterError::NoAnswer(format!("a CustomResourceDefinition cannot be judged: {text}"))
}

/// Whether the API server serves the custom resources of a live CRD.
pub fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == "Established" && it["status"] == "True")
}

/// Starts a thread that judges pages of custom resources. Expressions need a deep stack, so it is a thread. It ends after the
/// last page and then gives the permit back. The time limit counts only the judging.
fn on_thread(
    mut judge: CrdChangeJudge,
    limit: Arc<TimeLimit>,
    one: GrantedPermit,
) -> Result<(mpsc::Sender<CheckedObjectPage>, oneshot::Receiver<CrdChangeJudge>), ClusterError> {
    let (pages, mut given) = mpsc::channel::<CheckedObjectPage>(MAX_QUEUED_PAGES);
    let (tell, judged) = oneshot::channel();
    let runtime = Handle::current();
    let work = move || {
        while let Some((version, objects)) = limit.pause(|| given.blocking_recv()) {
            let turn = limit.pause(|| runtime.block_on(JUDGING.acquire()));
            for DepthPrunedObject(object) in &objects {
                judge.object(&version, object);
            }
            drop(turn);
        }
        drop(tell.send(judge));
        drop(one);
    };
    let thread =
        std::thread::Builder::new().name("crds".to_owned()).stack_size(gocel::REQUIRED_STACK_BYTES);
    thread.spawn(work).map_err(|error| broken(&error.to_string()))?;
    Ok((pages, judged))
}

/// Reads the custom resources in one version for the judge. Returns false if there are more than the limit.
async fn read(
    cluster: &ClusterConnection,
    resource: &ApiResourceLocation,
    version: &str,
    pages: &mpsc::Sender<CheckedObjectPage>,
) -> Result<bool, ClusterError> {
    let mut list = cluster.pages(resource, "", ObjectProjection::Whole)?;
    let mut read = 0;
    while read < MAX_JUDGED_OBJECTS
        && let Some(page) = list.next().await?
    {
        read += page.len() as u64;
        let given = pages.send((version.to_owned(), page)).await;
        given.map_err(|_| broken(PANICKED))?;
    }
    Ok(list.is_over())
}

/// The resource of a CRD in a version. Discovery need not know it yet.
pub fn resource(definition: &CrdDefinition, version: &str) -> ApiResourceLocation {
    let CrdDefinition { group, kind, plural, is_namespaced, .. } = definition;
    let group = group.clone();
    let version = version.to_owned();
    let kind = kind.clone();
    ApiResourceLocation {
        gvk: Gvk { group, version, kind },
        plural: plural.clone(),
        namespaced: *is_namespaced,
        watchable: true,
    }
}

async fn presence(
    cluster: &ClusterConnection,
    service: &WebhookServiceReference,
) -> WebhookServicePresence {
    let services = ApiResourceLocation {
        gvk: Gvk::new("v1", "Service"),
        plural: "services".to_owned(),
        namespaced: true,
        watchable: true,
    };
    match cluster.is_listed(&services, &service.namespace, &service.name).await {
        Ok(true) => WebhookServicePresence::Present,
        Ok(false) => WebhookServicePresence::Absent,
        Err(_) => WebhookServicePresence::Unknown,
    }
}

/// The custom resources of a CRD that are not being deleted.
#[derive(Debug, Default)]
pub(super) struct ExistingCustomResources {
    /// How many there are. If `is_more`, there are more than this.
    count: u64,
    is_more: bool,
    examples: Vec<String>,
    /// The reason why they are not known.
    unknown: Option<String>,
}

impl ExistingCustomResources {
    pub(super) fn is_none(&self) -> bool {
        self.count == 0 && self.unknown.is_none()
    }

    /// The custom resources as a phrase for a message. `None` if there are none.
    pub(super) fn text(&self, is_named: bool) -> Option<String> {
        if let Some(why) = &self.unknown {
            return Some(format!("objects that cannot be listed ({why})"));
        }
        let more = if self.is_more { "at least " } else { "" };
        let noun = if self.count == 1 { "object" } else { "objects" };
        let names = match is_named && !self.examples.is_empty() {
            true if self.examples.len() as u64 == self.count => {
                format!(" ({})", self.examples.join(", "))
            }
            true => format!(" (such as {})", self.examples.join(", ")),
            false => String::new(),
        };
        (self.count > 0).then(|| format!("{more}{} {noun}{names}", self.count))
    }
}

/// Finds the custom resources of a live CRD. Only a complete list proves that there are none.
///
/// # Errors
/// A request to the API server failed.
pub(super) async fn users(
    cluster: &ClusterConnection,
    live: &Object,
) -> Result<ExistingCustomResources, ClusterError> {
    let unknown = |why: String| {
        Ok(ExistingCustomResources { unknown: Some(why), ..ExistingCustomResources::default() })
    };
    let definition = match CrdDefinition::read(&Value::Object(live.fields().clone())) {
        Ok(definition) => definition,
        Err(fault) => return unknown(fault.to_string()),
    };
    let is_established = is_established(&Value::Object(live.fields().clone()));
    let Some(version) = definition.readable() else {
        return unknown("no version is served".to_owned());
    };
    let resource = resource(&definition, &version.name);
    let mut users = ExistingCustomResources::default();
    let mut pages = cluster.pages(&resource, "", ObjectProjection::Metadata)?;
    loop {
        let page = match pages.next().await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(users),
            // If the API server never accepted the names of a CRD, the CRD has no custom resources.
            Err(error) if error.code() == Some(404) && !is_established => return Ok(users),
            Err(error) if !error.is_of_server() => return unknown(error.to_string()),
            Err(error) => return Err(error),
        };
        for DepthPrunedObject(item) in &page {
            let meta = &item["metadata"];
            if !meta["deletionTimestamp"].is_null() {
                continue;
            }
            users.count += 1;
            if users.examples.len() < MAX_NAMED_OBJECTS {
                let text = |key: &str| meta[key].as_str().unwrap_or_default();
                let namespace = text("namespace");
                let name = text("name");
                let at = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
                users.examples.push(format!("{at}{name}"));
            }
        }
        if users.count >= MAX_COUNTED_OBJECTS {
            users.is_more = !pages.is_over();
            return Ok(users);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_that_never_ends_a_list_gives_its_slot_back() {
        let never = std::future::pending();
        let text = within(Duration::ZERO, never).await.unwrap_err().refusal().unwrap();
        assert_eq!(text, "reading its objects took more than 0 s");
        // One namespace may hold at most two slots.
        let _first = SURVEYS.acquire("a").await;
        let _second = SURVEYS.acquire("a").await;
        let third = tokio::time::timeout(Duration::from_millis(10), SURVEYS.acquire("a")).await;
        assert!(third.is_err());
        SURVEYS.acquire("b").await;
    }
}
