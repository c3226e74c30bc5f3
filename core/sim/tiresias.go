// SPDX-License-Identifier: Apache-2.0

package sim

// tiresias serves the least attained GPU time (Gu et al., NSDI 2019, as THEMIS's
// authors model it): continuous two-dimensional LAS.
func tiresias(w *World, t *tenant, gpus int, s, before float64) float64 { return -t.Attained }

// tiresiasQueues are the thresholds of the discretised form, in GPU-seconds:
// Tiresias leaves them to be tuned; one and ten GPU-hours are our choice.
var tiresiasQueues = []float64{3600, 36000}

// tiresias2D is that form: queues by attained GPU time, FIFO in each. Promotion of
// starved jobs (its PROMOTEKNOB) is left out.
func tiresias2D(w *World, t *tenant, gpus int, s, before float64) float64 {
	for i, upTo := range tiresiasQueues {
		if t.Attained < upTo {
			return -float64(i)
		}
	}
	return -float64(len(tiresiasQueues))
}
