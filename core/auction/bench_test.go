// SPDX-License-Identifier: Apache-2.0

package auction_test

import (
	"testing"

	"themis/core/auction"
	"themis/core/auction/auctiontest"
)

// BenchmarkRound holds whole rounds, payments and proof included.
func BenchmarkRound(b *testing.B) {
	for _, z := range append(auctiontest.Sizes, auctiontest.Mixed...) {
		b.Run(z.Name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				b.StopTimer()
				nodes, bids := auctiontest.Round(z, uint64(i%8))
				space := auction.NewSpace(nodes)
				b.StartTimer()
				auction.Run(space, bids)
			}
		})
	}
}
