// SPDX-License-Identifier: Apache-2.0

package sim

// gandiva favours good placement: |G| * S of what the job would have then
// (Xiao et al., OSDI 2018, as THEMIS's authors model it). Of gangs the largest go
// first. Time slicing and migration for packing are not modelled.
func gandiva(w *World, t *tenant, gpus int, s, before float64) float64 {
	return float64(gpus) * s
}
