// SPDX-License-Identifier: Apache-2.0

// Package auctiontest makes auction rounds of any size from a seed, for tests
// and benchmarks. Equal seeds make equal rounds.
package auctiontest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"themis/core/auction"
	"themis/core/cluster"
)

// Size is a kind of round.
type Size struct {
	Name string
	Apps int
	// GPUs of the cluster, eight to a node, and how many percent of them are
	// free on average.
	GPUs, Free int
	Odd        bool // gangs of 3, 5, 6 GPUs too
	Lean       bool // CPUs and memory are short on many nodes
	Mixed      bool // every other rack has fast GPUs, from which half of the apps gain
}

// Sizes are the rounds that `make bench` shows.
var Sizes = []Size{
	{Name: "1000x200-60", GPUs: 1000, Apps: 200, Free: 60},
	{Name: "1000x200-30", GPUs: 1000, Apps: 200, Free: 30},
	{Name: "1000x200-10", GPUs: 1000, Apps: 200, Free: 10},
	{Name: "1000x200-60-odd", GPUs: 1000, Apps: 200, Free: 60, Odd: true},
	{Name: "1000x200-60-lean", GPUs: 1000, Apps: 200, Free: 60, Lean: true},
	{Name: "10000x1000-60", GPUs: 10000, Apps: 1000, Free: 60},
	{Name: "10000x1000-30", GPUs: 10000, Apps: 1000, Free: 30},
	{Name: "10000x1000-10", GPUs: 10000, Apps: 1000, Free: 10},
}

// Mixed are rounds with GPUs of two types.
var Mixed = []Size{
	{Name: "1000x200-60-mixed", GPUs: 1000, Apps: 200, Free: 60, Mixed: true},
	{Name: "1000x200-30-mixed", GPUs: 1000, Apps: 200, Free: 30, Mixed: true},
	{Name: "10000x1000-30-mixed", GPUs: 10000, Apps: 1000, Free: 30, Mixed: true},
}

// Round makes the nodes and bids of one round.
func Round(z Size, seed uint64) ([]auction.Node, []auction.Bid) {
	r := rand.New(rand.NewPCG(seed, 7))
	nodes := make([]auction.Node, z.GPUs/8)
	for i := range nodes {
		free := 0
		for range 8 {
			if r.IntN(100) < z.Free {
				free++
			}
		}
		if r.IntN(3) == 0 { // jobs leave whole nodes, too
			free = 8 * (free / 4 % 2)
		}
		cpus, mem := 16*free+r.IntN(16), int64(120_000*free+r.IntN(100_000))
		if z.Lean && r.IntN(3) == 0 {
			cpus, mem = r.IntN(8*free+1), int64(r.IntN(60_000*free+1))
		}
		nodes[i] = auction.Node{Name: fmt.Sprintf("n%04d", i), Rack: fmt.Sprintf("r%03d", i/16), CPUs: cpus, MemMiB: mem,
			GPUs: []cluster.GPUs{{Total: free}}, Idle: free == 8, Real: free}
	}
	bids := make([]auction.Bid, z.Apps)
	for i := range bids {
		bids[i] = bid(r, z, i)
	}
	if z.Mixed {
		mix(r, nodes, bids)
	}
	return nodes, bids
}

// mix gives every other rack fast GPUs and half of the apps a use for them.
func mix(r *rand.Rand, nodes []auction.Node, bids []auction.Bid) {
	var names []string
	for i := range nodes {
		if nodes[i].GPUs[0].Type = "v100"; i/16%2 == 0 {
			nodes[i].GPUs[0].Type = "a100"
			names = append(names, nodes[i].Name)
		}
	}
	scope := auction.NewScope(names)
	for i := range bids {
		if r.IntN(2) == 0 {
			faster := []auction.Faster{{Scope: scope, Times: 1.2 + 2*r.Float64()}}
			for k := range bids[i].Gangs {
				bids[i].Gangs[k].Faster = faster
			}
		}
	}
}

// shapes of gangs: GPUs per node and nodes.
var (
	even = [][2]int{{1, 1}, {1, 1}, {2, 1}, {4, 1}, {4, 1}, {8, 1}, {8, 2}}
	odd  = [][2]int{{1, 1}, {2, 1}, {3, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {8, 1}, {3, 2}, {8, 2}}
)

func bid(r *rand.Rand, z Size, i int) auction.Bid {
	shapes := even
	if z.Odd {
		shapes = odd
	}
	shape := shapes[r.IntN(len(shapes))]
	speed := []float64{1, 1, .98, .96}
	if r.IntN(2) == 0 {
		speed = []float64{1, 1, .7, .5}
	}
	b := auction.Bid{App: fmt.Sprintf("app%04d", i), Order: int64(i)}
	count := 1 + r.IntN(20)
	for k := range count {
		b.Gangs = append(b.Gangs, auction.Gang{
			ID: fmt.Sprintf("%d.%d", i, k),
			Shape: cluster.Shape{GPUsPerNode: shape[0], NodesMin: shape[1], NodesMax: shape[1],
				CPUsPerGPU: 4 << r.IntN(2), MemPerGPU: int64(30_000 << r.IntN(2))},
			Rate: func(gpus int, level cluster.Level) float64 { return float64(gpus) * speed[level] },
		})
		b.Gangs[k].Shape.CPUsPerGPU, b.Gangs[k].Shape.MemPerGPU = b.Gangs[0].Shape.CPUsPerGPU, b.Gangs[0].Shape.MemPerGPU
	}
	// Times in leases: what was waited, what is left at the fair share.
	each := math.Exp(r.NormFloat64())*6 + 0.5 // run time of a job
	work := each * float64(count*shape[0]*shape[1])
	fair := float64(z.GPUs) / float64(z.Apps) * (0.5 + r.Float64())
	waited := r.ExpFloat64() * 20
	b.Rho = Kept(waited, work, each, min(fair, 1)/10, waited*(0.5+r.Float64())+max(work/fair, each))
	return b
}

// Kept is the rho of a live bid (fairness.Outlook.Bid): an app that has waited,
// has so much work left in jobs of which the longest takes so long, keeps its
// rate to the end, is counted at the least rate if it has none, and is measured
// against an ideal time; times in leases, work in GPU-leases.
func Kept(waited, work, longest, least, ideal float64) func(rate, lost float64) float64 {
	return func(rate, lost float64) float64 {
		return (waited + max((work+lost)/max(rate, least), longest)) / ideal
	}
}
