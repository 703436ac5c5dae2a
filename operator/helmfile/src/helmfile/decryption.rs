//! Decrypts the encrypted files of a helmfile while its plan is made.
//!
//! Elsewhere: the keys of a spec (`kustomization::decryption`), asking services for data keys (`kustomization::key_services`),
//! which parts of a helmfile may be encrypted (engine `helmfile`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use crds::helmfile::HelmfileSpec;
use golang::work_meter::StopSignal;
use helmfile::SopsFileDecryptor;
use parking_lot::Mutex;
use reconcile::{NextRunTrigger, RunOutcome};
use sops::{Error, MacPolicy, SopsFormat};
use zeroize::Zeroizing;

use super::HELMFILE_ERROR;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::shared_build_parts::decryption::{
    BuildDecryptionKeys, mac_policy, revealed_in_file,
};
use windlass_runtime::shared_build_parts::key_services::KeyServiceAccess;
use windlass_runtime::time_limit::TimeLimit;
use windlass_serve::settings::OperatorSettings;

/// The message if no decryption is configured.
const NO_KEYS: &str = "it is encrypted with SOPS: set `spec.decryption` of a Helmfile of helmfile.windlass.dev, and name \
                       the Secret with the keys in `spec.decryption.secretRef`";

/// The advice if no key can decrypt the file.
const ADVICE: &str = "add a key that decrypts it to the Secret of `spec.decryption.secretRef`";

/// The most decrypted values of a plan. Each message is searched for each of these values, so that it does not show one.
const MOST_HIDDEN: usize = 20_000;

/// Files are nested less deeply than this needs.
const DECRYPTION_STACK_BYTES: usize = 16 << 20;

/// Reads the keys that a spec names; nothing when it asks for no decryption.
///
/// Parity(helmfile 1.8): unless the annotation says otherwise, the MAC of a file has to be right, as for sops and vals.
pub(super) async fn read(
    settings: &OperatorSettings,
    spec: &HelmfileSpec,
    namespace: &str,
    annotations: &BTreeMap<String, String>,
    references: &mut RunReferenceReads,
) -> Result<Option<Arc<BuildDecryptionKeys>>, RunOutcome> {
    let Some(spec) = &spec.decryption else { return Ok(None) };
    let mac = mac_policy(annotations, MacPolicy::Require)
        .map_err(|text| RunOutcome::Stalled(HELMFILE_ERROR, text))?;
    let read = BuildDecryptionKeys::with_keys(settings, spec, namespace, mac, references).await;
    let keys =
        read.map_err(|text| RunOutcome::Failed(HELMFILE_ERROR, text, NextRunTrigger::default()))?;
    Ok(Some(Arc::new(keys)))
}

/// The keys and services that decrypt files for a plan.
pub(super) struct PlanDecryption {
    pub(super) keys: Arc<BuildDecryptionKeys>,
    pub(super) services: KeyServiceAccess,
}

/// The result of planning, and the decrypted values.
type DecryptedPlan<T> = (T, Vec<Vec<u8>>);

type DataKeyResult = Result<Zeroizing<Vec<u8>>, String>;

/// A file to be decrypted.
struct DecryptionRequest {
    data: Vec<u8>,
    format: SopsFormat,
    answer: SyncSender<DataKeyResult>,
}

/// Sends files to the thread with the keys, which decrypts them.
struct RemoteThreadDecryptor(Mutex<Sender<DecryptionRequest>>);

impl SopsFileDecryptor for RemoteThreadDecryptor {
    fn decrypt(&self, data: &[u8], format: SopsFormat) -> DataKeyResult {
        let (answer, answered) = sync_channel(1);
        let question = DecryptionRequest { data: data.to_owned(), format, answer };
        let sent = self.0.lock().send(question);
        let answer = sent.ok().and_then(|()| answered.recv().ok());
        answer.unwrap_or_else(|| Err("decrypting it was interrupted".to_owned()))
    }
}

/// A decryptor without keys, which decrypts nothing.
struct KeylessDecryptor;

impl SopsFileDecryptor for KeylessDecryptor {
    fn decrypt(&self, _: &[u8], _: SopsFormat) -> DataKeyResult {
        Err(NO_KEYS.to_owned())
    }
}

/// Makes a plan with the decryption keys and services for it.
///
/// Logins and answers of services last as long as the plan is made, and the code that asks them borrows them. So the work has
/// a thread of its own. The finished plan may not keep keys or services.
///
/// # Errors
/// The thread cannot be started, or it panicked.
pub(super) fn during<T>(
    decrypting: Option<PlanDecryption>,
    stop: &StopSignal,
    time: &TimeLimit,
    plan: impl FnOnce(Arc<dyn SopsFileDecryptor>) -> T,
) -> Result<DecryptedPlan<T>, String> {
    let Some(PlanDecryption { keys, services }) = decrypting else {
        return Ok((plan(Arc::new(KeylessDecryptor)), Vec::new()));
    };
    let (ask, asked) = channel();
    let keys = &keys;
    let services = &services;
    std::thread::scope(move |scope| {
        let thread = std::thread::Builder::new()
            .name("decrypt".to_owned())
            .stack_size(DECRYPTION_STACK_BYTES);
        let answering =
            thread.spawn_scoped(scope, move || answer_all(keys, services, asked, stop, time));
        let answering = answering.map_err(|error| format!("failed to start a thread: {error}"))?;
        // The thread ends once the plan has dropped its sender.
        let planned = plan(Arc::new(RemoteThreadDecryptor(Mutex::new(ask))));
        let hidden = answering.join().map_err(|_| {
            "decrypting panicked; this is a bug in windlass, please report it".to_owned()
        })?;
        Ok((planned, hidden))
    })
}

/// Decrypts until the plan is made, and returns the decrypted values.
fn answer_all(
    keys: &BuildDecryptionKeys,
    services: &KeyServiceAccess,
    asked: Receiver<DecryptionRequest>,
    stop: &StopSignal,
    time: &TimeLimit,
) -> Vec<Vec<u8>> {
    let services = keys.services(services, time);
    let decryptor = keys.decryptor(&services, stop);
    let mut hidden = BTreeSet::new();
    for DecryptionRequest { data, format, answer } in asked {
        let plain = decryptor.decrypt(&data, format, format).map_err(|error| match error {
            Error::DataKey(_) => format!("{error}\n\n{ADVICE}"),
            other => other.to_string(),
        });
        if let Ok(plain) = &plain {
            hidden.extend(revealed_in_file(format, &data, plain));
        }
        let plain = plain.and_then(|plain| match hidden.len() > MOST_HIDDEN {
            true => Err(format!(
                "more than {MOST_HIDDEN} values are encrypted in files of the helmfile"
            )),
            false => Ok(plain),
        });
        // The plan may have been given up meanwhile.
        answer.send(plain).ok();
    }
    hidden.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_runtime::time_limit::TIME_LIMIT;

    /// What a plan gets for a file.
    fn answer(decrypting: Option<PlanDecryption>, data: &[u8]) -> DataKeyResult {
        let stop = StopSignal::default();
        let time = TimeLimit::start(TIME_LIMIT, &stop);
        let planned = during(decrypting, &stop, &time, |it| it.decrypt(data, SopsFormat::Yaml));
        let (answer, hidden) = planned.unwrap();
        assert_eq!(hidden, Vec::<Vec<u8>>::new());
        answer
    }

    #[test]
    fn without_keys_the_message_names_the_field() {
        let why = answer(None, b"a: 1\n").unwrap_err();
        assert!(why.contains("`spec.decryption.secretRef`"), "{why}");
    }

    #[test]
    fn a_file_is_decrypted_beside_the_plan_which_gets_the_reason_if_it_is_not() {
        let services = KeyServiceAccess::Refused("there are none");
        let keys = Arc::new(BuildDecryptionKeys::without_keys(MacPolicy::Require));
        let why = answer(Some(PlanDecryption { keys, services }), b"a: 1\n").unwrap_err();
        assert_eq!(why, "failed to load encrypted YAML data: sops metadata not found");
    }

    #[test]
    fn a_plan_that_panics_does_not_leave_the_thread_waiting() {
        let stop = StopSignal::default();
        let time = TimeLimit::start(TIME_LIMIT, &stop);
        let keys = Arc::new(BuildDecryptionKeys::without_keys(MacPolicy::Require));
        let services = KeyServiceAccess::Refused("there are none");
        let planned = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            during(Some(PlanDecryption { keys, services }), &stop, &time, |_| panic!("on purpose"))
        }));
        assert!(planned.is_err());
    }
}
