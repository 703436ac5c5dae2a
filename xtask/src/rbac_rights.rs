//! Compares the RBAC rights of an installation with the requests that windlass made while the stories ran.
//!
//! `deploy/chart/files/base/rbac.yaml` has the rights of windlass. `e2e/testbed/rights.yaml` has the rights to apply
//! the objects of stories. `e2e::harness::requests_with_own_rights` records the requests.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use testbed::root;

/// The RBAC rules of windlass.
const OWN: &str = "deploy/chart/files/base/rbac.yaml";
/// The rights to apply the objects of stories.
const APPLIED: &str = "e2e/testbed/rights.yaml";
/// A verb that no request has. An admission policy checks which user has it (`deploy/policies/release-audits.yaml`).
const ASKED_BY_POLICIES: &str = "record";
/// Requests that only thorough stories make. For an approval by a pull request, they run a real Gitea.
const REQUESTED_BY_THOROUGH_STORIES: [&str; 1] = ["patch release.windlass.dev/plans/status"];
/// Paths that every authenticated user may request.
const DISCOVERY: [&str; 3] = ["/version", "/api", "/apis"];
/// A request that every user may make to read their own rights, by the role `system:basic-user` of Kubernetes.
const OWN_RIGHTS: &str = "create authorization.k8s.io/selfsubjectaccessreviews";

/// One rule of an RBAC role.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RoleRule {
    role: String,
    groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// A recorded request, with the verb, group and resource that a rule of RBAC would name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RecordedRbacRequest {
    verb: String,
    group: String,
    resource: String,
}

impl RoleRule {
    fn has_resource(&self, request: &RecordedRbacRequest) -> bool {
        let matches =
            |known: &[String], wanted: &String| known.iter().any(|it| it == "*" || it == wanted);
        matches(&self.groups, &request.group) && matches(&self.resources, &request.resource)
    }

    fn allows(&self, request: &RecordedRbacRequest) -> bool {
        self.has_resource(request)
            && self.verbs.iter().any(|verb| *verb == "*" || *verb == request.verb)
    }

    /// Whether a request needs this verb. A server-side apply that creates an object also needs the right to create
    /// it. A watch begins with a list where the API server does not send the objects as initial events.
    fn uses(&self, verb: &str, request: &RecordedRbacRequest) -> bool {
        let is_it = request.verb == verb
            || (verb == "create" && request.verb == "patch")
            || (verb == "list" && request.verb == "watch");
        is_it && self.has_resource(request)
    }
}

impl std::fmt::Display for RecordedRbacRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.verb, self.group, self.resource)
    }
}

/// Fails if a request needs a right that windlass does not have, or if windlass has a right that no request needs.
/// Without the thorough stories, the requests that only they make count as made.
///
/// # Errors
/// The rights that are missing, and those that no request needs.
pub(crate) fn check(recorded: &Path, is_thorough: bool) -> anyhow::Result<()> {
    let mut requests = requests(recorded)?;
    ensure!(!requests.is_empty(), "no request was recorded in {}", recorded.display());
    if !is_thorough {
        requests.extend(REQUESTED_BY_THOROUGH_STORIES.iter().filter_map(|line| request(line)));
    }
    let own = rules(&std::fs::read_to_string(root().join(OWN))?)?;
    let applied = rules(&std::fs::read_to_string(root().join(APPLIED))?)?;
    let problems = problems(&own, &applied, &requests);
    if !problems.is_empty() {
        bail!(
            "{} of {} requests and rules do not match:\n{}",
            problems.len(),
            requests.len(),
            problems.join("\n")
        );
    }
    eprintln!(
        "{} kinds of requests, {} rules: each rule is used, and no request is outside",
        requests.len(),
        own.len()
    );
    Ok(())
}

fn problems(
    own: &[RoleRule],
    applied: &[RoleRule],
    requests: &BTreeSet<RecordedRbacRequest>,
) -> Vec<String> {
    let is_allowed =
        |request: &&RecordedRbacRequest| own.iter().chain(applied).any(|rule| rule.allows(request));
    let outside = requests.iter().filter(|request| !is_allowed(request));
    let mut problems: Vec<String> = outside
        .map(|request| format!("no rule of {OWN} or {APPLIED} allows `{request}`"))
        .collect();
    for rule in own {
        let is_used = |verb: &str| requests.iter().any(|request| rule.uses(verb, request));
        let unused = rule.verbs.iter().filter(|verb| *verb != ASKED_BY_POLICIES && !is_used(verb));
        problems.extend(unused.map(|verb| {
            format!("{}: no request uses `{verb}` on {}", rule.role, rule.resources.join(", "))
        }));
        let is_named = |resource: &str| {
            requests.iter().any(|request| request.resource == resource && rule.allows(request))
        };
        let is_of_policy = rule.verbs == [ASKED_BY_POLICIES];
        let idle = rule
            .resources
            .iter()
            .filter(|_| !is_of_policy)
            .filter(|resource| *resource != "*" && !is_named(resource));
        problems.extend(idle.map(|resource| {
            format!("{}: no request is about {resource} ({})", rule.role, rule.verbs.join(", "))
        }));
    }
    problems
}

/// Reads the requests that all processes of the stories recorded.
fn requests(folder: &Path) -> anyhow::Result<BTreeSet<RecordedRbacRequest>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let text = std::fs::read_to_string(entry?.path())?;
        found.extend(text.lines().filter_map(request));
    }
    Ok(found)
}

/// Parses one recorded line as a request. `None` for a request that every user may make, and for a name that no object can
/// have.
fn request(line: &str) -> Option<RecordedRbacRequest> {
    let (verb, what) = line.split_once(' ')?;
    let is_discovery = |known: &str| what == known || what.starts_with(&format!("{known}/"));
    if line == OWN_RIGHTS || DISCOVERY.into_iter().any(is_discovery) {
        return None;
    }
    let (group, resource) = what.split_once('/')?;
    Some(RecordedRbacRequest {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
    })
}

/// Reads the rules of the roles that a binding names. Without any binding, it reads the rules of all roles.
fn rules(text: &str) -> anyhow::Result<Vec<RoleRule>> {
    let documents = goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default());
    let documents = documents.context("a role cannot be read")?;
    let documents: Vec<Value> = documents.into_iter().map(|document| document.value).collect();
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let bound: BTreeSet<String> = documents
        .iter()
        .filter(|it| !it["roleRef"].is_null())
        .map(|it| name(&it["roleRef"]["name"]))
        .collect();
    let strings = |value: &Value| {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let roles = documents
        .iter()
        .filter(|it| bound.is_empty() || bound.contains(&name(&it["metadata"]["name"])));
    let rules = roles.flat_map(|role| {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules.map(move |rule| RoleRule {
            role: name(&role["metadata"]["name"]),
            groups: strings(&rule["apiGroups"]),
            resources: strings(&rule["resources"]),
            verbs: strings(&rule["verbs"]),
        })
    });
    Ok(rules.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: &str = "kind: ClusterRole\nmetadata: {name: own}\nrules:\n\
        - {apiGroups: [''], resources: [pods, secrets], verbs: [get, list]}\n---\n\
        kind: ClusterRole\nmetadata: {name: view}\nrules:\n\
        - {apiGroups: [''], resources: [nodes], verbs: [get]}\n---\n\
        kind: ClusterRoleBinding\nroleRef: {name: own}\n";

    fn found(lines: &[&str]) -> Vec<String> {
        let requests = lines.iter().filter_map(|line| request(line)).collect();
        problems(&rules(ROLES).unwrap(), &[], &requests)
    }

    #[test]
    fn every_right_is_used_and_no_request_goes_beyond() {
        let all = ["get /pods", "list /secrets", "get /version", "get /apis/apps/v1"];
        assert_eq!(found(&all), [""; 0]);
        let without_secrets = ["get /pods", "list /pods"];
        assert_eq!(found(&without_secrets), ["own: no request is about secrets (get, list)"]);
        let without_list = ["get /pods", "get /secrets"];
        assert_eq!(found(&without_list), ["own: no request uses `list` on pods, secrets"]);
        let role = RoleRule {
            role: "own".to_owned(),
            groups: vec![String::new()],
            resources: vec!["secrets".to_owned()],
            verbs: vec!["list".to_owned(), "watch".to_owned()],
        };
        let watched = request("watch /secrets").unwrap();
        assert!(role.uses("list", &watched) && role.uses("watch", &watched));
        assert!(!role.uses("watch", &request("list /secrets").unwrap()));
        let beyond = ["get /pods", "list /secrets", "get /nodes"];
        let text = "no rule of deploy/chart/files/base/rbac.yaml or e2e/testbed/rights.yaml allows `get /nodes`";
        assert_eq!(found(&beyond), [text]);
    }

    #[test]
    fn what_only_thorough_stories_request_is_a_right_of_the_program() {
        let own = rules(&std::fs::read_to_string(root().join(OWN)).unwrap()).unwrap();
        for line in REQUESTED_BY_THOROUGH_STORIES {
            let request = request(line).unwrap();
            assert!(own.iter().any(|rule| rule.verbs.contains(&request.verb)
                && rule.resources.contains(&request.resource)
                && rule.groups.contains(&request.group)));
        }
    }
}
