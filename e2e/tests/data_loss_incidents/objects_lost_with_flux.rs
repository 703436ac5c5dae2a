//! The same incidents with the real controllers of Flux. The lost objects match the table in `docs/deletion-budget.md`.
//!
//! If a story fails after an update of Flux, the table has to change, too. Here: the lost objects. Elsewhere: the incidents
//! (`super::commits_removing_objects`, `super::wrong_bucket_listings`, `super::missing_secrets`), starting the controllers
//! (`e2e::harness`).

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use e2e::response_fault::ResponseFault;
use kube::api::DynamicObject;

use super::commits_removing_objects::{CommitDisaster, CommitDisasterSetup};
use super::missing_secrets::MissingSecretDisasterSetup;
use super::wrong_bucket_listings::{BucketListingDisasterSetup, CONSEQUENCES, bucket};
use super::{COUNT, ConfigMapUids, lost};

/// Waits until the expected number of objects is lost, and checks that no more are lost afterwards.
async fn await_lost(
    story: &Story,
    place: &str,
    before: &ConfigMapUids,
    expected: usize,
) -> Result<()> {
    let what = format!("{expected} of {} objects to be lost", before.len());
    let are_lost = async || Ok((lost(story, place, before).await?.len() >= expected).then_some(()));
    story.await_until(&what, DEFAULT_WAIT_TIMEOUT, are_lost).await?;
    tokio::time::sleep(CONSEQUENCES).await;
    let lost = lost(story, place, before).await?;
    ensure!(lost.len() == expected, "{lost:?} are lost and not {expected}");
    Ok(())
}

async fn await_fetch_failed(story: &Story) -> Result<()> {
    let has_failed = |object: &DynamicObject| condition(object, "FetchFailed")["status"] == "True";
    story.await_object(&bucket(), DEFAULT_WAIT_TIMEOUT, has_failed).await.map(drop)
}

async fn ensure_none_is_lost(story: &Story, before: &ConfigMapUids) -> Result<()> {
    tokio::time::sleep(CONSEQUENCES).await;
    let lost = lost(story, &story.namespace, before).await?;
    ensure!(lost.is_empty(), "Flux lost {lost:?}, of which the page says that they stay");
    Ok(())
}

/// Pushes a disastrous commit that costs `expected` objects.
async fn loses(name: &str, disaster: CommitDisaster, expected: usize) -> Result<()> {
    let story = Story::begin(name).await?;
    let _flux = story.flux_controllers(&[]).await?;
    let stage = CommitDisasterSetup::set(&story, disaster).await?;
    stage.happen().await?;
    await_lost(&story, &stage.place, &stage.before, expected).await?;
    stage.clear().await;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_deletes_the_objects_of_a_kustomization_that_is_renamed() -> Result<()> {
    let story = Story::begin("flux-renamed").await?;
    let _flux = story.flux_controllers(&[]).await?;
    let stage = CommitDisasterSetup::set(&story, CommitDisaster::RenamedKustomization).await?;
    stage.happen().await?;
    story.await_gone(&StoryObject::kustomization("apps"), DEFAULT_WAIT_TIMEOUT).await?;
    // The objects stay that the other Kustomization applied before the old one was deleted.
    let lost = lost(&story, &stage.place, &stage.before).await?;
    ensure!(!lost.is_empty(), "Flux lost none of them");
    stage.clear().await;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_deletes_all_objects_of_an_emptied_folder() -> Result<()> {
    loses("flux-emptied", CommitDisaster::EmptiedFolder, COUNT).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_deletes_a_removed_namespace_with_what_others_have_in_it() -> Result<()> {
    // The object that a user created is among the lost ones.
    loses("flux-namespace", CommitDisaster::RemovedNamespace, COUNT + 1).await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_takes_a_page_for_browsers_for_a_bucket_without_objects() -> Result<()> {
    let story = Story::begin("flux-listing").await?;
    let _flux = story.flux_controllers(&[]).await?;
    let mut stage = BucketListingDisasterSetup::set(&story).await?;
    for fault in ResponseFault::ALL {
        stage.list_wrongly(fault).await?;
        let expected = match fault {
            // Flux's parser ignores unknown elements.
            ResponseFault::HtmlPage | ResponseFault::EmptyList => COUNT,
            ResponseFault::WithoutLastPage => COUNT - COUNT / 2,
            ResponseFault::Status(_) | ResponseFault::EmptyBody | ResponseFault::Truncated => 0,
        };
        if expected == 0 {
            await_fetch_failed(&story).await?;
            ensure_none_is_lost(&story, &stage.before).await?;
        } else {
            await_lost(&story, &story.namespace, &stage.before, expected).await?;
        }
        stage.heal().await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_takes_nothing_in_the_place_of_a_manifest() -> Result<()> {
    let story = Story::begin("flux-download").await?;
    let _flux = story.flux_controllers(&[]).await?;
    let mut stage = BucketListingDisasterSetup::set(&story).await?;
    for fault in [ResponseFault::HtmlPage, ResponseFault::EmptyBody, ResponseFault::Truncated] {
        stage.download_wrongly(fault).await?;
        await_fetch_failed(&story).await?;
        ensure_none_is_lost(&story, &stage.before).await?;
        stage.heal().await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn flux_keeps_the_objects_of_a_secret_that_vanished() -> Result<()> {
    let story = Story::begin("flux-secret").await?;
    let _flux = story.flux_controllers(&[]).await?;
    let stage = MissingSecretDisasterSetup::set(&story).await?;
    stage.happen().await?;
    ensure_none_is_lost(&story, &stage.before).await?;
    stage.heal().await?;
    story.end().await
}
