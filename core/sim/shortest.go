// SPDX-License-Identifier: Apache-2.0

package sim

// srtf serves the shortest remaining time: on all the GPUs that the job can use,
// at the speed of its placement. (The authors' SJF forgets to divide by S.)
func srtf(w *World, t *tenant, gpus int, s, before float64) float64 {
	return -t.Guess() / (float64(t.GPUs) * s)
}

// srsf serves the shortest remaining service: time, as above, times GPUs. (The
// authors' uses attained service by mistake.)
func srsf(w *World, t *tenant, gpus int, s, before float64) float64 { return -t.Guess() / s }
