// SPDX-License-Identifier: Apache-2.0

package auction_test

import (
	"slices"
	"testing"
	"time"

	"themis/core/auction"
	"themis/core/auction/auctiontest"
)

func TestGap(t *testing.T) {
	for _, z := range auctiontest.Sizes {
		n := 20
		if z.GPUs > 1000 {
			n = 3
		}
		var gaps, took []float64
		for seed := range n {
			nodes, bids := auctiontest.Round(z, uint64(seed))
			begin := time.Now()
			res := auction.Run(auction.NewSpace(nodes), bids)
			took = append(took, time.Since(begin).Seconds()*1e3)
			gaps = append(gaps, (res.Bound-res.Welfare)/float64(len(bids)))
		}
		slices.Sort(gaps)
		slices.Sort(took)
		t.Logf("%-18s gap per bidder: least %.5f median %.5f p95 %.5f most %.5f; ms median %.1f most %.1f", z.Name, gaps[0], gaps[n/2], gaps[n*95/100], gaps[n-1], took[n/2], took[n-1])
	}
}
