//! `WWW-Authenticate` challenges (RFC 9110, section 11.6.1).

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

/// What a server asks for when it refuses a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Authentication scheme, in lower case.
    pub scheme: String,
    /// Parameters with their names in lower case.
    params: Vec<(String, String)>,
}

impl Challenge {
    /// The challenge that OAuth can answer, if there is one. One that names the server's metadata
    /// wins over others.
    pub fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let all: Vec<Self> = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(parse)
            .filter(|challenge| matches!(challenge.scheme.as_str(), "bearer" | "dpop"))
            .collect();
        let named = all
            .iter()
            .find(|challenge| challenge.resource_metadata().is_some());
        named.or(all.first()).cloned()
    }

    pub fn resource_metadata(&self) -> Option<&str> {
        self.param("resource_metadata")
    }

    pub fn error(&self) -> Option<&str> {
        self.param("error")
    }

    /// The scopes that the refused operation needs.
    pub fn scopes(&self) -> Vec<String> {
        self.param("scope").map(split_scopes).unwrap_or_default()
    }

    fn param(&self, name: &str) -> Option<&str> {
        let mut params = self.params.iter();
        let found = params.find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }
}

/// Splits a space-delimited list of scopes.
pub fn split_scopes(scopes: &str) -> Vec<String> {
    scopes.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Parses a header value, which may hold several challenges. What does not follow the grammar is
/// skipped.
fn parse(value: &str) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (token, after) = split_token(rest);
        if token.is_empty() {
            // Not a token: skip to the next element.
            match rest.find(',') {
                Some(comma) => rest = &rest[comma..],
                None => return challenges,
            }
            continue;
        }
        let after_spaces = after.trim_start_matches([' ', '\t']);
        if let Some(text) = after_spaces.strip_prefix('=') {
            let (text, after) = split_value(text.trim_start_matches([' ', '\t']));
            if let Some(challenge) = challenges.last_mut() {
                challenge.params.push((token.to_ascii_lowercase(), text));
            }
            rest = after;
        } else {
            challenges.push(Challenge {
                scheme: token.to_ascii_lowercase(),
                params: Vec::new(),
            });
            rest = skip_token68(after_spaces);
        }
    }
}

fn split_token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

/// Splits off a token or a quoted string, whose escapes are resolved.
fn split_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        // Servers send URLs without quotes, too.
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[index + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => value.push(c),
        }
    }
    (value, "")
}

/// Skips the credentials of schemes such as `Negotiate`, which are no parameters.
fn skip_token68(text: &str) -> &str {
    let is_token68 = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    let end = text.find(|c| !is_token68(c)).unwrap_or(text.len());
    let after = text[end..].trim_start_matches([' ', '\t']);
    let is_whole_element = after.is_empty() || after.starts_with(',');
    if end > 0 && is_whole_element && !text[..end].trim_end_matches('=').contains('=') {
        after
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn challenge(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, value.parse().unwrap());
        }
        Challenge::from_headers(&headers)
    }

    #[test]
    fn finds_the_challenge_among_others() {
        let url = "https://a.example/.well-known/oauth-protected-resource/mcp";
        let forms = [
            vec![format!("Bearer resource_metadata=\"{url}\", scope=\"a b\"")],
            vec![format!(
                "bearer Scope = \"a b\" , RESOURCE_METADATA=\"{url}\""
            )],
            vec![
                "Basic realm=\"x, Bearer error=\\\"no\\\"\"".to_owned(),
                format!("Negotiate YWJj==, Bearer scope=\"a b\", resource_metadata={url}"),
            ],
            vec![format!(
                "Bearer realm=\"other\", DPoP algs=\"ES256\", resource_metadata=\"{url}\", scope=\"a b\""
            )],
            vec![format!(
                "Digest qop=\"auth, auth-int\", Bearer resource_metadata=\"{url}\",scope=\"a b\""
            )],
        ];
        for form in forms {
            let values: Vec<&str> = form.iter().map(String::as_str).collect();
            let challenge = challenge(&values).unwrap();
            assert_eq!(challenge.resource_metadata(), Some(url), "{form:?}");
            assert_eq!(challenge.scopes(), ["a", "b"], "{form:?}");
        }
        assert_eq!(challenge(&["Basic realm=\"x\""]), None);
        let bare = challenge(&["Bearer"]).unwrap();
        assert_eq!((bare.error(), bare.scopes().len()), (None, 0));
    }

    proptest! {
        #[test]
        fn never_panics_and_ends(text in "[ -~]{0,80}") {
            parse(&text);
        }

        #[test]
        fn quoted_values_survive(value in "[ -~]{1,40}") {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"");
            let found = parse(&format!("Basic x=\"1\", Bearer a=b, error=\"{escaped}\", scope=s"));
            prop_assert_eq!(found.len(), 2);
            prop_assert_eq!(found[1].error(), Some(value.as_str()));
            prop_assert_eq!(found[1].scopes(), ["s"]);
        }
    }
}
