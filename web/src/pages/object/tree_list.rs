//! The tab that lists the objects that an object applied, down to Pods, as nested lists.

use maud::{Markup, html};
use windlass_answers::tree::ObjectTreeBranch;

use crate::page_elements::{ObjectState, message, object_link, shape, subject, text};

/// The maximum number of objects that are shown. `windlass tree` prints all.
const MAX_SHOWN_OBJECTS: usize = 1_000;
const MAX_SHOWN_DEPTH: usize = 20;

/// A branch that is shown, with its depth.
struct TreeListRow<'t> {
    depth: usize,
    branch: &'t ObjectTreeBranch,
}

/// The tab with the tree.
pub(super) fn content(tree: &ObjectTreeBranch) -> Markup {
    let mut all = Vec::new();
    let mut pending = vec![TreeListRow { depth: 0, branch: tree }];
    let mut beyond = 0_usize;
    while let Some(next) = pending.pop() {
        if all.len() >= MAX_SHOWN_OBJECTS || next.depth > MAX_SHOWN_DEPTH {
            beyond += 1;
            continue;
        }
        let depth = next.depth + 1;
        pending.extend(next.branch.below.iter().rev().map(|branch| TreeListRow { depth, branch }));
        all.push(next);
    }
    html! {
        section class="panel" {
            header { h2 { "What it applied" } span class="more" { (all.len()) @if all.len() == 1 { " object" } @else { " objects" } } }
            (list(&all))
            @if beyond > 0 { p { "At least " (beyond) " more objects are not shown; the command prints them." } }
        }
    }
}

/// Renders branches as nested lists, according to their depth.
fn list(all: &[TreeListRow<'_>]) -> Markup {
    let Some(first) = all.first() else { return html! {} };
    let rest = all.get(1..).unwrap_or_default();
    let children = groups(rest, first.depth + 1);
    html! {
        ul class="tree" { li {
            (line(first.branch))
            @if !children.is_empty() { ul { @for child in children { li { (inner(child)) } } } }
        } }
    }
}

/// Renders one branch and the branches below it, down to the depth [`MAX_SHOWN_DEPTH`].
fn inner(group: &[TreeListRow<'_>]) -> Markup {
    let Some(first) = group.first() else { return html! {} };
    let children = groups(group.get(1..).unwrap_or_default(), first.depth + 1);
    html! {
        (line(first.branch))
        @if !children.is_empty() { ul { @for child in children { li { (inner(child)) } } } }
    }
}

/// Splits a list at each branch of a depth.
fn groups<'l, 't>(all: &'l [TreeListRow<'t>], depth: usize) -> Vec<&'l [TreeListRow<'t>]> {
    all.chunk_by(|_, next| next.depth > depth).collect()
}

fn line(branch: &ObjectTreeBranch) -> Markup {
    html! {
        div {
            span {
                (shape(state(&branch.health))) " "
                @match &branch.id {
                    Some(id) => (object_link(id)),
                    None => (subject(&branch.object)),
                }
            }
            span class="dim" { (text(&branch.health)) }
            @if !branch.revision.is_empty() { span class="mono" { (text(&branch.revision)) } }
            @if !branch.message.is_empty() { span class="soft" { (message(&branch.message)) } }
        }
    }
}

/// The state that corresponds to a health word of the tree.
pub(super) fn state(health: &str) -> ObjectState {
    match health {
        "Ready" | "Current" | "Succeeded" => ObjectState::Ready,
        "NotReady" | "Failed" | "NotFound" | "RolledBack" | "Stalled" => ObjectState::Failing,
        "InProgress" | "Terminating" | "Progressing" => ObjectState::Progressing,
        "Suspended" => ObjectState::Suspended,
        _ => ObjectState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(object: &str, below: Vec<ObjectTreeBranch>) -> ObjectTreeBranch {
        ObjectTreeBranch {
            id: None,
            object: object.to_owned(),
            health: "Ready".to_owned(),
            revision: String::new(),
            message: String::new(),
            below,
        }
    }

    /// The names in a rendered list, with brackets around nested lists.
    fn outline(html: &str) -> String {
        let marked = html.replace("<ul>", "[").replace("</ul>", "]").replace("<bdi>", "{");
        let mut out = String::new();
        let mut rest = marked.as_str();
        while let Some(at) = rest.find(['[', ']', '{']) {
            let from = &rest[at..];
            rest = &from[1..];
            match &from[..1] {
                "{" => {
                    let name = rest.split("</bdi>").next().unwrap_or_default();
                    if name.contains('/') {
                        out.push_str(name.rsplit('/').next().unwrap_or_default());
                    }
                }
                bracket => out.push_str(bracket),
            }
        }
        out
    }

    #[test]
    fn lists_are_within_lists_as_objects_are_below_each_other() {
        let web = branch(
            "Deployment/apps/b",
            vec![branch("Pod/apps/c", vec![]), branch("Pod/apps/d", vec![])],
        );
        let tree = branch("Kustomization/apps/a", vec![web, branch("ConfigMap/apps/e", vec![])]);
        assert_eq!(outline(&content(&tree).into_string()), "a[b[cd]e]]");
    }

    #[test]
    fn what_is_beyond_the_bound_is_counted_and_names_are_escaped() {
        let many = (0..MAX_SHOWN_OBJECTS + 10).map(|at| branch(&format!("Pod/apps/p{at}"), vec![]));
        let mut tree = branch("Kustomization/apps/\"><script>", many.collect());
        tree.message = "<img onerror=x>".to_owned();
        let html = content(&tree).into_string();
        assert!(html.contains("At least 11 more objects"), "{}", html.len());
        assert!(!html.contains("<script") && !html.contains("<img"));
        assert!(html.contains("&lt;img onerror=x&gt;"));
    }
}
