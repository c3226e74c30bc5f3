// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"slices"

	"themis/core/cluster"
)

// The tightest level of the paper (section 2.2) is a slot: one socket, or one NVLink
// island. A gang that is placed takes its GPUs out of slots of its nodes, from one if
// it can; the host is told which. A bid counts on a slot wherever one is large enough,
// so that the bound holds; an allocation is worth what its gangs really got.

// pick chooses the slots that a share comes from, unless it is said and they are free.
func (s *Space) pick(sp *spec, c *cell, h *hold) {
	if len(sp.held) == 0 && (h.in == (cluster.InSlots{}) || !c.room.Has(h.in)) {
		h.in = c.room.Pick(h.gpus)
	}
	h.room = h.in
	for k := range h.room { // a running job has what it has
		h.room[k] = min(h.room[k], c.room[k])
	}
}

// far is 1 if a gang that is faster in one slot of the node would get none.
func (sp *spec) far(c *cell, gpus int) int32 {
	if !sp.slotted || c.slots == 0 || slices.ContainsFunc(c.room[:], func(free uint8) bool { return int(free) >= gpus }) {
		return 0
	}
	return 1
}

// Settle divides the slots of each node anew among the gangs that the round placed
// there: those that run have theirs, then the one comes first that loses most by being
// in several. The space is that of the round before anything was placed. Gangs are in
// the order of their placements, which are changed.
func (s *Space) Settle(gangs []Gang, placed []Placement) {
	if !s.divided {
		return
	}
	specs, order := make([]spec, len(gangs)), make([]int, len(gangs))
	for i := range gangs {
		specs[i], order[i] = s.read(&gangs[i]), i
	}
	loss := func(i int) float64 {
		g, n := &gangs[i], gangs[i].Shape.Count()
		return g.rate(n, cluster.Slot) - g.rate(n, cluster.Machine)
	}
	slices.SortStableFunc(order, func(x, y int) int {
		return cmp.Or(cmp.Compare(len(gangs[y].Held), len(gangs[x].Held)), cmp.Compare(loss(y), loss(x)), cmp.Compare(gangs[y].Shape.Count(), gangs[x].Shape.Count()))
	})
	for _, i := range order {
		on := s.shares(placed[i].On)
		for k := range on {
			if len(specs[i].held) == 0 {
				on[k].in = cluster.InSlots{}
			}
			h := s.take(&specs[i], on[k], len(on))
			on[k] = h.share
		}
		placed[i] = s.placement(&specs[i], on)
	}
}
