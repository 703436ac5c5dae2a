//! The `$patch` of maps and lists in patches.

use goyaml::v3::YamlNodeKind;

use super::StrategicMergeError;
use super::arena::{ArenaNodeId, MergeNodeArena};
use super::list::set_item;

const KEY: &str = "$patch";

/// The action of a patch on the target value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchDirective {
    /// To be merged with the patch, as without a directive.
    Merge,
    /// To be replaced by the patch.
    Replace,
    /// To be deleted.
    Delete,
}

/// Removes the directive from a patch: the key of a map, or a list item that has no other key.
pub(super) fn take(
    arena: &mut MergeNodeArena<'_>,
    patch: Option<ArenaNodeId>,
) -> Result<PatchDirective, StrategicMergeError> {
    let Some(patch) = patch else { return Ok(PatchDirective::Merge) };
    let found = match arena[patch].kind {
        YamlNodeKind::Mapping => arena.entry(patch, KEY)?,
        YamlNodeKind::Sequence => in_list(arena, patch)?,
        YamlNodeKind::Scalar | YamlNodeKind::Alias | YamlNodeKind::Document => None,
    };
    let Some((_, value)) = found else { return Ok(PatchDirective::Merge) };
    let text = arena[value].value.clone();
    let directive = match text.as_str() {
        "merge" => PatchDirective::Merge,
        "replace" => PatchDirective::Replace,
        "delete" => PatchDirective::Delete,
        _ => return Err(StrategicMergeError::UnknownDirective(text)),
    };
    if arena[patch].kind == YamlNodeKind::Mapping {
        arena.clear_field(patch, KEY)?;
    } else {
        set_item(arena, patch, None, &[KEY.to_owned()], &[text])?;
    }
    Ok(directive)
}

/// The directive in the first list item that has one, unless that item has other keys.
fn in_list(
    arena: &mut MergeNodeArena<'_>,
    list: ArenaNodeId,
) -> Result<Option<(ArenaNodeId, ArenaNodeId)>, StrategicMergeError> {
    for at in 0..arena.children(list).len() {
        let item = arena.children(list)[at];
        if let Some(entry) = arena.entry(item, KEY)? {
            return Ok(Some(entry).filter(|_| arena.children(item).len() <= 2));
        }
    }
    Ok(None)
}
