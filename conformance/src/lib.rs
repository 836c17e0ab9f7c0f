//! Windlass beside the real Kubernetes: the programs of v1.36, started here, and what both answer.
