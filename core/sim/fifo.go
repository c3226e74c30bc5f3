// SPDX-License-Identifier: Apache-2.0

package sim

// fifo serves jobs by submission, with EASY backfill.
func fifo(w *World) *backfill {
	b := newBackfill(w)
	b.priority = func(*World, *line, *Job) float64 { return 0 }
	return b
}
