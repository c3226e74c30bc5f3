// SPDX-License-Identifier: Apache-2.0

// Package auction holds one round of the paper's auction (section 5): apps bid
// for the GPUs on offer with what their rho would become, the allocation that
// maximises the product of 1/rho wins, and each winner pays by how much its
// presence costs the others.
//
// A round is solved from prices. Rows (row.go) bound what any allocation can
// use; prices on them (price.go) bound the welfare; each bidder's best answer
// to the prices is packed onto nodes (pack.go) and improved (improve.go, evict.go). Small
// rounds are then searched to the end (exact.go). The prices are kept: with
// them Verify (verify.go) proves how good the allocation is, whoever found it.
//
// A round is a function of its offer and bids: no clock, randomness or
// goroutine. Equal bids are told apart by Bid.Order, which the caller derives
// from submission, never from names or input order; equal nodes by their names,
// which changes nothing but the names in the result.
package auction

import (
	"cmp"
	"math"
	"slices"
)

// Award is what one app won.
type Award struct {
	App    string
	Places []Placement
	Rho    float64 // with the award
	Before float64 // without it
	// Payment is c_i in (0,1]: the share of its winnings that the app is left
	// with. The true c_i lies between PaymentLow and Payment: what is charged is
	// the side that is kinder to the app.
	Payment, PaymentLow float64
}

// Result is a round's outcome.
type Result struct {
	Awards  []Award // in the order of the bids' Order
	Welfare float64 // sum over all bids of weight * log(1/rho)
	Bound   float64 // no allocation has more welfare
	Exact   bool    // the search came to its end: nothing is better
	Wishes  []Wish  // of those who would have liked more

	model   *model
	prices  *prices
	packing *packing
	pay     []bracket
}

// Effort that a round may take. All are counts, not times, so that a round has
// one result on any machine.
const (
	priceSteps  = 100    // subgradient steps
	nodesMost   = 40_000 // nodes looked at to improve a packing
	exactApps   = 16     // beyond, a round is not searched to the end
	exactVisits = 20000  // allocations looked at
	payVisits   = 4000   // of the market without a winner
)

// Run holds a round. The space is left with what nobody won.
func Run(space *Space, bids []Bid) Result {
	bids = slices.Clone(bids)
	slices.SortStableFunc(bids, func(a, b Bid) int { return cmp.Compare(a.Order, b.Order) })
	m := newModel(space.clone(), bids)
	pr, p, exact := m.solve(exactVisits)
	res := Result{Welfare: p.welfare, Bound: pr.bound, Exact: exact, model: m, prices: pr, packing: p}
	if exact {
		res.Bound = p.welfare
	}
	res.pay = m.payments(pr, p, exact)
	res.award()
	res.Wishes = m.wishes(pr, p)
	*space = *p.s.clone()
	return res
}

// award lists what each winner has.
func (r *Result) award() {
	r.Awards = nil
	for i, d := range r.model.bidders {
		if p := r.packing; p.k[i] > 0 {
			r.Awards = append(r.Awards, Award{App: d.bid.App, Places: p.placements(i), Rho: p.rho(i),
				Before: d.rho[0][0], Payment: r.pay[i].high, PaymentLow: r.pay[i].low})
		}
	}
}

// Withhold charges in the paper's own form: a winner keeps the share c of its
// GPUs, in whole gangs from the start of its ladder, at least the first. The
// space gets back what is withheld.
func (r *Result) Withhold(space *Space) {
	s := r.model.newSearch(r.packing, r.prices)
	for i := range r.model.bidders {
		keep := r.pay[i].high * float64(s.gpusOf(i))
		for s.k[i] > 1 && float64(s.gpusOf(i)) > keep+1e-9 {
			s.drop(i)
		}
	}
	r.Welfare, r.Exact = r.packing.welfare, false
	r.Bound = r.prices.bound
	r.award()
	*space = *r.packing.s.clone()
}

// Wish is the next step that an app was not served.
type Wish struct {
	App   string
	Gain  float64 // weight * log(1/rho)
	Price float64 // of the GPUs it takes, in the same unit
}

func (m *model) wishes(pr *prices, p *packing) []Wish {
	var out []Wish
	s := m.newSearch(p, pr)
	for i, d := range m.bidders {
		if to, _ := s.jump(i); to > 0 {
			out = append(out, Wish{d.bid.App, d.value[to][d.most(to)] - p.worth[i], s.cost[i][to] - s.cost[i][p.k[i]]})
		}
	}
	return out
}

// solve finds prices and an allocation; exact tells that it is the best.
func (m *model) solve(visits int) (*prices, *packing, bool) {
	pr := m.newPrices()
	all := make([]int, len(m.bidders))
	for i := range all {
		all[i] = i
	}
	m.quote(pr) // all for nothing
	best := m.newPacking()
	best.price(pr)
	best.start(pr.answer)
	if pr.bound-best.welfare <= tie {
		return pr, best, true // nobody's gain is another's loss
	}
	best = nil
	for pass := range 2 {
		reached := math.Inf(-1)
		if best != nil {
			reached = best.welfare
		}
		m.lower(pr, reached, priceSteps)
		p := m.newPacking()
		p.price(pr)
		p.start(pr.answer)
		s := m.newSearch(p, pr)
		s.fill(all)
		s.improve(nodesMost)
		if best == nil || p.welfare > best.welfare+tie {
			best = p
		}
		if pr.bound-best.welfare <= 1e-4*float64(len(m.bidders)) || pass > 0 {
			break
		}
	}
	exact := pr.bound-best.welfare <= tie*float64(1+len(m.bidders))
	if !exact && len(m.bidders) <= exactApps && len(m.bidders) > 0 {
		exact = m.explore(pr, best, visits) && !m.space.divided // slots are not enumerated
	}
	return pr, best, exact
}
