// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"fmt"
	"math"
	"slices"

	"themis/core/cluster"
)

// Verdict is what a proof proves.
type Verdict struct {
	Bids    int
	Welfare float64 // of the allocation, summed anew
	Bound   float64 // no allocation has more: from the prices alone
}

// Gap is how much log welfare per bidder the allocation may be short of the
// best one; 0.01 is about one percent of everybody's rho.
func (v *Verdict) Gap() float64 { return (v.Bound - v.Welfare) / float64(max(v.Bids, 1)) }

// slackTolerance is what rounding may explain.
const slackTolerance = 1e-6

// Verify checks a round in time linear in its size. It takes from the proof what
// was on offer and what was bid, and nothing of what was concluded: that the allocation fits the nodes, that gangs are whole, that
// each app got a first part of its ladder, that the rows' capacities are those
// of the nodes, and that the prices, over every option of every bid, give the
// bound. The error names the first thing that is wrong. What a proof does not
// show is that the search was exhaustive, nor the kind end of a payment's range.
func Verify(p *Proof) (Verdict, error) {
	v := Verdict{Bids: len(p.Bids)}
	for _, check := range []func(*Verdict) error{p.checkForm, p.checkPlaces, p.checkLadders, p.checkBound} {
		if err := check(&v); err != nil {
			return v, err
		}
	}
	if g := p.ground(); !(p.Ground >= g-slackTolerance*(1+g)) || math.IsInf(p.Ground, 1) {
		return v, fmt.Errorf("an infinite rho counts as at least %.9g, the round says %.9g", g, p.Ground)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) <= slackTolerance*(1+math.Abs(a)) }
	switch {
	case !near(v.Welfare, p.Welfare):
		return v, fmt.Errorf("welfare is %.9g, the round says %.9g", v.Welfare, p.Welfare)
	case !near(v.Bound, p.Bound):
		return v, fmt.Errorf("the prices bound welfare by %.9g, the round says %.9g", v.Bound, p.Bound)
	case v.Welfare > v.Bound+slackTolerance*(1+math.Abs(v.Bound)):
		return v, fmt.Errorf("welfare %.9g is above its bound %.9g", v.Welfare, v.Bound)
	}
	return v, nil
}

// checkForm refuses indices that point nowhere and numbers that are none.
func (p *Proof) checkForm(*Verdict) error {
	kind := func(k int) bool { return k >= 0 && k < len(p.Kinds) }
	for _, n := range p.Nodes {
		if len(n.Types) != len(n.GPUs) {
			return fmt.Errorf("node %s has %d types and %d counts", n.Name, len(n.Types), len(n.GPUs))
		}
	}
	for i, s := range p.Scopes {
		for _, n := range s {
			if n < 0 || n >= len(p.Nodes) {
				return fmt.Errorf("scope %d names node %d of %d", i, n, len(p.Nodes))
			}
		}
	}
	for i := range p.Kinds {
		k := &p.Kinds[i]
		if k.Nodes < 1 || k.Need.GPUs < 0 || k.Need.CPUs < 0 || k.Need.MemMiB < 0 || k.Scope < -1 || k.Scope >= len(p.Scopes) {
			return fmt.Errorf("kind %d is malformed", i)
		}
	}
	for i, r := range p.Rows {
		if !(r.Price >= 0) || math.IsInf(r.Price, 1) || r.Nodes < 1 || r.Scope < -1 || r.Scope >= len(p.Scopes) {
			return fmt.Errorf("row %d is malformed: prices must be finite and not negative", i)
		}
	}
	for i := range p.Bids {
		b := &p.Bids[i]
		steps := 0
		for _, s := range b.Steps {
			for _, k := range s.Add {
				if !kind(k) {
					return fmt.Errorf("bid of %s names kind %d of %d", b.App, k, len(p.Kinds))
				}
			}
			if s.Times < 1 || s.Times > len(b.Rho) || s.Drop != -1 && !kind(s.Drop) {
				return fmt.Errorf("bid of %s has a malformed step", b.App)
			}
			steps += s.Times
		}
		if len(b.Rho) != steps+1 || b.Served < 0 || b.Served > steps || b.Choice != -1 && !kind(b.Choice) || !(b.Weight > 0) {
			return fmt.Errorf("bid of %s has %d steps, is served %d and states rho for %d", b.App, steps, b.Served, len(b.Rho)-1)
		}
		for _, k := range b.Faster {
			if !kind(k) || p.Kinds[k].Scope < 0 || b.Choice == -1 {
				return fmt.Errorf("bid of %s is faster on kind %d of %d", b.App, k, len(p.Kinds))
			}
		}
		for _, rho := range b.Rho {
			if len(rho) == 0 || b.Choice == -1 && len(rho) > 1 || len(b.Faster) > 0 && len(rho) > mixesMost {
				return fmt.Errorf("bid of %s states rho for %d tight gangs", b.App, len(rho)-1)
			}
		}
		if !(0 < b.PaymentLow && b.PaymentLow <= b.Payment && b.Payment <= 1) {
			return fmt.Errorf("payment of %s is %g, at least %g: it must be in (0, 1]", b.App, b.Payment, b.PaymentLow)
		}
		for _, pl := range b.Places {
			if !kind(pl.Kind) || len(pl.Parts) == 0 {
				return fmt.Errorf("gang %s of %s is malformed", pl.Gang, b.App)
			}
			for _, part := range pl.Parts {
				if part.Node < 0 || part.Node >= len(p.Nodes) || part.CPUs < 0 || part.MemMiB < 0 {
					return fmt.Errorf("gang %s of %s is on node %d of %d", pl.Gang, b.App, part.Node, len(p.Nodes))
				}
			}
		}
	}
	return nil
}

// checkPlaces sees that gangs are whole, on nodes of their choice, and that no
// node gives more than it has.
func (p *Proof) checkPlaces(*Verdict) error {
	used := make([]Need, len(p.Nodes))
	typed := map[int]map[string]int{}
	gangs, whole := make([]int, len(p.Nodes)), make([]bool, len(p.Nodes))
	in := p.inScopes()
	for i := range p.Bids {
		for _, pl := range p.Bids[i].Places {
			k := &p.Kinds[pl.Kind]
			var total Need
			seen := map[int]bool{}
			for _, part := range pl.Parts {
				n := part.Node
				if seen[n] {
					return fmt.Errorf("gang %s is on node %s twice", pl.Gang, p.Nodes[n].Name)
				}
				seen[n] = true
				if !k.Split && (part.GPUs != k.Need.GPUs || part.CPUs < k.Need.CPUs || part.MemMiB < k.Need.MemMiB) || part.GPUs < 1 {
					return fmt.Errorf("gang %s takes %d GPUs, %d CPUs, %d MiB of %s; it needs %d, %d, %d", pl.Gang,
						part.GPUs, part.CPUs, part.MemMiB, p.Nodes[n].Name, k.Need.GPUs, k.Need.CPUs, k.Need.MemMiB)
				}
				if k.Scope >= 0 && !in[k.Scope][n] {
					return fmt.Errorf("gang %s may not run on %s", pl.Gang, p.Nodes[n].Name)
				}
				total.GPUs += part.GPUs
				total.CPUs += part.CPUs
				total.MemMiB += part.MemMiB
				used[n].GPUs += part.GPUs
				used[n].CPUs += part.CPUs
				used[n].MemMiB += part.MemMiB
				gangs[n]++
				whole[n] = whole[n] || pl.Whole
				if k.Type != "" {
					if typed[n] == nil {
						typed[n] = map[string]int{}
					}
					typed[n][k.Type] += part.GPUs
				}
			}
			if k.Split && (total.GPUs != k.Need.GPUs || total.CPUs < k.Need.CPUs || total.MemMiB < k.Need.MemMiB || len(pl.Parts) > k.Nodes) || !k.Split && len(pl.Parts) != k.Nodes && !(k.More && len(pl.Parts) > k.Nodes) {
				return fmt.Errorf("gang %s has %d GPUs on %d nodes: gangs are whole", pl.Gang, total.GPUs, len(pl.Parts))
			}
		}
	}
	for n := range p.Nodes {
		o, u := &p.Nodes[n], used[n]
		over := u.GPUs > o.gpus("") || o.CPUs >= 0 && u.CPUs > o.CPUs || o.MemMiB >= 0 && u.MemMiB > o.MemMiB
		for t, c := range typed[n] {
			over = over || c > o.gpus(t)
		}
		if over {
			return fmt.Errorf("node %s has %d GPUs, %d CPUs, %d MiB on offer and gives %d, %d, %d", o.Name, o.gpus(""), o.CPUs, o.MemMiB, u.GPUs, u.CPUs, u.MemMiB)
		}
		if whole[n] && gangs[n] > 1 {
			return fmt.Errorf("node %s is given whole and to %d gangs", o.Name, gangs[n])
		}
	}
	return nil
}

func (p *Proof) inScopes() []map[int]bool {
	in := make([]map[int]bool, len(p.Scopes))
	for i, s := range p.Scopes {
		in[i] = make(map[int]bool, len(s))
		for _, n := range s {
			in[i][n] = true
		}
	}
	return in
}

// checkLadders sees that the gangs placed are those of the first steps, that
// rho is no better than the bid's option says, and sums up the welfare.
func (p *Proof) checkLadders(v *Verdict) error {
	in := p.inScopes()
	for i := range p.Bids {
		b := &p.Bids[i]
		mix := make([]int, len(b.Faster))
		count := make([]int, len(p.Kinds))
		left := b.Served
		for _, s := range b.Steps {
			times := min(left, s.Times)
			left -= times
			for _, k := range s.Add {
				count[k] += times
			}
			if s.Drop >= 0 {
				count[s.Drop] -= times
			}
		}
		tight := 0
		for _, pl := range b.Places {
			count[pl.Kind]--
			if len(b.Faster) > 0 && pl.Kind == b.Choice {
				for n, k := range b.Faster {
					if !slices.ContainsFunc(pl.Parts, func(part Part) bool { return !in[p.Kinds[k].Scope][part.Node] }) {
						mix[n]++
						break
					}
				}
			} else if pl.Kind == b.Choice && p.Level(pl.Parts) <= map[bool]cluster.Level{true: cluster.Machine, false: cluster.Rack}[p.Kinds[pl.Kind].Split] {
				tight++
			}
		}
		for k, n := range count {
			if n != 0 {
				return fmt.Errorf("%s is served %d steps but %d gangs of kind %d too few are placed", b.App, b.Served, n, k)
			}
		}
		if len(b.Faster) > 0 {
			tight = slices.IndexFunc(b.mixes(), func(m []int) bool { return slices.Equal(m, mix) })
		}
		if tight < 0 || tight >= len(b.Rho[b.Served]) {
			return fmt.Errorf("%s has %d tight gangs, its bid knows %d", b.App, tight, len(b.Rho[b.Served])-1)
		}
		said, after := p.value(b, b.Rho[b.Served][tight]), p.value(b, b.After)
		if after > said+slackTolerance {
			return fmt.Errorf("%s ends with rho %g, better than the %g of its bid", b.App, b.After, b.Rho[b.Served][tight])
		}
		v.Welfare += after
	}
	return nil
}

// mixes are the options of a bid that is faster on some nodes, in the order of
// their rho.
func (b *ProofBid) mixes() [][]int {
	longest, gangs := 0, 0
	for _, rho := range b.Rho {
		longest = max(longest, len(rho))
	}
	for countMixes(len(b.Faster), gangs) < longest {
		gangs++
	}
	return mixes(len(b.Faster), gangs)
}

// ground is the least that an infinite rho may count as: more than all bids
// together could make up for in their best places.
func (p *Proof) ground() float64 {
	sum := 1.0
	for i := range p.Bids {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, rhos := range p.Bids[i].Rho {
			for _, rho := range rhos {
				if rho > 0 {
					v := -p.Bids[i].Weight * math.Log(rho)
					lo, hi = min(lo, v), max(hi, v)
				}
			}
		}
		if hi >= lo {
			sum += max(hi, 0) - min(lo, 0)
		}
	}
	return sum
}

// value is weight * log(1/rho).
func (p *Proof) value(b *ProofBid, rho float64) float64 {
	if !(rho > 0) {
		return -p.Ground
	}
	return max(-b.Weight*math.Log(rho), -p.Ground)
}

// checkBound computes the bound from the nodes, the kinds and the prices: every
// row's capacity anew, and every option of every bid.
func (p *Proof) checkBound(v *Verdict) error {
	l, in := leanest(p.Kinds), p.inScopes()
	inside := make([][]bool, len(in)) // inside[a][b]: all nodes of a are of b
	for a := range in {
		for b := range in {
			inside[a] = append(inside[a], subset(in[a], in[b]))
		}
	}
	wide, tight := make([]float64, len(p.Kinds)), make([]float64, len(p.Kinds))
	for r := range p.Rows {
		row := &p.Rows[r]
		var ok []bool
		if row.Scope >= 0 {
			ok = make([]bool, len(p.Nodes))
			for n := range in[row.Scope] {
				ok[n] = true
			}
		}
		c := capacity(row, p.Nodes, ok, l)
		if c != row.Capacity {
			return fmt.Errorf("row %d has capacity %g, the round says %g", r, c, row.Capacity)
		}
		if row.Price == 0 {
			continue
		}
		v.Bound += row.Price * c
		for k := range p.Kinds {
			if s := p.Kinds[k].Scope; row.Scope >= 0 && (s < 0 || !inside[s][row.Scope]) {
				continue // its gangs may run elsewhere
			}
			wide[k] += row.Price * row.Use(&p.Kinds[k], false)
			tight[k] += row.Price * row.Use(&p.Kinds[k], p.Kinds[k].Levels)
		}
	}
	for i := range p.Bids {
		b := &p.Bids[i]
		top, cost, k := math.Inf(-1), 0.0, 0
		var options [][]int
		if len(b.Faster) > 0 {
			options = b.mixes()
		}
		look := func() {
			for r, rho := range b.Rho[k] {
				s := p.value(b, rho) - cost
				if options != nil {
					for n, gangs := range options[r] {
						s -= float64(gangs) * (wide[b.Faster[n]] - wide[b.Choice])
					}
				} else if r > 0 {
					s -= float64(r) * (tight[b.Choice] - wide[b.Choice])
				}
				top = max(top, s)
			}
		}
		look()
		for _, s := range b.Steps {
			for range s.Times {
				for _, q := range s.Add {
					cost += wide[q]
				}
				if s.Drop >= 0 {
					cost -= wide[s.Drop]
				}
				k++
				look()
			}
		}
		v.Bound += top
	}
	return nil
}

func subset(a, b map[int]bool) bool {
	for n := range a {
		if !b[n] {
			return false
		}
	}
	return true
}
