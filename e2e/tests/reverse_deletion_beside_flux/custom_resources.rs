//! Custom resources that are removed together with their controller and their definition.

use e2e::harness::manifests::{config_map, widget_crd};
use serde_json::json;

use super::deletion_scenario::{
    DeletionOrderRow, DeletionPair, DeletionScenarioSettings, HELD, RemovedObject, Scene,
};

/// A Widget that its controller finalizes.
fn held_widget(group: &str, name: &str) -> String {
    let metadata = json!({"name": name, "finalizers": [HELD]});
    let api = format!("{group}/v1");
    let object =
        json!({"apiVersion": api, "kind": "Widget", "metadata": metadata, "spec": {"size": 1}});
    format!("{object}\n")
}

/// Custom resources with their controller and their definition: in two Kustomizations, and in one.
pub(super) fn custom_resources(settings: &DeletionScenarioSettings) -> Scene {
    let mut scene = Scene::default();
    for is_one in [false, true] {
        let prefix = if is_one { "one" } else { "two" };
        let group = format!("{prefix}.{}.example.com", settings.namespace);
        let controller_name = format!("{prefix}-controller");
        let wheel = format!("{prefix}-wheel");
        // The Kustomization of the controller, and that of the custom resource.
        let below = controller_name.as_str();
        let above = if is_one { below } else { "two-wheels" };
        scene.keep(&format!("parts/{below}/definition.yaml"), widget_crd(&group));
        scene.keep(&format!("parts/{below}/map.yaml"), config_map(&controller_name, "1"));
        scene.keep(&format!("parts/{above}/wheel.yaml"), held_widget(&group, &wheel));
        scene.remove_kustomization(settings, below, json!({}));

        let controller = RemovedObject::config_map(&controller_name);
        let definition = RemovedObject::widget_definition(&group);
        let wheel = RemovedObject::widget(&group, &wheel).finalized_by(&controller);
        let pair = |needed: &RemovedObject| DeletionPair {
            dependent: wheel.clone(),
            needed: needed.clone(),
        };
        let pairs = vec![pair(&controller), pair(&definition)];
        let mut objects = vec![RemovedObject::kustomization(below)];
        if !is_one {
            let on = json!([{"name": below}]);
            scene.remove_kustomization(settings, above, json!({"dependsOn": on}));
            objects.push(RemovedObject::kustomization(above));
        }
        objects.extend([wheel, controller, definition]);
        let title = if is_one {
            "A commit removes a Kustomization with a custom resource, its controller and its definition"
        } else {
            "A commit removes a custom resource, and the Kustomization of its controller and its definition"
        };
        scene.rows.push(DeletionOrderRow { title, pairs, objects });
    }
    scene
}
