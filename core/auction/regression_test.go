// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"fmt"
	"math"
	"testing"

	"themis/core/cluster"
)

// TestOnceWrong: rounds that were once solved wrongly.
func TestOnceWrong(t *testing.T) {
	rho := func(rate, lost float64) float64 { return (10 + lost) / (rate + .5) }
	app := func(i int, g ...Gang) Bid {
		for k := range g {
			g[k].ID = fmt.Sprint(i, ".", k)
		}
		return Bid{App: fmt.Sprint("a", i), Order: int64(i), Rho: rho, Gangs: g}
	}
	speed := func(s ...float64) func(int, cluster.Level) float64 {
		return func(n int, l cluster.Level) float64 { return float64(n) * s[l] }
	}
	with := func(nodes []Node, change func(i int, n *Node)) []Node {
		for i := range nodes {
			change(i, &nodes[i])
		}
		return nodes
	}
	var nine []Bid
	for i := range 8 {
		nine = append(nine, app(i, Gang{Scope: NewScope([]string{fmt.Sprint("n", i)}), Shape: one(4)}))
	}
	exclusive := one(1)
	exclusive.Exclusive = true
	scaling := cluster.Shape{NodesMin: 2, NodesMax: 3, GPUsPerNode: 2}
	cases := []struct {
		name  string
		nodes []Node
		bids  []Bid
		want  string // app:GPUs
	}{
		{"split gangs of one kind, only one of which may stay on a node", plain(2, 4), []Bid{
			app(0, Gang{Shape: cluster.Shape{NodesMin: 2, NodesMax: 2, GPUs: 2}, Rate: speed(1, 1, .3, .3)}),
			app(1, Gang{Shape: cluster.Shape{NodesMin: 1, NodesMax: 2, GPUs: 2}, Rate: speed(1, 1, .3, .3)})}, "a0:2 a1:2"},
		{"a gang that never fits must not rule out its like", with(plain(2, 4), func(_ int, n *Node) { n.MemMiB = 100 }), []Bid{
			app(0, Gang{Shape: cluster.Shape{GPUs: 2, NodesMax: 2, MemPerNode: 1000}}),
			app(1, Gang{Shape: cluster.Shape{GPUs: 2, NodesMax: 2}})}, "a1:2"},
		{"more choices of nodes than are told apart", plain(10, 4), append(nine,
			app(8, Gang{Scope: NewScope(nil), Shape: one(2)}), app(9, Gang{Shape: one(2)})), "a0:4 a1:4 a2:4 a3:4 a4:4 a5:4 a6:4 a7:4 a9:2"},
		{"a held gang beside a fresh one of its kind", with(plain(4, 2), func(i int, n *Node) {
			n.Rack = []string{"r", "r", "q", "p"}[i]
			if i > 1 {
				n.Real = 0
			}
		}), []Bid{app(0, Gang{Shape: cluster.Shape{NodesMin: 2, NodesMax: 2, GPUsPerNode: 2}, Rate: speed(1, 1, 1, .3)},
			Gang{Shape: cluster.Shape{NodesMin: 2, NodesMax: 2, GPUsPerNode: 2}, Rate: speed(1, 1, 1, .3), Held: []cluster.Share{{Node: "n2", GPUs: 2}, {Node: "n3", GPUs: 2}}})}, "a0:8"},
		{"gangs of one shape, only one of which gains by a second node", with(plain(3, 2), func(i int, n *Node) { n.Rack = []string{"r", "r", ""}[i] }), []Bid{
			app(0, Gang{Shape: cluster.Shape{NodesMin: 1, NodesMax: 2, GPUsPerNode: 2, CPUs: 1}}, Gang{Shape: cluster.Shape{NodesMin: 1, NodesMax: 2, GPUsPerNode: 2, CPUs: 1}, Rate: speed(1, 1, .8, .5)})}, "a0:6"},
		{"a gang of two nodes grows by one", plain(4, 2), []Bid{app(0, Gang{Shape: scaling, Rate: speed(1, 1, 1, 1)})}, "a0:6"},
		{"nodes that running jobs hold are no twins when half used", with(plain(2, 4), func(_ int, n *Node) { n.Real = 0 }), []Bid{
			app(0, Gang{Shape: one(3)}), app(1, Gang{Shape: one(2)}), app(2, Gang{Shape: one(2)})}, "a0:3 a1:2 a2:2"},
		{"a group whose second gang has one place only", plain(2, 2), []Bid{
			app(0, Gang{Group: "g", Shape: one(1)}, Gang{Group: "g", Shape: one(1), Scope: NewScope([]string{"n0"})})}, "a0:2"},
		{"a job that needs two nodes for its CPUs and would grow", with(plain(2, 4), func(_ int, n *Node) { n.CPUs = 4 }), []Bid{
			app(0, Gang{Shape: cluster.Shape{NodesMin: 1, NodesMax: 2, GPUsPerNode: 2, CPUs: 6}, Rate: speed(1, 1, 1, 1)})}, "a0:4"},
		{"an exclusive job that stays beside others", with(plain(1, 4), func(_ int, n *Node) { n.Idle, n.Real = false, 3 }), []Bid{
			app(0, Gang{Shape: one(1)}), app(1, Gang{Shape: exclusive, Held: []cluster.Share{{Node: "n0", GPUs: 1}}})}, "a1:1"},
		{"who never ends without GPUs comes first also where it is slower than its bid", with(plain(2, 1), func(i int, n *Node) { n.CPUs = 1 - i }), []Bid{
			{App: "a0", Order: 0, Gangs: []Gang{{ID: "0.0", Shape: one(1)}}, Rho: func(rate, _ float64) float64 { return 1.4 - rate*.15 }},
			{App: "a1", Order: 1, Weight: 4, Gangs: []Gang{{ID: "1.0", Shape: cluster.Shape{NodesMin: 1, NodesMax: 2, GPUsPerNode: 1}, Rate: speed(1, 1, .5, .45), Faster: []Faster{{NewScope([]string{"n1"}), 2}}}}, Rho: func(rate, _ float64) float64 { return 2 / rate }}}, "a1:1"},
		{"no nodes, but choices of them", nil, []Bid{app(0, Gang{Shape: one(1), Scope: NewScope(nil)}, Gang{Shape: one(2), Scope: NewScope([]string{"x"})})}, ""},
		{"numbers out of range", plain(1, 2), []Bid{app(0, Gang{Shape: one(1<<32 + 1)}), app(1, Gang{Shape: cluster.Shape{GPUs: math.MaxInt}}),
			app(2, Gang{Shape: cluster.Shape{NodesMin: math.MaxInt, GPUsPerNode: 1}}), app(3, Gang{Shape: cluster.Shape{NodesMin: 3, NodesMax: 2, GPUsPerNode: 1}}), app(4, Gang{Shape: one(2)})}, "a4:2"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			res := Run(NewSpace(c.nodes), c.bids)
			if got := winners(&res); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if _, err := Verify(res.Proof()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEveryAppNeverEnds: when nobody ends without GPUs and few get any, payments
// are tiny and yet in range.
func TestEveryAppNeverEnds(t *testing.T) {
	var bids []Bid
	for i := range 200 {
		bids = append(bids, singles(i, 3, proportional(1000)))
	}
	res := Run(NewSpace(plain(10, 8)), bids)
	if _, err := Verify(res.Proof()); err != nil || len(res.Awards) != 80 {
		t.Errorf("%d of 200 apps have won 80 GPUs; %v", len(res.Awards), err)
	}
}
