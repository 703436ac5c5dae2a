//! `windlass migrate from-flux`: surveys the cluster, records its state, scales Flux to zero, installs windlass, and verifies
//! the result. If a step fails, the migration is undone.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use objects::Object;
use tokio::time::Instant;

use super::super::check::is_supported;
use super::super::cluster_operators::{ClusterOperators, DetectedOperator};
use super::super::install::manifests::InstallManifestFlags;
use super::super::install::{self, POLL_INTERVAL, crd_replacement, leader_wait, name};
use super::controller_flags::{self, MigratedFlags};
use super::deletion_budget_preview::DeletionBudgetPreview;
use super::flux_installation::{FluxInstallationSurvey, is_ready, ready};
use super::migration_backup::{MigrationBackup, suspend};
use super::objects_left_after_undo::ObjectsLeftAfterUndo;
use super::unexpected_write_check::AppliedStateSnapshot;
use super::{await_end, scale, to_flux};
use windlass_cli_runtime::connection::{
    ProgressGlyph, WindlassConnectionFlags, block_on, print, say,
};
use windlass_cli_runtime::table::clean;
use windlass_cli_runtime::trailing_serve_flags;
use windlass_cluster::ClusterConnection;
use windlass_serve::settings::parse_duration;

/// How long a running upgrade of a release may take before the migration begins.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// The minimum time for Flux to become ready again. A short `--timeout` applies only to windlass.
const UNDO_LIMIT: Duration = Duration::from_secs(120);

/// The flags of `windlass migrate from-flux`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct MigrateFromFluxArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
    #[command(flatten)]
    manifests: InstallManifestFlags,
    /// Print what is installed and what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// How long everything has to stay ready under windlass before the migration counts as done
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_duration)]
    observe: Duration,
}

/// Migrates the cluster from Flux to windlass.
///
/// # Errors
/// Something prevents the migration, and nothing was changed. Or a step failed, and the message says whether everything was
/// undone.
pub(super) fn run(args: &MigrateFromFluxArgs) -> anyhow::Result<()> {
    block_on(async {
        let (cluster, version) = args.connection.open().await?;
        let namespace = args.connection.namespace.as_str();
        is_supported(&version)?;
        let mut manifests = args.manifests.clone();
        let mut wanted = manifests.objects(namespace)?;
        crd_replacement::check(&cluster, &wanted, false).await?;
        let mut survey = FluxInstallationSurvey::of(&cluster, namespace).await?;
        survey.obstacles.extend(others(&ClusterOperators::find(&cluster).await?, namespace));
        let MigratedFlags { flags, notes, warnings, obstacles } =
            controller_flags::carried(&survey.controllers, &wanted);
        survey.obstacles.extend(obstacles);
        print(&survey.table())?;
        tell_deletions(&survey.deletions, &manifests)?;
        notes.iter().for_each(|text| say(ProgressGlyph::Action, &clean(text)));
        warnings.iter().for_each(|text| say(ProgressGlyph::Warning, &clean(text)));
        check(&survey, namespace)?;
        if !flags.is_empty() {
            manifests.serve_flags.extend(flags);
            wanted = manifests.objects(namespace)?;
        }
        // The namespace already exists and contains Pods of others. A label of windlass might forbid those Pods.
        wanted.retain(|object| object.kind() != "Namespace");
        leader_wait::permit_leases(&cluster, namespace, &wanted).await?;
        if args.dry_run {
            tell_plan(&survey, namespace, &manifests);
            return Ok(());
        }
        let deadline = Instant::now() + args.connection.timeout;
        let survey = await_idle(&cluster, namespace, survey).await?;
        // An existing record comes from an interrupted migration. The cluster is no longer in its original state, so the old
        // record is kept.
        let record = match MigrationBackup::load(&cluster, namespace).await? {
            Some(record) => record,
            None => {
                let record = MigrationBackup::of(&cluster, &survey, &wanted).await?;
                record.save(&cluster, namespace).await?;
                record
            }
        };
        if let Err(error) = take_over(&cluster, args, &survey, wanted.clone(), deadline).await {
            say(ProgressGlyph::Failure, &format!("{error:#}"));
            say(ProgressGlyph::Action, "giving the cluster back to Flux");
            let deadline = Instant::now() + args.connection.timeout.max(UNDO_LIMIT);
            to_flux::give_back(&cluster, namespace, &record, deadline).await.with_context(|| {
                format!("Flux is not back yet; `windlass migrate to-flux -n {namespace}` tries again")
            })?;
            tell_remains(&cluster, &wanted, namespace).await;
            bail!("windlass did not take over, and Flux is as it was");
        }
        say(
            ProgressGlyph::Success,
            "windlass has taken over; `windlass migrate to-flux` gives the cluster back",
        );
        tell_next(&survey, namespace, &manifests);
        Ok(())
    })
}

/// Prints the deletions that windlass would not carry out without approval, unless the deletion budget is turned off.
fn tell_deletions(
    deletions: &DeletionBudgetPreview,
    manifests: &InstallManifestFlags,
) -> anyhow::Result<()> {
    let table = deletions.table();
    let has_budget = trailing_serve_flags::settings(&manifests.serve_flags)?.deletion_budget;
    if table.is_empty() || !has_budget {
        return Ok(());
    }
    print(&format!("\n{table}"))?;
    say(ProgressGlyph::Action, &DeletionBudgetPreview::explanation());
    Ok(())
}

/// Prints which objects of an undone installation are left.
async fn tell_remains(cluster: &ClusterConnection, installed: &[Object], namespace: &str) {
    match ObjectsLeftAfterUndo::of(cluster, installed).await {
        Ok(remains) => {
            remains
                .lines(namespace)
                .iter()
                .for_each(|text| say(ProgressGlyph::Action, &clean(text)));
        }
        Err(error) => {
            say(ProgressGlyph::Warning, &format!("cannot tell what stays of windlass: {error}"));
        }
    }
}

/// The operators in other namespaces that would reconcile the same objects as windlass.
fn others(operators: &ClusterOperators, namespace: &str) -> Vec<String> {
    let is_elsewhere = |it: &&DetectedOperator| it.namespace != namespace;
    let lines = operators.active().filter(is_elsewhere).map(|it| {
        format!("{}: it acts on the same objects; scale it to zero or remove it first", it.subject)
    });
    lines.collect()
}

/// Checks that there is an installation to replace, and that nothing prevents it.
fn check(survey: &FluxInstallationSurvey, namespace: &str) -> anyhow::Result<()> {
    if survey.controllers.is_empty() {
        bail!(
            "no controller of Flux is in namespace {namespace}: name its namespace with -n, or `windlass install`"
        );
    }
    if !survey.is_active() {
        bail!(
            "the controllers of Flux in namespace {namespace} have no replicas: `windlass install`"
        );
    }
    for obstacle in &survey.obstacles {
        say(ProgressGlyph::Failure, &clean(obstacle));
    }
    match survey.obstacles.len() {
        0 => Ok(()),
        count => bail!("{count} obstacle(s) are in the way; nothing was changed"),
    }
}

fn tell_plan(survey: &FluxInstallationSurvey, namespace: &str, manifests: &InstallManifestFlags) {
    if let Some(object) = &survey.bootstrap {
        say(
            ProgressGlyph::Action,
            &format!("{} applies the controllers of Flux, so it would be suspended", name(object)),
        );
    }
    for controller in &survey.controllers {
        say(ProgressGlyph::Action, &format!("{} would be scaled to zero", name(controller)));
    }
    say(ProgressGlyph::Action, &format!("windlass would be installed in namespace {namespace}"));
    tell_next(survey, namespace, manifests);
}

/// Prints what the user has to do next: in the repository that installs Flux, and with the rest of Flux.
fn tell_next(survey: &FluxInstallationSurvey, namespace: &str, manifests: &InstallManifestFlags) {
    if let Some(text) = next_in_repository(survey, namespace, manifests) {
        say(ProgressGlyph::Warning, &text);
    } else if !manifests.serve_flags.is_empty() {
        let flags = format!("{}{}", manifests.flags(), manifests.serve_flags());
        say(
            ProgressGlyph::Action,
            &format!("`windlass install -n {namespace}{flags}` upgrades windlass with these flags"),
        );
    }
    let names: Vec<&str> = survey.controllers.iter().map(Object::name).collect();
    say(
        ProgressGlyph::Action,
        &format!(
            "{} stay at zero, so that Flux can be given back. To remove them, name them: windlass has the label \
             app.kubernetes.io/part-of=flux, too",
            names.join(", ")
        ),
    );
}

/// The next step of a migration, in the repository that installs Flux. Manifests that windlass does not replace are kept.
/// `None` if no repository installs Flux.
fn next_in_repository(
    survey: &FluxInstallationSurvey,
    namespace: &str,
    manifests: &InstallManifestFlags,
) -> Option<String> {
    let object = survey.bootstrap.as_ref()?;
    let path = object.get("spec").and_then(|spec| spec["path"].as_str()).unwrap_or("./");
    let path = path.trim_start_matches("./").trim_end_matches('/');
    let file = match path {
        "" => format!("{namespace}/gotk-components.yaml"),
        path => format!("{path}/{namespace}/gotk-components.yaml"),
    };
    let export = format!("windlass install --export -n {namespace}{}", manifests.flags());
    let serve_flags = manifests.serve_flags();
    let others: Vec<&str> = survey.others.iter().map(Object::name).collect();
    let command = match others.is_empty() {
        true => format!("`{export}{serve_flags} > {file}`"),
        false => format!(
            "`{export} --keep {file}{serve_flags} > windlass.yaml && mv windlass.yaml {file}`, which keeps {}",
            others.join(" and ")
        ),
    };
    Some(format!(
        "{} stays suspended: it would install Flux's controllers again. In its repository, run {command}; commit that, \
         then `windlass resume kustomization/{} -n {}`",
        name(object),
        object.name(),
        object.namespace()
    ))
}

/// Waits until no release is being installed or upgraded. A Helm operation should end under the controller that began it.
async fn await_idle(
    cluster: &ClusterConnection,
    namespace: &str,
    mut survey: FluxInstallationSurvey,
) -> anyhow::Result<FluxInstallationSurvey> {
    let deadline = Instant::now() + PROGRESS_LIMIT;
    loop {
        let is_busy = |it: &&Object| {
            let is_suspended = it.get("spec").is_some_and(|spec| spec["suspend"] == true);
            !is_suspended && ready(it).is_some_and(|condition| condition["status"] == "Unknown")
        };
        let busy = survey.of_kind("HelmRelease").find(is_busy).map(name);
        let Some(busy) = busy else { return Ok(survey) };
        if Instant::now() >= deadline {
            bail!("{busy} is in progress: run this again when it is Ready or has failed");
        }
        say(ProgressGlyph::Waiting, &format!("{busy} is in progress"));
        tokio::time::sleep(4 * POLL_INTERVAL).await;
        survey = FluxInstallationSurvey::of(cluster, namespace).await?;
    }
}

async fn take_over(
    cluster: &ClusterConnection,
    args: &MigrateFromFluxArgs,
    survey: &FluxInstallationSurvey,
    wanted: Vec<Object>,
    deadline: Instant,
) -> anyhow::Result<()> {
    let live = AppliedStateSnapshot::of(survey);
    if let Some(object) = &survey.bootstrap {
        suspend(cluster, object.namespace(), object.name(), true).await?;
    }
    for controller in &survey.controllers {
        scale(cluster, controller, 0).await?;
    }
    await_end(cluster, &survey.controllers, deadline).await?;
    let namespace = args.connection.namespace.as_str();
    install::apply_windlass(cluster, namespace, wanted, deadline).await?;
    observe(cluster, args, survey, &live).await
}

/// Checks for a while that all ready objects stay ready, and that nothing is written without a reason.
async fn observe(
    cluster: &ClusterConnection,
    args: &MigrateFromFluxArgs,
    before: &FluxInstallationSurvey,
    live: &AppliedStateSnapshot,
) -> anyhow::Result<()> {
    let namespace = args.connection.namespace.as_str();
    say(ProgressGlyph::Waiting, "every object that was ready stays ready");
    tokio::time::sleep(args.observe).await;
    let deadline = Instant::now() + args.connection.timeout;
    let now = loop {
        let now = FluxInstallationSurvey::of(cluster, namespace).await?;
        let is_worse = |it: &&Object| {
            before.objects.iter().any(|old| old.id() == it.id() && is_ready(old)) && !is_ready(it)
        };
        let Some(worse) =
            now.objects.iter().find(is_worse).map(|it| (name(it), ready(it).cloned()))
        else {
            break now;
        };
        if Instant::now() >= deadline {
            let message = worse.1.and_then(|it| it["message"].as_str().map(str::to_owned));
            bail!("{} was ready and is not: {}", worse.0, message.unwrap_or_default());
        }
        tokio::time::sleep(2 * POLL_INTERVAL).await;
    };
    let written = live.written(cluster, &now).await?;
    if !written.is_empty() {
        bail!("objects were written whose revision is the same: {}", written.join(", "));
    }
    say(ProgressGlyph::Success, "nothing was written to what is managed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::with_objects;

    #[derive(Debug, Parser)]
    struct FromFluxTestCommand {
        #[command(flatten)]
        manifests: InstallManifestFlags,
    }

    fn controller(name: &str, namespace: &str, replicas: i64) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "flux"}},
            "spec": {"replicas": replicas},
        })
    }

    /// The Kustomization of `flux bootstrap`, which applies a controller.
    fn bootstrap() -> Value {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "flux-system", "namespace": "flux-system"},
            "spec": {
                "interval": "10m", "path": "./clusters/one", "prune": true,
                "sourceRef": {"kind": "GitRepository", "name": "flux-system"},
            },
            "status": {"inventory": {"entries": [
                {"id": "flux-system_source-controller_apps_Deployment", "v": "v1"},
            ]}},
        })
    }

    async fn survey(objects: Vec<Value>) -> FluxInstallationSurvey {
        FluxInstallationSurvey::of(&with_objects(objects).await.0, "flux-system").await.unwrap()
    }

    #[tokio::test]
    async fn the_step_in_the_repository_keeps_what_windlass_does_not_replace_and_repeats_the_flags()
    {
        let flags = ["migrate", "--profile=high-availability", "--image-pull-secret=pull"];
        let manifests = FromFluxTestCommand::try_parse_from(flags).unwrap().manifests;
        let source = controller("source-controller", "flux-system", 1);
        let plain = survey(vec![source.clone(), bootstrap()]).await;
        let text = next_in_repository(&plain, "flux-system", &manifests).unwrap();
        let export = "windlass install --export -n flux-system --profile=high-availability --image-pull-secret=pull";
        let file = "clusters/one/flux-system/gotk-components.yaml";
        assert!(text.contains(&format!("`{export} > {file}`")), "{text}");

        let other = controller("team-controller", "flux-system", 1);
        let automated = survey(vec![source, other, bootstrap()]).await;
        let text = next_in_repository(&automated, "flux-system", &manifests).unwrap();
        let command =
            format!("`{export} --keep {file} > windlass.yaml && mv windlass.yaml {file}`");
        assert!(text.contains(&command), "{text}");
        assert!(text.contains("which keeps team-controller"), "{text}");
        let mut carried = manifests.clone();
        carried.serve_flags.push("--no-cross-namespace-refs=true".to_owned());
        let text = next_in_repository(&automated, "flux-system", &carried).unwrap();
        let command =
            format!("{export} --keep {file} -- --no-cross-namespace-refs=true > windlass");
        assert!(text.contains(&command), "{text}");
    }

    #[tokio::test]
    async fn shards_are_taken_over_and_operators_elsewhere_are_in_the_way() {
        let objects = vec![
            controller("kustomize-controller", "flux-system", 1),
            controller("kustomize-controller-shard1", "flux-system", 1),
            controller("team-controller", "flux-system", 1),
            controller("helm-controller", "second-flux", 1),
        ];
        let (cluster, _) = with_objects(objects).await;
        let found = FluxInstallationSurvey::of(&cluster, "flux-system").await.unwrap();
        let names: Vec<&str> = found.controllers.iter().map(Object::name).collect();
        assert_eq!(names, ["kustomize-controller", "kustomize-controller-shard1"]);
        let others = others(&ClusterOperators::find(&cluster).await.unwrap(), "flux-system");
        assert_eq!(others.len(), 1);
        assert!(others[0].starts_with("Deployment/second-flux/helm-controller"), "{others:?}");
    }
}
