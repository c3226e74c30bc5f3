// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"math"
	"slices"
)

// prices is a point of the Lagrangian dual: a price for each row, what each
// bidder would take at those prices, and the bound that follows. Any prices of
// at least zero give a bound, as long as each bidder's best answer is the true
// best: U = sum price*capacity + sum over bidders of max(value - price of use).
type prices struct {
	row     []float64 // log welfare for one more box
	wide    []float64 // of a gang, by kind
	tight   []float64
	bound   float64
	answer  []option
	surplus []float64
}

// option is how much of its ladder a bidder is served: k steps, of whose gangs
// of the choice kind r are tight, or the mix r of them on faster nodes.
type option struct{ k, r int }

// run is a stretch of like steps. Within it the price rises evenly, so a best
// answer is a corner of the concave hull of the value over the stretch.
type run struct {
	add     []int
	drop    int
	from    int // steps before it
	corners []corner
}

// corner is an option that may be a best answer.
type corner struct {
	option
	value float64
}

// runs cuts the bidder's ladder.
func (d *bidder) runs() []run {
	var out []run
	for k := 0; k < len(d.steps); {
		end := k + 1
		for end < len(d.steps) && d.steps[end].drop == d.steps[k].drop && slices.Equal(d.steps[end].add, d.steps[k].add) {
			end++
		}
		r := run{add: d.steps[k].add, drop: d.steps[k].drop, from: k}
		if d.choice >= 0 {
			for i := k + 1; i <= end; i++ {
				for tight, v := range d.value[i] {
					r.corners = append(r.corners, corner{option{i, tight}, v})
				}
			}
		} else {
			for _, i := range d.hull(k, end) {
				r.corners = append(r.corners, corner{option{i, 0}, d.value[i][0]})
			}
		}
		out = append(out, r)
		k = end
	}
	return out
}

// hull is the upper concave hull of value over k in [from, to], its first
// corner left out: that is the end of the run before, or winning nothing.
func (d *bidder) hull(from, to int) []int {
	h := []int{from}
	v := func(k int) float64 { return d.value[k][0] }
	for k := from + 1; k <= to; k++ {
		for len(h) > 1 {
			a, b := h[len(h)-2], h[len(h)-1]
			if (v(b)-v(a))*float64(k-a) > (v(k)-v(a))*float64(b-a) {
				break
			}
			h = h[:len(h)-1]
		}
		h = append(h, k)
	}
	return h[1:]
}

// best is the bidder's best answer to gang prices, and what it gains by it.
func (d *bidder) best(p *prices) (option, float64) {
	o, top := option{}, d.value[0][0]
	var cost, more float64
	if d.choice >= 0 && d.mixes == nil {
		more = d.more(p, 1)
	}
	for i := range d.ladder {
		r := &d.ladder[i]
		each := p.each(r.add, r.drop)
		for n := range r.corners {
			c := &r.corners[n]
			s := c.value - cost - each*float64(c.k-r.from)
			switch {
			case c.r == 0:
			case d.mixes == nil:
				s -= more * float64(c.r)
			default:
				s -= d.more(p, c.r)
			}
			if s > top {
				o, top = c.option, s
			}
		}
		cost += each * float64(d.end(i)-r.from)
	}
	return o, top
}

func (d *bidder) end(i int) int {
	if i+1 < len(d.ladder) {
		return d.ladder[i+1].from
	}
	return len(d.steps)
}

// each is the price of one step.
func (p *prices) each(add []int, drop int) float64 {
	var c float64
	for _, k := range add {
		c += p.wide[k]
	}
	if drop >= 0 {
		c -= p.wide[drop]
	}
	return c
}

// quote fills in what follows from the row prices.
func (m *model) quote(p *prices) {
	p.bound = 0
	for r := range m.rows {
		if p.row[r] > 0 {
			p.bound += p.row[r] * m.rows[r].Capacity
		}
	}
	for i := range m.kinds {
		var w, t float64
		for r, price := range p.row {
			if price > 0 {
				w += price * m.kinds[i].wide[r]
				t += price * m.kinds[i].tight[r]
			}
		}
		p.wide[i], p.tight[i] = w, t
	}
	for i, d := range m.bidders {
		p.answer[i], p.surplus[i] = d.best(p)
		p.bound += p.surplus[i]
	}
}

func (m *model) newPrices() *prices {
	return &prices{row: make([]float64, len(m.rows)), wide: make([]float64, len(m.kinds)), tight: make([]float64, len(m.kinds)),
		answer: make([]option, len(m.bidders)), surplus: make([]float64, len(m.bidders))}
}

func (p *prices) copy(q *prices) {
	copy(p.row, q.row)
	copy(p.wide, q.wide)
	copy(p.tight, q.tight)
	copy(p.answer, q.answer)
	copy(p.surplus, q.surplus)
	p.bound = q.bound
}

// lower improves the prices by Polyak's subgradient steps, which aim a little
// below the best bound so far, or at a welfare that is known to be reached.
// Prices are scaled by capacity, so that rows of any size move alike.
func (m *model) lower(p *prices, reached float64, rounds int) {
	best := m.newPrices()
	if math.IsInf(reached, -1) {
		m.ring(p)
	}
	m.quote(p)
	best.copy(p)
	over := make([]float64, len(m.rows)) // 1 - use/capacity
	aim := max(0.05*float64(len(m.bidders)), 1e-6)
	if !math.IsInf(reached, -1) {
		aim = min(aim, max(p.bound-reached, 1e-9))
	}
	fails := 0
	for range rounds {
		if best.bound-reached < 1e-7*float64(len(m.bidders)) || aim < 1e-5*float64(len(m.bidders)) {
			break
		}
		m.slack(p, over)
		var norm float64
		for r := range over {
			if p.row[r] > 0 || over[r] < 0 {
				norm += over[r] * over[r]
			}
		}
		if norm == 0 {
			break
		}
		step := (p.bound - max(best.bound-aim, reached)) / norm
		for r := range over {
			if c := m.rows[r].Capacity; !math.IsInf(c, 1) {
				p.row[r] = max(p.row[r]-step*over[r]/scale(c), 0)
			}
		}
		m.quote(p)
		if p.bound < best.bound-0.1*aim {
			fails = 0
		} else if fails++; fails > 5 {
			fails, aim = 0, aim/2
			p.copy(best)
		}
		if p.bound < best.bound {
			best.copy(p)
		}
	}
	p.copy(best)
}

// ring finds first prices: for plain GPUs, then, one after another, for the rows
// that are asked for most beyond their capacity. Of each it takes the price at
// which the bound, convex in it, is least while the others stay.
func (m *model) ring(p *prices) {
	var most float64
	for _, d := range m.bidders {
		base := d.value[0][0]
		if base == -m.big && len(d.value) > 1 { // it never ends without: no measure
			base = d.value[1][0]
		}
		for k := 1; k < len(d.value); k++ {
			most = max(most, d.value[k][d.most(k)]-base)
		}
	}
	over := make([]float64, len(m.rows))
	next := 0
	for n := 0; n < ringsMost && next < len(m.rows); n++ {
		lo, hi := 0.0, most
		at := func(price float64) float64 {
			p.row[next] = price
			m.quote(p)
			return p.bound
		}
		for range ringSteps {
			third := (hi - lo) / 3
			if at(lo+third) < at(hi-third) {
				hi -= third
			} else {
				lo += third
			}
		}
		at((lo + hi) / 2)
		m.slack(p, over)
		worst := -0.2
		next = len(m.rows)
		for r, o := range over {
			if o /= scale(m.rows[r].Capacity); o < worst && p.row[r] == 0 {
				worst, next = o, r
			}
		}
	}
}

// ringsMost bounds the rows that get a first price of their own.
const ringsMost = 8

// ringSteps narrow a first price to a hundredth.
const ringSteps = 12

// slack is 1 - use/capacity of each row at the bidders' answers.
func (m *model) slack(p *prices, over []float64) {
	wide, tight := make([]float64, len(m.kinds)), make([]float64, len(m.kinds))
	for i, d := range m.bidders {
		o := p.answer[i]
		for n := range d.ladder {
			r := &d.ladder[n]
			if o.k <= r.from {
				break
			}
			times := float64(min(o.k, d.end(n)) - r.from)
			for _, k := range r.add {
				wide[k] += times
			}
			if r.drop >= 0 {
				wide[r.drop] -= times
			}
		}
		switch {
		case o.r == 0:
		case d.mixes != nil:
			for v, n := range d.mixes[o.r] {
				wide[d.choice] -= float64(n)
				wide[d.sets[v].kind] += float64(n)
			}
		default:
			wide[d.choice] -= float64(o.r)
			tight[d.choice] += float64(o.r)
		}
	}
	for r := range m.rows {
		var used float64
		for k := range m.kinds {
			used += wide[k]*m.kinds[k].wide[r] + tight[k]*m.kinds[k].tight[r]
		}
		if c := m.rows[r].Capacity; math.IsInf(c, 1) {
			over[r] = 1
		} else {
			over[r] = (c - used) / scale(c)
		}
	}
}

// scale makes rows of any size move alike: what is asked for beyond a capacity
// varies about as its root.
func scale(capacity float64) float64 { return math.Sqrt(max(capacity, 1)) }
