//! The budget of a build: how much time and memory its files, transformers and objects may use together.
//!
//! Here: the budget, and the memory that nodes and values take. Elsewhere: how much each action costs (the caller), and the
//! clock (the caller sets [`golang::work_meter::StopSignal`]).

use std::cell::RefCell;
use std::rc::Rc;

use golang::work_meter::{StopSignal, WorkAllowance, WorkLimitExceeded, WorkMeter};
use goyaml::YamlLimits;
use goyaml::v3::{AnchorOrCommentKind, YamlNode};
use serde_json::Value;

use crate::error::Result;

/// What one build may use up. Differs(kustomize): it has no limit.
///
/// Bytes are those of nodes, which take about ten times the length of their text; a build with all of them and its
/// output takes less than 1 GiB.
pub const ALLOWED: WorkAllowance = WorkAllowance { steps: 40_000_000_000, bytes: 448 << 20 };

/// Steps that a byte of a text costs which is read as YAML.
const STEPS_PER_YAML_BYTE: u64 = 16;

/// The most memory that parsing takes temporarily for each node, in bytes.
const READ_NODE: u64 = 320;

/// Bytes of memory of a node without its strings.
const NODE_OVERHEAD_BYTES: usize = size_of::<YamlNode>();

/// The memory of a text in addition to its length, in bytes.
const TEXT_OVERHEAD_BYTES: usize = 16;

/// The budget of one build. All clones share the same budget.
#[derive(Debug, Clone)]
pub struct BuildBudget(Rc<RefCell<WorkMeter>>);

impl Default for BuildBudget {
    /// The limits [`ALLOWED`], without a stop signal.
    fn default() -> Self {
        Self::new(WorkMeter::new(ALLOWED, StopSignal::default()))
    }
}

impl BuildBudget {
    /// The account that a meter keeps.
    pub fn new(meter: WorkMeter) -> Self {
        Self(Rc::new(RefCell::new(meter)))
    }

    /// Something that uses the account otherwise.
    pub fn with<T>(&self, work: impl FnOnce(&mut WorkMeter) -> T) -> T {
        work(&mut self.0.borrow_mut())
    }

    /// Takes steps from the budget. Call it before the work, and at least once for work whose time grows with the size of an
    /// object.
    pub(crate) fn steps(&self, steps: usize) -> Result<(), WorkLimitExceeded> {
        self.0.borrow_mut().steps(steps as u64)
    }

    /// Takes bytes from the budget. Call it before creating data that is kept.
    pub(crate) fn bytes(&self, bytes: usize) -> Result<(), WorkLimitExceeded> {
        let mut meter = self.0.borrow_mut();
        meter.steps(bytes as u64 / 8)?;
        meter.bytes(bytes as u64)
    }

    /// Takes bytes that are kept as long as the result is.
    pub(crate) fn hold(&self, bytes: usize) -> Result<BudgetReservation, WorkLimitExceeded> {
        self.bytes(bytes)?;
        Ok(BudgetReservation { budget: self.clone(), bytes: bytes as u64 })
    }

    /// Takes the cost of reading a text of this length. Returns the limits for the YAML parser. Call it before reading.
    pub(crate) fn reading(&self, length: usize) -> Result<YamlLimits, WorkLimitExceeded> {
        let mut meter = self.0.borrow_mut();
        meter.steps((length as u64).saturating_mul(STEPS_PER_YAML_BYTE))?;
        let limits = YamlLimits::default();
        let nodes = usize::try_from(meter.left().bytes / READ_NODE).unwrap_or(usize::MAX);
        Ok(YamlLimits { nodes: nodes.min(limits.nodes), ..limits })
    }

    /// Takes the memory of a node from the budget.
    pub(crate) fn keep(&self, node: &YamlNode) -> Result<(), WorkLimitExceeded> {
        self.bytes(weight(node))
    }

    /// Takes the memory by which something has grown from the budget.
    pub(crate) fn grown(&self, before: usize, after: usize) -> Result<(), WorkLimitExceeded> {
        self.bytes(after.saturating_sub(before))
    }

    /// Gives back bytes that are not kept any more.
    pub(crate) fn free(&self, bytes: usize) {
        self.0.borrow_mut().free(bytes as u64);
    }

    /// The number of bytes that are left.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.0.borrow().left().bytes
    }

    /// Gives back all bytes that were taken since `left` bytes were left.
    pub(crate) fn free_to(&self, left: u64) {
        let mut meter = self.0.borrow_mut();
        let taken = left.saturating_sub(meter.left().bytes);
        meter.free(taken);
    }
}

/// Reserved bytes of a budget. They are given back when the reservation is dropped.
#[derive(Debug)]
pub(crate) struct BudgetReservation {
    budget: BuildBudget,
    bytes: u64,
}

impl Drop for BudgetReservation {
    fn drop(&mut self) {
        self.budget.0.borrow_mut().free(self.bytes);
    }
}

/// The memory of a node and all its children, in bytes.
pub(crate) fn weight(node: &YamlNode) -> usize {
    node.walk().map(|(_, node)| weight_alone(node)).sum()
}

/// The memory of a node in bytes, without its children.
pub(crate) fn weight_alone(node: &YamlNode) -> usize {
    let notes = [
        AnchorOrCommentKind::Anchor,
        AnchorOrCommentKind::Head,
        AnchorOrCommentKind::Line,
        AnchorOrCommentKind::Foot,
    ];
    let notes = match node.notes.is_empty() {
        true => 0,
        false => {
            notes.iter().map(|note| node.notes.get(*note).len() + 2 * TEXT_OVERHEAD_BYTES).sum()
        }
    };
    NODE_OVERHEAD_BYTES + weight_of_text(&node.value) + notes
}

/// The memory of a scalar with this text, in bytes. A map entry takes twice as much.
pub(crate) fn weight_of_scalar(text: &str) -> usize {
    NODE_OVERHEAD_BYTES + weight_of_text(text)
}

fn weight_of_text(text: &str) -> usize {
    if text.is_empty() { 0 } else { TEXT_OVERHEAD_BYTES + text.len() }
}

/// The memory of a value, in bytes.
pub fn weight_of_value(value: &Value) -> usize {
    let mut sum = 0;
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        sum += size_of::<Value>();
        match value {
            Value::String(text) => sum += weight_of_text(text),
            Value::Array(items) => left.extend(items),
            Value::Object(fields) => {
                for (key, value) in fields {
                    sum += 2 * size_of::<String>() + TEXT_OVERHEAD_BYTES + key.len();
                    left.push(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    sum
}

#[cfg(test)]
mod tests;
