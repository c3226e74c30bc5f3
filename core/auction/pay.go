// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"math"
	"slices"
)

// bracket is what is known of a payment: low <= c_i <= high, both in (0,1].
type bracket struct{ low, high float64 }

// payments brackets c, the product of the others' 1/rho with an owner's apps
// over that product without them (paper section 5.1, step 5), with the weights
// as exponents and the owner's own weight taken out again. It is reckoned for
// all apps of an owner together, so that nobody pays less by dividing its work
// into apps differently.
//
// The market without an owner is worth at most the bound less its apps'
// surplus, at the same prices; and at least what the others have once they
// refill what it leaves. A small market is solved anew, to the end.
func (m *model) payments(pr *prices, p *packing, exact bool) []bracket {
	out := make([]bracket, len(m.bidders))
	owners, order := map[string][]int{}, []string(nil)
	for i, d := range m.bidders {
		out[i] = bracket{1, 1}
		name := d.owner()
		if owners[name] == nil {
			order = append(order, name)
		}
		owners[name] = append(owners[name], i)
	}
	s := m.newSearch(p, pr)
	eager := s.eager()
	for _, name := range order {
		apps := owners[name]
		most, weight, won, worth := pr.bound, 0.0, false, 0.0
		for _, i := range apps {
			most -= pr.surplus[i]
			weight += m.bidders[i].weight
			worth += p.worth[i]
			won = won || p.k[i] > 0
		}
		if !won {
			continue
		}
		others := p.welfare - worth
		least := s.refill(apps, eager)
		if exact && len(m.bidders) <= exactApps {
			if w, done := m.without(apps); w >= least-tie {
				if least = w; done {
					most = w
				}
			}
		}
		most = max(most, least)
		c := bracket{max(math.Exp(min(others-most, 0)/weight), 1e-300), max(math.Exp(min(others-least, 0)/weight), 1e-300)}
		for _, i := range apps {
			if p.k[i] > 0 {
				out[i] = c
			}
		}
	}
	return out
}

// owner names whose apps pay together.
func (d *bidder) owner() string {
	if d.bid.Owner == "" {
		return "\x00" + d.bid.App
	}
	return d.bid.Owner
}

// eager lists who would like more, those first who gain most per price.
func (s *search) eager() []int {
	var out []int
	ratio := make([]float64, len(s.m.bidders))
	for i := range s.m.bidders {
		var to int
		if to, ratio[i] = s.jump(i); to > 0 {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(ratio[b], ratio[a]) })
	return out
}

// without solves the market in which some bidders take no part.
func (m *model) without(out []int) (welfare float64, exact bool) {
	rest := *m
	rest.bidders = nil
	for i, d := range m.bidders {
		if !slices.Contains(out, i) {
			rest.bidders = append(rest.bidders, d)
		}
	}
	_, p, exact := rest.solve(payVisits)
	return p.welfare, exact
}

// refill is what the others have if some bidders leave and who wants more takes
// what they leave; the packing stays as it was.
func (s *search) refill(out, eager []int) float64 {
	mark, own, freed := s.mark(), 0.0, 0
	for _, i := range out {
		own += s.worth[i]
		for gi := range s.at[i] {
			if on := s.at[i][gi].shares(); len(on) > 0 {
				freed += sum(on)
				s.move(ref{i, gi}, nil, 0)
			}
		}
	}
	before := s.welfare - own
	var who []int
	for _, j := range eager {
		if len(who) == refillers {
			break
		}
		if !slices.Contains(out, j) && s.m.kinds[s.m.bidders[j].steps[s.k[j]].add[0]].Need.GPUs <= freed {
			who = append(who, j)
		}
	}
	s.fillUp(who, freed)
	least := max(s.welfare-own, before)
	s.rollback(mark)
	return least
}

// refillers bounds the bidders that are offered what an owner leaves.
const refillers = 48

// gpusOf counts what the bidder has been given.
func (s *search) gpusOf(i int) int {
	n := 0
	for gi := range s.at[i] {
		for h := range s.at[i][gi].holds {
			n += s.at[i][gi].holds[h].gpus
		}
	}
	return n
}
