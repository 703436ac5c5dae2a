//! The message of the commit that an update makes.
//!
//! Here: templates, their limits and errors. Below: the data of an update for templates (`commit_message_template/data.rs`).
//! Elsewhere: Go's templates (`gotemplate`), their functions (`sprig`), the commit (the sources).

mod data;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use golang::time::{GoTime, GoTimeZone};
use gotemplate::{TemplateLimits, TemplateSet};
use sprig::{RandomFill, TemplateEnvironment};

pub use gotemplate::REQUIRED_STACK_BYTES;

use crate::update_result::UpdateResult;

/// The message if the spec has no template.
const DEFAULT_MESSAGE: &str = "Update from image update automation";

/// The name of the template in errors.
const TEMPLATE_NAME: &str = "commit message";

/// The longest template, in bytes. Differs(flux): it has no limit.
const MAX_TEMPLATE_BYTES: usize = 256 << 10;

/// The longest message, in bytes. Differs(flux): it has no limit.
const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// The most bytes that may be created while rendering a message.
const MAX_MADE_BYTES: usize = 16 << 20;

/// The most bytes of the update's data for a template.
const MAX_DATA_BYTES: u64 = 128 << 20;

/// Steps of a template, each of a few nanoseconds.
const MAX_TEMPLATE_STEPS: u64 = 20_000_000;

/// The data for a commit message.
#[derive(Debug, Clone, Copy)]
pub struct CommitMessageData<'d> {
    /// The namespace of the ImageUpdateAutomation.
    pub namespace: &'d str,
    /// The name of the automation.
    pub name: &'d str,
    /// The changes of the update.
    pub changed: &'d UpdateResult,
    /// `spec.git.commit.messageTemplateValues`.
    pub values: Option<&'d BTreeMap<String, String>>,
}

/// The environment of commit message templates. Equal environments give equal messages.
#[derive(Clone)]
pub struct CommitMessageEnvironment {
    /// The time.
    pub now: GoTime,
    /// Fills a buffer with random bytes, for the few functions that draw some.
    pub random: Arc<RandomFill>,
}

impl TemplateEnvironment for CommitMessageEnvironment {
    fn now(&self) -> GoTime {
        self.now.clone()
    }

    fn local(&self) -> &GoTimeZone {
        &GoTimeZone::Utc
    }

    fn randomness(&self) -> Option<&RandomFill> {
        Some(&*self.random)
    }

    fn address_of(&self, _: &str) -> Result<String, String> {
        Ok(String::new())
    }
}

/// Why there is no message. The text is Flux's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitMessageError {
    /// The template cannot be read.
    #[error("unable to create commit message template from spec: {0}")]
    Template(String),
    /// The template uses a field that Flux removed in 1.0. The spec has to change.
    #[error(
        "template uses removed '{field}' field. Please use {instead} instead. See: \
         https://fluxcd.io/flux/components/image/imageupdateautomations/#message-template"
    )]
    RemovedField {
        /// The field.
        field: &'static str,
        /// The replacement for the field.
        instead: &'static str,
    },
    /// The template failed.
    #[error("failed to run template from spec: {0}")]
    Run(String),
}

/// For each removed field: Go's error about it, its name, and its replacement.
const REMOVED_FIELDS: [[&str; 3]; 2] = [
    ["can't evaluate field Updated in type source.TemplateData", ".Updated", "'.Changed'"],
    [
        "can't evaluate field ImageResult in type update.Result",
        ".Changed.ImageResult",
        "'.Changed.FileChanges' or '.Changed.Objects'",
    ],
];

/// Renders the message of a commit from `spec.git.commit.messageTemplate`, which may be empty.
///
/// It needs a thread with a stack of [`REQUIRED_STACK_BYTES`].
///
/// # Errors
/// The text is not a template, rendering fails, takes too long, or creates too much data.
pub fn commit_message(
    template: &str,
    data: &CommitMessageData<'_>,
    environment: &CommitMessageEnvironment,
) -> Result<String, CommitMessageError> {
    if template.len() > MAX_TEMPLATE_BYTES {
        let reason = format!("the template is longer than {MAX_TEMPLATE_BYTES} bytes");
        return Err(CommitMessageError::Template(reason));
    }
    if template.is_empty() {
        // The default message does not depend on the update.
        return Ok(DEFAULT_MESSAGE.to_owned());
    }
    let mut set = empty_set();
    set.parse(TEMPLATE_NAME, template.as_bytes())
        .map_err(|error| CommitMessageError::Template(error.to_string()))?;
    if data::template_data_bytes(data) > MAX_DATA_BYTES {
        let reason = format!(
            "what the update changed takes more than {MAX_DATA_BYTES} bytes of memory: divide the files among \
             several automations"
        );
        return Err(CommitMessageError::Run(reason));
    }
    let message = set.run_with(TEMPLATE_NAME, data::template_data(data), environment);
    match message {
        Ok(message) if message.len() > MAX_MESSAGE_BYTES => {
            let reason = format!(
                "the message is longer than {MAX_MESSAGE_BYTES} bytes: shorten spec.git.commit.messageTemplate"
            );
            Err(CommitMessageError::Run(reason))
        }
        Ok(message) => Ok(String::from_utf8_lossy(&message).into_owned()),
        Err(error) => Err(failure(error.to_string())),
    }
}

/// A set with all functions and without templates.
fn empty_set() -> TemplateSet {
    static EMPTY: LazyLock<TemplateSet> = LazyLock::new(|| {
        let limits = TemplateLimits {
            steps: MAX_TEMPLATE_STEPS,
            output: MAX_MADE_BYTES,
            ..TemplateLimits::default()
        };
        let functions = sprig::hermetic_functions::<CommitMessageEnvironment>();
        TemplateSet::new(TEMPLATE_NAME, functions).with_limits(limits)
    });
    EMPTY.clone()
}

/// Parity(flux): whether a field is gone is found in the text of the error, wherever that comes from.
fn failure(text: String) -> CommitMessageError {
    let removed = REMOVED_FIELDS.into_iter().find(|[sign, ..]| text.contains(sign));
    match removed {
        Some([_, field, instead]) => CommitMessageError::RemovedField { field, instead },
        None => CommitMessageError::Run(text),
    }
}
