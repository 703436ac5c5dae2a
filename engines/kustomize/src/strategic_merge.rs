//! Applies strategic merge patches like kustomize: as kyaml's merge of two trees, guided by a schema. This differs slightly
//! from Kubernetes' own merge.
//!
//! Here: walking both trees, maps, and directives. Below: nodes with several parents (`strategic_merge/arena.rs`), lists
//! whose items are merged (`strategic_merge/list.rs`), the keys of items (`strategic_merge/merge_keys.rs`).
//! Elsewhere: which lists are merged (`openapi_schema.rs`), and the target objects of a patch.

mod arena;
mod directive;
mod list;
mod merge_keys;

use std::collections::BTreeSet;

use golang::work_meter::WorkLimitExceeded;
use goyaml::v3::{AnchorOrCommentKind, YamlNode, YamlNodeKind, YamlNodeStyle};

use crate::budget::{self, BuildBudget};
use crate::field::WrongNodeKind;
use crate::openapi_schema::{OpenApiSchemas, ResourceSchema};
use arena::{ArenaNodeId, MergeNodeArena};
use directive::PatchDirective;
use list::ListMergeFrame;

/// The deepest nesting of maps and lists. Differs(kustomize): it has no limit.
pub const MAX_DEPTH: usize = 10_000;

/// Why a patch cannot be merged. The text is kustomize's, where kustomize has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategicMergeError {
    /// Patch and object have nodes of different kinds in the same place.
    #[error(transparent)]
    WrongKind(#[from] WrongNodeKind),
    /// A `$patch` with a value that means nothing.
    #[error("unknown patch strategy '{0}'")]
    UnknownDirective(String),
    /// Deeper than [`MAX_DEPTH`].
    #[error("patch and object are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Patch and object need too much time or memory. For long lists, the time grows with the square of their length.
    #[error(transparent)]
    Exhausted(#[from] WorkLimitExceeded),
}

/// Whether the target of a patch stays or is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The object was patched.
    Merged,
    /// The patch deletes the whole object.
    Deleted,
}

/// Merges a patch into an object.
///
/// Maps are merged key by key: null removes a key, and `$patch: delete` or `replace` affects a whole map. Lists that the schema
/// marks as merged are merged item by item, with the patch's items first. Everything else is replaced. Comments and styles end
/// up where kustomize puts them. Aliases must be expanded before.
///
/// Parity(kustomize): `$patch: replace` at the root changes nothing; `$setElementOrder/…`, `$retainKeys` and
/// `$deleteFromPrimitiveList/…` are fields as others; lists have the oddities of kyaml, such as that a patch's item without its
/// merge key empties the list.
///
/// # Errors
/// See [`StrategicMergeError`]. The target is then partly merged, and also if the patch deletes it.
pub(crate) fn strategic(
    patch: &YamlNode,
    target: &mut YamlNode,
    schema: &OpenApiSchemas,
    budget: &BuildBudget,
) -> Result<MergeOutcome, StrategicMergeError> {
    let before = budget::weight(target);
    // Both are here once more meanwhile.
    let weight = before + budget::weight(patch);
    budget.steps(weight)?;
    let _arena = budget.hold(weight)?;
    let mut arena = MergeNodeArena::new(budget);
    let origin = arena.import(content(patch).clone())?;
    let slot = content_mut(target);
    let dest = arena.import(std::mem::take(slot))?;
    let merged = MergeWalk { arena: &mut arena, schema, open: Vec::new() }.run(dest, origin);
    let (node, after) = arena.export(dest)?;
    budget.grown(before, after)?;
    *slot = node;
    Ok(if merged?.is_some() { MergeOutcome::Merged } else { MergeOutcome::Deleted })
}

fn content(node: &YamlNode) -> &YamlNode {
    match (node.kind, node.content.first()) {
        (YamlNodeKind::Document, Some(root)) => root,
        _ => node,
    }
}

fn content_mut(node: &mut YamlNode) -> &mut YamlNode {
    if node.kind == YamlNodeKind::Document && !node.content.is_empty() {
        return &mut node.content[0];
    }
    node
}

/// The nodes at the same place in the target and in the patch.
#[derive(Debug, Clone, Copy)]
struct TargetAndPatchNodes {
    target: Option<ArenaNodeId>,
    patch: Option<ArenaNodeId>,
}

impl TargetAndPatchNodes {
    fn each(self) -> [Option<ArenaNodeId>; 2] {
        [self.target, self.patch]
    }
}

/// The merged value of a place.
#[derive(Debug, Clone, Copy)]
struct MergedValue {
    id: ArenaNodeId,
    /// Whether the value is set even if it is null.
    is_kept: bool,
    /// Whether the value is a node of the patch.
    is_patch: bool,
}

impl MergedValue {
    fn new(id: ArenaNodeId) -> Self {
        Self { id, is_kept: false, is_patch: false }
    }

    fn of_patch(id: Option<ArenaNodeId>) -> Option<Self> {
        id.map(|id| Self { is_patch: true, ..Self::new(id) })
    }
}

/// A map or list whose child values are not merged yet.
enum MergeFrame<'s> {
    Map(MapMergeFrame<'s>),
    List(ListMergeFrame<'s>),
}

struct MapMergeFrame<'s> {
    value: MergedValue,
    sources: TargetAndPatchNodes,
    schema: Option<ResourceSchema<'s>>,
    left: std::vec::IntoIter<String>,
    /// The key whose value is being merged, and the style of this key in the patch.
    key: String,
    key_style: YamlNodeStyle,
}

/// The result of visiting a place: its merged value, or a frame that needs child values first.
enum MergeWalkStep<'s> {
    Done(Option<MergedValue>),
    Wait(MergeFrame<'s>),
}

struct MergeWalk<'a, 'b, 's> {
    arena: &'a mut MergeNodeArena<'b>,
    schema: &'s OpenApiSchemas,
    open: Vec<MergeFrame<'s>>,
}

impl<'s> MergeWalk<'_, '_, 's> {
    fn run(
        mut self,
        target: ArenaNodeId,
        patch: ArenaNodeId,
    ) -> Result<Option<MergedValue>, StrategicMergeError> {
        let sources = TargetAndPatchNodes { target: Some(target), patch: Some(patch) };
        let mut step = self.begin(sources, None)?;
        loop {
            match step {
                MergeWalkStep::Wait(frame) => {
                    self.open.push(frame);
                    if self.open.len() > MAX_DEPTH {
                        return Err(StrategicMergeError::TooDeep);
                    }
                }
                MergeWalkStep::Done(value) => match self.open.last_mut() {
                    None => return Ok(value),
                    Some(MergeFrame::Map(map)) => {
                        // Parity(kustomize): a key keeps its quotes only if its value is the patch's own.
                        let is_patch = value.is_some_and(|value| value.is_patch);
                        let style = if is_patch { map.key_style } else { YamlNodeStyle::default() };
                        let value = value.map(|value| (value.id, value.is_kept));
                        self.arena.set_field(map.value.id, &map.key, value, style)?;
                    }
                    Some(MergeFrame::List(list)) => list.take(self.arena, value)?,
                },
            }
            step = self.next()?;
        }
    }

    /// Continues with the innermost frame. Returns its value if it is complete.
    fn next(&mut self) -> Result<MergeWalkStep<'s>, StrategicMergeError> {
        let (sources, schema) = match self.open.last_mut() {
            None => return Ok(MergeWalkStep::Done(None)),
            Some(MergeFrame::Map(map)) => match map.left.next() {
                Some(key) => {
                    map.key = key;
                    Self::field(self.arena, self.schema, map)?
                }
                None => {
                    let value = map.value;
                    self.open.pop();
                    return Ok(MergeWalkStep::Done(Some(value)));
                }
            },
            Some(MergeFrame::List(list)) => match list.next(self.arena)? {
                Some(sources) => (sources, list.schema.clone()),
                None => {
                    let value = list.finish(self.arena)?;
                    self.open.pop();
                    return Ok(MergeWalkStep::Done(value));
                }
            },
        };
        self.begin(sources, schema)
    }

    /// The values of a map's current key on both sides, with their schema.
    fn field(
        arena: &mut MergeNodeArena<'_>,
        schema: &'s OpenApiSchemas,
        map: &mut MapMergeFrame<'s>,
    ) -> Result<(TargetAndPatchNodes, Option<ResourceSchema<'s>>), StrategicMergeError> {
        let mut said = None;
        let mut values = [None, None];
        map.key_style = YamlNodeStyle::default();
        for (side, source) in map.sources.each().into_iter().enumerate() {
            let Some((key, value)) =
                source.map_or(Ok(None), |source| arena.entry(source, &map.key))?
            else {
                continue;
            };
            values[side] = Some(value);
            if side == 1 {
                map.key_style = arena[key].style;
            }
            said = said
                .or_else(|| comment_schema(schema, &arena[value]))
                .or_else(|| comment_schema(schema, &arena[key]));
        }
        let known = map.schema.as_ref().and_then(|schema| schema.field(&map.key));
        let [target, patch] = values;
        Ok((TargetAndPatchNodes { target, patch }, said.or(known)))
    }

    fn begin(
        &mut self,
        sources: TargetAndPatchNodes,
        schema: Option<ResourceSchema<'s>>,
    ) -> Result<MergeWalkStep<'s>, StrategicMergeError> {
        let schema = self.schema_of(sources, schema)?;
        let present = sources.each().into_iter().flatten().find(|id| !self.arena.is_null(*id));
        let Some(kind) = present.map(|id| self.arena[id].kind) else {
            return self.begin_map(sources, schema);
        };
        if matches!(kind, YamlNodeKind::Document | YamlNodeKind::Alias) {
            return Ok(MergeWalkStep::Done(None));
        }
        for id in sources.each().into_iter().flatten() {
            self.arena.expect(id, kind)?;
        }
        match kind {
            YamlNodeKind::Mapping => self.begin_map(sources, schema),
            YamlNodeKind::Sequence => self.begin_list(sources, schema),
            _ => {
                self.copy_comments(sources);
                let target = sources.target.map(MergedValue::new);
                Ok(MergeWalkStep::Done(MergedValue::of_patch(sources.patch).or(target)))
            }
        }
    }

    /// The schema of a place. A schema in a comment takes precedence over the inherited one. Otherwise the place's own
    /// `apiVersion` and `kind` decide.
    fn schema_of(
        &mut self,
        sources: TargetAndPatchNodes,
        known: Option<ResourceSchema<'s>>,
    ) -> Result<Option<ResourceSchema<'s>>, StrategicMergeError> {
        let present = || sources.each().into_iter().flatten();
        for id in present() {
            if self.arena.is_null(id) {
                continue;
            }
            if let Some(said) = comment_schema(self.schema, &self.arena[id]) {
                return Ok(Some(said));
            }
        }
        if known.is_some() {
            return Ok(known);
        }
        for id in present() {
            let api_version = self.arena.text_field(id, "apiVersion")?;
            let kind = self.arena.text_field(id, "kind")?;
            if let Some((api_version, kind)) = api_version.zip(kind)
                && let Some(found) = self.schema.of(&api_version, &kind)
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn begin_map(
        &mut self,
        sources: TargetAndPatchNodes,
        schema: Option<ResourceSchema<'s>>,
    ) -> Result<MergeWalkStep<'s>, StrategicMergeError> {
        let Some(value) = self.visit_map(sources)? else { return Ok(MergeWalkStep::Done(None)) };
        let sources = TargetAndPatchNodes { target: Some(value.id), ..sources };
        let mut names = BTreeSet::new();
        for id in sources.each().into_iter().flatten() {
            self.arena.collect_keys(id, &mut names)?;
        }
        let left = names.into_iter().collect::<Vec<_>>().into_iter();
        let key = String::new();
        let key_style = YamlNodeStyle::default();
        Ok(MergeWalkStep::Wait(MergeFrame::Map(MapMergeFrame {
            value,
            sources,
            schema,
            left,
            key,
            key_style,
        })))
    }

    /// The map that is to be filled.
    fn visit_map(
        &mut self,
        sources: TargetAndPatchNodes,
    ) -> Result<Option<MergedValue>, StrategicMergeError> {
        self.copy_comments(sources);
        self.copy_style(sources);
        let target = sources.target.filter(|id| !self.arena.is_null(*id));
        let Some(target) = target else {
            // Parity(kustomize): an unknown directive in what is added is a field like others.
            let directive = directive::take(self.arena, sources.patch);
            if matches!(directive, Ok(PatchDirective::Delete)) {
                return Ok(None);
            }
            let text = sources.target.map(|id| self.arena[id].value.clone()).unwrap_or_default();
            if sources.patch.is_none() && !text.is_empty() {
                // An explicit null stays, and an empty one is removed.
                let null = self.arena.push(YamlNode::scalar("!!null", text));
                return Ok(Some(MergedValue { is_kept: true, ..MergedValue::new(null) }));
            }
            return Ok(MergedValue::of_patch(sources.patch));
        };
        if sources.patch.is_some_and(|patch| self.arena.is_null(patch)) {
            return Ok(None);
        }
        Ok(match directive::take(self.arena, sources.patch)? {
            PatchDirective::Delete => None,
            PatchDirective::Replace => MergedValue::of_patch(sources.patch),
            PatchDirective::Merge => Some(MergedValue::new(target)),
        })
    }

    fn begin_list(
        &mut self,
        sources: TargetAndPatchNodes,
        schema: Option<ResourceSchema<'s>>,
    ) -> Result<MergeWalkStep<'s>, StrategicMergeError> {
        self.copy_comments(sources);
        self.copy_style(sources);
        let of_patch = MergedValue::of_patch(sources.patch);
        let is_merged = schema.as_ref().is_some_and(ResourceSchema::is_merged);
        if !is_merged {
            return Ok(MergeWalkStep::Done(of_patch.or(sources.target.map(MergedValue::new))));
        }
        let target = sources.target.filter(|id| !self.arena.is_null(*id));
        let value = match target {
            None => of_patch,
            Some(_) if sources.patch.is_some_and(|patch| self.arena.is_null(patch)) => None,
            Some(target) => match directive::take(self.arena, sources.patch)? {
                PatchDirective::Delete => None,
                PatchDirective::Replace => of_patch,
                PatchDirective::Merge => Some(MergedValue::new(target)),
            },
        };
        let Some(value) = value else { return Ok(MergeWalkStep::Done(None)) };
        let sources = TargetAndPatchNodes { target: Some(value.id), ..sources };
        ListMergeFrame::new(self.arena, sources, value, schema.as_ref())
            .map(|list| MergeWalkStep::Wait(MergeFrame::List(list)))
    }

    /// The patch's comments win over the target's.
    fn copy_comments(&mut self, sources: TargetAndPatchNodes) {
        let (Some(target), Some(patch)) = (sources.target, sources.patch) else { return };
        let notes = self.arena[patch].notes.clone();
        for comment in
            [AnchorOrCommentKind::Head, AnchorOrCommentKind::Line, AnchorOrCommentKind::Foot]
        {
            let text = notes.get(comment);
            if !text.is_empty() {
                self.arena[target].notes.set(comment, text);
            }
        }
    }

    /// A node that was empty gets the style of the patch, because a former `{}` may have many entries now.
    fn copy_style(&mut self, sources: TargetAndPatchNodes) {
        let (Some(target), Some(patch)) = (sources.target, sources.patch) else { return };
        if self.arena[target].kind != YamlNodeKind::Scalar && self.arena.children(target).is_empty()
        {
            self.arena[target].style = self.arena[patch].style;
        }
    }
}

/// The schema in a node's comments. The comment after the node takes precedence over the one above it. `None` if no
/// comment has a schema.
fn comment_schema<'s>(schema: &'s OpenApiSchemas, node: &YamlNode) -> Option<ResourceSchema<'s>> {
    let comments =
        [AnchorOrCommentKind::Line, AnchorOrCommentKind::Head].map(|note| node.notes.get(note));
    let comment = comments.into_iter().find(|comment| !comment.is_empty())?;
    schema.of_comment(comment)
}

#[cfg(test)]
mod tests;
