// SPDX-License-Identifier: Apache-2.0

package sim

// optimus gives to whose finish time improves by the largest share (Peng et al.,
// EuroSys 2018, as THEMIS's authors model it). From nothing to something is an
// infinite gain, as there: those come first, and among them whoever would lose
// the largest share by waiting for one lease more.
func optimus(w *World, t *tenant, gpus int, s, before float64) float64 {
	after := float64(gpus) * s
	if before == 0 {
		lease := w.Lease.Seconds()
		return 1 + lease/(lease+t.Guess()/after)
	}
	return 1 - before/after
}
