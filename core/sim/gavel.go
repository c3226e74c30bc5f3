// SPDX-License-Identifier: Apache-2.0

package sim

// gavel is Gavel's finish-time fairness (Narayanan et al., OSDI 2020) on one GPU
// type: the shares of time x that minimise the largest
//
//	rho = (elapsed + left/x) / (isolated so far + left/isolated x)
//
// of all live jobs, isolated x being that of 1/n of the cluster; jobs that would
// need more than all the time have x = 1, and the rest share what is left (water
// filling). A round goes to the highest share owed over share received so far.
// Gavel's other types of GPU, and its packing of two jobs on one, are left out.
type gavel struct {
	isolated []float64 // seconds, by Job.Index
	done     []float64 // then
}

func newGavel(w *World) *rounds {
	g := &gavel{}
	return &rounds{pool: newPool(w), rank: g.rank}
}

func (g *gavel) rank(w *World, live []*Job) []*Job {
	n, all := float64(len(live)), float64(w.GPUs)
	ideal := make([]float64, len(live)) // whole run time in isolation
	for i, j := range live {
		for len(g.done) <= j.Index {
			g.done, g.isolated = append(g.done, 0), append(g.isolated, 0)
		}
		gang := float64(w.gang(j))
		rate := gang * min(1, all/(n*gang))
		g.isolated[j.Index] += max(j.Done-g.done[j.Index], 0) / rate
		g.done[j.Index] = j.Done
		ideal[i] = g.isolated[j.Index] + j.Guess()/rate
	}
	shares := make([]float64, len(live))
	use := func(rho float64) float64 { // GPUs that it takes
		var sum float64
		for i, j := range live {
			gang := float64(w.gang(j))
			shares[i] = 1
			left := j.Guess() / gang
			if t := rho*ideal[i] - (w.Now - j.Submit).Seconds(); t > left {
				shares[i] = left / t
			}
			sum += shares[i] * gang
		}
		return sum
	}
	lo, hi := 0., 1.
	for use(hi) > all {
		lo, hi = hi, 2*hi
	}
	for range 30 {
		if mid := (lo + hi) / 2; use(mid) > all {
			lo = mid
		} else {
			hi = mid
		}
	}
	use(hi)
	owed := map[*Job]float64{}
	for i, j := range live {
		had := 1.
		if life := (w.Now - j.Submit).Seconds() * float64(w.gang(j)); life > 0 {
			had = j.Attained / life
		}
		owed[j] = shares[i] / max(had, 1e-9)
	}
	return byKey(live, func(j *Job) float64 { return owed[j] })
}
