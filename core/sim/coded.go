// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"math"
	"slices"
)

// coded is THEMIS as its authors coded it, where that departs from the paper
// (paper.md, "Auction"): jobs bid, not apps; T_id is the job's run time on all its
// GPUs, without N_avg; the worst max(floor((1-f) n), 1) by rho among those below
// their parallelism take part; nothing is withheld, and leftovers are auctioned
// again. Winners maximise the sum of log(1/rho): theirs by Gurobi, here greedily
// by the gain per GPU. The rho of a job without GPUs has no end: those come first,
// in the order of what it would be on all the GPUs that they can use.
func coded(w *World) *leased {
	l := newLeased(w, func(w *World, t *tenant, gpus int, s, before float64) float64 {
		gain := math.Log(codedRho(w, t, before) / codedRho(w, t, float64(gpus)*s))
		if t.Elastic {
			return gain
		}
		return gain / float64(gpus)
	})
	l.bid = func(w *World, all []*tenant) []*tenant {
		for _, t := range all {
			t.rho = codedRho(w, t, float64(t.n)*w.Speed(t.Job, t.on))
		}
		part := slices.Clone(all)
		slices.SortFunc(part, func(x, y *tenant) int { return cmp.Or(cmp.Compare(y.rho, x.rho), x.Index-y.Index) })
		n := max(int((1-w.F)*float64(len(part))), 1)
		part = part[:n]
		slices.SortFunc(part, func(x, y *tenant) int { return x.Index - y.Index })
		return part
	}
	return l
}

// codedNever is how much worse no GPUs are than all that the job can use: so much
// that those without any come first.
const codedNever = 1e6

// codedRho is a job's T_sh at this speed over its T_id.
func codedRho(w *World, t *tenant, rate float64) float64 {
	left := t.Guess()
	ideal := (t.Done + left) / float64(t.GPUs)
	if rate == 0 {
		return codedNever * ((w.Now-t.Submit).Seconds()/ideal + left/(t.Done+left))
	}
	return ((w.Now - t.Submit).Seconds() + left/rate) / ideal
}
