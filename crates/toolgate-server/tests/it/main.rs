//! End-to-end tests: the built binary on a free port, with real MCP servers behind it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a broken expectation must fail the test"
)]

mod access;
mod agent;
mod agent_items;
mod agent_properties;
mod agent_reasoning;
mod agent_resumes;
mod agent_runs;
mod agent_sdk;
mod api;
mod approval_by;
mod approvals;
mod argument_check;
mod audit;
mod audit_cli;
mod auth_failures;
mod caller;
mod claude_code;
mod cli;
mod cli_chat;
mod cli_commands;
mod client_lists;
mod client_process;
mod code_mode;
mod config_changes;
mod conformance;
mod connect;
mod connections;
mod crash;
mod crash_clients;
mod definitions;
mod demo;
mod descendants;
mod doc_section;
mod durability;
mod endpoints;
mod endpoints_of_models;
mod events;
mod execute;
mod fair_shares;
mod fault_log;
mod filters;
mod flood;
mod fuzz;
mod gate;
mod generated_docs;
mod key_files;
mod keys;
mod keys_required;
mod load;
mod malformed;
mod matrix;
mod mcp;
mod mcp_sdk;
mod mcp_stdio;
mod model_errors;
mod model_injection;
mod model_routing;
mod models;
mod models_sdk;
mod names;
mod optional_env;
mod oracle;
mod page;
mod process_limits;
mod process_usage;
mod questions;
mod real_model;
mod real_servers;
mod reconnect;
mod relay;
mod resource_access;
mod resource_subscriptions;
mod response_references;
mod sandbox;
mod sandbox_strict;
mod script_workers;
mod serve;
mod sessions;
mod small_disk;
mod standalone;
mod startup;
mod stdio_client;
mod store_key;
mod streams;
mod tasks;
mod telemetry;
mod terminal;
mod trust;
