// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"container/heap"
	"math"
)

// Shockwave's parameters as its paper names them. The values are ours: with them
// makespan and Shockwave's own worst rho on its own trace (120 jobs, 32 GPUs) come
// out against gavel's about as it reports.
const (
	shockwaveWindow = 20 // rounds planned ahead
	shockwavePower  = 5. // k: of rho in a job's weight
	shockwaveLambda = 1. // weight of the makespan
)

// shockwave follows Shockwave (Zheng et al., NSDI 2023) as far as its rules can be
// stated: it plans a window of rounds that maximises
//
//	sum of rho^k * log(share of work done by the window's end) - lambda * makespan
//
// over jobs, rho being a job's expected finish time over the one with a fair
// share at today's contention, and makespan the longest run time left after the
// window. A round goes to the jobs that have the largest part of what they need in
// the plan. The plan is made greedily, by gain per GPU, and anew for each round; as
// the maximum in makespan has no gain for one job alone, the nearer a job is to
// being the longest the more it counts. Left out: the forecast of how batch sizes
// change (traces have fixed run times), and the exact solution.
func shockwave(w *World) *rounds { return &rounds{pool: newPool(w), rank: shockwaveRank} }

func shockwaveRank(w *World, live []*Job) []*Job {
	var demand float64
	for _, j := range live {
		demand += float64(w.gang(j))
	}
	contention := max(demand/float64(w.GPUs), 1)
	plan := &keyed{}
	round := w.Lease.Seconds()
	type state struct{ weight, done, left, step, rounds float64 } // left in seconds, step the share done in a round
	of := make(map[*Job]*state, len(live))
	var longest float64
	for _, j := range live {
		longest = max(longest, j.Guess()/float64(w.gang(j)))
	}
	gain := func(j *Job) float64 {
		s := of[j]
		before := max(s.done, s.step/10) // log 0 has no end
		g := s.weight * math.Log(min(before+s.step, 1)/before)
		if left := s.left - s.rounds*round; left > 0 {
			g += shockwaveLambda * math.Pow(left/longest, 8) * min(round, left) / longest * float64(len(live))
		}
		return g / float64(w.gang(j))
	}
	for _, j := range live {
		gang := float64(w.gang(j))
		total := j.Done + j.Guess()
		elapsed := (w.Now - j.Submit).Seconds()
		rho := (elapsed + j.Guess()/gang*contention) / (total / gang * contention)
		s := &state{weight: math.Pow(rho, shockwavePower), done: j.Done / total, left: j.Guess() / gang,
			step: min(round*gang/total, 1)}
		of[j] = s
		plan.all = append(plan.all, keyedJob{gain(j), j})
	}
	heap.Init(plan)
	for budget := shockwaveWindow * w.GPUs; plan.Len() > 0 && budget > 0; {
		j := plan.all[0].job
		s := of[j]
		if w.gang(j) > budget || s.rounds >= shockwaveWindow || s.rounds*round >= s.left {
			heap.Pop(plan)
			continue
		}
		budget -= w.gang(j)
		s.rounds++
		s.done += s.step
		plan.all[0].key = gain(j)
		heap.Fix(plan, 0)
	}
	return byKey(live, func(j *Job) float64 {
		s := of[j]
		need := min(math.Ceil(s.left/round), shockwaveWindow)
		return math.Round(1000*s.rounds/need) + s.weight/(1+s.weight) // the plan, then rho
	})
}
