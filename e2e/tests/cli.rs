//! The command line with a real control plane: output and exit status.
//!
//! All stories share one control plane and one windlass. Elsewhere: finding causes (tests of the engine `cause`), the texts of
//! each command (its own tests), commands that install (`tests/installation.rs`).

pub(crate) mod all_commands;
mod branch_plan_page;
mod build_and_diff;
mod command_arguments;
mod diff;
mod diff_predictions;
mod logs;
pub(crate) mod multi_user_web_pages;
mod plan_facts;
mod plan_live;
mod read_commands;
mod rollbacks;
pub(crate) mod why_advice;
pub(crate) mod why_causes;
mod why_failures;
pub(crate) mod windlass_ui;
mod write_commands;

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::Story;
use e2e::operator_process;
use serde_json::Value;

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `windlass` in the namespace of a story.
pub(crate) fn windlass(story: &Story, arguments: &[&str]) -> Result<CommandOutput> {
    anywhere(story, &[arguments, &["--namespace", &story.namespace]].concat())
}

/// Runs `windlass` on the control plane of a story.
pub(crate) fn anywhere(story: &Story, arguments: &[&str]) -> Result<CommandOutput> {
    let output = Command::new(operator_process::binary()?)
        .args(arguments)
        .arg(format!("--kubeconfig={}", story.kubeconfig().display()))
        .output()
        .context("windlass cannot be started")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(CommandOutput {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
    })
}

impl CommandOutput {
    /// The standard output of a command, if it ended with this status.
    pub(crate) fn ended(self, code: i32) -> Result<String> {
        ensure!(self.code == Some(code), "{self:?}");
        Ok(self.out)
    }

    /// The standard output as JSON, if the command ended with this status.
    pub(crate) fn json(self, code: i32) -> Result<Value> {
        Ok(serde_json::from_str(&self.ended(code)?)?)
    }
}

/// Whether windlass has written nothing to an object except the name of the last requesting user.
pub(crate) fn is_asked_for(object: &kube::api::DynamicObject) -> bool {
    let annotations = object.metadata.annotations.iter().flatten();
    annotations.map(|(key, _)| key.as_str()).eq(["windlass.dev/requested-by"])
}
