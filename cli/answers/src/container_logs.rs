//! Merges the log lines of several containers in the order of their times.
//!
//! Elsewhere: finding the containers (`logged_containers.rs`), reading the log of one container (`windlass_cluster::container_logs`).

use futures::stream::{BoxStream, StreamExt as _};
use serde_json::{Value, json};

use super::logged_containers::LoggingContainer;
use windlass_cluster::container_logs::{ContainerLogLine, LogOptions};
use windlass_cluster::{ClusterConnection, ClusterError};

/// A container, and the stream of its log lines.
pub struct ContainerLogStream<'c> {
    /// The container.
    pub container: &'c LoggingContainer,
    /// The log lines of the container.
    pub lines: BoxStream<'static, Result<ContainerLogLine, ClusterError>>,
}

impl<'c> ContainerLogStream<'c> {
    /// Opens the log of a container. The request is sent when the caller takes the first line.
    #[must_use]
    pub fn open(
        cluster: &ClusterConnection,
        container: &'c LoggingContainer,
        wanted: LogOptions,
    ) -> Self {
        let LoggingContainer { namespace, pod, name } = container;
        Self { container, lines: cluster.lines(namespace, pod, name, wanted).boxed() }
    }
}

/// A log line as JSON.
pub fn as_json(container: &LoggingContainer, line: &ContainerLogLine) -> Value {
    let LoggingContainer { namespace, pod, name } = container;
    let at = line.at.map_or(Value::Null, |at| at.to_string().into());
    json!({"time": at, "namespace": namespace, "pod": pod, "container": name, "line": line.text})
}

/// Passes the lines to `each` in the order of their times. Only one line of each container is in memory. Returns messages about
/// logs that could not be read.
///
/// # Errors
/// The error of `each`.
pub async fn in_order(
    mut sources: Vec<ContainerLogStream<'_>>,
    mut each: impl FnMut(&LoggingContainer, &ContainerLogLine) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let mut failed = Vec::new();
    let firsts = sources.iter_mut().map(|source| source.lines.next());
    let firsts = futures::future::join_all(firsts).await;
    let mut heads: Vec<(Option<jiff::Timestamp>, ContainerLogStream<'_>, ContainerLogLine)> =
        Vec::new();
    for (source, first) in sources.into_iter().zip(firsts) {
        match first {
            Some(Ok(line)) => heads.push((line.at, source, line)),
            Some(Err(error)) => failed.push(unreadable(source.container, &error)),
            None => {}
        }
    }
    while let Some(at) = earliest(heads.iter().map(|(at, ..)| *at)) {
        let Some((last, source, line)) = heads.get_mut(at) else { break };
        each(source.container, line)?;
        match source.lines.next().await {
            Some(Ok(next)) => {
                // A line without a time keeps its place after the previous line.
                *last = next.at.or(*last);
                *line = next;
                continue;
            }
            Some(Err(error)) => failed.push(unreadable(source.container, &error)),
            None => {}
        }
        heads.remove(at);
    }
    Ok(failed)
}

/// The index of the earliest time in a list. An entry without a time counts as the earliest. `None` if the list is empty.
fn earliest(times: impl Iterator<Item = Option<jiff::Timestamp>>) -> Option<usize> {
    times.enumerate().min_by_key(|(_, at)| *at).map(|(index, _)| index)
}

/// The message that the log of a container could not be read, with the reason.
pub fn unreadable(container: &LoggingContainer, error: &ClusterError) -> String {
    let LoggingContainer { namespace, pod, name } = container;
    format!("Pod/{namespace}/{pod}: container '{name}': {error}")
}
