//! The controllers: thin drivers of pure decisions.
