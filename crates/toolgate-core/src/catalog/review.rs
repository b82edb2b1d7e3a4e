//! What is known about the definitions that tools have now.

use std::collections::HashMap;

use super::Tool;
use crate::name::ToolId;

/// The review of one definition. A definition that was not reviewed passes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionReview {
    /// Whether the definition is the one that is trusted.
    pub is_trusted: bool,
    /// Whether it contains no suspicious text, or was trusted by an administrator nevertheless.
    pub is_harmless: bool,
}

/// Reviews of the definitions of many tools. They are bound to what was reviewed: a changed definition
/// has no review, and a tool that has another definition for some clients has a review of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionReviews(HashMap<ToolId, Vec<(String, DefinitionReview)>>);

impl DefinitionReview {
    pub const PASSED: Self = Self {
        is_trusted: true,
        is_harmless: true,
    };
}

impl DefinitionReviews {
    /// Adds the review of the definition that a tool has.
    pub fn insert(&mut self, tool: &Tool, review: DefinitionReview) {
        let hash = tool.contract_hash().to_owned();
        let of_tool = self.0.entry(tool.id.clone()).or_default();
        of_tool.retain(|(known, _)| *known != hash);
        of_tool.push((hash, review));
    }

    /// Returns the review of the definition that a tool has.
    pub fn get(&self, tool: &Tool) -> DefinitionReview {
        let mut of_tool = self.0.get(&tool.id).into_iter().flatten();
        let found = of_tool.find(|(hash, _)| hash == tool.contract_hash());
        found.map(|(_, review)| *review).unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
