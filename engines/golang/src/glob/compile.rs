//! Choosing how a glob is matched, by the shortcuts of gobwas/glob.
//!
//! Parity(gobwas): what is chosen decides what matches, so the choices are the same here, in the same order.
//! Elsewhere: reading (`pattern.rs`), matching (`matcher.rs`).

use super::matcher::{GlobMatcher, GlobMatcherTree};
use super::pattern::GlobNode;

/// Chooses the matcher for a glob.
pub(super) fn compile(node: GlobNode, separators: &[char]) -> GlobMatcher {
    match node {
        GlobNode::AnyOf(alternatives) => match without_common_ends(alternatives) {
            Ok(node) => compile(node, separators),
            Err(alternatives) => GlobMatcher::AnyOf(compile_all(alternatives, separators)),
        },
        GlobNode::Pattern(nodes) if nodes.is_empty() => GlobMatcher::Nothing,
        GlobNode::Pattern(nodes) => simplified(tree(&glued(compile_all(nodes, separators)))),
        GlobNode::Any => simplified(GlobMatcher::Any(separators.to_vec())),
        GlobNode::Super => GlobMatcher::Super,
        GlobNode::Single => GlobMatcher::Single(separators.to_vec()),
        GlobNode::Nothing => GlobMatcher::Nothing,
        GlobNode::List { characters, is_negated } => {
            simplified(GlobMatcher::List { characters, is_negated })
        }
        GlobNode::Range { low, high, is_negated } => GlobMatcher::Range { low, high, is_negated },
        GlobNode::Text(text) => GlobMatcher::Text(text),
    }
}

fn compile_all(nodes: Vec<GlobNode>, separators: &[char]) -> Vec<GlobMatcher> {
    nodes.into_iter().map(|node| simplified(compile(node, separators))).collect()
}

/// Replaces a matcher by an equivalent one that is faster.
fn simplified(matcher: GlobMatcher) -> GlobMatcher {
    match matcher {
        GlobMatcher::Any(separators) if separators.is_empty() => GlobMatcher::Super,
        GlobMatcher::AnyOf(mut alternatives) if alternatives.len() == 1 => alternatives.remove(0),
        GlobMatcher::List { characters, is_negated: false } if characters.len() == 1 => {
            GlobMatcher::Text(characters.into_iter().collect())
        }
        GlobMatcher::Tree(tree) => simplified_tree(*tree),
        other => other,
    }
}

fn simplified_tree(mut tree: GlobMatcherTree) -> GlobMatcher {
    tree.left = tree.left.map(simplified);
    tree.right = tree.right.map(simplified);
    let GlobMatcher::Text(text) = &tree.value else { return GlobMatcher::Tree(Box::new(tree)) };
    let text = text.clone();
    match (tree.left, tree.right) {
        (None, None) => GlobMatcher::Text(text),
        (Some(GlobMatcher::Super), Some(GlobMatcher::Super)) => GlobMatcher::Contains(text),
        (Some(GlobMatcher::Super), None) => GlobMatcher::Suffix(text),
        (None, Some(GlobMatcher::Super)) => GlobMatcher::Prefix(text),
        (None, Some(GlobMatcher::Suffix(suffix))) => GlobMatcher::PrefixSuffix(text, suffix),
        (Some(GlobMatcher::Prefix(prefix)), None) => GlobMatcher::PrefixSuffix(prefix, text),
        (Some(GlobMatcher::Any(separators)), None) => GlobMatcher::SuffixAny(text, separators),
        (None, Some(GlobMatcher::Any(separators))) => GlobMatcher::PrefixAny(text, separators),
        (left, right) => GlobMatcher::Tree(Box::new(GlobMatcherTree { left, right, ..tree })),
    }
}

/// One matcher for a sequence of matchers. The longest part of a known length, or else the first part, becomes its
/// middle.
fn tree(matchers: &[GlobMatcher]) -> GlobMatcher {
    if let [only] = matchers {
        return only.clone();
    }
    if let Some(glued) = glue(matchers) {
        return glued;
    }
    let longest = matchers
        .iter()
        .enumerate()
        .filter_map(|(index, matcher)| Some((matcher.length()?, index)))
        // If several are equal, the last one counts.
        .max();
    let middle = longest.map_or(0, |(_, index)| index);
    let side = |side: &[GlobMatcher]| (!side.is_empty()).then(|| tree(side));
    let left = side(&matchers[..middle]);
    let right = side(&matchers[middle + 1..]);
    GlobMatcher::Tree(Box::new(GlobMatcherTree::new(matchers[middle].clone(), left, right)))
}

/// Joins runs of matchers in a sequence, the longest run first, until no more can be joined.
fn glued(mut matchers: Vec<GlobMatcher>) -> Vec<GlobMatcher> {
    loop {
        let mut best: Option<(GlobMatcher, usize, usize)> = None;
        for begin in 0..matchers.len() {
            // A run that can be glued can be without its end, which is never better.
            let end = begin + longest_run(&matchers[begin..]);
            let Some(matcher) = glue(&matchers[begin..end]) else { continue };
            let is_better = best.as_ref().is_none_or(|(best, from, to)| {
                let lengths = best.length().zip(matcher.length());
                lengths.is_some_and(|(best, new)| new > best) || to - from < end - begin
            });
            if is_better {
                best = Some((matcher, begin, end));
            }
        }
        let Some((matcher, begin, end)) = best else { return matchers };
        matchers.splice(begin..end, [matcher]);
    }
}

/// How many matchers, from the first on, can be joined.
fn longest_run(matchers: &[GlobMatcher]) -> usize {
    let first = matchers.first().and_then(stops);
    let alike =
        matchers.iter().take_while(|matcher| first.is_some() && stops(matcher) == first).count();
    let fixed = matchers.iter().take_while(|matcher| matcher.length().is_some()).count();
    alike.max(fixed)
}

/// The characters that a matcher for any other text does not match. `None` if it is a matcher of another kind.
fn stops(matcher: &GlobMatcher) -> Option<&[char]> {
    match matcher {
        GlobMatcher::Super => Some(&[]),
        GlobMatcher::Any(separators) | GlobMatcher::Single(separators) => Some(separators),
        GlobMatcher::List { characters, is_negated: true } => Some(characters),
        _ => None,
    }
}

fn glue(matchers: &[GlobMatcher]) -> Option<GlobMatcher> {
    if matchers.len() < 2 {
        return None;
    }
    glue_as_every(matchers).or_else(|| {
        let lengths: Option<Vec<usize>> = matchers.iter().map(GlobMatcher::length).collect();
        Some(GlobMatcher::Row(matchers.to_vec(), lengths?.into_iter().sum()))
    })
}

/// Joins a run of matchers that all stop at the same characters into one matcher. `None` if they do not or if there are
/// none.
fn glue_as_every(matchers: &[GlobMatcher]) -> Option<GlobMatcher> {
    let stops = matchers.first().and_then(self::stops)?;
    if matchers.iter().any(|matcher| self::stops(matcher) != Some(stops)) {
        return None;
    }
    let has_super = matchers.iter().any(|matcher| matches!(matcher, GlobMatcher::Super));
    let has_any = matchers.iter().any(|matcher| matches!(matcher, GlobMatcher::Any(_)));
    let is_one = |matcher: &&GlobMatcher| {
        matches!(matcher, GlobMatcher::Single(_) | GlobMatcher::List { .. })
    };
    let least = matchers.iter().filter(is_one).count();
    if has_super && !has_any && least == 0 {
        return Some(GlobMatcher::Super);
    }
    if has_any && !has_super && least == 0 {
        return Some(GlobMatcher::Any(stops.to_vec()));
    }
    if (has_any || has_super) && least > 0 && stops.is_empty() {
        return Some(GlobMatcher::Min(least));
    }
    let mut every = Vec::new();
    if least > 0 {
        every.push(GlobMatcher::Min(least));
        if !has_any && !has_super {
            every.push(GlobMatcher::Max(least));
        }
    }
    if !stops.is_empty() {
        // Parity(gobwas): the separators are one text here, not each a separator.
        every.push(GlobMatcher::ContainsNot(stops.iter().collect()));
    }
    Some(GlobMatcher::EveryOf(every))
}

/// Moves the common beginning and end of all alternatives out of them. If there is none, the alternatives are returned.
fn without_common_ends(alternatives: Vec<GlobNode>) -> Result<GlobNode, Vec<GlobNode>> {
    let patterns: Option<Vec<&[GlobNode]>> = alternatives
        .iter()
        .map(|node| if let GlobNode::Pattern(nodes) = node { Some(nodes.as_slice()) } else { None })
        .collect();
    let Some(patterns) = patterns else { return Err(alternatives) };
    let (left, right) = common_ends(&patterns);
    if left == 0 && right == 0 {
        return Err(alternatives);
    }
    let first = patterns[0];
    let mut result = Vec::new();
    if left > 0 {
        result.push(GlobNode::Pattern(first[..left].to_vec()));
    }
    let mut middles = Vec::new();
    for pattern in &patterns {
        let middle = &pattern[left..pattern.len() - right];
        let node =
            if middle.is_empty() { GlobNode::Nothing } else { GlobNode::Pattern(middle.to_vec()) };
        if !middles.contains(&node) {
            middles.push(node);
        }
    }
    match middles.as_slice() {
        [GlobNode::Nothing] => {}
        [_] => result.append(&mut middles),
        _ => result.push(GlobNode::AnyOf(middles)),
    }
    if right > 0 {
        result.push(GlobNode::Pattern(first[first.len() - right..].to_vec()));
    }
    Ok(GlobNode::Pattern(result))
}

/// How many nodes all sequences have in common at the beginning, and at the end.
fn common_ends(sequences: &[&[GlobNode]]) -> (usize, usize) {
    let shortest = sequences.iter().enumerate().min_by_key(|(_, sequence)| sequence.len());
    let Some((place, shortest)) = shortest else { return (0, 0) };
    let others: Vec<&&[GlobNode]> =
        sequences[..place].iter().chain(&sequences[place + 1..]).collect();
    if others.is_empty() {
        return (0, 0);
    }
    let mut left = 0;
    let mut right = 0;
    let mut left_ends = false;
    let mut right_ends = false;
    for index in 0..shortest.len() {
        if left + right >= shortest.len() || left_ends && right_ends {
            break;
        }
        let from_end = shortest.len() - 1 - index;
        for sequence in &others {
            left_ends |= sequence[index] != shortest[index];
            // What belongs to the left does not belong to the right too.
            right_ends |= !left_ends && from_end <= index;
            right_ends |= sequence[sequence.len() - 1 - index] != shortest[from_end];
        }
        left += usize::from(!left_ends);
        right += usize::from(!right_ends);
    }
    (left, right)
}
