//! Finds the release of a Helmfile that a user names.
//!
//! Elsewhere: suspending and resuming a release (`cli`).

use anyhow::bail;
use objects::Object;
use reconcile::object_dependency;
use serde_json::Value;

/// The status row of a Helmfile's release. `None` if the object has no releases and the user named none.
///
/// # Errors
/// There is no such release, or the name matches several. The error names the releases of the Helmfile.
pub fn row<'r>(
    object: &Object,
    rows: &'r [Value],
    release: Option<&str>,
) -> anyhow::Result<Option<&'r Value>> {
    let all = || {
        rows.iter().map(|it| (it, ["kubeContext", "namespace", "name"].map(|key| text(it, key))))
    };
    let names = |found: &[(&Value, String)]| {
        found.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>().join(", ")
    };
    let named = |name: &str| object_dependency::releases(name, all());
    // Each release is named by its shortest unique name.
    let every = || {
        let short = |(it, [_, _, name]): (&'r Value, [&'r str; 3])| match named(name).as_slice() {
            [_] => (it, name.to_owned()),
            several => {
                let full = several.iter().find(|(other, _)| std::ptr::eq(*other, it));
                (it, full.map(|(_, full)| full.clone()).unwrap_or_default())
            }
        };
        all().map(short).collect::<Vec<_>>()
    };
    let Some(name) = release else {
        if rows.len() > 1 {
            bail!("name one of its releases with --release: {}", names(&every()));
        }
        return Ok(rows.first());
    };
    match named(name).as_slice() {
        [] => bail!("{} has no release {name}: it has {}", object.id().subject(), names(&every())),
        [(row, _)] => Ok(Some(*row)),
        several => bail!(
            "{} has several releases {name}: name one of {} with --release",
            object.id().subject(),
            names(several)
        ),
    }
}

fn text<'v>(entry: &'v Value, key: &str) -> &'v str {
    entry[key].as_str().unwrap_or_default()
}
