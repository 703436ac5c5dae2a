//! A bucket whose listing is wrong: an HTML page, an error, no objects, half of the objects, or half of the text. Also a
//! manifest that is replaced by an HTML page.
//!
//! Here: the bucket, and how windlass reacts. Elsewhere: how Flux reacts (`super::objects_lost_with_flux`), every request of
//! a fetch of every source (`super::wrong_fetch_answers`).

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::http_fault_proxy::HttpFaultProxy;
use e2e::response_fault::ResponseFault;
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use serde_json::json;

use super::{
    COUNT, ConfigMapUids, ROOT, await_deletion_held, ensure_nothing_is_lost, files, map, reconcile,
    uids, windlass,
};

/// The name of the bucket.
const NAME: &str = "app";

/// A text that is part of listing requests.
const LISTING: &str = "list-type=2";

/// How long the story waits for consequences of an answer.
pub(super) const CONSEQUENCES: Duration = Duration::from_secs(3);

/// The objects that are applied from a bucket, all of them Ready.
pub(super) struct BucketListingDisasterSetup<'s> {
    story: &'s Story,
    server: S3Server,
    /// The proxy between the bucket and the program that fetches.
    faults: HttpFaultProxy,
    /// The value in the manifest that changes.
    changes: Cell<usize>,
    /// The objects.
    pub(super) before: ConfigMapUids,
}

/// The name and kind of the Bucket whose listings are wrong.
pub(super) fn bucket() -> StoryObject {
    StoryObject::new("source.toolkit.fluxcd.io/v1", "Bucket", NAME)
}

impl<'s> BucketListingDisasterSetup<'s> {
    /// Lets the operator in the story's namespace apply everything.
    pub(super) async fn set(story: &'s Story) -> Result<Self> {
        let server = S3Server::start().await?;
        server.bucket(NAME).await?;
        for (key, text) in files("") {
            server.put(NAME, &key, text).await?;
        }
        let faults = HttpFaultProxy::start(server.endpoint().parse()?).await?;
        let data = json!({"accesskey": ACCESS, "secretkey": SECRET});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "stringData": data});
        story.apply_value(secret).await?;
        let spec = json!({"interval": NEVER, "endpoint": faults.address().to_string(),
            "bucketName": NAME, "insecure": true, "secretRef": {"name": NAME}});
        let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "Bucket",
            "metadata": {"name": NAME}, "spec": spec});
        story.apply_value(object).await?;
        let source = json!({"sourceRef": {"kind": "Bucket", "name": NAME}});
        story.kustomization(ROOT, NAME, source).await?;
        story.await_ready(&StoryObject::kustomization(ROOT)).await?;
        let before = uids(story, &story.namespace).await?;
        ensure!(before.len() == COUNT, "{before:?}");
        Ok(Self { story, server, faults, changes: Cell::new(1), before })
    }

    /// Requests a listing that gets a wrong answer. Returns after the wrong answer was given.
    pub(super) async fn list_wrongly(&self, fault: ResponseFault) -> Result<()> {
        self.faults.answer_containing(LISTING, fault);
        self.story.request(&bucket()).await?;
        self.await_given(fault).await
    }

    /// Changes a manifest whose download gets a wrong answer. Returns after the wrong answer was given.
    pub(super) async fn download_wrongly(&self, fault: ResponseFault) -> Result<()> {
        let key = format!("{}.yaml", map(0));
        self.changes.set(self.changes.get() + 1);
        self.server.put(NAME, &key, config_map(&map(0), &self.changes.get().to_string())).await?;
        self.faults.answer_containing(&format!("GET /{NAME}/{key}"), fault);
        self.story.request(&bucket()).await?;
        self.await_given(fault).await
    }

    async fn await_given(&self, fault: ResponseFault) -> Result<()> {
        let is_given = async || Ok((self.faults.given() > 0).then_some(()));
        let what = format!("the answer {fault:?} to be given");
        self.story.await_until(&what, DEFAULT_WAIT_TIMEOUT, is_given).await
    }

    /// Gives right answers again, and waits until everything is applied.
    pub(super) async fn heal(&mut self) -> Result<()> {
        self.faults.heal();
        reconcile(self.story, &bucket()).await?;
        self.story.await_value(&map(0), &self.changes.get().to_string()).await?;
        let are_there = async || {
            let now = uids(self.story, &self.story.namespace).await?;
            Ok((now.len() == COUNT).then_some(now))
        };
        let what = "all objects to be there";
        self.before = self.story.await_until(what, DEFAULT_WAIT_TIMEOUT, are_there).await?;
        self.story.await_ready(&StoryObject::kustomization(ROOT)).await.map(drop)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_whose_listing_is_wrong_loses_no_object() -> Result<()> {
    let story = Story::begin("lost-listing").await?;
    let (proxy, _windlass) = windlass(&story).await?;
    let mut stage = BucketListingDisasterSetup::set(&story).await?;
    let first = stage.before.clone();
    for fault in ResponseFault::ALL {
        stage.list_wrongly(fault).await?;
        match fault {
            // A real bucket may have this content.
            ResponseFault::EmptyList | ResponseFault::WithoutLastPage => {
                await_deletion_held(&story, ROOT).await?;
            }
            ResponseFault::Status(_)
            | ResponseFault::HtmlPage
            | ResponseFault::EmptyBody
            | ResponseFault::Truncated => {
                tokio::time::sleep(CONSEQUENCES).await;
                ensure!(story.plans().await?.is_empty(), "{fault:?} was taken for a listing");
            }
        }
        ensure_nothing_is_lost(&story, &proxy, &story.namespace, &first).await?;
        stage.heal().await?;
        story.await_not_held(ROOT).await?;
        ensure_nothing_is_lost(&story, &proxy, &story.namespace, &first).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_for_browsers_in_place_of_a_manifest_loses_no_object() -> Result<()> {
    let story = Story::begin("lost-html").await?;
    let (proxy, _windlass) = windlass(&story).await?;
    let mut stage = BucketListingDisasterSetup::set(&story).await?;
    let first = stage.before.clone();
    for fault in [ResponseFault::HtmlPage, ResponseFault::EmptyBody, ResponseFault::Truncated] {
        stage.download_wrongly(fault).await?;
        tokio::time::sleep(CONSEQUENCES).await;
        ensure_nothing_is_lost(&story, &proxy, &story.namespace, &first).await?;
        stage.heal().await?;
        ensure_nothing_is_lost(&story, &proxy, &story.namespace, &first).await?;
    }
    story.end().await
}
