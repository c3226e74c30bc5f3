// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"time"
)

// Debt is what an entity owes the others: payments of its jobs that cannot be
// reclaimed and so could not be charged. It halves every Config.DebtHalf.
type Debt struct {
	GPUSeconds float64
	At         time.Time // when it was so much
}

// debtLeast is what is not worth keeping, in GPU-seconds.
const debtLeast = 1

// lend adds to what an entity owes.
func (a *Arbiter) lend(entity string, gpuSeconds float64) {
	if gpuSeconds < debtLeast {
		return
	}
	a.debts[entity] = Debt{a.Owes(entity) + gpuSeconds, a.now}
	if a.changed.Debts == nil {
		a.changed.Debts = map[string]Debt{}
	}
	a.changed.Debts[entity] = a.debts[entity]
}

// Owes is what the entity owes now, in GPU-seconds.
func (a *Arbiter) Owes(entity string) float64 {
	d, ok := a.debts[entity]
	if !ok || a.cfg.DebtHalf <= 0 {
		return 0
	}
	left := d.GPUSeconds * math.Exp2(-a.now.Sub(d.At).Seconds()/a.cfg.DebtHalf.Seconds())
	if left < debtLeast {
		delete(a.debts, entity)
		return 0
	}
	return left
}

// owed is by how much the references of an entity's apps count as later in bids:
// the time in which its share, in GPUs, works off what it owes.
func (a *Arbiter) owed(entity string, share float64) time.Duration {
	if share == 0 {
		share = float64(a.gpus()) / float64(max(a.going, 1))
	}
	return time.Duration(a.Owes(entity) / max(share, 1e-3) * float64(time.Second))
}
