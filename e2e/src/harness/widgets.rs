//! Names the Widgets of a story and their CRD, which is `manifests::widget_crd`.

use super::StoryObject;

/// The CRD of the Widgets of a group.
pub fn crd(group: &str) -> StoryObject {
    let name = format!("widgets.{group}");
    StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name)
}

/// A Widget of a group.
pub fn widget(group: &str, name: &str) -> StoryObject {
    StoryObject::new(&format!("{group}/v1"), "Widget", name)
}
