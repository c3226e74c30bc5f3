// SPDX-License-Identifier: Apache-2.0

package sim

// slaqLoss is the loss after a share of the work: sublinear, from 1 to a tenth. SLAQ
// fits such a curve to each job's history; traces have none, so all have this.
func slaqLoss(done float64) float64 { return 1 / (1 + 9*min(done, 1)) }

// slaq gives to whoever's loss falls most during a lease by what is at stake
// (Zhang et al., SoCC 2017, as THEMIS's authors model it): young jobs first.
func slaq(w *World, t *tenant, gpus int, s, before float64) float64 {
	total := t.Done + t.Guess()
	at := func(rate float64) float64 { return slaqLoss((t.Done + rate*w.Lease.Seconds()) / total) }
	return at(before) - at(float64(gpus)*s)
}
