//! Pagination of lists: items are ordered by a key, and the cursor is the key of the last item returned.

use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::error::ApiError;

const DEFAULT_PAGE_SIZE: usize = 100;
const MAX_PAGE_SIZE: usize = 1000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// Maximum number of items to return, up to 1000. Defaults to 100.
    pub(crate) limit: Option<usize>,
    /// `next_cursor` of the previous page.
    pub(crate) cursor: Option<String>,
}

impl PageParams {
    /// Validates a requested page size and applies the default.
    pub(crate) fn page_size(requested: Option<usize>) -> Result<usize, ApiError> {
        let limit = requested.unwrap_or(DEFAULT_PAGE_SIZE);
        if (1..=MAX_PAGE_SIZE).contains(&limit) {
            Ok(limit)
        } else {
            Err(ApiError::bad_request(format!(
                "`limit` must be between 1 and {MAX_PAGE_SIZE}"
            )))
        }
    }

    /// Returns the requested page of `items`, which must be ordered by `key`, and the cursor of the
    /// next page.
    pub(crate) fn paginate<T>(
        &self,
        items: impl Iterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> Result<(Vec<T>, Option<String>), ApiError> {
        let limit = Self::page_size(self.limit)?;
        let is_after_cursor = |item: &T| {
            self.cursor
                .as_ref()
                .is_none_or(|cursor| key(item) > *cursor)
        };
        let mut page: Vec<T> = items.filter(is_after_cursor).take(limit + 1).collect();
        let next = truncate_page(&mut page, limit, key);
        Ok((page, next))
    }
}

/// Truncates `items`, which holds one more than `limit` if there is another page, and returns the cursor
/// of that page.
pub(super) fn truncate_page<T>(
    items: &mut Vec<T>,
    limit: usize,
    key: impl Fn(&T) -> String,
) -> Option<String> {
    let has_more = items.len() > limit;
    items.truncate(limit);
    items.last().filter(|_| has_more).map(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_cover_everything_once() {
        let items: Vec<String> = (0..25).map(|n| format!("{n:02}")).collect();
        let mut page = PageParams {
            limit: Some(10),
            cursor: None,
        };
        let mut seen = Vec::new();
        loop {
            let (part, next) = page.paginate(items.iter().cloned(), String::clone).unwrap();
            seen.extend(part);
            match next {
                Some(cursor) => page.cursor = Some(cursor),
                None => break,
            }
        }
        assert_eq!(seen, items);
        assert!(
            PageParams {
                limit: Some(0),
                cursor: None
            }
            .paginate(items.iter(), |item| (*item).clone())
            .is_err()
        );
    }
}
