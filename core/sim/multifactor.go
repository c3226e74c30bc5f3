// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"math"
	"time"
)

// The weights of the example in Slurm's priority/multifactor page; its job size,
// partition and QOS factors mean nothing here. Half-life and the age at which it
// stops to count are Slurm's defaults.
const (
	weightAge       = 1000
	weightFairshare = 10000
	halfLife        = 7 * 24 * time.Hour
	ageMax          = 7 * 24 * time.Hour
)

// multifactor is Slurm's priority/multifactor: PriorityWeightAge * age +
// PriorityWeightFairshare * 2^(-usage/shares), the classic formula. All accounts
// (else users, else apps) that have come so far have equal shares; usage is a
// share of all usage, decayed. It is exact at each event, not 5 minutes old.
func multifactor(w *World, conservative bool) *backfill {
	b := newBackfill(w)
	b.conservative = conservative
	b.name = owner
	b.priority = func(w *World, l *line, j *Job) float64 {
		age := min(float64(w.Now-j.Submit)/float64(ageMax), 1)
		share := 1.
		if l.usage > 0 {
			share = math.Exp2(-l.usage / b.all.usage * float64(len(b.lines)))
		}
		return weightAge*age + weightFairshare*share
	}
	return b
}

// owner is whose share a job uses.
func owner(j *Job) string { return cmp.Or(j.Account, j.User, j.App.ID) }

// decay brings usage up to now.
func (l *line) decay(w *World) {
	if dt := (w.Now - l.at).Seconds(); dt > 0 {
		rate := math.Ln2 / halfLife.Seconds()
		keep := math.Exp(-rate * dt)
		l.usage = l.usage*keep + float64(l.held)*(1-keep)/rate
		l.at = w.Now
	}
}
