//! How the program does what is decided, by the spec and by flags.

use crds::helm::{CrdsPolicy, ServerSideApplyMode};
use helm::template::PostRendererStrategy;

use super::*;

fn options(more: &Value, flags: &[&str]) -> ActionOptions {
    super::super::options(&spec(more), &OperatorSettings::from_flags(flags).unwrap())
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
    post_render: PostRendererStrategy::Combined,
};

#[test]
fn without_a_word_of_the_spec_flux_defaults_count() {
    assert_eq!(options(&json!({}), &[]), DEFAULT);
    assert_eq!(options(&json!({"install": {}, "upgrade": {}, "rollback": {}}), &[]), DEFAULT);
    let helm3 = ActionOptions {
        install_ssa: false,
        legacy_wait: true,
        post_render: PostRendererStrategy::NoHooks,
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
        post_render: PostRendererStrategy::Separate,
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
