//! IAM policies for S3, as far as Peat's own use them. What is not understood is refused, never taken for allowed.
//!
//! Sources: AWS IAM user guide, "Policy evaluation logic" and "IAM JSON policy elements: Condition operators"; service
//! authorization reference for Amazon S3 (`s3:prefix` exists in the context of a listing that names a prefix, only);
//! Amazon S3 API reference, `GetObject` (a missing object is 403 to who may not list the bucket).

use serde_json::Value;

/// What a request asks to be allowed.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// Such as `s3:GetObject`.
    pub action: &'static str,
    /// Such as `arn:aws:s3:::bucket/key`.
    pub resource: String,
    /// `s3:prefix` of a listing.
    pub prefix: Option<&'a str>,
}

#[derive(Clone, Debug)]
enum Condition {
    /// `StringLike` on `s3:prefix`.
    Like(Vec<String>),
    /// `Null` on `s3:prefix`: whether there must be none.
    Absent(bool),
}

#[derive(Clone, Debug)]
struct Statement {
    sid: String,
    allow: bool,
    actions: Vec<String>,
    resources: Vec<String>,
    conditions: Vec<Condition>,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct Policy {
    statements: Vec<Statement>,
}

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// Says what it does not understand.
    pub fn parse(policy: &Value) -> Result<Self, String> {
        if policy["Version"] != "2012-10-17" {
            return Err("the version of the policy language is another".to_owned());
        }
        let statements = policy["Statement"].as_array().ok_or("no statements")?;
        Ok(Self { statements: statements.iter().map(Statement::parse).collect::<Result<_, _>>()? })
    }

    /// Names of its statements.
    pub fn sids(&self) -> Vec<String> {
        self.statements.iter().map(|statement| statement.sid.clone()).collect()
    }

    /// The policy without one of its statements.
    #[must_use]
    pub fn without(&self, sid: &str) -> Self {
        Self { statements: self.statements.iter().filter(|statement| statement.sid != sid).cloned().collect() }
    }

    /// Whether something is allowed: by one statement at least, and denied by none.
    pub fn allows(&self, ask: &Ask<'_>) -> bool {
        let mut fitting = self.statements.iter().filter(|statement| statement.fits(ask)).peekable();
        fitting.peek().is_some() && fitting.all(|statement| statement.allow)
    }
}

impl Statement {
    fn parse(value: &Value) -> Result<Self, String> {
        let fields = value.as_object().ok_or("a statement is no object")?;
        let known = ["Sid", "Effect", "Action", "Resource", "Condition"];
        if let Some(other) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            return Err(format!("'{other}' is not understood"));
        }
        let allow = match value["Effect"].as_str() {
            Some("Allow") => true,
            Some("Deny") => false,
            _ => return Err("no effect".to_owned()),
        };
        let mut conditions = Vec::new();
        for (operator, of) in value["Condition"].as_object().into_iter().flatten() {
            for (key, wanted) in of.as_object().ok_or("a condition is no object")? {
                conditions.push(match (operator.as_str(), key.as_str()) {
                    ("StringLike", "s3:prefix") => Condition::Like(texts(wanted)?),
                    ("Null", "s3:prefix") => Condition::Absent(wanted == "true"),
                    _ => return Err(format!("the condition {operator} on {key} is not understood")),
                });
            }
        }
        Ok(Self {
            sid: value["Sid"].as_str().ok_or("a statement without a name")?.to_owned(),
            allow,
            actions: texts(&value["Action"])?,
            resources: texts(&value["Resource"])?,
            conditions,
        })
    }

    fn fits(&self, ask: &Ask<'_>) -> bool {
        self.actions.iter().any(|action| like(action, ask.action))
            && self.resources.iter().any(|resource| like(resource, &ask.resource))
            && self.conditions.iter().all(|condition| match condition {
                Condition::Like(patterns) => {
                    ask.prefix.is_some_and(|prefix| patterns.iter().any(|pattern| like(pattern, prefix)))
                }
                Condition::Absent(absent) => ask.prefix.is_none() == *absent,
            })
    }
}

/// One text or a list of them.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| format!("{value} is no text"));
    value.as_array().map_or_else(|| Ok(vec![one(value)?]), |list| list.iter().map(one).collect())
}

/// Whether a text has the form of a pattern with `*` and `?`.
fn like(pattern: &str, text: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return text.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    if first == '*' {
        return text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| like(rest, &text[at..]));
    }
    text.chars().next().is_some_and(|c| (first == '?' || first == c) && like(rest, &text[c.len_utf8()..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(action: &'static str, resource: &str) -> Ask<'static> {
        Ask { action, resource: resource.to_owned(), prefix: None }
    }

    #[test]
    fn nothing_is_allowed_unless_it_is_said_and_a_denial_wins() {
        let policy = json!({"Version": "2012-10-17", "Statement": [
            {"Sid": "A", "Effect": "Allow", "Action": ["s3:Get*", "s3:PutObject"], "Resource": "arn:aws:s3:::b/a/*"},
            {"Sid": "B", "Effect": "Deny", "Action": "s3:*", "Resource": "arn:aws:s3:::b/a/secret?"},
        ]});
        let policy = Policy::parse(&policy).unwrap();
        assert!(policy.allows(&ask("s3:GetObject", "arn:aws:s3:::b/a/x/y")));
        assert!(!policy.allows(&ask("s3:GetObject", "arn:aws:s3:::b/ab/x")));
        assert!(!policy.allows(&ask("s3:DeleteObject", "arn:aws:s3:::b/a/x")));
        assert!(!policy.allows(&ask("s3:GetObject", "arn:aws:s3:::b/a/secret1")));
        assert!(policy.without("B").allows(&ask("s3:GetObject", "arn:aws:s3:::b/a/secret1")));
        assert!(!policy.without("A").allows(&ask("s3:GetObject", "arn:aws:s3:::b/a/x")));
    }

    #[test]
    fn a_condition_on_the_prefix_does_not_fit_a_request_without_one() {
        let list = |condition: Value| {
            let policy = json!({"Version": "2012-10-17", "Statement": [
                {"Sid": "A", "Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::b", "Condition": condition},
            ]});
            Policy::parse(&policy)
        };
        let with = Ask { prefix: Some("a/log/"), ..ask("s3:ListBucket", "arn:aws:s3:::b") };
        let other = Ask { prefix: Some("b/"), ..with.clone() };
        let without = ask("s3:ListBucket", "arn:aws:s3:::b");
        let folder = list(json!({"StringLike": {"s3:prefix": ["a/*"]}})).unwrap();
        assert_eq!([&with, &other, &without].map(|ask| folder.allows(ask)), [true, false, false]);
        let none = list(json!({"Null": {"s3:prefix": "true"}})).unwrap();
        assert_eq!([&with, &other, &without].map(|ask| none.allows(ask)), [false, false, true]);
        assert!(list(json!({"StringLikeIfExists": {"s3:prefix": ["a/*"]}})).is_err());
    }
}
