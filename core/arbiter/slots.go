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
func (m *market) divideSlots(a *Arbiter) {
	if a.slot == 0 {
		return
	}
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
	for _, g := range m.kept {
		gangs, placed = append(gangs, g), append(placed, m.placed[g.ID])
	}
	auction.NewSpace(m.offered).Settle(gangs, placed)
	for _, p := range placed {
		m.placed[p.Gang] = p
	}
}

// leased counts by node and slot the GPUs under leases that match.
func (a *Arbiter) leased(match func(*Lease) bool) map[string]cluster.InSlots {
	out := map[string]cluster.InSlots{}
	if a.slot == 0 {
		return out
	}
	for _, l := range a.leases {
		for _, s := range l.On {
			if in := out[s.Node]; s.Slots != (cluster.InSlots{}) && match(l) {
				for k := range in {
					in[k] += s.Slots[k]
				}
				out[s.Node] = in
			}
		}
	}
	return out
}

// room counts the GPUs of each slot that are free, or free but for those leased.
func room(n *cluster.Node, held, granted cluster.InSlots) (free cluster.InSlots) {
	for k, s := range n.Slots {
		free[k] = uint8(min(max(s.Total-max(s.Used, int(held[k]))-int(granted[k]), 0), math.MaxUint8))
	}
	return free
}

func holds(l *Lease) bool   { return l.State == Held || l.State == Ending }
func granted(l *Lease) bool { return l.State == Granted }

// place says which slots a lease gets that waited for its GPUs.
func (a *Arbiter) place(l *Lease) {
	held, promised := a.leased(holds), a.leased(granted)
	l.rate = 0
	for i := range l.On {
		s := &l.On[i]
		if n := a.nodeOf(s.Node); n != nil && len(n.Slots) > 0 {
			if room := room(n, held[s.Node], promised[s.Node]); s.Slots == (cluster.InSlots{}) || !room.Has(s.Slots) {
				s.Slots = room.Pick(s.GPUs)
			}
		}
	}
}
