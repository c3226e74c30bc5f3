// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"slices"
)

// pool is what the baseline policies hand out: free GPUs by node, a copy of the
// World's that a policy may promise from before it places.
type pool struct {
	free   []int
	total  int
	rack   []int // of a node; -1: unknown
	racks  [][]int
	inRack []int // free GPUs
	order  []int // scratch
}

func newPool(w *World) *pool {
	p := &pool{free: make([]int, len(w.Nodes)), rack: make([]int, len(w.Nodes))}
	ids := map[string]int{}
	for i := range w.Nodes {
		name := w.Nodes[i].Rack
		id, ok := ids[name]
		if name == "" {
			id = -1
		} else if !ok {
			id = len(p.racks)
			ids[name] = id
			p.racks = append(p.racks, nil)
		}
		p.rack[i] = id
		if id >= 0 {
			p.racks[id] = append(p.racks[id], i)
		}
	}
	p.inRack = make([]int, len(p.racks))
	return p
}

// load copies what is free now.
func (p *pool) load(w *World) {
	p.total = 0
	clear(p.inRack)
	for i := range w.Nodes {
		p.free[i] = 0
		p.add(i, w.Nodes[i].Free)
	}
}

func (p *pool) add(node, gpus int) {
	p.free[node] += gpus
	p.total += gpus
	if r := p.rack[node]; r >= 0 {
		p.inRack[r] += gpus
	}
}

func (p *pool) give(on []Share) {
	for _, s := range on {
		p.add(s.Node, s.GPUs)
	}
}

func (p *pool) take(on []Share) {
	for _, s := range on {
		p.add(s.Node, -s.GPUs)
	}
}

func (p *pool) has(on []Share) bool {
	for _, s := range on {
		if p.free[s.Node] < s.GPUs {
			return false
		}
	}
	return len(on) > 0
}

// fit takes n GPUs for a gang: on the machine that has the fewest left then,
// else on the fewest machines of one rack, else on the fewest of all; nil if
// there are not so many. Shares are by node; ties go to the first node or rack.
func (p *pool) fit(n int) []Share {
	if n > p.total {
		return nil
	}
	best := -1
	for i, free := range p.free {
		if free >= n && (best < 0 || free < p.free[best]) {
			if best = i; free == n {
				break
			}
		}
	}
	if best >= 0 {
		p.add(best, -n)
		return []Share{{best, n}}
	}
	var on []Share
	for r, nodes := range p.racks {
		if p.inRack[r] >= n {
			if s := p.span(nodes, n); on == nil || len(s) < len(on) {
				on = s
			}
		}
	}
	if on == nil {
		on = p.span(nil, n)
	}
	p.take(on)
	return on
}

// span chooses the fewest of these nodes (nil: of all) that have n GPUs: the
// fullest free ones, and for the rest the tightest.
func (p *pool) span(nodes []int, n int) []Share {
	p.order = append(p.order[:0], nodes...)
	if nodes == nil {
		for i, free := range p.free {
			if free > 0 {
				p.order = append(p.order, i)
			}
		}
	}
	slices.SortFunc(p.order, func(a, b int) int { return cmp.Or(p.free[b]-p.free[a], a-b) })
	var on []Share
	for k, i := range p.order {
		if p.free[i] < n {
			on = append(on, Share{i, p.free[i]})
			n -= p.free[i]
			continue
		}
		for _, next := range p.order[k+1:] {
			if p.free[next] < n {
				break
			}
			if p.free[next] < p.free[i] {
				i = next
			}
		}
		on = append(on, Share{i, n})
		break
	}
	slices.SortFunc(on, func(a, b Share) int { return a.Node - b.Node })
	return on
}

// keep lets those gangs that run keep the very same GPUs where the pool has them,
// and stops the others, which move.
func (p *pool) keep(w *World, gangs []*Job) (move []*Job) {
	for _, j := range gangs {
		if p.has(j.On) {
			p.take(j.On)
		} else {
			w.Place(j, nil)
			move = append(move, j)
		}
	}
	return move
}

// seat gives gangs, best first, all the GPUs that they want out of a pool that has
// enough.
func (p *pool) seat(w *World, gangs []*Job) {
	for _, j := range gangs {
		w.Place(j, p.fit(w.gang(j)))
	}
}

// gang is how many GPUs a job runs on where jobs are not elastic.
func (w *World) gang(j *Job) int {
	if j.Elastic {
		return min(j.GPUs, w.GPUs)
	}
	return j.GPUs
}
