//! Merges values files of a chart into one file that replaces its `values.yaml`.

use serde_json::{Map, Value};

/// A values file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The file does not exist.
    #[error(
        "no values file found at path '{0}'; create it, correct spec.valuesFiles or set spec.ignoreMissingValuesFiles"
    )]
    Missing(String),
    /// The file is not YAML.
    #[error("unmarshaling values from '{path}' failed: {why}")]
    Unread {
        /// The path of the file.
        path: String,
        /// Why.
        why: String,
    },
    /// The chart has no values that could be replaced.
    #[error("failed to locate values file: values.yaml")]
    NoDefaults,
    /// The merged values cannot be written.
    #[error("cannot serialize the merged values: {0}")]
    Unwritten(String),
}

/// The result of merging the values files of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergedValues {
    /// The merged values as text. Empty if there are none.
    pub text: String,
    /// The names of the existing files, as the source names them.
    pub files: Vec<String>,
}

/// Merges files; later files override earlier ones. `read` returns `None` for a file that does not exist.
///
/// # Errors
/// [`Error`]. The error repeats no value, since a value may be a secret.
pub fn merge(
    paths: &[String],
    ignore_missing: bool,
    mut read: impl FnMut(&str) -> Option<Vec<u8>>,
) -> Result<MergedValues, Error> {
    let mut merged = Map::new();
    let mut files = Vec::new();
    for path in paths {
        let Some(text) = read(path) else {
            if ignore_missing {
                continue;
            }
            return Err(Error::Missing(path.clone()));
        };
        let unread = |why: String| Error::Unread { path: path.clone(), why };
        match goyaml::to_json(&text).map_err(|error| unread(error.to_string()))? {
            Value::Null => {}
            Value::Object(table) => put(&mut merged, table),
            _ => return Err(unread("it is not a map".to_owned())),
        }
        files.push(path.clone());
    }
    let text = if merged.is_empty() {
        String::new()
    } else {
        let unwritten = |error: goyaml::YamlEmitError| Error::Unwritten(error.to_string());
        goyaml::emit(&Value::Object(merged)).map_err(unwritten)?
    };
    Ok(MergedValues { text, files })
}

/// Merges a table over another. The depth is that of the YAML, which is limited.
fn put(under: &mut Map<String, Value>, above: Map<String, Value>) {
    for (key, value) in above {
        match (under.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => put(below, above),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(paths: &[&str], ignore: bool) -> Result<MergedValues, Error> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        merge(&paths, ignore, |path| {
            let text = match path {
                "a" => "x: {a: 1, b: [1]}\nw: 1.50\n",
                "b" => "x: {b: [2], c: null}\nz: yes\n",
                "empty" => "",
                "list" => "[1]",
                "broken" => "{",
                _ => return None,
            };
            Some(text.as_bytes().to_vec())
        })
    }

    #[test]
    fn later_files_win_and_tables_are_put_together() {
        let found = merged(&["a", "empty", "b", "none"], true).unwrap();
        assert_eq!(found.files, ["a", "empty", "b"]);
        assert_eq!(found.text, "w: 1.5\nx:\n  a: 1\n  b:\n  - 2\n  c: null\nz: true\n");
        assert_eq!(
            merged(&["none"], true).unwrap(),
            MergedValues { text: String::new(), files: vec![] }
        );
    }

    #[test]
    fn what_is_missing_or_no_table_is_named() {
        for (path, begins) in [
            ("none", "no values file found at path 'none'"),
            ("list", "unmarshaling values from 'list' failed: it is not a map"),
            ("broken", "unmarshaling values from 'broken' failed: "),
        ] {
            let error = merged(&["a", path], false).unwrap_err().to_string();
            assert!(error.starts_with(begins), "{error}");
        }
    }
}
