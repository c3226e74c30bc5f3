// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"themis/core/cluster"
)

// onSlots draws nodes of two slots, of which some GPUs are taken, and bids of gangs that
// are slower across slots, or do not care.
func onSlots(t *rapid.T) ([]Node, []Bid) {
	nodes := make([]Node, rapid.IntRange(1, 4).Draw(t, "nodes"))
	for i := range nodes {
		slots := []int{rapid.IntRange(0, 4).Draw(t, "slot"), rapid.IntRange(0, 4).Draw(t, "slot")}
		nodes[i] = Node{Name: fmt.Sprint("n", i), CPUs: -1, MemMiB: -1, Slots: slots, GPUs: []cluster.GPUs{{Total: slots[0] + slots[1]}}, Real: slots[0] + slots[1]}
	}
	bids := make([]Bid, rapid.IntRange(1, 6).Draw(t, "apps"))
	for i := range bids {
		work := float64(rapid.IntRange(1, 20).Draw(t, "work"))
		bids[i] = Bid{App: fmt.Sprint("app", i), Order: int64(i), Rho: func(rate, lost float64) float64 { return (1 + work/max(rate, .1)) / work }}
		across := rapid.SampledFrom([]float64{1, .7}).Draw(t, "across")
		for k := range rapid.IntRange(1, 3).Draw(t, "gangs") {
			bids[i].Gangs = append(bids[i].Gangs, Gang{ID: fmt.Sprint(i, ".", k), Shape: cluster.Shape{NodesMin: 1, NodesMax: 1, GPUsPerNode: rapid.IntRange(1, 6).Draw(t, "gpus")},
				Rate: func(gpus int, level cluster.Level) float64 {
					if level == cluster.Slot {
						return float64(gpus)
					}
					return float64(gpus) * across
				}})
		}
	}
	return nodes, bids
}

// TestSlots: whoever wins has so many GPUs of so many slots, none is sold twice, a level
// is what the slots say, the proof holds, and a division anew keeps all that.
func TestSlots(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, bids := onSlots(t)
		res := Run(NewSpace(nodes), bids)
		proof := res.Proof()
		if v, err := Verify(proof); err != nil || v.Gap() < -1e-9 {
			t.Fatalf("%v, %+v", err, v)
		}
		var gangs []Gang
		var placed []Placement
		check := func(when string, places []Placement) (rate float64) {
			sold := map[string]cluster.InSlots{}
			for _, p := range places {
				s := p.On[0]
				sum, in := 0, sold[s.Node]
				for k, n := range s.Slots {
					sum += int(n)
					in[k] += n
				}
				sold[s.Node] = in
				if sum != s.GPUs || p.Level != s.Slots.Level() {
					t.Fatalf("%s: gang %s has %d GPUs, in slots %v, at level %s", when, p.Gang, s.GPUs, s.Slots, p.Level)
				}
				rate += p.Rate
			}
			for _, n := range nodes {
				for k, free := range n.Slots {
					if in := sold[n.Name]; int(in[k]) > free {
						t.Fatalf("%s: %d of %d GPUs of slot %d of %s are sold", when, in[k], free, k, n.Name)
					}
				}
			}
			return rate
		}
		for _, a := range res.Awards {
			for _, p := range a.Places {
				gangs, placed = append(gangs, *gangOf(bids, p.Gang)), append(placed, p)
			}
		}
		check("after the auction", placed)
		NewSpace(nodes).Settle(gangs, placed)
		rate := check("divided anew", placed)
		if len(placed) == 1 && rate < gangs[0].rate(gangs[0].Shape.GPUsPerNode, cluster.Slot) {
			for _, n := range nodes {
				if max(n.Slots[0], n.Slots[1]) >= gangs[0].Shape.GPUsPerNode {
					t.Fatalf("gang %s alone is at level %s, and %s has room in a slot", placed[0].Gang, placed[0].Level, n.Name)
				}
			}
		}
	})
}

func slotGang(id string, gpus int, across float64, held ...cluster.Share) Gang {
	return Gang{ID: id, Shape: cluster.Shape{NodesMin: 1, NodesMax: 1, GPUsPerNode: gpus}, Held: held,
		Rate: func(gpus int, level cluster.Level) float64 {
			return float64(gpus) * map[bool]float64{true: 1, false: across}[level == cluster.Slot]
		}}
}

// TestSettle: who loses most by leaving its slot comes first, after those that run.
func TestSettle(t *testing.T) {
	nodes := []Node{{Name: "n", CPUs: -1, MemMiB: -1, Slots: []int{4, 4}, GPUs: []cluster.GPUs{{Total: 8}}}}
	place := func(gpus int, in cluster.InSlots) Placement {
		return Placement{On: []cluster.Share{{Node: "n", GPUs: gpus, Slots: in}}}
	}
	gangs := []Gang{slotGang("compute", 3, 1), slotGang("network", 3, .5), slotGang("runs", 2, .7, cluster.Share{Node: "n", GPUs: 2, Slots: cluster.InSlots{2}})}
	placed := []Placement{place(3, cluster.InSlots{0, 3}), place(3, cluster.InSlots{2, 1}), place(2, cluster.InSlots{2})}
	NewSpace(nodes).Settle(gangs, placed)
	for i, want := range []cluster.InSlots{{2, 1}, {0, 3}, {2, 0}} {
		if got := placed[i].On[0].Slots; got != want {
			t.Errorf("%s is in %v, want %v", gangs[i].ID, got, want)
		}
	}
	if placed[1].Rate != 3 || placed[1].Level != cluster.Slot || placed[0].Level != cluster.Machine {
		t.Errorf("%+v", placed)
	}
}

// TestNodeWithASlot: a gang that is slower across slots goes to a node with one for it,
// another to the fullest.
func TestNodeWithASlot(t *testing.T) {
	for across, want := range map[float64]string{.7: "n2", 1: "n1"} {
		s := NewSpace([]Node{
			{Name: "n1", CPUs: -1, MemMiB: -1, Slots: []int{1, 1}, GPUs: []cluster.GPUs{{Total: 2}}, Real: 2},
			{Name: "n2", CPUs: -1, MemMiB: -1, Slots: []int{1, 3}, GPUs: []cluster.GPUs{{Total: 4}}, Real: 4}})
		if p := s.PlaceAll([]Gang{slotGang("g", 2, across)}); p == nil || p[0].On[0].Node != want {
			t.Errorf("at %g of its speed across slots it is placed at %+v, want %s", across, p, want)
		}
	}
}

// TestPick: the slot with the fewest that has enough, else the fullest first.
func TestPick(t *testing.T) {
	for _, c := range []struct {
		free cluster.InSlots
		gpus int
		want cluster.InSlots
	}{
		{cluster.InSlots{4, 2}, 1, cluster.InSlots{0, 1}},
		{cluster.InSlots{4, 2}, 3, cluster.InSlots{3}},
		{cluster.InSlots{3, 1, 2}, 5, cluster.InSlots{3, 0, 2}},
		{cluster.InSlots{3, 2, 2}, 7, cluster.InSlots{3, 2, 2}},
		{cluster.InSlots{1, 1}, 3, cluster.InSlots{}},
		{cluster.InSlots{}, 1, cluster.InSlots{}},
	} {
		if got := c.free.Pick(c.gpus); got != c.want {
			t.Errorf("%d of %v: %v, want %v", c.gpus, c.free, got, c.want)
		}
	}
}
