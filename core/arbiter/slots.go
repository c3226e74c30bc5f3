// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"math"
	"slices"

	"themis/core/auction"
	"themis/core/cluster"
)

// Slots of a node: the auction says which a winner's GPUs come from, the host sees to
// it, and says which it really got.

// divideSlots says which slots of their nodes those have that won.
func (m *market) divideSlots() {
	var gangs []auction.Gang
	var placed []auction.Placement
	for i := range m.bids {
		for _, g := range m.bids[i].Gangs {
			p, ok := m.placed[g.ID]
			if !ok {
				continue
			}
			if l := m.byJob[g.ID].Lease; l != nil && slices.EqualFunc(l.On, p.On, func(x, y cluster.Share) bool { return x.Node == y.Node && x.GPUs == y.GPUs }) {
				g.Held = l.On // it stays
			}
			gangs, placed = append(gangs, g), append(placed, p)
		}
	}
	auction.NewSpace(m.offered).Settle(gangs, placed)
	for _, p := range placed {
		m.placed[p.Gang] = p
	}
}

// room counts the GPUs of each slot of the node that are under no lease; running
// leaves out the leases that have not started.
func (a *Arbiter) room(n *cluster.Node, running bool) (free cluster.InSlots) {
	var held, granted [cluster.SlotsMost]int
	for _, l := range a.leases {
		for _, s := range l.On {
			if s.Node != n.Name {
				continue
			}
			for k, gpus := range s.Slots {
				switch l.State {
				case Held, Ending:
					held[k] += int(gpus)
				case Granted:
					granted[k] += int(gpus)
				}
			}
		}
	}
	for k, s := range n.Slots {
		left := s.Total - max(s.Used, held[k])
		if !running {
			left -= granted[k]
		}
		free[k] = uint8(min(max(left, 0), math.MaxUint8))
	}
	return free
}

// place says which slots a lease gets that waited for its GPUs.
func (a *Arbiter) place(l *Lease) {
	for i := range l.On {
		s := &l.On[i]
		if n := a.nodeOf(s.Node); n != nil && len(n.Slots) > 0 {
			if room := a.room(n, false); s.Slots == (cluster.InSlots{}) || !room.Has(s.Slots) {
				s.Slots = room.Pick(s.GPUs)
			}
		}
	}
}
