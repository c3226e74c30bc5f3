// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"math"

	"themis/core/cluster"
)

// Proof is all that it takes to check a round again: what was on offer, every
// bid as a table over its options, the prices, and who got what. It holds no
// trace of how winners were found. Its JSON form is kept in the ledger.
type Proof struct {
	Nodes   []Offer    `json:"nodes"`
	Scopes  [][]int    `json:"scopes,omitempty"` // indices of nodes
	Kinds   []Kind     `json:"kinds"`
	Rows    []Row      `json:"rows"`
	Bids    []ProofBid `json:"bids"`
	Ground  float64    `json:"ground"`  // log(1/rho) of an infinite rho is minus this
	Welfare float64    `json:"welfare"` // sum of weight * log(1/rho)
	Bound   float64    `json:"bound"`   // by the prices
	Exact   bool       `json:"exact"`   // besides, every allocation was searched
}

// ProofBid is one app's bid and what it won.
type ProofBid struct {
	App    string      `json:"app"`
	Weight float64     `json:"weight"`
	Steps  []ProofStep `json:"steps"`
	Choice int         `json:"choice"` // kind whose level is told apart, or -1
	// Faster are the kinds of a gang of the choice kind on each set of nodes that
	// makes it faster; if there are any, its options are mixes of them.
	Faster []int `json:"faster,omitempty"`
	// Rho by steps served and gangs of the choice kind placed tight, or their
	// mix; -1 stands for infinite.
	Rho        [][]float64 `json:"rho"`
	Served     int         `json:"served"`
	After      float64     `json:"rho_after"`
	Payment    float64     `json:"payment"` // what is charged: the share of its winnings that is left
	PaymentLow float64     `json:"payment_low"`
	Places     []Placed    `json:"places,omitempty"`
}

// ProofStep is so many like steps of a bid's ladder, one after another.
type ProofStep struct {
	Times int   `json:"times"`
	Add   []int `json:"add"`  // kinds
	Drop  int   `json:"drop"` // kind, or -1
}

// Placed is a gang on its nodes.
type Placed struct {
	Gang  string `json:"gang"`
	Kind  int    `json:"kind"`
	Parts []Part `json:"parts"`
	Whole bool   `json:"whole_nodes,omitempty"`
}

// Part is what a gang takes of one node.
type Part struct {
	Node int `json:"node"` // index
	Need
}

// Proof states the round so that Verify can check it.
func (r *Result) Proof() *Proof {
	m, p := r.model, r.packing
	out := &Proof{Nodes: m.offers, Kinds: m.kinds, Ground: m.big, Welfare: p.welfare, Bound: r.prices.bound, Exact: r.Exact}
	for _, s := range m.scopes {
		ids := []int{}
		for n, ok := range s {
			if ok {
				ids = append(ids, n)
			}
		}
		out.Scopes = append(out.Scopes, ids)
	}
	for i, row := range m.rows {
		if math.IsInf(row.Capacity, 1) {
			continue // it binds nothing
		}
		row.Price = r.prices.row[i]
		out.Rows = append(out.Rows, row)
	}
	for i := range m.bidders {
		out.Bids = append(out.Bids, m.stated(p, i, r.pay[i]))
	}
	return out
}

func (m *model) stated(p *packing, i int, pay bracket) ProofBid {
	d := m.bidders[i]
	b := ProofBid{App: d.bid.App, Weight: d.weight, Choice: d.choice, Served: p.k[i], After: finite(p.rho(i)),
		Payment: pay.high, PaymentLow: pay.low, Steps: []ProofStep{}}
	for _, f := range d.sets {
		b.Faster = append(b.Faster, f.kind)
	}
	for n := range d.ladder {
		b.Steps = append(b.Steps, ProofStep{Times: d.end(n) - d.ladder[n].from, Add: d.ladder[n].add, Drop: d.ladder[n].drop})
	}
	for _, rhos := range d.rho {
		row := make([]float64, len(rhos))
		for r, rho := range rhos {
			row[r] = finite(rho)
		}
		b.Rho = append(b.Rho, row)
	}
	kind := make([]int, len(d.specs))
	for _, st := range d.steps[:p.k[i]] {
		for n, gi := range st.gangs {
			kind[gi] = st.add[n]
		}
	}
	for gi := range p.at[i] {
		holds := p.at[i][gi].holds
		if len(holds) == 0 {
			continue
		}
		g := &d.bid.Gangs[gi]
		pl := Placed{Gang: g.ID, Kind: kind[gi], Whole: g.Shape.Exclusive}
		for h := range holds {
			w := d.specs[gi].need(holds[h].gpus, len(holds))
			pl.Parts = append(pl.Parts, Part{int(holds[h].node), Need{holds[h].gpus, max(w.CPUs, holds[h].cpus), max(w.MemMiB, holds[h].mem)}})
		}
		b.Places = append(b.Places, pl)
	}
	return b
}

func finite(rho float64) float64 {
	if math.IsInf(rho, 1) {
		return -1
	}
	return rho
}

// Adopt moves the round's winners to other places, named by gang, and reports
// false, changing nothing, if they do not fit there. The welfare may fall.
func (r *Result) Adopt(places map[string]Placement) bool {
	p := r.packing
	mark := p.mark()
	type target struct {
		ref
		on []share
	}
	var moved []target
	for i := range p.at {
		d := p.m.bidders[i]
		for gi := range p.at[i] {
			to, ok := places[d.bid.Gangs[gi].ID]
			if now := p.at[i][gi].shares(); len(now) > 0 && ok {
				moved = append(moved, target{ref{i, gi}, p.s.shares(to.On)})
				p.move(ref{i, gi}, nil, 0)
			}
		}
	}
	for _, t := range moved {
		sp := &p.m.bidders[t.bidder].specs[t.gang]
		for _, sh := range t.on {
			if !p.s.holds(sp, sh.node, sh.gpus, len(t.on)) {
				p.rollback(mark)
				return false
			}
		}
		p.move(t.ref, t.on, len(t.on))
	}
	for i := range p.at {
		p.account(i, p.k[i])
	}
	r.Exact = r.Exact && p.welfare > r.Welfare-tie
	r.Welfare = p.welfare
	r.award()
	return true
}

// rho is the bidder's rho with what it has been given.
func (p *packing) rho(i int) float64 {
	d := p.m.bidders[i]
	if p.k[i] == 0 {
		return d.rho[0][0]
	}
	return d.rhoOf(p.rate(i), d.lost[p.k[i]])
}

// Level is how far apart the parts are.
func (p *Proof) Level(parts []Part) cluster.Level {
	on := make([]cluster.Share, len(parts))
	for i, part := range parts {
		on[i] = cluster.Share{Node: p.Nodes[part.Node].Name, GPUs: part.GPUs}
	}
	racks := map[string]string{}
	for _, part := range parts {
		racks[p.Nodes[part.Node].Name] = p.Nodes[part.Node].Rack
	}
	return cluster.SpanOf(on, func(n string) string { return racks[n] })
}
