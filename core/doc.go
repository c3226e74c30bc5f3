// SPDX-License-Identifier: Apache-2.0

// Package core is the folder of all policy; see its packages: cluster (values),
// fairness (rho and its reference), auction (one round), arbiter (the state
// machine that ties them), trace and sim (the same machine on a simulated
// cluster), ledger (SQLite), service (the arbiter run for real),
// cmd/themis (the command).
package core
