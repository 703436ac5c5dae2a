//! Every kind has a sample in `config/samples`, in a file that is named for it, such as `bucket.yaml` and `bucket-gcp.yaml`.
//!
//! Elsewhere: that samples say nothing that the types do not know (`manifests.rs`).

use std::collections::BTreeSet;

#[test]
fn the_samples_are_those_of_our_kinds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/samples");
    let entries = std::fs::read_dir(folder).expect("there are samples");
    let of_files: BTreeSet<String> = entries
        .map(|entry| {
            let path = entry.expect("the folder can be read").path();
            let name = path.file_stem().expect("a file has a name").to_string_lossy();
            name.split('-').next().unwrap_or_default().to_owned()
        })
        .collect();
    let kinds: BTreeSet<String> =
        crds::all().iter().map(|(_, crd)| crd.spec.names.kind.to_lowercase()).collect();
    assert_eq!(of_files, kinds);
}
