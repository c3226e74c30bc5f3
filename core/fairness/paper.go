// SPDX-License-Identifier: Apache-2.0

package fairness

import "time"

// Size is an app as the paper's T_cluster sees it (section 3): all of its jobs,
// those that have ended included.
type Size struct {
	Work    float64       `json:"gpu_s"`      // GPU-seconds at S = 1
	Par     float64       `json:"par_gpus"`   // GPUs it could use at once
	Longest time.Duration `json:"longest_ns"` // of its jobs, run alone at full size
}

// Add counts a job, or several alike, that takes so long on so many GPUs.
func (s *Size) Add(gpus float64, took time.Duration) {
	s.Work += gpus * took.Seconds()
	s.Par += gpus
	s.Longest = max(s.Longest, took)
}

// Alone is T_cluster: the app's time with the whole cluster to itself.
func (s Size) Alone(gpus int) time.Duration {
	if s.Work <= 0 {
		return s.Longest
	}
	return max(s.Longest, seconds(s.Work/max(min(float64(gpus), s.Par), 1e-3)))
}

// Ideal is T_id as the paper defines it, T_cluster * N_avg, where N_avg is the
// time-average number of unfinished apps, this one included, over the app's
// life. Beware: N_avg grows when others are delayed, so a scheduler improves
// every app's rho by delaying the others; Fluid has no such trap.
func (s Size) Ideal(gpus int, contention float64) time.Duration {
	return seconds(s.Alone(gpus).Seconds() * max(contention, 1))
}
