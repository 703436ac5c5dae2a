//! The advice about what to commit after a rollback. With that commit, the release stays as it is after it is resumed.

use std::collections::BTreeMap;

use objects::{Object, ObjectId};
use reconcile::ReleaseRollback;
use serde_json::Value;

use super::ReleaseToRollBack;
use crate::cause_facts;
use crate::command_scope::CommandScope;
use windlass_cli_runtime::table::cut;

/// The data for the advice, in addition to the status, as far as the user may read it.
#[derive(Debug, Default)]
pub(super) struct CommitAdviceEvidence {
    /// The source of the chart, if the chart is a folder in a source.
    files: Option<ObjectId>,
    /// The values of the newest revision, and of the revision that was rolled back to. `None` if they cannot be read.
    values: Option<[Value; 2]>,
}

/// The maximum number of listed values.
const MOST_VALUES: usize = 40;

/// The longest value, in characters.
const MAX_VALUE_CHARACTERS: usize = 60;

/// Reads the data for the advice.
pub(super) async fn known(
    site: &CommandScope,
    before: &ReleaseToRollBack,
    asked: ReleaseRollback,
) -> CommitAdviceEvidence {
    CommitAdviceEvidence {
        files: files(site, before).await,
        values: values(site, before, asked).await,
    }
}

/// The source of a chart that is a folder. `None` for charts with versions in a repository or registry.
async fn files(site: &CommandScope, found: &ReleaseToRollBack) -> Option<ObjectId> {
    let mut id = cause::object_references::sources(&found.owner).into_iter().next()?;
    // A HelmRelease generates a HelmChart, or it refers to one.
    if id.kind == "HelmChart" {
        let chart = cause_facts::read(&site.cluster, &id).await.ok()??;
        id = cause::object_references::sources(&chart).into_iter().next()?;
    }
    matches!(id.kind.as_str(), "GitRepository" | "Bucket" | "HTTPArchive" | "ExternalArtifact")
        .then_some(id)
}

/// The Helm values of both revisions of a rollback, from Helm's records. `None` if the records are in another cluster or cannot
/// be read.
async fn values(
    site: &CommandScope,
    found: &ReleaseToRollBack,
    asked: ReleaseRollback,
) -> Option<[Value; 2]> {
    if found.is_remote() {
        return None;
    }
    let status = found.status();
    let history = found.history();
    let namespace = status["storageNamespace"].as_str()?;
    let name = history.first()?["name"].as_str()?;
    let read = async |version: i64| -> Option<Value> {
        let secret = release::storage::secret_name(name, version);
        let (data, _) = site.cluster.secret(namespace, &secret).await.ok()??;
        let none = BTreeMap::new();
        let record = release::storage::unpack(&[data.get("release")?], &none, &none).ok()?;
        helm::values::to_json(&record.config).ok()
    };
    Some([read(asked.from).await?, read(asked.to).await?])
}

/// The lines of the advice.
pub(super) fn advice(
    done: &ReleaseToRollBack,
    made: &Value,
    before: &ReleaseToRollBack,
    asked: ReleaseRollback,
    known: &CommitAdviceEvidence,
) -> String {
    let newest = done.revision(asked.from).or_else(|| before.revision(asked.from));
    let newest = newest.unwrap_or_default();
    let mut lines = vec!["to keep it, commit:".to_owned()];
    lines.extend(chart(done, made, &newest, known));
    lines.extend(changed_values(done, made, &newest, asked, known));
    lines.push(format!("then: {}", done.resumption()));
    lines.join("\n")
}

/// The advice about the chart.
fn chart(
    done: &ReleaseToRollBack,
    made: &Value,
    newest: &Value,
    known: &CommitAdviceEvidence,
) -> Vec<String> {
    let chart = text(made, "chartName");
    let version = text(made, "chartVersion");
    let spec = done.owner.get("spec").cloned().unwrap_or_default();
    if version == text(newest, "chartVersion") && chart == text(newest, "chartName") {
        let mut lines = vec![format!("  the chart stays {chart} {version}")];
        if let Some(source) = &known.files {
            lines.push(format!(
                "  unless a file of it was changed without another version: then revert it in {}",
                folder(&spec, source)
            ));
        }
        return lines;
    }
    if done.row.is_some() {
        return vec![format!(
            "  the release's version: {version} of chart {chart}, in the helmfile"
        )];
    }
    if let Some(source) = &known.files {
        // `spec.chart.spec.version` has no effect for a chart in a folder.
        let mut lines =
            vec![format!("  revert the chart to {chart} {version} in {}", folder(&spec, source))];
        if source.kind == "GitRepository" {
            lines.push(format!(
                "  or pin spec.ref.commit of {} to a commit that has it",
                source.subject()
            ));
        }
        return lines;
    }
    if spec["chart"].is_object() {
        return vec![format!("  spec.chart.spec.version: {version} of chart {chart}")];
    }
    let of = ["kind", "name"].map(|key| text(&spec["chartRef"], key)).join("/");
    let digest = text(made, "ociDigest");
    vec![match (text(&spec["chartRef"], "kind").as_str(), digest.is_empty()) {
        ("OCIRepository", false) => {
            format!("  spec.ref.digest of {of}: {digest} (chart {chart} {version})")
        }
        ("OCIRepository", true) => format!("  spec.ref.tag of {of}: {version} of chart {chart}"),
        ("HelmChart", _) => format!("  spec.version of {of}: {version} of chart {chart}"),
        _ => format!("  chart {chart} {version} in {of}"),
    }]
}

/// The folder of a chart in its source.
fn folder(spec: &Value, source: &ObjectId) -> String {
    let path = spec["chart"]["spec"]["chart"].as_str().unwrap_or_default();
    match path.trim_start_matches("./").trim_matches('/') {
        "" => source.subject(),
        path => format!("{path} of {}", source.subject()),
    }
}

/// The advice about the values.
fn changed_values(
    done: &ReleaseToRollBack,
    made: &Value,
    newest: &Value,
    asked: ReleaseRollback,
    known: &CommitAdviceEvidence,
) -> Vec<String> {
    if made["configDigest"] == newest["configDigest"] {
        return vec!["  the values are the same in both revisions".to_owned()];
    }
    let name = text(made, "name");
    let namespace = text(made, "namespace");
    let to = asked.to;
    let command = format!("helm get values {name} -n {namespace} --revision {to}");
    let Some([from, back]) = &known.values else {
        return vec![format!("  the values of revision {to}: {command}")];
    };
    let mut found = Vec::new();
    differences(&mut Vec::new(), from, back, &mut found);
    let place =
        if done.row.is_some() { "the helmfile" } else { "spec.values or what it is merged from" };
    let mut lines = vec![format!("  in {place}, as revision {to} had it ({command}):")];
    for difference in found.iter().take(MOST_VALUES) {
        lines.push(format!("    {}", difference.line(&done.owner)));
    }
    if let Some(more) = found.len().checked_sub(MOST_VALUES).filter(|more| *more > 0) {
        lines.push(format!("    and {more} more"));
    }
    lines
}

/// A value that differs between both revisions.
struct RevisionValueDifference {
    path: Vec<String>,
    from: Option<Value>,
    to: Option<Value>,
}

impl RevisionValueDifference {
    /// The line about the value. A value that may come from a Secret is not printed.
    fn line(&self, owner: &Object) -> String {
        let is_hidden = may_be_secret(owner, &self.path);
        let shown = |value: &Option<Value>| match value {
            None => "unset".to_owned(),
            Some(_) if is_hidden => "****".to_owned(),
            Some(value) => cut(&value.to_string(), MAX_VALUE_CHARACTERS),
        };
        format!("{}: {} -> {}", self.path.join("."), shown(&self.from), shown(&self.to))
    }
}

/// Whether a value may come from a Secret. This is the case if the object uses Secrets for values and does not set this value
/// itself.
fn may_be_secret(owner: &Object, path: &[String]) -> bool {
    let spec = owner.get("spec").unwrap_or(&Value::Null);
    let from = spec["valuesFrom"].as_array().into_iter().flatten();
    let mut secrets = from.filter(|it| it["kind"] == "Secret");
    let mut own = Some(&spec["values"]);
    for part in path {
        own = own.and_then(|it| it.get(part));
    }
    // The values of a Helmfile may come from encrypted files.
    (secrets.next().is_some() || owner.kind() == "Helmfile") && own.is_none()
}

fn differences(
    path: &mut Vec<String>,
    from: &Value,
    to: &Value,
    found: &mut Vec<RevisionValueDifference>,
) {
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        if from != to {
            let some = |value: &Value| Some(value.clone());
            found.push(RevisionValueDifference {
                path: path.clone(),
                from: some(from),
                to: some(to),
            });
        }
        return;
    };
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        path.push(key.clone());
        match (before.get(key), after.get(key)) {
            (Some(from), Some(to)) => differences(path, from, to, found),
            (from, to) => {
                let from = from.cloned();
                let to = to.cloned();
                found.push(RevisionValueDifference { path: path.clone(), from, to });
            }
        }
        path.pop();
    }
}

fn text(of: &Value, key: &str) -> String {
    of[key].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::super::tests::{release, revision};
    use super::*;

    fn check_advice(spec: &Value, made: &Value, known: &CommitAdviceEvidence, expected: &Expect) {
        let before =
            [revision(5, "deployed", "2.0.0", "b"), revision(4, "superseded", "1.0.0", "a")];
        let asked = ReleaseRollback { from: 5, to: 4 };
        expected.assert_eq(&advice(
            &release(spec, &[]),
            made,
            &release(spec, &before),
            asked,
            known,
        ));
    }

    #[test]
    fn the_advice_names_what_to_commit() {
        let made = revision(6, "deployed", "1.0.0", "a");
        let none = CommitAdviceEvidence::default();
        let chart = json!({"chart": {"spec": {"chart": "shop"}}});
        check_advice(
            &chart,
            &made,
            &none,
            &expect![[r#"
            to keep it, commit:
              spec.chart.spec.version: 1.0.0 of chart shop
              the values of revision 4: helm get values web -n apps --revision 4
            then: windlass resume helmrelease/web -n apps"#]],
        );
        let reference = json!({"chartRef": {"kind": "OCIRepository", "name": "shop"}});
        check_advice(
            &reference,
            &made,
            &none,
            &expect![[r#"
            to keep it, commit:
              spec.ref.tag of OCIRepository/shop: 1.0.0 of chart shop
              the values of revision 4: helm get values web -n apps --revision 4
            then: windlass resume helmrelease/web -n apps"#]],
        );
        let same = revision(6, "deployed", "2.0.0", "b");
        check_advice(
            &chart,
            &same,
            &none,
            &expect![[r#"
            to keep it, commit:
              the chart stays shop 2.0.0
              the values are the same in both revisions
            then: windlass resume helmrelease/web -n apps"#]],
        );
    }

    #[test]
    fn a_chart_of_a_repository_of_files_is_reverted_there() {
        let source = ObjectId::new("apps", "charts", "source.toolkit.fluxcd.io", "GitRepository");
        let known = CommitAdviceEvidence { files: Some(source), values: None };
        let chart = json!({"chart": {"spec": {"chart": "./charts/shop", "version": "1.0.0"}}});
        check_advice(
            &chart,
            &revision(6, "deployed", "1.0.0", "b"),
            &known,
            &expect![[r#"
            to keep it, commit:
              revert the chart to shop 1.0.0 in charts/shop of GitRepository/apps/charts
              or pin spec.ref.commit of GitRepository/apps/charts to a commit that has it
              the values are the same in both revisions
            then: windlass resume helmrelease/web -n apps"#]],
        );
    }

    #[test]
    fn values_that_differ_are_listed_without_those_of_secrets() {
        let values = [
            json!({"image": {"tag": "2"}, "password": "new", "replicas": 3, "same": [1]}),
            json!({"image": {"tag": "1"}, "password": "old", "extra": true, "same": [1]}),
        ];
        let known = CommitAdviceEvidence { files: None, values: Some(values) };
        let spec = json!({"chart": {"spec": {"chart": "shop"}}, "valuesFrom": [{"kind": "Secret", "name": "s"}],
            "values": {"image": {"tag": "2"}, "replicas": 3}});
        check_advice(
            &spec,
            &revision(6, "deployed", "2.0.0", "a"),
            &known,
            &expect![[r#"
            to keep it, commit:
              the chart stays shop 2.0.0
              in spec.values or what it is merged from, as revision 4 had it (helm get values web -n apps --revision 4):
                extra: unset -> ****
                image.tag: "2" -> "1"
                password: **** -> ****
                replicas: 3 -> unset
            then: windlass resume helmrelease/web -n apps"#]],
        );
    }
}
