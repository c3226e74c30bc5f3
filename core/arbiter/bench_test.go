// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"testing"
	"time"

	"themis/core/cluster"
)

// BenchmarkStep measures a decision with 10,000 pending jobs of one user beside
// others', once with nothing new and once with a round each time.
func BenchmarkStep(b *testing.B) {
	for _, round := range []bool{false, true} {
		b.Run(fmt.Sprintf("round=%v", round), func(b *testing.B) {
			w := newWorld(b.Fatalf)
			for i := range 64 {
				w.addNode(fmt.Sprintf("n%d", i), "", 8)
			}
			for i := range 10_000 {
				j := simJob{takes: 1000 * time.Hour}
				j.ID, j.User, j.Requeueable = fmt.Sprint(i), "flood", true
				j.Shape = cluster.Shape{GPUs: 1 + i%4}
				if i%100 == 0 {
					j.User = fmt.Sprint("user", i%7)
				}
				w.submit(j)
			}
			w.run(10 * time.Second)
			b.ResetTimer()
			for b.Loop() {
				if round {
					w.arb.stir()
				}
				w.now = w.now.Add(w.tick)
				w.observe()
			}
		})
	}
}
