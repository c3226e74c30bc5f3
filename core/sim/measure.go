// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"math"
	"slices"
)

// Outcome is what became of a job. All definitions of rho follow from these.
type Outcome struct {
	App         int     // from 0
	Submit, End float64 // s
	Work        float64 // GPU-s at S = 1
	GPUs        float64 // most at once
	Runtime     float64 // s on all its GPUs at S = 1
}

// size is an app, or what has arrived of it: fairness.Size in seconds.
type size struct {
	work, gpus, longest float64 // GPU-s, GPUs, s: W, of all jobs, cp
}

func (s *size) grow(j *Outcome) {
	s.work += j.Work
	s.gpus += j.GPUs
	s.longest = max(s.longest, j.Runtime)
}

// par is the most GPUs that it could keep busy to its end. Of a job alone it is
// its GPUs, without the rounding of W/cp.
func (s *size) par() float64 {
	if s.longest <= 0 || s.work >= s.gpus*s.longest*(1-1e-9) {
		return s.gpus
	}
	return s.work / s.longest
}

// alone is the time in seconds with all GPUs to itself (fairness.Size.Alone).
func (s *size) alone(gpus float64) float64 {
	if s.work <= 0 {
		return s.longest
	}
	return max(s.longest, s.work/min(gpus, s.gpus))
}

// life is from a submission to an end, in seconds; amount is what it adds to a
// load meanwhile: GPUs, or 1 where lives are counted.
type life struct {
	submit, end, amount float64
}

func (l life) time() float64 { return max(l.end-l.submit, 0) }

// Measure returns each app's rho by every definition of apps (Definitions), and
// the summary of every definition. refs are References of the same jobs, that
// many apps and GPUs. An app lives from its first submission to its last end,
// between its jobs too. Apps and jobs without work have rho 1.
//
//	reference  T / (ref - submission)
//	share      T / max(cp, W N/R), N the mean over its life of the apps that live
//	paper      T / (alone N), alone = max(cp, W/min(R, GPUs of its jobs))
//	shockwave  T / (alone mean max(1, D/R)), the mean over its life, D the sum of
//	           par of the apps that live, par = min(GPUs of its jobs, W/cp)
//	job        T / (runtime C), C = GPUs of all jobs submitted by its end, itself
//	           included, / R: may be below 1
//	job-live   T / (runtime mean max(1, D/R)), the mean over the job's life, D the
//	           GPUs of the jobs submitted and not ended
func Measure(jobs []Outcome, refs []float64, apps, gpus int) (perApp []map[string]float64, rho map[string]Rho) {
	total := float64(gpus)
	sizes, lives, work := make([]size, apps), make([]life, apps), make([]life, len(jobs))
	for i := range lives {
		lives[i].submit = math.Inf(1)
	}
	for i := range jobs {
		j := &jobs[i]
		a := &lives[j.App]
		sizes[j.App].grow(j)
		a.submit, a.end = min(a.submit, j.Submit), max(a.end, j.End)
		work[i] = life{j.Submit, j.End, j.GPUs}
	}
	for i := range lives {
		lives[i].amount = 1
	}
	count := meanLoads(lives, 0)
	for i := range lives {
		lives[i].amount = sizes[i].par() / total
	}
	crowd := meanLoads(lives, 1)
	perApp = make([]map[string]float64, apps)
	by := map[string][]float64{}
	for i := range lives {
		l, s := lives[i], &sizes[i]
		alone := s.alone(total)
		perApp[i] = map[string]float64{
			"reference": ratio(l, refs[i]-l.submit),
			"share":     ratio(l, max(s.longest, s.work*count[i]/total)),
			"paper":     ratio(l, alone*count[i]),
			"shockwave": ratio(l, alone*crowd[i]),
		}
		for name, r := range perApp[i] {
			by[name] = append(by[name], r)
		}
	}
	by["job"], by["job-live"] = perJob(jobs, work, total)
	rho = map[string]Rho{}
	for _, d := range Definitions {
		rho[d.Name] = sum(by[d.Name])
	}
	return perApp, rho
}

// perJob is the jobs' rho by the two definitions of jobs. The authors' code
// (kshiteejm/mltiply, JobStatistics.java at f69d69a) strays from job in more ways
// than that demand is never reduced: C is averaged over the job's life, max(1,
// D/R) in whole numbers after an arrival, and D itself after an end.
func perJob(jobs []Outcome, lives []life, gpus float64) (ever, live []float64) {
	arrived := slices.SortedFunc(slices.Values(lives), func(a, b life) int { return cmp.Compare(a.submit, b.submit) })
	demand := make([]float64, len(arrived)+1) // of the first so many
	for i, l := range arrived {
		demand[i+1] = demand[i] + l.amount/gpus
	}
	for i := range lives {
		lives[i].amount /= gpus
	}
	crowd := meanLoads(lives, 1)
	for i, l := range lives {
		by, _ := slices.BinarySearchFunc(arrived, l.end, func(a life, end float64) int {
			if a.submit <= end {
				return -1
			}
			return 1
		})
		ever = append(ever, ratio(l, jobs[i].Runtime*demand[by]))
		live = append(live, ratio(l, jobs[i].Runtime*crowd[i]))
	}
	return ever, live
}

// ratio is rho; where there is no work, and so no ideal, it is 1.
func ratio(l life, ideal float64) float64 {
	if ideal <= 0 {
		return 1
	}
	return l.time() / ideal
}

// meanLoads is the time-average over each life of max(least, load), where load
// is the sum of the amounts of all that live. Of an empty life it is that of
// itself alone.
func meanLoads(lives []life, least float64) []float64 {
	type edge struct{ at, by float64 }
	edges := make([]edge, 0, 2*len(lives))
	for _, l := range lives {
		if l.time() > 0 {
			edges = append(edges, edge{l.submit, l.amount}, edge{l.end, -l.amount})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	area := make([]float64, len(edges)) // until the edge
	var load float64
	for i := 1; i < len(edges); i++ {
		load += edges[i-1].by
		area[i] = area[i-1] + (edges[i].at-edges[i-1].at)*max(least, load)
	}
	until := func(t float64) float64 {
		i, _ := slices.BinarySearchFunc(edges, t, func(e edge, t float64) int { return cmp.Compare(e.at, t) })
		return area[i]
	}
	means := make([]float64, len(lives))
	for i, l := range lives {
		if means[i] = max(least, l.amount); l.time() > 0 {
			means[i] = max(means[i], (until(l.end)-until(l.submit))/l.time())
		}
	}
	return means
}

// unfair is what rho is called unfair above; Shockwave's measure.
const unfair = 1.05

// sum sums up. Percentiles are by nearest rank.
func sum(rho []float64) Rho {
	n := len(rho)
	if n == 0 {
		return Rho{}
	}
	sorted := slices.Sorted(slices.Values(rho))
	rank := func(percent int) float64 { return sorted[(n*percent+99)/100-1] }
	r := Rho{Max: sorted[n-1], P99: rank(99), Median: rank(50)}
	var x, squares float64
	for _, v := range sorted {
		r.Mean += v
		if v > unfair {
			r.Unfair++
		}
		if v > 0 { // not of what was cut off on arrival
			x += 1 / v
			squares += 1 / (v * v)
		}
	}
	r.Mean /= float64(n)
	r.Unfair /= float64(n)
	if squares > 0 {
		r.Jain = x * x / (float64(n) * squares)
	}
	return r
}
