//! Puts the admission policies of windlass into force in the namespace of a story.
//!
//! Elsewhere: tests of what the policies refuse (the stories).

use anyhow::Result;
use serde_json::{Value, json};

use super::flux_objects::DEFAULT_WAIT_TIMEOUT;
use super::{Story, StoryObject};

impl Story {
    /// Creates a policy and its binding from a manifest of `deploy/policies`, for the namespace of the story only. The objects
    /// are cluster-scoped, so the story has to delete the returned objects at its end. The policy comes into force some time
    /// later ([`await_refusal`](Self::await_refusal)).
    ///
    /// # Errors
    /// The API server refuses the request.
    pub async fn enforce(&self, manifest: &str) -> Result<Vec<StoryObject>> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(manifest)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut made = Vec::new();
        for mut document in documents {
            let name = format!("{}-{}", text(&document["metadata"]["name"]), self.namespace);
            document["metadata"]["name"] = name.as_str().into();
            if document["kind"] == "ValidatingAdmissionPolicyBinding" {
                document["spec"]["policyName"] = name.as_str().into();
                let labels = json!({"kubernetes.io/metadata.name": self.namespace});
                document["spec"]["matchResources"] =
                    json!({"namespaceSelector": {"matchLabels": labels}});
            }
            let [api_version, kind] = [&document["apiVersion"], &document["kind"]].map(text);
            made.push(StoryObject::new(&api_version, &kind, &name));
            self.apply_value(document).await?;
        }
        Ok(made)
    }

    /// Waits until the API server refuses a request with an error that contains a text. The request is repeated, so it has to
    /// be a dry-run.
    ///
    /// # Errors
    /// The API server accepts the request, or refuses it for another reason.
    pub async fn await_refusal<T>(
        &self,
        words: &str,
        request: impl AsyncFn() -> Result<T, kube::Error>,
    ) -> Result<()> {
        let what = format!("a request to be refused: {words}");
        self.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || match request().await {
            Ok(_) => Ok(None),
            Err(error) if error.to_string().contains(words) => Ok(Some(())),
            Err(error) => Err(error.into()),
        })
        .await
    }
}
