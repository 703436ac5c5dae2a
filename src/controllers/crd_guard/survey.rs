//! Reads the objects of a definition, page by page, and has them judged as they come.

use std::sync::Arc;
use std::time::Duration;

use crdguard::{Definition, Facts, Fault, Judge, Presence, ServiceReference, Verdict};
use golang::meter::Stop;
use objects::{Gvk, Object};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::cluster::discovery::Resource;
use crate::cluster::pages::Part;
use crate::cluster::{Cluster, ClusterError};
use crate::time_limit::TimeLimit;

/// How many definitions are judged at once: each takes a processor. Who waits for objects is not counted.
static JUDGING: Semaphore = Semaphore::const_new(2);

/// How long one of them may take, with reading.
const TIME: Duration = Duration::from_secs(120);

/// How many objects are judged of a kind; of more, only some are.
const SAMPLE: u64 = 10_000;

/// How many pages wait to be judged.
const PAGES: usize = 2;

/// How many objects are named.
const NAMED: usize = 5;

/// A page of objects, and the version that it was read in.
type Page = (String, Vec<Value>);

/// Judges a new definition by the objects that exist.
///
/// # Errors
/// The API server could not be asked.
pub(crate) async fn survey(
    cluster: &Cluster,
    old: Value,
    new: Value,
) -> Result<Result<Verdict, Fault>, ClusterError> {
    let stop = Stop::default();
    let judge = match Judge::new(&old, &new, &stop) {
        Ok(judge) => judge,
        Err(fault) => return Ok(Err(fault)),
    };
    let limit = Arc::new(TimeLimit::start(TIME, &stop));
    let resource = |version: &str| resource(judge.old(), version);
    let total = match judge.counted() {
        Some(version) => cluster.count(&resource(&version)).await?,
        None => 0,
    };
    let service = match judge.service().filter(|_| total > 0) {
        Some(service) => presence(cluster, service).await,
        None => Presence::Present,
    };
    let reads: Vec<_> = judge.versions().into_iter().map(|it| (resource(&it), it)).collect();
    let facts = Facts { total, service };
    if reads.is_empty() || total == 0 {
        return Ok(Ok(judge.finish(facts)));
    }
    let (pages, judged) = on_thread(judge)?;
    for (resource, version) in reads {
        read(cluster, &resource, &version, &pages).await?;
    }
    drop(pages);
    let judge = judged.await.map_err(|_| broken("judging panicked; this is a bug in windlass"))?;
    drop(limit);
    Ok(Ok(judge.finish(facts)))
}

fn broken(text: &str) -> ClusterError {
    ClusterError::NoAnswer(format!("a CustomResourceDefinition cannot be judged: {text}"))
}

/// A thread that judges what it is given: expressions need a deep stack. It ends with whoever gives.
fn on_thread(
    mut judge: Judge,
) -> Result<(mpsc::Sender<Page>, oneshot::Receiver<Judge>), ClusterError> {
    let (pages, mut given) = mpsc::channel::<Page>(PAGES);
    let (tell, judged) = oneshot::channel();
    let runtime = Handle::current();
    let work = move || {
        while let Some((version, objects)) = given.blocking_recv() {
            let turn = runtime.block_on(JUDGING.acquire());
            for object in &objects {
                judge.object(&version, object);
            }
            drop(turn);
        }
        drop(tell.send(judge));
    };
    let thread = std::thread::Builder::new().name("crds".to_owned()).stack_size(gocel::STACK);
    thread.spawn(work).map_err(|error| broken(&error.to_string()))?;
    Ok((pages, judged))
}

async fn read(
    cluster: &Cluster,
    resource: &Resource,
    version: &str,
    pages: &mpsc::Sender<Page>,
) -> Result<(), ClusterError> {
    let (mut from, mut read) = (None, 0);
    loop {
        let page = cluster.page(resource, "", Part::Whole, from.as_deref()).await?;
        read += page.items.len() as u64;
        let given = pages.send((version.to_owned(), page.items)).await;
        given.map_err(|_| broken("judging panicked; this is a bug in windlass"))?;
        from = page.next;
        if from.is_none() || read >= SAMPLE {
            return Ok(());
        }
    }
}

/// The objects of a definition in a version, which need not be known to discovery yet.
pub(crate) fn resource(definition: &Definition, version: &str) -> Resource {
    let Definition { group, kind, plural, is_namespaced, .. } = definition;
    let (group, version, kind) = (group.clone(), version.to_owned(), kind.clone());
    Resource {
        gvk: Gvk { group, version, kind },
        plural: plural.clone(),
        namespaced: *is_namespaced,
        watchable: true,
    }
}

async fn presence(cluster: &Cluster, service: &ServiceReference) -> Presence {
    let services = Resource {
        gvk: Gvk::new("v1", "Service"),
        plural: "services".to_owned(),
        namespaced: true,
        watchable: true,
    };
    match cluster.is_listed(&services, &service.namespace, &service.name).await {
        Ok(true) => Presence::Present,
        Ok(false) => Presence::Absent,
        Err(_) => Presence::Unknown,
    }
}

/// Objects of a definition that nobody has deleted.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// How many; at least, if `is_more`.
    count: u64,
    is_more: bool,
    examples: Vec<String>,
    /// Why they are not known.
    unknown: Option<String>,
}

impl Users {
    pub(super) fn is_none(&self) -> bool {
        self.count == 0 && self.unknown.is_none()
    }

    /// Them in words; none if there are none.
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

/// Finds the objects of a live definition. Absence is known from a complete list only.
///
/// # Errors
/// The API server could not be asked.
pub(super) async fn users(cluster: &Cluster, live: &Object) -> Result<Users, ClusterError> {
    let unknown = |why: String| Ok(Users { unknown: Some(why), ..Users::default() });
    let definition = match Definition::read(&Value::Object(live.fields().clone())) {
        Ok(definition) => definition,
        Err(fault) => return unknown(fault.to_string()),
    };
    let conditions = live.get("status").and_then(|it| it.get("conditions"));
    let is_established = conditions.and_then(Value::as_array).is_some_and(|all| {
        all.iter().any(|it| it["type"] == "Established" && it["status"] == "True")
    });
    let Some(version) = definition.readable() else {
        return unknown("no version is served".to_owned());
    };
    let resource = resource(&definition, &version.name);
    let mut users = Users::default();
    let mut from = None;
    loop {
        let page = cluster.page(&resource, "", Part::Metadata, from.as_deref()).await;
        let page = match page {
            Ok(page) => page,
            // Whose names were never accepted has no objects.
            Err(error) if error.code() == Some(404) && !is_established => return Ok(users),
            Err(error) if error.is_permanent() || error.code() == Some(404) => {
                return unknown(error.to_string());
            }
            Err(error) => return Err(error),
        };
        for item in &page.items {
            let meta = &item["metadata"];
            if !meta["deletionTimestamp"].is_null() {
                continue;
            }
            users.count += 1;
            if users.examples.len() < NAMED {
                let text = |key: &str| meta[key].as_str().unwrap_or_default();
                let (namespace, name) = (text("namespace"), text("name"));
                let at = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
                users.examples.push(format!("{at}{name}"));
            }
        }
        from = page.next;
        if from.is_some() && users.count >= SAMPLE {
            users.is_more = true;
        }
        if from.is_none() || users.is_more {
            return Ok(users);
        }
    }
}
