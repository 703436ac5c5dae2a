//! The path of a finding in an object, as a schema names it.

/// A path of fields: `spec.ports[*].name`. Keys of maps are written as `*`.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldPath(String);

impl FieldPath {
    /// The path as text. It is `.` for the object itself.
    pub(crate) fn text(&self) -> String {
        if self.0.is_empty() { ".".to_owned() } else { self.0.clone() }
    }

    /// Appends the name of a field to the path while `act` runs.
    pub(crate) fn below<T>(&mut self, name: &str, act: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        let is_plain = !name.is_empty()
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_$*".contains(&it));
        match is_plain {
            true => {
                if length > 0 {
                    self.0.push('.');
                }
                self.0.push_str(name);
            }
            false => self.0.push_str(&format!("[{name:?}]")),
        }
        let outcome = act(self);
        self.0.truncate(length);
        outcome
    }

    /// Appends `*`, for any key of a map, while `act` runs.
    pub(crate) fn any<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        self.below("*", act)
    }

    /// Appends `[*]`, for any item of a list, while `act` runs.
    pub(crate) fn item<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.0.len();
        self.0.push_str("[*]");
        let outcome = act(self);
        self.0.truncate(length);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_as_its_schema_is_and_odd_names_are_quoted() {
        let mut place = FieldPath::default();
        let text =
            place.below("spec", |it| it.item(|it| it.any(|it| it.below("a.b", |it| it.text()))));
        assert_eq!(text, r#"spec[*].*["a.b"]"#);
        assert_eq!(place.text(), ".");
    }
}
