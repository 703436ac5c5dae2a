//! Advice about requests that RBAC does not allow: which right to grant to which ServiceAccount.
//!
//! What an API server says is read for advice only. Elsewhere: other refusals (`apply.rs`).

use objects::{Object, ObjectId};

use super::{AdviceTextAndCommand, is_plain, is_word};
use crate::condition::text;

/// How Kubernetes names a ServiceAccount as a user.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The API group of roles: who grants rights about them needs these rights, too.
const RBAC: &str = "rbac.authorization.k8s.io";

/// What an applier does with the objects that it applies.
const VERBS: &str = "get,list,create,update,patch,delete";

/// Whether a refusal is about rights, and not about a quota or a policy.
pub(crate) fn is_forbidden(said: &str) -> bool {
    said.contains("cannot ") && (said.contains("forbidden") || said.contains("Forbidden"))
}

/// Which right to grant; none if neither the refusal nor the owner names a ServiceAccount.
pub(super) fn right(said: &str, owner: Option<&Object>) -> Option<AdviceTextAndCommand> {
    let account = user(said).or_else(|| owner.and_then(account))?;
    let subject = account.subject();
    let refused = RefusedRequest::of(said).filter(|it| it.group != RBAC);
    let Some(RefusedRequest { resource, group, namespace }) = refused else {
        return Some((format!("grant {subject} the right that the message names"), None));
    };
    let whole = match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    };
    let place = match namespace {
        Some(namespace) => format!("in namespace {namespace}"),
        None => "in the whole cluster".to_owned(),
    };
    let help = format!("grant {subject} the rights {VERBS} on {whole} {place}");
    let (scope, kind) = match namespace {
        Some(namespace) => (format!(" -n {namespace}"), "role"),
        None => (String::new(), "clusterrole"),
    };
    let role = format!("{}-{resource}", account.name);
    let command = format!(
        "kubectl{scope} create {kind} {role} --verb={VERBS} --resource={whole} && kubectl{scope} create {kind}binding {role} \
         --{kind}={role} --serviceaccount={}:{}",
        account.namespace, account.name
    );
    let words = [resource, group, namespace.unwrap_or_default()];
    let is_command = is_plain(&account) && words.into_iter().all(is_word);
    Some((help, Some(command).filter(|_| is_command)))
}

/// The ServiceAccount that an API server names as the user of a request.
fn user(said: &str) -> Option<ObjectId> {
    let (_, rest) = said.split_once("User \"")?;
    let (user, _) = rest.split_once('"')?;
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    Some(ObjectId::new(namespace, name, "", "ServiceAccount"))
}

/// The ServiceAccount as which an object is applied.
fn account(owner: &Object) -> Option<ObjectId> {
    let name = owner.get("spec").map(|spec| text(spec, "serviceAccountName"))?;
    let id = ObjectId::new(owner.namespace(), name, "", "ServiceAccount");
    (!name.is_empty()).then_some(id)
}

/// What a request was about that is not allowed, as an API server says it.
struct RefusedRequest<'t> {
    resource: &'t str,
    group: &'t str,
    /// None if it was about the whole cluster.
    namespace: Option<&'t str>,
}

impl<'t> RefusedRequest<'t> {
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
}
