//! Reads a Helmfile of helmfile-operator as a Helmfile of windlass: it renames fields and keeps helmfile-operator's defaults.
//!
//! Elsewhere: the fields (`crds::helmfile::mumoshu_helmfile`), the runs of the Helmfile (this folder).

use std::borrow::Cow;

use crds::GoDuration;
use crds::helmfile::mumoshu_helmfile::Helmfile;
use crds::helmfile::{Dialect, EnvironmentVariable, HelmfileSpec};
use crds::kustomize::DeletionPolicy;
use helmfile::RemoteAddress;
use kube_core::ResourceExt as _;
use quarantine::on_failure_annotation::ON_FAILURE;
use reconcile::{ROLLBACK, RunOutcome};
use sources::source_condition_reasons::URL_INVALID;

use super::DIALECT;
use super::helmfile_kind_differences::HelmfileCustomResource;
use helm_controller::release_runner::MANAGER;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_runtime::approval_plan::DELETION_BUDGET;
use windlass_runtime::approval_plan::change_approval::PLAN_MODE;

/// The marks on the objects of releases.
pub const OWNERSHIP: OwnershipMarks = OwnershipMarks {
    name: "apps.mumoshu.github.io/helmfile-name",
    namespace: "apps.mumoshu.github.io/helmfile-namespace",
    manager: MANAGER,
};

/// How often the helmfile is fetched unless the spec has an interval. helmfile-operator fetches it every ten seconds.
const INTERVAL: &str = "1m";

impl HelmfileCustomResource for Helmfile {
    const OWNERSHIP: OwnershipMarks = OWNERSHIP;
    const ANNOTATIONS: &'static [&'static str] =
        &[DELETION_BUDGET, DIALECT, ON_FAILURE, PLAN_MODE, ROLLBACK];

    fn asked(&self) -> Cow<'_, HelmfileSpec> {
        let spec = &self.spec;
        let variable = |(name, value): (&String, &String)| EnvironmentVariable {
            name: name.clone(),
            value: value.clone(),
        };
        Cow::Owned(HelmfileSpec {
            source: spec.source.as_deref().map(|text| with_version(text, spec.version.as_deref())),
            dialect: Some(dialect(self).unwrap_or(Dialect::V0)),
            environment: spec.environment.clone(),
            values: spec.values.clone(),
            values_files: spec.values_files.clone(),
            env: spec.envvars.iter().map(variable).collect(),
            interval: spec
                .interval
                .clone()
                .unwrap_or_else(|| GoDuration::from(INTERVAL.to_owned())),
            suspend: spec.suspend,
            prune: spec.prune,
            // Differs(helmfile-operator): its finalizer leaves the releases, so this is its default, too.
            deletion_policy: Some(spec.deletion_policy.unwrap_or(DeletionPolicy::Orphan)),
            service_account_name: spec.service_account_name.clone(),
            ..HelmfileSpec::default()
        })
    }

    fn fault(&self) -> Option<RunOutcome> {
        let stalled = |text: String| Some(RunOutcome::Stalled(URL_INVALID, text));
        let Some(source) = &self.spec.source else {
            return stalled(
                "spec.source is not set: a helmfile in the image of an applier cannot be read; put it into a \
                 repository and set its address"
                    .to_owned(),
            );
        };
        if let Some(text) = self.annotations().get(DIALECT)
            && dialect(self).is_none()
        {
            return stalled(format!("annotation {DIALECT}: `{text}` is neither `v0` nor `v1`"));
        }
        let version = self.spec.version.as_deref()?;
        let address = RemoteAddress::parse(source)?;
        match address.parameter("ref") {
            Some(named) if named != version => stalled(format!(
                "spec.source names `ref={named}` and spec.version `{version}`: remove one of them"
            )),
            None if address.getter != "git" => {
                stalled("spec.version goes with repositories (`git::…`): remove it".to_owned())
            }
            Some(_) | None => None,
        }
    }

    fn without_effect(&self) -> Vec<(&'static str, &'static str)> {
        let mut fields = Vec::new();
        if self.spec.image.is_some() {
            fields.push(("spec.image", "no Pod is run for a Helmfile"));
        }
        if self.spec.command.is_some() {
            fields.push(("spec.command", "no program is run for a Helmfile"));
        }
        fields
    }
}

/// The dialect that the annotation names. `None` without the annotation, or if it names no known dialect.
fn dialect(object: &Helmfile) -> Option<Dialect> {
    match object.annotations().get(DIALECT)?.as_str() {
        "v0" => Some(Dialect::V0),
        "v1" => Some(Dialect::V1),
        _ => None,
    }
}

/// An address with the reference that `spec.version` names.
fn with_version(source: &str, version: Option<&str>) -> String {
    let Some(version) = version else { return source.to_owned() };
    let has_one = RemoteAddress::parse(source).is_some_and(|it| it.parameter("ref").is_some());
    match (has_one, source.contains('?')) {
        (true, _) => source.to_owned(),
        (false, true) => format!("{source}&ref={version}"),
        (false, false) => format!("{source}?ref={version}"),
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use serde_json::json;

    use super::*;

    fn helmfile(spec: &serde_json::Value, dialect: Option<&str>) -> Helmfile {
        let annotations = dialect.map(|dialect| json!({DIALECT: dialect}));
        serde_json::from_value(json!({"apiVersion": "apps.mumoshu.github.io/v1alpha1",
            "kind": "Helmfile", "metadata": {"name": "myapp", "annotations": annotations}, "spec": spec}))
        .unwrap()
    }

    #[test]
    fn every_field_of_the_schema_is_used_or_said_to_have_no_effect() {
        let used = [
            "deletionPolicy",
            "environment",
            "envvars",
            "interval",
            "prune",
            "serviceAccountName",
            "source",
            "suspend",
            "values",
            "valuesFiles",
            "version",
        ];
        let known = used.into_iter().chain(["command", "image"]);
        spec_field_check::knows_every_field("Helmfile.apps.mumoshu.github.io", known);
    }

    #[test]
    fn the_example_of_helmfile_operator_is_read_as_it_stands() {
        let source = "git::https://github.com/mumoshu/helmfile-operator//pkg/examplecontroller@assets?ref=master";
        let object = helmfile(
            &json!({"source": source, "values": {"foo": "FOO"}, "envvars": {"bar": "BAR"}}),
            None,
        );
        let asked = object.asked();
        assert_eq!(asked.source.as_deref(), Some(source));
        assert_eq!((asked.dialect, asked.prune), (Some(Dialect::V0), false));
        assert_eq!(asked.deletion_policy, Some(DeletionPolicy::Orphan));
        assert_eq!((asked.env[0].name.as_str(), asked.env[0].value.as_str()), ("bar", "BAR"));
        assert!(object.fault().is_none() && object.without_effect().is_empty());
    }

    #[test]
    fn the_version_is_the_reference_and_what_contradicts_it_is_named() {
        let source = |spec| helmfile(&spec, Some("v1")).asked().source.clone().unwrap();
        let git = "git::https://h/r@d";
        assert_eq!(source(json!({"source": git, "version": "v1"})), "git::https://h/r@d?ref=v1");
        let fault = |spec, dialect| helmfile(&spec, dialect).fault().map(|it| it.text().to_owned());
        assert_eq!(fault(json!({"source": format!("{git}?ref=v1"), "version": "v1"}), None), None);
        for (spec, dialect, part) in [
            (json!({"source": format!("{git}?ref=a"), "version": "b"}), None, "`ref=a`"),
            (json!({"source": "https://h/f.yaml", "version": "b"}), None, "repositories"),
            (json!({"image": {"repository": "a"}}), None, "spec.source is not set"),
            (json!({"source": git}), Some("v2"), "`v2` is neither"),
        ] {
            assert!(fault(spec.clone(), dialect).is_some_and(|it| it.contains(part)), "{spec}");
        }
        let object = helmfile(&json!({"source": git, "image": {}, "command": "c"}), None);
        let fields: Vec<&str> = object.without_effect().iter().map(|(field, _)| *field).collect();
        assert_eq!(fields, ["spec.image", "spec.command"]);
    }
}
