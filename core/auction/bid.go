// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"math"
	"slices"

	"themis/core/cluster"
)

// Bid is an app's valuation of any offer (paper section 5.1, step 3, as a
// function instead of a table): the gangs it could start, in the order in which
// its own scheduler would start them, and what its rho would then be.
type Bid struct {
	App   string
	Order int64   // breaks ties: lower first
	Base  float64 // rate of what it holds and that is not on offer
	// Weight is the exponent of the app's 1/rho in the product; 0 reads as 1.
	// Apps that split one share split its weight, so that an app gains nothing
	// by bidding as several.
	Weight float64
	Owner  string // whose apps pay together; "": the app alone
	Gangs  []Gang
	// Rho is the app's projected rho when it works at so many GPUs in all and
	// has lost so many GPU-seconds by leaving what it held. Infinite means that
	// without more it never ends; what is not a number is read as infinite.
	Rho func(rate, lost float64) float64
}

// step is one rung of an app's ladder: the auction decides how many of an app's
// steps are served, the app decides their order. A step starts the gangs of one
// group, or gives a moldable gang one more node.
type step struct {
	gangs []int // indices of the bid's gangs
	nodes int   // of the gang after the step; 0: as many as its shape needs
	add   []int // kinds
	drop  int   // kind that the step replaces, or -1
}

// bidder is a bid made ready for a round.
type bidder struct {
	bid    *Bid
	weight float64
	steps  []step
	specs  []spec
	first  []int // by gang: the step that starts it
	growth []int // by gang: the steps by which it grows
	// The app's gangs of this kind may be placed tight or wide, and how many
	// are tight is part of an option; -1: no choice is modelled. If they are
	// faster on some sets of nodes, the option is how many are on which.
	choice int
	sets   []faster
	mixes  [][]int // by option: gangs on each set; nil: it counts the tight ones
	// value[k][r] is weight * log(1/rho) with the first k steps served and r
	// gangs of the choice kind placed tight, or the mix r of them. A packed
	// allocation is never worth more than its option.
	value   [][]float64
	rho     [][]float64
	lost    []float64 // by k
	numbers []float64 // what rho and value are cut from
	ladder  []run
}

// choicesMost bounds the gangs of an app whose level is told apart one by one.
const choicesMost = 32

// ready makes the bidder's ladder on what is on offer. Steps that do not fit
// even alone are left out, so that they hold up nothing behind them.
func (m *model) ready(b *Bid) *bidder {
	n := len(b.Gangs)
	d := &bidder{bid: b, weight: b.Weight, choice: -1, first: make([]int, n), growth: make([]int, n), specs: make([]spec, 0, n), steps: make([]step, 0, n)}
	ids, kinds := make([]int, 0, n), make([]int, 0, n) // what the steps' slices are cut from; never moved
	if !(d.weight > 0) || math.IsInf(d.weight, 1) {
		d.weight = 1
	}
	for i := range b.Gangs {
		d.specs = append(d.specs, m.read(d.specs, &b.Gangs[i]))
		d.first[i] = -1
	}
	for i := 0; i < len(b.Gangs); {
		n := groupLen(b.Gangs, i)
		from := len(ids)
		for k := i; k < i+n; k++ {
			ids = append(ids, k)
		}
		together := ids[from:]
		slices.SortStableFunc(together, func(x, y int) int { return choosier(&d.specs[x], &d.specs[y]) })
		if m.fitsAlone(d, together) {
			for _, k := range together {
				d.first[k] = len(d.steps)
				kinds = append(kinds, d.specs[k].kind)
			}
			from := len(kinds) - n
			d.steps = append(d.steps, step{gangs: together, add: kinds[from:len(kinds):len(kinds)], drop: -1})
		}
		i += n
	}
	d.grow(m)
	d.table(m)
	return d
}

// read makes a gang's spec; gangs in a row that ask for the same and use it alike
// share one kind.
func (m *model) read(before []spec, g *Gang) spec {
	if n := len(before); n > 0 && len(g.Required)+len(g.Held) == 0 {
		if last := &before[n-1]; last.g.Shape == g.Shape && last.g.Scope == g.Scope && slices.Equal(last.g.Faster, g.Faster) && len(last.g.Required)+len(last.g.Held) == 0 {
			sp := *last
			sp.g = g
			if m.space.mold(&sp); sp.grows == last.grows {
				return sp
			}
		}
	}
	sp := m.space.read(g)
	if !sp.never {
		m.name(&sp)
		sp.kind = m.kind(&sp, 0)
		for v := range sp.faster {
			if sp.chooses() {
				sp.faster[v].kind = m.kind(sp.within(v), 0)
			}
		}
	}
	return sp
}

// groupLen is how many gangs from i on are placed together.
func groupLen(gangs []Gang, i int) int {
	n := 1
	for gangs[i].Group != "" && i+n < len(gangs) && gangs[i+n].Group == gangs[i].Group {
		n++
	}
	return n
}

// grow adds the steps by which moldable gangs take more nodes than they need,
// after all have what they need, in the same order.
func (d *bidder) grow(m *model) {
	for i := range d.bid.Gangs {
		sp := &d.specs[i]
		if d.first[i] < 0 || sp.sh.GPUsPerNode == 0 || len(sp.held) > 0 || !sp.grows {
			continue
		}
		last := sp.kind
		for n := fewest(sp) + 1; n <= min(sp.sh.NodesMax, len(m.space.cells)) && len(d.steps) < stepsMost; n++ {
			if sp.g.rate(n*sp.sh.GPUsPerNode, cluster.Rack) <= sp.g.rate((n-1)*sp.sh.GPUsPerNode, cluster.Rack) {
				break // it gains nothing by growing
			}
			k := m.kind(sp, n)
			d.steps = append(d.steps, step{gangs: []int{i}, nodes: n, add: []int{k}, drop: last})
			d.growth[i]++
			last = k
		}
	}
}

// stepsMost bounds an app's ladder.
const stepsMost = 4096

// table computes the app's value of every option.
func (d *bidder) table(m *model) {
	d.chooseLevel(m)
	var lost float64
	for i := range d.bid.Gangs {
		lost += d.bid.Gangs[i].Restart
	}
	n := len(d.steps) + 1
	d.rho, d.value, d.lost = make([][]float64, 0, n), make([][]float64, 0, n), make([]float64, 0, n)
	d.numbers = make([]float64, 0, 2*n)
	rate, tight := d.bid.Base, 0.0 // tight: what one tight gang of the choice kind adds
	var count int
	d.addOption(rate, lost, 0, 0)
	for k := range d.steps {
		st := &d.steps[k]
		for n, gi := range st.gangs {
			g, sp := &d.bid.Gangs[gi], &d.specs[gi]
			wide, best := m.rates(g, st.add[n])
			times := sp.times(0) // at most
			if len(sp.held) > 0 {
				times = sp.times(sp.set(sp.held))
			}
			switch {
			case st.add[n] == d.choice && d.mixes != nil:
				rate += best
				tight = best
				count++
			case st.add[n] == d.choice && d.mixes == nil:
				rate += wide
				tight = best - wide
				count++
			case st.drop >= 0:
				_, before := m.rates(g, st.drop)
				rate += (best - before) * times
			default:
				rate += best * times
			}
			if st.drop < 0 {
				lost -= g.Restart
			}
		}
		d.addOption(rate, lost, tight, count)
	}
}

func (d *bidder) addOption(rate, lost, tight float64, count int) {
	options := count + 1
	if d.mixes != nil {
		options = countMixes(len(d.sets), count)
	}
	from, mid, to := len(d.numbers), len(d.numbers)+options, len(d.numbers)+2*options
	for r := range options {
		d.numbers = append(d.numbers, d.rhoOf(rate+tight*d.tight(r), lost))
	}
	for _, rho := range d.numbers[from:mid] {
		d.numbers = append(d.numbers, d.valueOf(rho))
	}
	d.rho, d.value, d.lost = append(d.rho, d.numbers[from:mid:mid]), append(d.value, d.numbers[mid:to:to]), append(d.lost, lost)
}

// least is the least value that the bidder may have of steps that it is served;
// Inf if it never ends with any.
func (d *bidder) least(m *model) float64 {
	rate, least := d.bid.Base, math.Inf(1)
	for k := range d.steps {
		st := &d.steps[k]
		for n, gi := range st.gangs {
			if rate += m.slowest(&d.bid.Gangs[gi], st.add[n]); st.drop >= 0 {
				rate -= m.slowest(&d.bid.Gangs[gi], st.drop)
			}
		}
		if v := d.valueOf(d.rhoOf(rate, d.lost[k+1])); !math.IsInf(v, -1) {
			least = min(least, v)
		}
	}
	return least
}

// tight is by how many times the gain of a tight gang an option is faster.
func (d *bidder) tight(r int) float64 {
	if d.mixes == nil {
		return float64(r)
	}
	var gain float64
	for v, n := range d.mixes[r] {
		gain += float64(n) * (d.sets[v].times - 1)
	}
	return gain
}

func (d *bidder) rhoOf(rate, lost float64) float64 {
	rho := d.bid.Rho(rate, max(lost, 0))
	if math.IsNaN(rho) {
		return math.Inf(1)
	}
	return max(rho, minRho)
}

// minRho keeps logarithms finite.
const minRho = 1e-9

// valueOf is the app's term of the welfare; -Inf if it never ends, which the
// round replaces by a loss larger than all others together.
func (d *bidder) valueOf(rho float64) float64 { return -d.weight * math.Log(rho) }

// chooseLevel finds the kind whose level, or sets of nodes, are modelled: that of
// all the app's gangs which have a choice, if they are alike.
func (d *bidder) chooseLevel(m *model) {
	var wide, tight float64
	var sets []faster
	count := 0
	for k := range d.steps {
		for n, gi := range d.steps[k].gangs {
			q := d.steps[k].add[n]
			sp := &d.specs[gi]
			if !m.kinds[q].Levels && !sp.chooses() || len(sp.held) > 0 {
				continue
			}
			w, t := m.rates(&d.bid.Gangs[gi], q)
			if count > 0 && (q != d.choice || w != wide || t != tight || !slices.EqualFunc(sp.faster, sets, like)) || d.steps[k].nodes > 0 {
				d.choice = -1
				return
			}
			d.choice, wide, tight, sets = q, w, t, sp.faster
			count++
		}
	}
	switch {
	case len(sets) == 0:
		if count > choicesMost || wide == tight {
			d.choice = -1
		}
	case countMixes(len(sets)+1, count) > mixesMost || // of up to so many gangs
		slices.ContainsFunc(sets, func(f faster) bool { return f.kind < 0 || m.kinds[f.kind].Scope < 0 }):
		d.choice = -1
	default:
		d.sets, d.mixes = sets, mixes(len(sets), count)
	}
}

// most is the option's use of levels: how many tight gangs it may have.
func (d *bidder) most(k int) int { return len(d.value[k]) - 1 }
