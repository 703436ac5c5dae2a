//! How the program does what is decided about a release: the part of the spec that no decision depends on.
//!
//! Source: helm-controller 1.6 `internal/action`. Elsewhere: other fields of the spec
//! (`helm_release/validated_spec.rs`).

use crds::helm::{
    CrdsPolicy, HelmReleaseSpec, PostRenderStrategy, ServerSideApplyMode, WaitStrategyName,
};
use helm::template::Strategy;
use release::{Action, Record};

use windlass_serve::settings::Settings;

/// How a revision is made of a chart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevisionOptions {
    /// Whether existing objects that belong to no release, or to another one, are taken over.
    pub take_ownership: bool,
    /// What is done about the CRDs in the chart's `crds`.
    pub crds: CrdsPolicy,
    /// Whether values are not validated against the chart's schema.
    pub skip_schema: bool,
    /// Whether objects are not checked against the schemas of the cluster.
    pub disable_openapi: bool,
}

/// How all actions are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionOptions {
    /// How an installation makes its revision.
    pub(super) install: RevisionOptions,
    /// How an upgrade makes its revision.
    pub(super) upgrade: RevisionOptions,
    /// Whether the API server merges the objects of an installation. Its conflicts are always forced.
    pub(super) install_ssa: bool,
    /// The same for an upgrade; automatically it is as for the last revision.
    pub(super) upgrade_ssa: ServerSideApplyMode,
    /// The same for a rollback; automatically it is as for the revision that is rolled back to.
    pub(super) rollback_ssa: ServerSideApplyMode,
    /// Whether an upgrade replaces objects. Only where the API server does not merge them.
    pub(super) upgrade_force: bool,
    /// The same for a rollback.
    pub(super) rollback_force: bool,
    /// Whether an installation creates the namespace if it is missing.
    pub create_namespace: bool,
    /// Whether an upgrade merges the values into those of the last revision.
    pub preserve_values: bool,
    /// Whether objects are ready by Helm 3's list of kinds, instead of by the conventions for all.
    pub(super) legacy_wait: bool,
    /// Which documents post-renderers see.
    pub post_render: Strategy,
}

impl ActionOptions {
    /// What a spec says, with Flux's defaults.
    pub fn of(spec: &HelmReleaseSpec, settings: &Settings) -> Self {
        let is_helm3 = settings.has_helm3_defaults();
        let install = spec.install.clone().unwrap_or_default();
        let upgrade = spec.upgrade.clone().unwrap_or_default();
        let rollback = spec.rollback.clone().unwrap_or_default();
        let wait = spec.wait_strategy.as_ref().map(|strategy| strategy.name);
        Self {
            install: RevisionOptions {
                take_ownership: !install.disable_take_ownership,
                crds: install.crds.unwrap_or_default(),
                skip_schema: install.disable_schema_validation,
                disable_openapi: install.disable_openapi_validation,
            },
            upgrade: RevisionOptions {
                take_ownership: !upgrade.disable_take_ownership,
                // Parity(flux): CRDs are created in an upgrade too, although Flux's documentation says otherwise.
                crds: upgrade.crds.unwrap_or_default(),
                skip_schema: upgrade.disable_schema_validation,
                disable_openapi: upgrade.disable_openapi_validation,
            },
            install_ssa: install.server_side_apply.unwrap_or(!is_helm3),
            upgrade_ssa: upgrade.server_side_apply.unwrap_or_default(),
            rollback_ssa: rollback.server_side_apply.unwrap_or_default(),
            upgrade_force: upgrade.force,
            rollback_force: rollback.force,
            // Parity(flux): the object's own namespace is there.
            create_namespace: install.create_namespace && spec.target_namespace.is_some(),
            preserve_values: upgrade.preserve_values,
            legacy_wait: match wait {
                Some(WaitStrategyName::Legacy) => true,
                Some(WaitStrategyName::Poller) => false,
                None => is_helm3,
            },
            post_render: match spec.post_render_strategy {
                Some(PostRenderStrategy::NoHooks) => Strategy::NoHooks,
                Some(PostRenderStrategy::Combined) => Strategy::Combined,
                Some(PostRenderStrategy::Separate) => Strategy::Separate,
                None if is_helm3 => Strategy::NoHooks,
                None => Strategy::Combined,
            },
        }
    }
}

impl ActionOptions {
    /// The same, with values that are not validated if so.
    pub(crate) fn skipping_schema(self, skips: bool) -> Self {
        let of = |options: RevisionOptions| RevisionOptions {
            skip_schema: options.skip_schema || skips,
            ..options
        };
        Self { install: of(self.install), upgrade: of(self.upgrade), ..self }
    }

    /// How a revision is made by an action.
    pub fn of_action(&self, action: Action) -> &RevisionOptions {
        if action == Action::Install { &self.install } else { &self.upgrade }
    }

    /// Whether the server merges the objects of an action; `like` is the revision that `auto` goes by.
    pub fn is_server_side(&self, action: Action, like: Option<&Record>) -> bool {
        let mode = match action {
            Action::Install => return self.install_ssa,
            Action::Rollback => self.rollback_ssa,
            _ => self.upgrade_ssa,
        };
        match mode {
            ServerSideApplyMode::Enabled => true,
            ServerSideApplyMode::Disabled => false,
            ServerSideApplyMode::Auto => like.is_none_or(Record::is_server_side),
        }
    }

    /// Whether objects are replaced by an action.
    pub fn forces(&self, action: Action) -> bool {
        match action {
            Action::Upgrade => self.upgrade_force,
            Action::Rollback => self.rollback_force,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use windlass_serve::settings::Settings;

    fn options(more: &Value, flags: &[&str]) -> ActionOptions {
        let mut spec = json!({"interval": "10m", "chartRef": {"kind": "HelmChart", "name": "c"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        ActionOptions::of(
            &serde_json::from_value(spec).unwrap(),
            &Settings::from_flags(flags).unwrap(),
        )
    }

    const OPTIONS: RevisionOptions = RevisionOptions {
        take_ownership: true,
        crds: CrdsPolicy::Create,
        skip_schema: false,
        disable_openapi: false,
    };
    const DEFAULT: ActionOptions = ActionOptions {
        install: OPTIONS,
        upgrade: OPTIONS,
        install_ssa: true,
        upgrade_ssa: ServerSideApplyMode::Auto,
        rollback_ssa: ServerSideApplyMode::Auto,
        upgrade_force: false,
        rollback_force: false,
        create_namespace: false,
        preserve_values: false,
        legacy_wait: false,
        post_render: Strategy::Combined,
    };

    #[test]
    fn without_a_word_of_the_spec_flux_defaults_count() {
        assert_eq!(options(&json!({}), &[]), DEFAULT);
        assert_eq!(options(&json!({"install": {}, "upgrade": {}, "rollback": {}}), &[]), DEFAULT);
        let helm3 = ActionOptions {
            install_ssa: false,
            legacy_wait: true,
            post_render: Strategy::NoHooks,
            ..DEFAULT
        };
        assert_eq!(options(&json!({}), &["--feature-gates=UseHelm3Defaults=true"]), helm3);
    }

    #[test]
    fn the_spec_counts_more_than_defaults_of_helm_3() {
        let said = json!({"install": {"serverSideApply": true}, "waitStrategy": {"name": "poller"},
            "postRenderStrategy": "combined"});
        assert_eq!(options(&said, &["--feature-gates=UseHelm3Defaults=true"]), DEFAULT);
        let said = json!({"install": {"serverSideApply": false}, "waitStrategy": {"name": "legacy"},
            "postRenderStrategy": "separate"});
        let wanted = ActionOptions {
            install_ssa: false,
            legacy_wait: true,
            post_render: Strategy::Separate,
            ..DEFAULT
        };
        assert_eq!(options(&said, &[]), wanted);
    }

    #[test]
    fn each_field_is_that_of_its_action() {
        let off = json!({"disableTakeOwnership": true, "crds": "CreateReplace", "disableSchemaValidation": true,
            "disableOpenAPIValidation": true});
        let off_options = RevisionOptions {
            take_ownership: false,
            crds: CrdsPolicy::CreateReplace,
            skip_schema: true,
            disable_openapi: true,
        };
        assert_eq!(
            options(&json!({ "install": off }), &[]),
            ActionOptions { install: off_options, ..DEFAULT }
        );
        assert_eq!(
            options(&json!({ "upgrade": off }), &[]),
            ActionOptions { upgrade: off_options, ..DEFAULT }
        );
        let upgrade = json!({"force": true, "preserveValues": true, "serverSideApply": "disabled"});
        let wanted = ActionOptions {
            upgrade_force: true,
            preserve_values: true,
            upgrade_ssa: ServerSideApplyMode::Disabled,
            ..DEFAULT
        };
        assert_eq!(options(&json!({ "upgrade": upgrade }), &[]), wanted);
        let rollback = json!({"force": true, "recreate": true, "serverSideApply": "enabled"});
        let wanted = ActionOptions {
            rollback_force: true,
            rollback_ssa: ServerSideApplyMode::Enabled,
            ..DEFAULT
        };
        assert_eq!(options(&json!({ "rollback": rollback }), &[]), wanted);
    }

    #[test]
    fn only_a_target_namespace_is_created() {
        let create = |more: &Value| options(more, &[]).create_namespace;
        assert!(!create(&json!({"install": {"createNamespace": true}})));
        assert!(!create(&json!({"targetNamespace": "prod"})));
        assert!(create(&json!({"install": {"createNamespace": true}, "targetNamespace": "prod"})));
    }
}
