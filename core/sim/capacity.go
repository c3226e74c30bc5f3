// SPDX-License-Identifier: Apache-2.0

package sim

// capacity is YARN's CapacityScheduler: a queue for each account (else user, else
// app), all of equal capacity and elastic to the whole cluster; the one that uses
// the smallest part of its capacity is served first.
func capacity(w *World) *yarn {
	y := newYarn(w)
	y.leaf = owner
	y.key = func(a, b *leaf) int { return a.held - b.held }
	return y
}
