//! Texts.

use golang::Value;
use gotemplate::Failure;

use crate::table::{Body, Entry};

pub(crate) const ENTRIES: &[Entry] =
    &[Entry { name: "hello", signature: "func() string", body: Body::Plain(hello) }];

/// A greeting.
fn hello(_: &[Value]) -> Result<Value, Failure> {
    Ok(Value::from("Hello!"))
}
