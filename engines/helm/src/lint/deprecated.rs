//! Kinds that Kubernetes has deprecated, according to client-go 0.36.

use crate::capabilities::KubeVersion;

/// One line for each deprecated kind: its API version and kind, the version of Kubernetes that deprecates it, the
/// version that removes it or `-`, and the replacement if there is one.
const KINDS: &str = include_str!("deprecated.txt");

/// The warning that a version of Kubernetes deprecates a kind. `None` if it does not.
pub(super) fn warning(api_version: &str, kind: &str, kubernetes: &KubeVersion) -> Option<String> {
    let line = KINDS.lines().find_map(|line| {
        line.strip_prefix(api_version)?.strip_prefix(' ')?.strip_prefix(kind)?.strip_prefix(' ')
    })?;
    let mut words = line.splitn(3, ' ');
    let since = words.next()?;
    let until = words.next()?;
    let instead = words.next();
    let number = |text: &str| text.parse::<u32>().ok();
    let (major, minor) = since.split_once('.')?;
    if (number(major)?, number(minor)?) > (number(&kubernetes.major)?, number(&kubernetes.minor)?) {
        return None;
    }
    let mut text = format!("{api_version} {kind} is deprecated in v{since}+");
    if until != "-" {
        text.push_str(&format!(", unavailable in v{until}+"));
    }
    if let Some(instead) = instead {
        text.push_str(&format!("; use {instead}"));
    }
    Some(text)
}
