//! Lists in pages: ordered by a key, continued after the last one given out.

use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::error::ApiError;

const DEFAULT: usize = 100;
const MOST: usize = 1000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// How many to answer with, at most 1000. Default 100.
    pub(crate) limit: Option<usize>,
    /// `next_cursor` of the page before.
    pub(crate) cursor: Option<String>,
}

impl Page {
    /// How many items a page has.
    pub(crate) fn limit(asked: Option<usize>) -> Result<usize, ApiError> {
        let limit = asked.unwrap_or(DEFAULT);
        match (1..=MOST).contains(&limit) {
            true => Ok(limit),
            false => Err(ApiError::bad_request(format!(
                "`limit` must be between 1 and {MOST}"
            ))),
        }
    }

    /// The part of `items` that was asked for, and the cursor of the next one. `items` are ordered
    /// by `key`.
    pub(crate) fn cut<T>(
        &self,
        items: impl Iterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> Result<(Vec<T>, Option<String>), ApiError> {
        let limit = Self::limit(self.limit)?;
        let after = |item: &T| {
            self.cursor
                .as_ref()
                .is_none_or(|cursor| key(item) > *cursor)
        };
        let mut page: Vec<T> = items.filter(after).take(limit + 1).collect();
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).map(key);
        Ok((page, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_everything_once() {
        let items: Vec<String> = (0..25).map(|n| format!("{n:02}")).collect();
        let mut page = Page {
            limit: Some(10),
            cursor: None,
        };
        let mut seen = Vec::new();
        loop {
            let (part, next) = page.cut(items.iter().cloned(), String::clone).unwrap();
            seen.extend(part);
            match next {
                Some(cursor) => page.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!(seen, items);
        assert!(
            Page {
                limit: Some(0),
                cursor: None
            }
            .cut(items.iter(), |item| (*item).clone())
            .is_err()
        );
    }
}
