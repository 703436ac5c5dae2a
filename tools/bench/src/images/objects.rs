//! The objects and files: ImagePolicies of one ImageRepository, and ImageUpdateAutomations of one GitRepository.
//!
//! Each automation writes the results of its share of the policies into its own folder. `super::workload` has the
//! registry and the repository.

use e2e::cluster_with_operator::WatchSelection;
use serde_json::{Value, json};

/// The name of the ImageRepository and of the GitRepository.
pub(super) const NAME: &str = "app";

/// The API version of the image kinds.
const API: &str = "image.toolkit.fluxcd.io/v1";

/// The API version of the source kinds.
const SOURCE_API: &str = "source.toolkit.fluxcd.io/v1";

/// A label that says which automation writes the result of a policy.
const PART_LABEL: &str = "windlass-bench/part";

/// An interval longer than the measurement, so that no run begins because of it.
const NEVER: &str = "1h";

/// The inputs of the objects.
pub(super) struct ImageObjects {
    /// The namespace of the objects.
    pub(super) namespace: String,
    /// The name of the image in objects and files.
    pub(super) image: String,
    /// The URL of the Git repository.
    pub(super) url: String,
    /// How many policies there are.
    pub(super) policies: usize,
    /// How many automations there are.
    pub(super) automations: usize,
}

/// The objects of one kind.
pub(super) struct ObjectsOfKind {
    /// Selects all objects of the kind in the namespace.
    pub(super) selection: WatchSelection,
    /// The manifests of these objects.
    pub(super) manifests: Vec<String>,
}

/// The tag of a version for one policy. No other policy chooses it.
pub(super) fn tag(policy: usize, version: u32) -> String {
    format!("p{policy:03}-{version}")
}

impl ImageObjects {
    /// Selects the ImageRepositories. There is one.
    pub(super) fn image_repositories(&self) -> WatchSelection {
        WatchSelection::of(API, "ImageRepository").within(&self.namespace)
    }

    /// All objects by kind. They can be deleted in this order.
    pub(super) fn by_kind(&self) -> [ObjectsOfKind; 4] {
        let automations = (0..self.automations).map(|part| self.automation(part));
        let policies = (0..self.policies).map(|policy| self.policy(policy));
        let image = json!({"interval": NEVER, "image": self.image});
        let git = json!({"interval": NEVER, "url": self.url, "ref": {"branch": "main"}});
        [
            self.of_kind(API, "ImageUpdateAutomation", automations.collect()),
            self.of_kind(API, "ImagePolicy", policies.collect()),
            self.of_kind(API, "ImageRepository", vec![self.object(NAME, &image)]),
            self.of_kind(SOURCE_API, "GitRepository", vec![self.object(NAME, &git)]),
        ]
    }

    fn of_kind(&self, version: &str, kind: &str, objects: Vec<Value>) -> ObjectsOfKind {
        let manifests = objects.into_iter().map(|mut object| {
            object["apiVersion"] = json!(version);
            object["kind"] = json!(kind);
            // JSON is also valid YAML.
            object.to_string()
        });
        let selection = WatchSelection::of(version, kind).within(&self.namespace);
        ObjectsOfKind { selection, manifests: manifests.collect() }
    }

    fn object(&self, name: &str, spec: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": self.namespace}, "spec": spec})
    }

    /// The number of the automation that writes the result of a policy.
    fn part(&self, policy: usize) -> usize {
        policy * self.automations / self.policies
    }

    fn policy(&self, policy: usize) -> Value {
        let pattern = format!("^p{policy:03}-(?P<version>[0-9]+)$");
        let filter = json!({"pattern": pattern, "extract": "$version"});
        let spec = json!({"imageRepositoryRef": {"name": NAME}, "filterTags": filter,
            "policy": {"numerical": {"order": "asc"}}});
        let mut object = self.object(&format!("p{policy:03}"), &spec);
        object["metadata"]["labels"] = json!({PART_LABEL: self.part(policy).to_string()});
        object
    }

    fn automation(&self, part: usize) -> Value {
        let author = json!({"name": "Bench", "email": "bench@example.com"});
        let spec = json!({"interval": NEVER, "sourceRef": {"kind": "GitRepository", "name": NAME},
            "policySelector": {"matchLabels": {PART_LABEL: part.to_string()}},
            "update": {"path": format!("./part-{part}"), "strategy": "Setters"},
            "git": {"commit": {"author": author}}});
        self.object(&format!("part-{part}"), &spec)
    }

    /// The path and content of all files in a version. Each file has the image of one policy.
    pub(super) fn files(&self, version: u32) -> Vec<(String, String)> {
        let file = |policy: usize| {
            let image = format!("{}:{}", self.image, tag(policy, version));
            let marker = json!({"$imagepolicy": format!("{}:p{policy:03}", self.namespace)});
            let text = format!(
                "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{policy:03}
spec:
  selector:
    matchLabels:
      app: app-{policy:03}
  template:
    metadata:
      labels:
        app: app-{policy:03}
    spec:
      containers:
        - name: main
          image: {image} # {marker}
"
            );
            (format!("part-{}/app-{policy:03}.yaml", self.part(policy)), text)
        };
        (0..self.policies).map(file).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn objects() -> ImageObjects {
        ImageObjects {
            namespace: "bench".to_owned(),
            image: "127.0.0.1:1/team/app".to_owned(),
            url: "http://127.0.0.1:2/bench.git".to_owned(),
            policies: 7,
            automations: 3,
        }
    }

    #[test]
    fn each_policy_belongs_to_one_automation_which_has_a_folder_with_its_files() {
        let objects = objects();
        let [automations, policies, images, sources] = objects.by_kind();
        let counts = [automations, policies, images, sources].map(|it| it.manifests.len());
        assert_eq!(counts, [3, 7, 1, 1]);
        let parts: Vec<usize> = (0..7).map(|policy| objects.part(policy)).collect();
        assert_eq!(parts, [0, 0, 0, 1, 1, 2, 2]);
        let mut folders = BTreeMap::<String, usize>::new();
        for (path, _) in objects.files(1) {
            let folder = path.split('/').next().unwrap().to_owned();
            *folders.entry(folder).or_default() += 1;
        }
        assert_eq!(folders.into_values().collect::<Vec<_>>(), [3, 2, 2]);
    }

    #[test]
    fn a_file_has_the_marker_of_its_policy_and_the_tag_of_its_version() {
        let (path, text) = objects().files(4).swap_remove(5);
        assert_eq!(path, "part-2/app-005.yaml");
        let line = text.lines().find(|line| line.contains("image:")).unwrap();
        assert_eq!(
            line.trim(),
            "image: 127.0.0.1:1/team/app:p005-4 # {\"$imagepolicy\":\"bench:p005\"}"
        );
    }
}
