// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"math"
	"slices"

	"themis/core/cluster"
)

// Kind is a class of gangs that take the same of the same nodes. Need is what
// each of its nodes gives; a Split kind divides Need over at most Nodes nodes
// as it likes.
type Kind struct {
	Nodes int    `json:"nodes"`
	Split bool   `json:"split,omitempty"`
	More  bool   `json:"more,omitempty"` // its CPUs may not fit on so few nodes: it may take more
	Need  Need   `json:"need"`
	Type  string `json:"type,omitempty"`
	Scope int    `json:"scope"` // index of Proof.Scopes, -1: any node
	// Levels tells that its gangs may be placed tight (a split one on one node,
	// another in one rack) or wide, and that this is told apart.
	Levels bool      `json:"levels,omitempty"`
	wide   []float64 // use of each row
	tight  []float64
}

// model is a round as numbers: kinds, bidders and the rows that bound them.
type model struct {
	space   *Space
	kinds   []Kind
	index   map[kindKey]int
	scopes  [][]bool
	rows    []Row
	bidders []*bidder
	offers  []Offer
	lean    lean
	fits    map[fitKey]bool
	named   []bool  // nodes that some gang requires or holds
	big     float64 // the value of rho = Inf is -big
}

type kindKey struct {
	nodes  int
	split  bool
	more   bool
	need   Need
	typ    string
	scope  int
	levels bool
	sets   int // of nodes on which its gangs are faster
}

type fitKey struct {
	shape cluster.Shape
	scope *Scope
}

const (
	scopesMost = 8   // sets of nodes that get rows of their own
	rowsMost   = 160 // rows in all
)

// newModel reads the bids, which are in their own order.
func newModel(space *Space, bids []Bid) *model {
	m := &model{space: space, index: map[kindKey]int{}, fits: map[fitKey]bool{}, named: make([]bool, len(space.cells))}
	for i := range bids {
		m.bidders = append(m.bidders, m.ready(&bids[i]))
	}
	m.ground()
	m.offers, m.lean = space.offers(), leanest(m.kinds)
	space.lean = m.lean
	m.makeRows()
	return m
}

// name notes the nodes that differ from their like because a gang names them.
func (m *model) name(sp *spec) {
	if sp.never {
		return
	}
	for _, n := range sp.required {
		m.named[n] = true
	}
	for _, h := range sp.held {
		m.named[h.node] = true
	}
}

func (s *Space) offers() []Offer {
	out := make([]Offer, len(s.cells))
	types, gpus := make([]string, 0, len(s.cells)), make([]int, 0, len(s.cells)) // room for all
	for i := range s.cells {
		c := &s.cells[i]
		out[i] = Offer{Name: s.names[i], CPUs: c.cpus, MemMiB: c.mem, Idle: c.idle}
		if c.rack >= 0 {
			out[i].Rack = s.rackNames[c.rack]
		}
		from := len(types)
		for k := range c.types {
			types, gpus = append(types, s.types[c.kind[k]]), append(gpus, int(c.free[k]))
		}
		out[i].Types, out[i].GPUs = types[from:len(types):len(types)], gpus[from:len(gpus):len(gpus)]
	}
	return out
}

// ground gives rho = Inf a finite value: lower than any allocation could make
// up for, so that first as many such apps as possible get something, be it in
// the slowest places.
func (m *model) ground() {
	m.big = 1
	never := slices.ContainsFunc(m.bidders, func(d *bidder) bool {
		return slices.ContainsFunc(d.value, func(v []float64) bool { return slices.Contains(v, math.Inf(-1)) })
	})
	for _, d := range m.bidders {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, v := range d.value {
			for _, x := range v {
				if !math.IsInf(x, -1) {
					lo, hi = min(lo, x), max(hi, x)
				}
			}
		}
		if never {
			lo = min(lo, d.least(m))
		}
		if hi >= lo {
			m.big += max(hi, 0) - min(lo, 0)
		}
	}
	for _, d := range m.bidders {
		for _, v := range d.value {
			for r := range v {
				v[r] = max(v[r], -m.big)
			}
		}
		d.ladder = d.runs()
	}
}

// kind finds or makes the kind of a gang on so many nodes (0: the fewest).
func (m *model) kind(sp *spec, nodes int) int {
	sh := sp.sh
	if nodes == 0 {
		nodes = fewest(sp)
	}
	key := kindKey{nodes: nodes, typ: sh.Type, scope: m.scopeID(sp.scope)}
	switch held := sp.held; {
	case len(held) > 0:
		key.nodes, key.scope = len(held), -1
		same := !slices.ContainsFunc(held, func(h share) bool { return h.gpus != held[0].gpus })
		if key.need = needs(sh, held[0].gpus, len(held)); !same {
			key.split, key.need = true, splitNeed(sh, sum(held))
		}
	case sh.GPUsPerNode > 0:
		key.need = sp.need(sh.GPUsPerNode, nodes)
		if sp.spills {
			key.more, key.need.CPUs = true, max(sh.CPUsPerNode, sh.CPUsPerGPU*sh.GPUsPerNode, 1)
			key.need.MemMiB = max(sh.MemPerNode, sh.MemPerGPU*int64(sh.GPUsPerNode))
		}
	case sh.NodesMax == 1:
		key.need = needs(sh, sh.GPUs, 1)
	default:
		key.split, key.need = true, splitNeed(sh, sh.GPUs)
		if key.nodes = sh.NodesMax; key.nodes == 0 {
			key.nodes = max(sh.GPUs, nodes)
		}
	}
	switch {
	case len(sp.held) > 0:
	case key.split:
		key.levels = fewest(sp) == 1 && m.fitsOne(sp)
	case key.nodes > 1 && !key.more:
		key.levels = len(m.space.racks) > 0
	}
	if sp.chooses() {
		key.sets = len(sp.faster)
	}
	if i, ok := m.index[key]; ok {
		return i
	}
	k := Kind{Levels: key.levels, Nodes: key.nodes, Split: key.split, More: key.more, Need: key.need, Type: key.typ, Scope: key.scope}
	m.index[key] = len(m.kinds)
	m.kinds = append(m.kinds, k)
	return len(m.kinds) - 1
}

// splitNeed is the least that a gang divided over any nodes takes in all.
func splitNeed(sh cluster.Shape, gpus int) Need {
	return Need{gpus, max(sh.CPUs, sh.CPUsPerGPU*gpus, 1), sh.MemPerGPU * int64(gpus)}
}

func sum(on []share) (n int) {
	for _, sh := range on {
		n += sh.gpus
	}
	return n
}

// fitsOne says whether any node could hold the whole of a split gang.
func (m *model) fitsOne(sp *spec) bool {
	for n := range m.space.cells {
		if m.space.holds(sp, int32(n), sp.sh.GPUs, 1) {
			return true
		}
	}
	return false
}

// fitsAlone says whether gangs that start together could be placed if nobody
// else were there.
func (m *model) fitsAlone(d *bidder, gangs []int) bool {
	if sp := &d.specs[gangs[0]]; len(gangs) == 1 {
		if len(sp.required)+len(sp.held) > 0 || sp.never {
			return m.space.find(sp, nil) != nil
		}
		key := fitKey{sp.sh, sp.g.Scope}
		fits, known := m.fits[key]
		if !known {
			fits = m.space.find(sp, nil) != nil
			m.fits[key] = fits
		}
		return fits
	}
	var avoid []int32
	var taken []hold
	ok := true
	for _, i := range gangs {
		on := m.space.find(&d.specs[i], avoid)
		if ok = on != nil; !ok {
			break
		}
		for _, sh := range on {
			taken = append(taken, m.space.take(&d.specs[i], sh, len(on)))
			avoid = append(avoid, sh.node)
		}
	}
	for i := range taken {
		m.space.give(&taken[i])
	}
	return ok
}

// scopeID numbers distinct sets of nodes; -1 is any.
func (m *model) scopeID(scope []bool) int {
	if scope == nil {
		return -1
	}
	for i, s := range m.scopes {
		if slices.Equal(s, scope) {
			return i
		}
	}
	if len(m.scopes) == scopesMost {
		return -1 // counted as if it could run anywhere: the bound still holds
	}
	m.scopes = append(m.scopes, scope)
	return len(m.scopes) - 1
}

// rates is a gang's speed if it is placed wide and at its best.
func (m *model) rates(g *Gang, kind int) (wide, best float64) {
	k := &m.kinds[kind]
	gpus := k.Need.GPUs
	if !k.Split {
		gpus *= k.Nodes
	}
	level := cluster.Rack // the best of several nodes
	if len(m.space.racks) == 0 {
		level = cluster.Cluster
	}
	one := cluster.Machine // the best of one
	if gpus <= m.space.slot {
		one = cluster.Slot
	}
	switch {
	case len(g.Held) > 0:
		r := g.rate(gpus, m.space.level(m.space.shares(g.Held)))
		return r, r
	case k.Split && k.Levels:
		return g.rate(gpus, level), g.rate(gpus, one)
	case k.Split:
		best = g.rate(gpus, level)
		if k.Nodes == 1 {
			best = g.rate(gpus, one)
		}
		return best, best
	case k.Nodes == 1:
		best = g.rate(gpus, one)
		return best, best
	}
	return g.rate(gpus, cluster.Cluster), g.rate(gpus, level)
}

// slowest is a gang's speed in the worst place that a step may give it.
func (m *model) slowest(g *Gang, kind int) float64 {
	k := &m.kinds[kind]
	if len(g.Held) > 0 {
		rate, _ := m.rates(g, kind)
		return rate
	}
	level := cluster.Cluster
	if k.Nodes == 1 {
		level = cluster.Machine
	}
	if k.Split {
		return g.rate(k.Need.GPUs, level)
	}
	return g.rate(k.Need.GPUs*k.Nodes, level)
}

func (s *Space) shares(on []cluster.Share) []share {
	out := make([]share, len(on))
	for i, sh := range on {
		out[i] = share{s.index[sh.Node], sh.GPUs, sh.Slots}
	}
	return out
}

// makeRows lists the boxes of the kinds that are there: of their GPUs alone
// and, where CPUs or memory can bind, of all that they need; for each type and
// scope in use.
func (m *model) makeRows() {
	type view struct {
		typ   string
		scope int
	}
	views := []view{{"", -1}}
	for i := range m.kinds {
		for _, v := range []view{{m.kinds[i].Type, -1}, {"", m.kinds[i].Scope}, {m.kinds[i].Type, m.kinds[i].Scope}} {
			if !slices.Contains(views, v) {
				views = append(views, v)
			}
		}
	}
	seen := map[Row]bool{}
	add := func(r Row) {
		if seen[r] || len(m.rows) >= rowsMost {
			return
		}
		seen[r] = true
		r.Capacity = capacity(&r, m.offers, m.within(r.Scope), m.lean)
		m.rows = append(m.rows, r)
	}
	order := make([]int, len(m.kinds))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int {
		a, b := &m.kinds[x], &m.kinds[y]
		return cmp.Or(cmp.Compare(a.Need.GPUs, b.Need.GPUs), cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Need.CPUs, b.Need.CPUs), cmp.Compare(a.Need.MemMiB, b.Need.MemMiB))
	})
	cpus := slices.ContainsFunc(m.space.cells, func(c cell) bool { return c.cpus >= 0 })
	mem := slices.ContainsFunc(m.space.cells, func(c cell) bool { return c.mem >= 0 })
	for _, v := range views {
		add(Row{Box: Need{GPUs: 1}, Nodes: 1, Type: v.typ, Scope: v.scope})
		if cpus {
			add(Row{Box: Need{CPUs: 1}, Nodes: 1, Scope: v.scope})
		}
		if mem {
			add(Row{Box: Need{MemMiB: 1}, Nodes: 1, Scope: v.scope})
		}
	}
	for pass := range 3 { // the most telling rows first, should there be too many
		for _, v := range views {
			for _, i := range order {
				k := &m.kinds[i]
				box := k.Need
				if v.typ != "" && k.Type != v.typ || v.scope >= 0 && !m.inside(k.Scope, v.scope) {
					continue
				}
				switch {
				case pass == 0:
					add(Row{Box: Need{GPUs: box.GPUs}, Nodes: 1, Type: v.typ, Scope: v.scope})
				case pass == 1 && (cpus || mem):
					add(Row{Box: box, Nodes: 1, Type: v.typ, Scope: v.scope})
				case pass == 2 && k.Nodes > 1 && !k.Split && len(m.space.racks) > 0:
					add(Row{Box: Need{GPUs: box.GPUs}, Nodes: k.Nodes, Racks: true, Type: v.typ, Scope: v.scope})
					add(Row{Box: box, Nodes: k.Nodes, Racks: true, Type: v.typ, Scope: v.scope})
				}
			}
		}
	}
	for i := range m.kinds {
		k := &m.kinds[i]
		k.wide, k.tight = make([]float64, len(m.rows)), make([]float64, len(m.rows))
		for r := range m.rows {
			if row := &m.rows[r]; row.Scope < 0 || m.inside(k.Scope, row.Scope) {
				k.wide[r], k.tight[r] = row.Use(k, false), row.Use(k, k.Levels)
			}
		}
	}
}

// inside says whether all nodes of one scope are of the other.
func (m *model) inside(in, of int) bool {
	if of < 0 || in == of {
		return true
	}
	if in < 0 {
		return false
	}
	for n, yes := range m.scopes[in] {
		if yes && !m.scopes[of][n] {
			return false
		}
	}
	return true
}

func (m *model) within(scope int) []bool {
	if scope < 0 {
		return nil
	}
	return m.scopes[scope]
}
