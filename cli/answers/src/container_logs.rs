//! Lines of several containers in one order.
//!
//! Elsewhere: whose lines (`logged_containers.rs`), reading those of one container (`windlass_cluster::logs`).

use futures::stream::{BoxStream, StreamExt as _};
use serde_json::{Value, json};

use super::logged_containers::LoggingContainer;
use windlass_cluster::logs::{ContainerLogLine, LogOptions};
use windlass_cluster::{ClusterConnection, ClusterError};

/// A container, and the lines that are still to come.
pub struct ContainerLogStream<'c> {
    /// The container.
    pub container: &'c LoggingContainer,
    /// Its lines.
    pub lines: BoxStream<'static, Result<ContainerLogLine, ClusterError>>,
}

impl<'c> ContainerLogStream<'c> {
    /// The lines of a container that are wanted. Nothing is requested before the first is taken.
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

/// A line as programs get it.
pub fn as_json(container: &LoggingContainer, line: &ContainerLogLine) -> Value {
    let LoggingContainer { namespace, pod, name } = container;
    let at = line.at.map_or(Value::Null, |at| at.to_string().into());
    json!({"time": at, "namespace": namespace, "pod": pod, "container": name, "line": line.text})
}

/// Hands out lines by their time, with one of each container in memory; returns what could not be read.
///
/// # Errors
/// That of `each`.
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
                // A line without a time stays behind the one before it.
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

/// The index of the earliest time; what has none is earlier than anything.
fn earliest(times: impl Iterator<Item = Option<jiff::Timestamp>>) -> Option<usize> {
    times.enumerate().min_by_key(|(_, at)| *at).map(|(index, _)| index)
}

/// That the lines of a container could not be read, and why.
pub fn unreadable(container: &LoggingContainer, error: &ClusterError) -> String {
    let LoggingContainer { namespace, pod, name } = container;
    format!("Pod/{namespace}/{pod}: container '{name}': {error}")
}
