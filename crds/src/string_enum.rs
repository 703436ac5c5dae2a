//! Enumerations of words: a field that takes one of a few strings.
//!
//! Here: the macro that makes one. Each use documents the words of its own field.

/// Declares an enum whose variants are strings on the wire.
///
/// The order of the variants is the order of the schema's `enum`.
/// Besides serde it gives `as_str` and `Display`, which print the text of the wire.
macro_rules! choice {
    (
        $(#[$about:meta])*
        $name:ident { $( $(#[$variant_about:meta])* $variant:ident = $text:literal ),+ $(,)? }
    ) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord,
            serde::Serialize, serde::Deserialize,
        )]
        pub enum $name {
            $( $(#[$variant_about])* #[serde(rename = $text)] $variant, )+
        }

        impl $name {
            /// The text of the wire.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$variant => $text, )+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$( $text ),+] })
            }
        }
    };
}

pub(crate) use choice;
