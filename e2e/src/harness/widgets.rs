//! Widgets, whose definition is `manifests::widget_crd`, as what stories read, write and wait for.

use super::StoryObject;

/// The definition of the Widgets of a group.
pub fn crd(group: &str) -> StoryObject {
    let name = format!("widgets.{group}");
    StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name)
}

/// A Widget of a group.
pub fn widget(group: &str, name: &str) -> StoryObject {
    StoryObject::new(&format!("{group}/v1"), "Widget", name)
}
