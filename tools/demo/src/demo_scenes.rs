//! The scenes of the demo. Each scene does what a user would do, and waits until windlass has reacted.
//!
//! A scene has its actions, the expected results and the time limits. `super` has their order, and `terminal_output`
//! prints them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::terminal_output::{command, fact, milliseconds, moment, output, typed};
use super::{DemoSetup, FILES};
use e2e::cluster_with_operator::{ObjectWatch, WatchSelection, WatchedObject};

/// How long objects and their Pods may take to appear.
const CREATION_TIMEOUT: Duration = Duration::from_secs(120);

/// How long windlass may take to correct an object that was changed by hand.
const PUT_BACK: Duration = Duration::from_secs(10);

/// How long a commit may take to be applied after its announcement.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);

/// For how long the demo shows that a suspended object stays unchanged.
const SUSPENDED_DURATION: Duration = Duration::from_secs(2);

/// The Kustomizations in the order of their `dependsOn`.
const PARTS: [&str; 3] = ["infrastructure", "database", "shop"];

/// The arguments of kubectl that request a reconciliation of the source now.
pub(super) fn reconcile_now(when: &str) -> Vec<String> {
    let request = format!("reconcile.fluxcd.io/requestedAt={when}");
    let fixed = ["-n", "flux-system", "annotate", "--overwrite", "gitrepository/fleet"];
    fixed.iter().map(|&it| it.to_owned()).chain([request]).collect()
}

fn sources_and_kustomizations() -> [WatchSelection; 2] {
    [
        WatchSelection::of("source.toolkit.fluxcd.io/v1", "GitRepository").within("flux-system"),
        WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization").within("flux-system"),
    ]
}

/// The kinds of the objects that come from the repository.
fn managed() -> [WatchSelection; 5] {
    let label = "kustomize.toolkit.fluxcd.io/name";
    [
        WatchSelection::of("v1", "Namespace").labelled(label),
        WatchSelection::of("v1", "ConfigMap").labelled(label),
        WatchSelection::of("v1", "Service").labelled(label),
        WatchSelection::of("apps/v1", "StatefulSet").labelled(label),
        WatchSelection::of("apps/v1", "Deployment").labelled(label),
    ]
}

/// The facts that the first scene observes.
#[derive(Default)]
struct DemoRunFacts {
    /// The resource version at which each object appeared. Resource versions count all writes to the cluster.
    appeared: BTreeMap<String, u64>,
    ready: BTreeMap<String, u64>,
}

impl DemoRunFacts {
    /// Checks that `object` was created after the Kustomization `part` had become Ready.
    fn check(&self, part: &str, object: &str) -> anyhow::Result<()> {
        let ready = self.ready.get(part).with_context(|| format!("{part} was never Ready"))?;
        let created =
            self.appeared.get(object).with_context(|| format!("{object} never appeared"))?;
        ensure!(ready < created, "{object} was created before {part} was Ready");
        Ok(())
    }
}

impl DemoSetup {
    /// Prints a kubectl command, runs it, and returns its output.
    pub(super) fn kubectl<Argument: AsRef<str>>(
        &self,
        arguments: &[Argument],
    ) -> anyhow::Result<String> {
        command(&typed(arguments));
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        self.installation.kubectl(&arguments)
    }

    pub(super) fn show(&self, arguments: &[&str]) -> anyhow::Result<()> {
        output(&self.kubectl(arguments)?);
        Ok(())
    }

    async fn watch(&self, selections: &[WatchSelection]) -> anyhow::Result<ObjectWatch> {
        ObjectWatch::begin(self.installation.client(), selections).await
    }

    /// Applies a source and three Kustomizations at once. Their objects appear in the order of the dependencies.
    pub(super) async fn objects_appear_in_order(&mut self, commit: &str) -> anyhow::Result<()> {
        let git = self.installation.git();
        let text = include_str!("fleet.yaml").replace("URL", &git.url(&self.repository));
        let file = git.folder().join("fleet.yaml");
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        let all = [&sources_and_kustomizations()[..], &managed()[..]].concat();
        let mut watch = self.watch(&all).await?;
        self.show(&["apply", "-f", &file.display().to_string()])?;
        let order = follow_order(&mut watch, commit).await?;
        order.check("infrastructure", "StatefulSet database")?;
        order.check("database", "Deployment shop")?;
        fact(
            "infrastructure, then database, then shop: each waited for the pods of the one before",
        );
        self.show(&["-n", "flux-system", "get", "gitrepositories,kustomizations"])?;
        self.show(&["-n", "shop", "get", "pods"])
    }

    /// Scales, patches and deletes objects by hand. windlass corrects each of them.
    pub(super) async fn edits_are_put_back(&mut self) -> anyhow::Result<()> {
        let mut watch = self.watch(&managed()).await?;
        let scale = ["-n", "shop", "scale", "deployment/shop", "--replicas=5"];
        let replicas = |seen: &WatchedObject, count: i64| {
            seen.is("Deployment", "shop") && seen.value("/spec/replicas") == count
        };
        let edited = |seen: &WatchedObject| replicas(seen, 5);
        self.is_put_back(&mut watch, &scale, edited, |seen, _| replicas(seen, 2)).await?;

        let patch = r#"{"data":{"currency":"USD"}}"#;
        let patch = ["-n", "shop", "patch", "configmap/settings", "--type=merge", "-p", patch];
        let currency = |seen: &WatchedObject, name: &str| {
            seen.is("ConfigMap", "settings") && seen.value("/data/currency") == name
        };
        let edited = |seen: &WatchedObject| currency(seen, "USD");
        self.is_put_back(&mut watch, &patch, edited, |seen, _| currency(seen, "EUR")).await?;

        let delete = ["-n", "shop", "delete", "service/shop"];
        let gone = |seen: &WatchedObject| seen.is("Service", "shop") && !seen.exists;
        self.is_put_back(&mut watch, &delete, gone, |seen, edited| {
            seen.is("Service", "shop") && seen.exists && seen.uid() != edited.uid()
        })
        .await?;
        self.show(&["-n", "shop", "get", "deployment/shop", "service/shop"])
    }

    /// Changes an object by hand. Then it waits until a watch shows the change, and until windlass has corrected the
    /// object.
    async fn is_put_back(
        &self,
        watch: &mut ObjectWatch,
        arguments: &[&str],
        is_edited: impl Fn(&WatchedObject) -> bool,
        is_back: impl Fn(&WatchedObject, &WatchedObject) -> bool,
    ) -> anyhow::Result<()> {
        watch.forget();
        self.kubectl(arguments)?;
        let what = typed(arguments);
        let edited = watch.until(&format!("the effect of `{what}`"), PUT_BACK, is_edited).await?;
        let undone = format!("`{what}` to be undone");
        let back = watch.until(&undone, PUT_BACK, |seen| is_back(seen, &edited)).await?;
        let took = back.at.saturating_duration_since(edited.at);
        fact(&format!("{} {} put back after {}", back.kind, back.name, milliseconds(took)));
        Ok(())
    }

    /// Commits a change of two Kustomizations, one of which is suspended. That one changes only after it is resumed. The
    /// result is the commit.
    pub(super) async fn a_suspended_object_waits(&mut self, first: &str) -> anyhow::Result<String> {
        let all = [&sources_and_kustomizations()[..], &managed()[..]].concat();
        let mut watch = self.watch(&all).await?;
        self.set_suspend(true)?;
        let begun = Instant::now();
        let commit = self.second_commit()?;
        self.kubectl(&reconcile_now(&commit))?;
        let arrived = |seen: &WatchedObject| {
            seen.is("ConfigMap", "settings") && seen.value("/data/greeting") == "good morning"
        };
        let seen =
            watch.until("the new greeting in ConfigMap settings", COMMIT_TIMEOUT, arrived).await?;
        moment(begun, seen.at, "ConfigMap settings has the new greeting");
        let applied = |seen: &WatchedObject| {
            seen.is("Kustomization", "database") && seen.has_applied(&commit)
        };
        let seen = watch.until("database to be at the new commit", COMMIT_TIMEOUT, applied).await?;
        moment(begun, seen.at, "infrastructure and database are at the new commit");

        let is_moved = |seen: &WatchedObject| {
            (seen.is("Deployment", "shop") && seen.value("/spec/replicas") != 2)
                || (seen.is("Kustomization", "shop") && seen.has_applied(&commit))
        };
        watch.stays("shop is suspended but changed", SUSPENDED_DURATION, is_moved).await?;
        self.is_still("{.spec.replicas}", "deployment/shop", "shop", "2")?;
        let revision = format!("main@sha1:{first}");
        self.is_still(
            "{.status.lastAppliedRevision}",
            "kustomization/shop",
            "flux-system",
            &revision,
        )?;
        fact("shop is suspended: still 2 replicas, still the first commit");
        self.show(&["-n", "flux-system", "get", "kustomizations"])?;

        watch.forget();
        self.set_suspend(false)?;
        let resumed = |seen: &WatchedObject| {
            seen.is("Kustomization", "shop") && seen.value("/spec/suspend") != true
        };
        let resumed = watch.until("shop to be resumed", COMMIT_TIMEOUT, resumed).await?;
        let scaled = |seen: &WatchedObject| {
            seen.is("Deployment", "shop") && seen.value("/spec/replicas") == 3
        };
        let scaled = watch.until("shop to have 3 replicas", COMMIT_TIMEOUT, scaled).await?;
        let took = milliseconds(scaled.at.saturating_duration_since(resumed.at));
        fact(&format!("the change arrived {took} after the object was resumed"));
        let applied =
            |seen: &WatchedObject| seen.is("Kustomization", "shop") && seen.has_applied(&commit);
        watch.until("shop to be Ready at the new commit", CREATION_TIMEOUT, applied).await?;
        fact("shop is Ready at the new commit");
        self.show(&["-n", "flux-system", "get", "kustomizations"])?;
        Ok(commit)
    }

    fn set_suspend(&self, suspended: bool) -> anyhow::Result<()> {
        let patch = format!(r#"{{"spec":{{"suspend":{suspended}}}}}"#);
        let fixed = ["-n", "flux-system", "patch", "kustomization/shop", "--type=merge", "-p"];
        self.kubectl(&[&fixed[..], &[&patch]].concat()).map(drop)
    }

    fn second_commit(&self) -> anyhow::Result<String> {
        let changes = [
            ("infrastructure/settings.yaml", "greeting: welcome", "greeting: good morning"),
            ("shop/deployment.yaml", "replicas: 2", "replicas: 3"),
        ];
        let mut files = Vec::new();
        for (path, old, new) in changes {
            let known = FILES.iter().find(|(known, _)| *known == path);
            let (_, text) = known.with_context(|| format!("{path} is not in the repository"))?;
            ensure!(text.contains(old), "{path} has no `{old}`");
            files.push((path, text.replace(old, new)));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, &**text)).collect();
        command("git commit -a -m \"Greet politely, serve from three pods\" && git push");
        self.repository.commit(&files, "Greet politely, serve from three pods")
    }

    fn is_still(
        &self,
        path: &str,
        object: &str,
        namespace: &str,
        wanted: &str,
    ) -> anyhow::Result<()> {
        let format = format!("jsonpath={path}");
        let found = self.installation.kubectl(&["-n", namespace, "get", object, "-o", &format])?;
        ensure!(found == wanted, "{object} {path} is {found} and should still be {wanted}");
        Ok(())
    }
}

/// Prints each object that appears and each Kustomization that becomes Ready, until all Kustomizations are Ready.
async fn follow_order(watch: &mut ObjectWatch, commit: &str) -> anyhow::Result<DemoRunFacts> {
    let begun = Instant::now();
    let mut order = DemoRunFacts::default();
    let mut fetched = false;
    loop {
        let missing: Vec<&str> =
            PARTS.into_iter().filter(|part| !order.ready.contains_key(*part)).collect();
        if missing.is_empty() {
            return Ok(order);
        }
        let what = format!("{} to become Ready", missing.join(", "));
        let seen = watch.next(&what, begun + CREATION_TIMEOUT).await?;
        match seen.kind.as_str() {
            "GitRepository" if !fetched && seen.has_fetched(commit) => {
                fetched = true;
                moment(begun, seen.at, &format!("GitRepository {} has the commit", seen.name));
            }
            "Kustomization"
                if seen.has_applied(commit) && !order.ready.contains_key(&seen.name) =>
            {
                moment(begun, seen.at, &format!("Kustomization {} is Ready", seen.name));
                order.ready.insert(seen.name.clone(), seen.version());
            }
            "GitRepository" | "Kustomization" => {}
            kind => {
                let name = format!("{kind} {}", seen.name);
                order.appeared.entry(name).or_insert_with_key(|name| {
                    moment(begun, seen.at, &format!("  {name} appears"));
                    seen.version()
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_came_before_its_dependency_was_ready_is_reported() {
        let mut order = DemoRunFacts::default();
        order.ready.insert("database".into(), 7);
        order.appeared.insert("Deployment shop".into(), 8);
        assert!(order.check("database", "Deployment shop").is_ok());
        order.appeared.insert("Deployment shop".into(), 6);
        let text = order.check("database", "Deployment shop").unwrap_err().to_string();
        assert_eq!(text, "Deployment shop was created before database was Ready");
        assert!(order.check("infrastructure", "Deployment shop").is_err());
    }
}
