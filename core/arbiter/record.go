// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"themis/core/cluster"
)

// A recording is lines of JSON: a RecordHead whenever a core begins, then a
// Record per Step. Durations are in nanoseconds, memory in MiB.

// RecordHead says what decided the steps that follow it.
type RecordHead struct {
	Version  string    `json:"version"`  // of the program
	Begin    time.Time `json:"begin"`    // the now of New or Restore
	Restored bool      `json:"restored"` // it went on from a ledger that was not empty
	Config   *Config   `json:"config"`
}

// Record is one Step.
type Record struct {
	Time     time.Time         `json:"time"`
	Snapshot *cluster.Snapshot `json:"snapshot,omitempty"` // nil: the one before
	Decided
}

// Decided is what of a Decision a recording keeps.
type Decided struct {
	Grants   []Grant        `json:"grants,omitempty"`
	Reclaims []ReclaimOrder `json:"reclaims,omitempty"`
	Leases   []LeaseRecord  `json:"leases,omitempty"` // those that changed
}

// LeaseRecord is a lease as one step left it.
type LeaseRecord struct {
	ID     uint64          `json:"id"`
	Job    string          `json:"job"`
	State  LeaseState      `json:"state"`
	On     []cluster.Share `json:"on"`
	Length time.Duration   `json:"length_ns"`
}

// Decided copies what a recording keeps: later steps do not change it.
func (d *Decision) Decided() Decided {
	out := Decided{Grants: d.Grants, Reclaims: d.Reclaims} // made anew in every step
	for _, l := range d.Leases {
		out.Leases = append(out.Leases, LeaseRecord{l.ID, l.Job, l.State, slices.Clone(l.On), l.Length})
	}
	return out
}

// Lines says it in words, one line each.
func (d *Decided) Lines() []string {
	var out []string
	for _, g := range d.Grants {
		where := "on "
		if g.Anywhere {
			where = "anywhere but on "
		}
		out = append(out, fmt.Sprintf("grant of job %s %s%s (lease %d, order %d)", g.Job, where, strings.Join(g.Nodes, ","), g.Lease, g.Order))
	}
	for _, r := range d.Reclaims {
		does := "warning"
		if r.Requeue {
			does = "requeue"
		}
		out = append(out, fmt.Sprintf("%s of job %s (lease %d): %s", does, r.Job, r.Lease, r.Why))
	}
	for _, l := range d.Leases {
		var on []string
		for _, s := range l.On {
			on = append(on, fmt.Sprintf("%s:%d", s.Node, s.GPUs))
		}
		out = append(out, fmt.Sprintf("lease %d of job %s on %s for %s: %s", l.ID, l.Job, strings.Join(on, ","), l.Length, l.State))
	}
	return out
}
