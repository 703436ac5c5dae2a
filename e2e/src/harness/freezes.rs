//! The functions with which stories freeze their namespace, bypass a Freeze, and enforce the admission policies of windlass.
//!
//! Elsewhere: the Kustomizations that apply objects (`flux`).

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::{Freeze, FreezeBypass, FreezeBypassSubject};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use super::{Story, StoryObject};

/// The API version of Freezes.
const API: &str = "release.windlass.dev/v1alpha1";

/// The name of the ConfigMap with the calendar of a story.
const CALENDAR: &str = "calendar";

/// An iCalendar file with one event of whole days in UTC. The event begins `from` days after today and ends before the day that
/// is `to` days after today.
///
/// # Errors
/// There are no such days.
pub fn calendar_of_days(from: i64, to: i64) -> Result<String> {
    let day = |days: i64| {
        let at = Timestamp::now().checked_add(SignedDuration::from_hours(24 * days))?;
        anyhow::Ok(at.strftime("%Y%m%d").to_string())
    };
    Ok(format!(
        "BEGIN:VCALENDAR\nVERSION:2.0\nBEGIN:VEVENT\nUID:1\nDTSTART;VALUE=DATE:{}\nDTEND;VALUE=DATE:{}\nEND:VEVENT\n\
         END:VCALENDAR\n",
        day(from)?,
        day(to)?
    ))
}

impl Story {
    /// Creates a Freeze for the namespace of the story. The Freeze has the name of the namespace, and `more` is merged into its
    /// spec. It is cluster-scoped, so the story has to delete it at its end.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn freeze(&self, more: Value) -> Result<StoryObject> {
        let labels = json!({"kubernetes.io/metadata.name": self.namespace});
        let mut spec =
            json!({"reason": "the sales week", "namespaceSelector": {"matchLabels": labels}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let object = json!({"apiVersion": API, "kind": "Freeze",
            "metadata": {"name": self.namespace}, "spec": spec});
        self.apply_value(object).await?;
        Ok(StoryObject::of::<Freeze>(&self.namespace))
    }

    /// Creates a Freeze for the namespace of the story. It is active during the events of [`Story::write_calendar`].
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn freeze_by_calendar(&self) -> Result<StoryObject> {
        let reference = json!({"name": CALENDAR, "namespace": self.namespace, "key": "a.ics"});
        self.freeze(json!({"calendar": {"configMapRef": reference}})).await
    }

    /// Writes the calendar for the Freeze of the story. windlass reads it within a minute.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn write_calendar(&self, text: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": CALENDAR}, "data": {"a.ics": text}});
        self.apply_value(object).await.map(drop)
    }

    /// Bypasses the Freeze of the story as the administrator of the test bed. Returns the output of the command.
    ///
    /// # Errors
    /// The command fails.
    pub fn bypass(&self, what: &str) -> Result<String> {
        let freeze = format!("freeze/{}", self.namespace);
        let place = ["-n", self.namespace.as_str(), "--reason", "incident-1234"];
        let line: Vec<&str> = ["bypass", freeze.as_str(), what].into_iter().chain(place).collect();
        self.windlass_says(&line, true)
    }

    /// Gives a user rights in the cluster. The name of the user begins with the namespace of the story. Returns the objects that
    /// the story has to delete at its end.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn cluster_user(&self, name: &str, rules: Value) -> Result<[StoryObject; 2]> {
        let full = format!("{}-{name}", self.namespace);
        let group = "rbac.authorization.k8s.io";
        let api = format!("{group}/v1");
        let role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": full},
            "rules": rules});
        self.apply_value(role).await?;
        let subject = json!({"apiGroup": group, "kind": "User", "name": full});
        let of = json!({"apiGroup": group, "kind": "ClusterRole", "name": full});
        let binding = json!({"apiVersion": api, "kind": "ClusterRoleBinding",
            "metadata": {"name": full}, "subjects": [subject], "roleRef": of});
        self.apply_value(binding).await?;
        Ok(["ClusterRoleBinding", "ClusterRole"].map(|kind| StoryObject::new(&api, kind, &full)))
    }

    /// Creates the users `bob` and `alice` of [`Story::bypass_as`]. Both may create FreezeBypasses, and only `alice` has the
    /// verb `bypass` on the Freeze of the story. Returns the objects that the story has to delete at its end.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn bypass_users(&self) -> Result<Vec<StoryObject>> {
        let read = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]});
        let create = json!({"apiGroups": ["release.windlass.dev"], "resources": ["freezebypasses"],
            "verbs": ["create"]});
        let bypass = json!({"apiGroups": ["release.windlass.dev"], "resources": ["freezes"],
            "resourceNames": [self.namespace], "verbs": ["bypass"]});
        let mut made = Vec::new();
        made.extend(self.cluster_user("bob", json!([read, create])).await?);
        made.extend(self.cluster_user("alice", json!([read, create, bypass])).await?);
        Ok(made)
    }

    /// Bypasses the Freeze of the story for an object, as a user of [`Story::bypass_users`]. Returns the output of the command.
    ///
    /// # Errors
    /// The command fails or succeeds unexpectedly.
    pub fn bypass_as(&self, user: &str, what: &str, is_success: bool) -> Result<String> {
        let freeze = format!("freeze/{}", self.namespace);
        let user = format!("--as={}-{user}", self.namespace);
        let place = ["-n", self.namespace.as_str(), "--reason", "a security fix", user.as_str()];
        let line: Vec<&str> = ["bypass", freeze.as_str(), what].into_iter().chain(place).collect();
        self.windlass_says(&line, is_success)
    }

    /// Creates the ServiceAccount `robot`, which is a cluster administrator. Returns a client for it, and the object that the
    /// story has to delete at its end.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn robot(&self) -> Result<(Client, StoryObject)> {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
        self.apply_value(account).await?;
        let kubeconfig = self.bed.account_kubeconfig(&self.namespace, "robot").await?;
        let group = "rbac.authorization.k8s.io";
        let api = format!("{group}/v1");
        let name = format!("{}-robot", self.namespace);
        let subject =
            json!({"kind": "ServiceAccount", "name": "robot", "namespace": self.namespace});
        let of = json!({"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"});
        self.apply_value(json!({"apiVersion": api, "kind": "ClusterRoleBinding",
            "metadata": {"name": name}, "subjects": [subject], "roleRef": of}))
            .await?;
        let binding = StoryObject::new(&api, "ClusterRoleBinding", &name);
        Ok((crate::control_plane::client(&kubeconfig).await?, binding))
    }

    /// Checks that nothing but the right bypasses the Freeze of the story for an object. `bob` of [`Story::bypass_users`] lacks
    /// the verb `bypass`. `robot` is the client of [`Story::robot`]: windlass applies commits as a ServiceAccount, and no
    /// ServiceAccount may create a FreezeBypass.
    ///
    /// # Errors
    /// A FreezeBypass is created, or refused for another reason.
    pub async fn refuse_bypasses(&self, robot: &Client, target: &StoryObject) -> Result<()> {
        let object = self.expect(target).await?;
        let types = object.types.clone().context("it has a kind")?;
        let what = format!("{}/{}", types.kind, object.name_any()).to_lowercase();
        let refused = self.bypass_as("bob", &what, false)?;
        ensure!(refused.contains("requires the verb `bypass`"), "{what}: {refused}");

        // The same FreezeBypass, as if a commit contained it.
        let freeze = self.expect(&StoryObject::of::<Freeze>(&self.namespace)).await?;
        let (group, _) = types.api_version.split_once('/').context("it has a group")?;
        let subject = FreezeBypassSubject {
            group: group.to_owned(),
            kind: types.kind.clone(),
            name: object.name_any(),
            uid: object.uid().context("it has a uid")?,
            generation: object.metadata.generation.unwrap_or_default(),
        };
        let api = Api::<FreezeBypass>::namespaced(robot.clone(), &self.namespace);
        let own = format!("system:serviceaccount:{}:robot", self.namespace);
        for user in [format!("{}-alice", self.namespace), own] {
            let mut bypass = self.forged_bypass("from-git", &user)?;
            bypass.spec.freeze.uid = freeze.uid().context("it has a uid")?;
            bypass.spec.subject.clone_from(&subject);
            let refused = api.create(&PostParams::default(), &bypass).await;
            let refused = refused.err().context("it was created")?.to_string();
            let reason = "ServiceAccounts cannot go past a Freeze";
            ensure!(refused.contains(reason), "{what} for {user}: {refused}");
        }
        Ok(())
    }

    /// The FreezeBypasses in the namespace of the story.
    ///
    /// # Errors
    /// The objects cannot be listed.
    pub async fn bypasses(&self) -> Result<Vec<FreezeBypass>> {
        let api = Api::<FreezeBypass>::namespaced(self.client.clone(), &self.namespace);
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Makes a FreezeBypass that names a user and the Freeze of the story. The Freeze and the subject do not have to exist.
    ///
    /// # Errors
    /// The FreezeBypass cannot be made.
    pub fn forged_bypass(&self, name: &str, user: &str) -> Result<FreezeBypass> {
        let subject = json!({"group": "g", "kind": "K", "name": "n", "uid": "u", "generation": 1});
        let spec = json!({"freeze": {"name": self.namespace, "uid": "u"}, "subject": subject,
            "revision": "r", "reason": "r", "user": user, "expires": "2027-01-01T00:00:00Z"});
        let object = json!({"apiVersion": API, "kind": "FreezeBypass",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": spec});
        serde_json::from_value(object).context("a FreezeBypass")
    }

    /// Enforces the admission policy for Freezes in the namespace of the story, and waits until it is in force. The story has
    /// to delete the returned objects at its end.
    ///
    /// # Errors
    /// The API server refuses the policy, or the policy does not come into force.
    pub async fn enforce_freezes(&self) -> Result<Vec<StoryObject>> {
        let policies = include_str!("../../../deploy/policies/freezes.yaml");
        let made = self.enforce(policies).await?;
        let api = Api::<FreezeBypass>::namespaced(self.client.clone(), &self.namespace);
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let forged = self.forged_bypass("forged", "another-user")?;
        let request = async || api.create(&dry_run, &forged).await;
        self.await_refusal("for themselves only", request).await?;
        Ok(made)
    }

    /// Enforces the admission policy for `windlass.dev/skip-order` in the namespace of the story. It may come into force later.
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn enforce_skip_order(&self) -> Result<Vec<StoryObject>> {
        let made = self.enforce(include_str!("../../../deploy/policies/skip-order.yaml")).await?;
        Ok(made)
    }
}
