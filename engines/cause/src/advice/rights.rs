//! Advice about requests that RBAC does not allow: which right to grant to which ServiceAccount.
//!
//! The API server's messages are read for advice only. Elsewhere: other refusals (`apply.rs`).

use std::collections::BTreeMap;

use objects::{Object, ObjectId};

use super::{AdviceTextAndCommand, is_plain, is_word};
use crate::condition::text;

/// The prefix of a ServiceAccount's user name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The API group of roles. An account that applies a role needs the rights in that role itself.
const RBAC: &str = "rbac.authorization.k8s.io";

/// The verbs that an applier needs for the objects that it applies.
const VERBS: &str = "get,list,create,update,patch,delete";

/// Whether a refusal is about rights, and not about a quota or a policy.
pub(crate) fn is_forbidden(said: &str) -> bool {
    said.contains("cannot ") && (said.contains("forbidden") || said.contains("Forbidden"))
}

/// Advice which rights to grant for some refusals, with one rule for each namespace. `None` if neither the refusals nor
/// the owner name a ServiceAccount.
pub(super) fn rights(refusals: &[&str], owner: Option<&Object>) -> Option<AdviceTextAndCommand> {
    let named = refusals.iter().find_map(|said| user(said));
    let account = named.or_else(|| owner.and_then(account))?;
    let subject = account.subject();
    let mut scopes: BTreeMap<Option<&str>, BTreeMap<String, &str>> = BTreeMap::new();
    let mut is_whole = true;
    for said in refusals {
        match RbacDeniedRequest::of(said).filter(|it| it.group != RBAC) {
            Some(request) => {
                let resources = scopes.entry(request.namespace).or_default();
                resources.insert(request.whole(), request.resource);
            }
            None => is_whole = false,
        }
    }
    if scopes.is_empty() {
        return Some((format!("grant {subject} the right that the message names"), None));
    }
    let rules = scopes.iter().map(|(namespace, resources)| {
        let place = match namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in the whole cluster".to_owned(),
        };
        let resources = resources.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        format!("on {resources} {place}")
    });
    let rules = rules.collect::<Vec<_>>().join(" and ");
    let rest = if is_whole { "" } else { ", and the other rights that the message names" };
    let help = format!("grant {subject} the rights {VERBS} {rules}{rest}");
    let mut names = scopes.iter().flat_map(|(namespace, resources)| {
        resources.keys().map(String::as_str).chain([namespace.unwrap_or_default()])
    });
    let is_command = is_plain(&account) && names.all(is_word);
    let commands =
        scopes.iter().map(|(namespace, resources)| grant(&account, *namespace, resources));
    let command = commands.collect::<Vec<_>>().join(" && ");
    Some((help, Some(command).filter(|_| is_command)))
}

/// The command that grants the rights on resources of one namespace, or of the whole cluster.
fn grant(
    account: &ObjectId,
    namespace: Option<&str>,
    resources: &BTreeMap<String, &str>,
) -> String {
    let (scope, kind) = match namespace {
        Some(namespace) => (format!(" -n {namespace}"), "role"),
        None => (String::new(), "clusterrole"),
    };
    let first = resources.values().next().copied().unwrap_or_default();
    let role = match resources.len().saturating_sub(1) {
        0 => format!("{}-{first}", account.name),
        more => format!("{}-{first}-and-{more}-more", account.name),
    };
    let all = resources.keys().map(String::as_str).collect::<Vec<_>>().join(",");
    format!(
        "kubectl{scope} create {kind} {role} --verb={VERBS} --resource={all} && kubectl{scope} create {kind}binding {role} \
         --{kind}={role} --serviceaccount={}:{}",
        account.namespace, account.name
    )
}

/// The ServiceAccount that a message of the API server names as the user of a refused request. `None` if it names no
/// ServiceAccount.
fn user(said: &str) -> Option<ObjectId> {
    let (_, rest) = said.split_once("User \"")?;
    let (user, _) = rest.split_once('"')?;
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    Some(ObjectId::new(namespace, name, "", "ServiceAccount"))
}

/// The ServiceAccount as which `owner` applies its objects. `None` if its spec names none.
fn account(owner: &Object) -> Option<ObjectId> {
    let name = owner.get("spec").map(|spec| text(spec, "serviceAccountName"))?;
    let id = ObjectId::new(owner.namespace(), name, "", "ServiceAccount");
    (!name.is_empty()).then_some(id)
}

/// A request that was not allowed, according to the API server's message.
struct RbacDeniedRequest<'t> {
    resource: &'t str,
    group: &'t str,
    /// The namespace of the request. `None` if it was about the whole cluster.
    namespace: Option<&'t str>,
}

impl<'t> RbacDeniedRequest<'t> {
    fn of(said: &'t str) -> Option<Self> {
        let (_, rest) = said.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once("\" in API group \"")?;
        let (group, rest) = rest.split_once('"')?;
        let namespace = match rest.strip_prefix(" in the namespace \"") {
            Some(rest) => Some(rest.split_once('"')?.0),
            None => {
                rest.strip_prefix(" at the cluster scope")?;
                None
            }
        };
        Some(Self { resource, group, namespace })
    }

    /// The resource with its API group, as kubectl names it.
    fn whole(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }
}
