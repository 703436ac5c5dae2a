//! Post-build substitution: the sources of variables, and the objects in which they are replaced.
//!
//! Source: fluxcd/pkg/kustomize 1.44 and kustomize-controller 1.9. Elsewhere: expressions (`envsubst`).

use std::collections::{BTreeMap, BTreeSet};

use crds::ConfigKind;
use crds::kustomize::{Kustomization, PostBuild, SubstituteStrategy};
use envsubst::{
    InvalidVariableName, SubstitutionLimits, SubstitutionVariables, UnsetVariablePolicy,
};
use kube_core::ResourceExt as _;
use objects::{Object, SecretMasking};
use parking_lot::Mutex;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use sha2::{Digest as _, Sha256};

use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::shared_build_parts::decryption::described;
use windlass_serve::settings::OperatorSettings;

/// The label or annotation that excludes an object from substitution, with the value `disabled`.
const SWITCH: &str = "kustomize.toolkit.fluxcd.io/substitute";

/// The value of all variables in a build that shows what depends on variables.
const PLACEHOLDER_VALUE: &[u8] = b"windlass-value-of-a-variable";

/// The variables that are substituted in the objects of a build.
pub(crate) struct PostBuildSubstitution {
    variables: SubstitutionVariables,
    invalid: Option<InvalidVariableName>,
    unset: UnsetVariablePolicy,
    is_always: bool,
    /// Values that no status, event or log may show.
    pub(super) secrets: SecretMasking,
    has_secrets: bool,
    /// The digest of all variables on which a build depends.
    pub(super) digest: String,
    /// The variables without a value, if some sources are not known. Their expressions stay in the text.
    unknown: Option<Mutex<BTreeSet<String>>>,
}

impl PostBuildSubstitution {
    /// Reads the objects that a spec names for substitution. It reads none if the spec asks for no substitution.
    pub(super) async fn read(
        settings: &OperatorSettings,
        object: &Kustomization,
        references: &mut RunReferenceReads,
    ) -> Result<Option<Self>, RunOutcome> {
        let Some(spec) = &object.spec.post_build else { return Ok(None) };
        let namespace = object.namespace().unwrap_or_default();
        let mut gathered = SubstitutionInputs::default();
        for source in &spec.substitute_from {
            let kind = source.kind;
            let name = &source.name;
            let failed = |why: String| {
                let text = format!("substitute from '{kind}/{name}' error: {why}");
                RunOutcome::Failed(condition_reason::BUILD_FAILED, text, NextRunTrigger::default())
            };
            let is_there = match kind {
                ConfigKind::ConfigMap => {
                    let found = references.config_map(&namespace, name).await;
                    let found = found.map_err(|error| failed(error.to_string()))?;
                    found.map(|data| gathered.add_strings(data))
                }
                ConfigKind::Secret => {
                    let found = references.secret(&namespace, name).await;
                    let found = found.map_err(|error| failed(error.to_string()))?;
                    found.map(|data| gathered.add_secrets(data))
                }
            };
            if is_there.is_none() && !references.is_complete() {
                gathered.is_incomplete = true;
            } else if is_there.is_none() && !source.optional {
                let advice = "create it, or set `optional: true` in spec.postBuild.substituteFrom";
                return Err(failed(format!("not found; {advice}")));
            }
        }
        Ok(Some(gathered.finish(spec, settings.strict_substitutions())))
    }

    /// The same variables, all with a placeholder as their value.
    pub(super) fn without_values(self) -> Self {
        Self { variables: self.variables.with_value(PLACEHOLDER_VALUE), ..self }
    }

    /// Substitutes the variables in an object.
    ///
    /// `is_secret` says that the object itself was decrypted.
    ///
    /// # Errors
    /// The reason why the object cannot be built, in Flux's words. It contains no value of a Secret.
    pub(super) fn apply(&self, object: Object, is_secret: bool) -> Result<Object, String> {
        let is_off = |said: Option<&str>| said == Some("disabled");
        if is_off(object.label(SWITCH)) || is_off(object.annotation(SWITCH)) {
            return Ok(object);
        }
        let has_variables =
            !self.variables.is_empty() || self.invalid.is_some() || self.unknown.is_some();
        if !has_variables && !self.is_always {
            return Ok(object);
        }
        let what = described(&object);
        self.substitute(object, is_secret)
            .map_err(|why| format!("post build failed for '{what}': envsubst error: {why}"))
    }

    fn substitute(&self, object: Object, is_secret: bool) -> Result<Object, String> {
        if let Some(invalid) = &self.invalid {
            return Err(invalid.to_string());
        }
        let text = goyaml::emit(&object.into_value()).map_err(|error| error.to_string())?;
        let unknown = self.unknown_of(text.as_bytes())?;
        let lookup =
            |name: &str| self.variables.get(name).or_else(|| Some(unknown.get(name)?.as_bytes()));
        let done = envsubst::substitute(
            text.as_bytes(),
            lookup,
            self.unset,
            SubstitutionLimits::default(),
        );
        let done = done.map_err(|error| format!("variable substitution failed: {error}"))?;
        let value = goyaml::to_json(&done).map_err(|error| {
            let line = error.line().map(|line| format!("line {line}: ")).unwrap_or_default();
            // The invalid YAML may contain a part of a value.
            let problem = match self.has_secrets || is_secret {
                true => "the result is not valid YAML",
                false => error.problem(),
            };
            format!("YAMLToJSON: yaml: {line}{problem}")
        })?;
        Object::new(value).map_err(|error| format!("UnmarshalJSON: {error}"))
    }

    /// The variables of a manifest without a known value, each with its expression in the text.
    ///
    /// # Errors
    /// The text names the invalid expression.
    fn unknown_of(&self, text: &[u8]) -> Result<BTreeMap<String, String>, String> {
        let Some(unknown) = &self.unknown else { return Ok(BTreeMap::new()) };
        let asked = Mutex::new(BTreeSet::new());
        let lookup = |name: &str| {
            let value = self.variables.get(name);
            if value.is_none() {
                asked.lock().insert(name.to_owned());
            }
            value
        };
        let limits = SubstitutionLimits::default();
        envsubst::substitute(text, lookup, UnsetVariablePolicy::Empty, limits)
            .map_err(|error| format!("variable substitution failed: {error}"))?;
        let asked = asked.into_inner();
        unknown.lock().extend(asked.iter().cloned());
        Ok(asked.into_iter().map(|name| (name.clone(), format!("${{{name}}}"))).collect())
    }

    /// The variables that manifests named so far, and whose values are not known.
    pub(super) fn unknown(&self) -> BTreeSet<String> {
        self.unknown.as_ref().map(|it| it.lock().clone()).unwrap_or_default()
    }
}

#[derive(Default)]
struct SubstitutionInputs {
    variables: SubstitutionVariables,
    invalid: Option<InvalidVariableName>,
    secrets: Vec<Vec<u8>>,
    hash: Sha256,
    /// Whether values are not known that a cluster may have.
    is_incomplete: bool,
}

impl SubstitutionInputs {
    fn add(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            self.hash.update(part.len().to_le_bytes());
            self.hash.update(part);
        }
        if let Err(invalid) = self.variables.set(name, value) {
            self.invalid.get_or_insert(invalid);
        }
    }

    fn add_strings(&mut self, data: impl IntoIterator<Item = (String, String)>) {
        for (name, value) in data {
            self.add(&name, value.as_bytes());
        }
    }

    fn add_secrets(&mut self, data: impl IntoIterator<Item = (String, Vec<u8>)>) {
        for (name, value) in data {
            self.add(&name, &value);
            self.secrets.push(value);
        }
    }

    /// Parity(flux): what the spec says itself counts most.
    fn finish(mut self, spec: &PostBuild, is_strict: bool) -> PostBuildSubstitution {
        for (name, value) in &spec.substitute {
            self.add(name, value.as_bytes());
        }
        let strategy = spec.substitute_strategy.unwrap_or_default();
        PostBuildSubstitution {
            variables: self.variables,
            invalid: self.invalid,
            unset: if is_strict { UnsetVariablePolicy::Error } else { UnsetVariablePolicy::Empty },
            is_always: strategy == SubstituteStrategy::Always,
            has_secrets: !self.secrets.is_empty(),
            secrets: SecretMasking::new(self.secrets),
            digest: hex::encode(self.hash.finalize()),
            unknown: self.is_incomplete.then(Mutex::default),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config_map(data: &Value) -> Object {
        let metadata = json!({"name": "settings", "namespace": "shop"});
        let fields =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        Object::new(fields).unwrap()
    }

    fn spec(pairs: &[(&str, &str)]) -> PostBuild {
        let substitute: BTreeMap<_, _> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        PostBuild { substitute, ..PostBuild::default() }
    }

    fn data_of(object: &Object) -> Value {
        object.get("data").cloned().unwrap_or_default()
    }

    #[test]
    fn what_the_spec_says_counts_most_and_secrets_count_as_later_ones() {
        let mut gathered = SubstitutionInputs::default();
        gathered
            .add_strings([("a".to_owned(), "map".to_owned()), ("b".to_owned(), "map".to_owned())]);
        gathered.add_secrets([("b".to_owned(), b"sec\nret".to_vec())]);
        let done = gathered
            .finish(&spec(&[("a", "spec")]), true)
            .apply(config_map(&json!({"x": "${a} ${b} ${c:=none}"})), false)
            .unwrap();
        assert_eq!(data_of(&done), json!({"x": "spec secret none"}));
    }

    #[test]
    fn a_variable_of_a_source_that_is_not_known_stays_as_it_is_written_and_is_named() {
        let gathered = SubstitutionInputs { is_incomplete: true, ..SubstitutionInputs::default() };
        let substitution = gathered.finish(&spec(&[("a", "1")]), true);
        let object = config_map(&json!({"x": "v${a} ${host} ${port:=80}", "y": "$${raw}"}));
        let done = substitution.apply(object, false).unwrap();
        let expected = json!({"x": "v1 ${host} ${port}", "y": "${raw}"});
        assert_eq!(data_of(&done), expected);
        let unknown: Vec<String> = substitution.unknown().into_iter().collect();
        assert_eq!(unknown, ["host", "port"]);
    }

    #[test]
    fn without_values_all_variables_have_a_placeholder() {
        let substitution = SubstitutionInputs::default().finish(&spec(&[("a", "*")]), true);
        let object = config_map(&json!({"x": "${a}", "y": "b"}));
        let done = substitution.without_values().apply(object, false).unwrap();
        assert_eq!(data_of(&done), json!({"x": "windlass-value-of-a-variable", "y": "b"}));
    }

    #[test]
    fn a_value_may_become_a_number_unless_it_is_quoted() {
        let substitution = SubstitutionInputs::default().finish(&spec(&[("n", "3")]), true);
        let done =
            substitution.apply(config_map(&json!({"x": "${n}", "y": "n${n}"})), false).unwrap();
        assert_eq!(data_of(&done), json!({"x": 3, "y": "n3"}));
    }

    #[test]
    fn a_variable_without_a_value_is_an_error_only_when_that_is_asked_for() {
        let object = || config_map(&json!({"x": "${gone}"}));
        let strict =
            SubstitutionInputs::default().finish(&spec(&[("a", "1")]), true).apply(object(), false);
        assert_eq!(
            strict.unwrap_err(),
            "post build failed for 'ConfigMap.v1.[noGrp]/settings': envsubst error: variable substitution failed: \
             variable not set (strict mode): \"gone\""
        );
        let lenient = SubstitutionInputs::default()
            .finish(&spec(&[("a", "1")]), false)
            .apply(object(), false);
        assert_eq!(data_of(&lenient.unwrap()), json!({"x": null}));
    }

    #[test]
    fn without_variables_nothing_is_touched_unless_always() {
        let object = || config_map(&json!({"x": "${gone:=there}"}));
        let none =
            SubstitutionInputs::default().finish(&spec(&[]), true).apply(object(), false).unwrap();
        assert_eq!(data_of(&none), json!({"x": "${gone:=there}"}));
        let always = PostBuild {
            substitute_strategy: Some(SubstituteStrategy::Always),
            ..PostBuild::default()
        };
        let done =
            SubstitutionInputs::default().finish(&always, true).apply(object(), false).unwrap();
        assert_eq!(data_of(&done), json!({"x": "there"}));
    }

    #[test]
    fn an_object_that_opts_out_stays_as_it_is() {
        let mut object = config_map(&json!({"x": "${a}"}));
        object.set_annotation(SWITCH, "disabled");
        let done = SubstitutionInputs::default()
            .finish(&spec(&[("a", "1")]), true)
            .apply(object, false)
            .unwrap();
        assert_eq!(data_of(&done), json!({"x": "${a}"}));
    }

    #[test]
    fn a_name_that_no_variable_can_have_is_reported() {
        let mut gathered = SubstitutionInputs::default();
        gathered.add_secrets([("db.password".to_owned(), b"hunter2".to_vec())]);
        let error =
            gathered.finish(&spec(&[]), true).apply(config_map(&json!({})), false).unwrap_err();
        assert!(error.contains("'db.password' var name is invalid"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn no_error_shows_a_value_of_a_secret() {
        let mut gathered = SubstitutionInputs::default();
        gathered.add_secrets([("password".to_owned(), b"*hunter2".to_vec())]);
        let object = config_map(&json!({"x": "${password}"}));
        let error = gathered.finish(&spec(&[]), true).apply(object, false).unwrap_err();
        assert!(error.starts_with("post build failed for"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn the_digest_follows_every_value() {
        let digest = |pairs: &[(&str, &str)]| {
            SubstitutionInputs::default().finish(&spec(pairs), true).digest
        };
        assert_eq!(digest(&[("a", "1")]), digest(&[("a", "1")]));
        assert_ne!(digest(&[("a", "1")]), digest(&[("a", "2")]));
        assert_ne!(digest(&[("a", "1")]), digest(&[("a1", "")]));
    }
}
