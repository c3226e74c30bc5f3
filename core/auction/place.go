// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"math"
	"slices"

	"themis/core/cluster"
)

// Node is what one node has on offer.
type Node struct {
	Name   string
	Rack   string
	GPUs   []cluster.GPUs // Total is what is free, Used what is spoken for
	CPUs   int            // free; -1: not a resource here
	MemMiB int64          // free; -1: not a resource here
	Idle   bool           // no job is on it
	Real   int            // of the free GPUs, those no running job still holds
}

func (n *Node) free(kind string) int {
	var free int
	for _, g := range n.GPUs {
		if kind == "" || g.Type == kind {
			free += g.Total
		}
	}
	return free
}

// lacks is how many of the GPUs would have to be taken from a running job.
func (n *Node) lacks(gpus int) int { return max(gpus-n.Real, 0) }

// Claim takes (sign -1) GPUs of a lease that has not started out of the offer,
// or puts (sign +1) those of a running job on offer, with the CPUs and memory
// that the shape needs beside them.
func (n *Node) Claim(sh cluster.Shape, gpus, nodes, sign int) {
	left := gpus
	for k := range n.GPUs {
		t := &n.GPUs[k]
		if left == 0 || sh.Type != "" && t.Type != sh.Type {
			continue
		}
		step := left
		if sign < 0 {
			step = min(left, t.Total)
		}
		t.Total += sign * step
		left -= step
	}
	w := needs(sh, gpus, nodes)
	if n.CPUs >= 0 {
		n.CPUs = max(n.CPUs+sign*w.cpus, 0)
	}
	if n.MemMiB >= 0 {
		n.MemMiB = max(n.MemMiB+int64(sign)*w.mem, 0)
	}
	if sign < 0 {
		n.Real = max(n.Real-gpus, 0)
		n.Idle = false
		if sh.Exclusive {
			n.GPUs, n.Real = nil, 0
		}
	}
}

// Gang is one job in a bid: it is placed whole or not at all.
type Gang struct {
	ID       string
	Group    string // gangs of one non-empty Group are placed together
	Shape    cluster.Shape
	Eligible func(node string) bool
	Required []string                    // nodes it must have
	Held     []cluster.Share             // it runs here and can run nowhere else
	Speed    func(cluster.Level) float64 // S by level
}

// Placement is where a gang goes.
type Placement struct {
	Gang  string
	On    []cluster.Share
	Level cluster.Level
	Rate  float64 // GPUs times S
}

// Space is the free room of a round; gangs are placed into it one by one.
// Copy with clone before trying.
type Space struct {
	nodes []Node
	index map[string]int
}

// NewSpace takes the nodes on offer. Their order does not matter.
func NewSpace(nodes []Node) *Space {
	s := &Space{nodes: slices.Clone(nodes), index: make(map[string]int, len(nodes))}
	slices.SortFunc(s.nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for i := range s.nodes {
		s.nodes[i].GPUs = slices.Clone(s.nodes[i].GPUs)
		s.index[s.nodes[i].Name] = i
	}
	return s
}

func (s *Space) clone() *Space {
	c := &Space{nodes: slices.Clone(s.nodes), index: s.index}
	for i := range c.nodes {
		c.nodes[i].GPUs = slices.Clone(c.nodes[i].GPUs)
	}
	return c
}

// PlaceAll places all the gangs, or none of them.
func (s *Space) PlaceAll(gangs []Gang) []Placement {
	if len(gangs) == 1 { // nothing to take back if it does not fit
		if p, ok := s.Place(&gangs[0]); ok {
			return []Placement{p}
		}
		return nil
	}
	trial := s.clone()
	out, ok := trial.placeGroup(gangs)
	if !ok {
		return nil
	}
	*s = *trial
	return out
}

// Free counts the GPUs that are left.
func (s *Space) Free() int {
	var free int
	for i := range s.nodes {
		free += s.nodes[i].free("")
	}
	return free
}

func (s *Space) rack(node string) string {
	if i, ok := s.index[node]; ok {
		return s.nodes[i].Rack
	}
	return ""
}

// need is what one node must give for g GPUs of a gang spread over n nodes.
type need struct {
	gpus, cpus int
	mem        int64
}

func needs(sh cluster.Shape, gpus, nodes int) need {
	cpus := max(sh.CPUsPerNode, sh.CPUsPerGPU*gpus, (sh.CPUs+nodes-1)/max(nodes, 1), 1)
	mem := max(sh.MemPerNode, sh.MemPerCPU*int64(cpus), sh.MemPerGPU*int64(gpus))
	return need{gpus, cpus, mem}
}

// most is how many GPUs of the gang the node could take, at most want.
func (n *Node) most(sh cluster.Shape, want, nodes int) int {
	if sh.Exclusive && !n.Idle {
		return 0
	}
	for g := min(want, n.free(sh.Type)); g > 0; g-- {
		w := needs(sh, g, nodes)
		if (n.CPUs < 0 || w.cpus <= n.CPUs) && (n.MemMiB < 0 || w.mem <= n.MemMiB) {
			return g
		}
	}
	return 0
}

// Place finds the tightest place for the gang, takes it out of the space and
// returns it. A gang that needs one node gets the fullest one that can hold
// it; one that needs several prefers a single rack. Ties go to the first name.
func (s *Space) Place(g *Gang) (Placement, bool) {
	if len(g.Held) > 0 {
		return s.placeHeld(g)
	}
	lo, hi := max(g.Shape.NodesMin, len(g.Required), 1), g.Shape.NodesMax
	if hi == 0 {
		hi = s.mostNodes(g.Shape, lo)
	}
	on := s.tightest(g, lo)
	for n := lo + 1; on == nil && n <= min(hi, len(s.nodes)); n++ {
		on = s.tightest(g, n)
	}
	if on == nil {
		return Placement{}, false
	}
	return s.take(g, on), true
}

// mostNodes bounds the nodes that a gang without a limit of its own may need:
// its GPUs or CPUs may not fit on fewer.
func (s *Space) mostNodes(sh cluster.Shape, lo int) int {
	if sh.GPUsPerNode == 0 {
		return max(sh.GPUs, lo)
	}
	return max(sh.CPUs, lo)
}

// Widen places a gang whose NodesMax allows it on as many nodes as are free.
func (s *Space) Widen(g *Gang, have Placement) Placement {
	for n := g.Shape.NodesMax; g.Shape.GPUsPerNode > 0 && n > len(have.On); n-- {
		trial := s.clone()
		trial.give(g, have.On)
		if on := trial.tightest(g, n); on != nil {
			s.give(g, have.On)
			return s.take(g, on)
		}
	}
	return have
}

func (s *Space) placeHeld(g *Gang) (Placement, bool) {
	for _, sh := range g.Held {
		i, ok := s.index[sh.Node]
		w := needs(g.Shape, sh.GPUs, len(g.Held))
		if !ok || s.nodes[i].free(g.Shape.Type) < sh.GPUs ||
			s.nodes[i].CPUs >= 0 && s.nodes[i].CPUs < w.cpus || s.nodes[i].MemMiB >= 0 && s.nodes[i].MemMiB < w.mem {
			return Placement{}, false
		}
	}
	return s.take(g, g.Held), true
}

// tightest chooses n nodes for the gang, in one rack if any holds it.
func (s *Space) tightest(g *Gang, n int) []cluster.Share {
	fits := map[string][]cluster.Share{}
	var all []cluster.Share
	for i := range s.nodes {
		node := &s.nodes[i]
		if g.Eligible != nil && !g.Eligible(node.Name) {
			continue
		}
		if got := s.offer(node, g.Shape, n); got > 0 {
			sh := cluster.Share{Node: node.Name, GPUs: got}
			all = append(all, sh)
			if node.Rack != "" {
				fits[node.Rack] = append(fits[node.Rack], sh)
			}
		}
	}
	var best []cluster.Share
	least := math.MaxInt
	if n > 1 {
		racks := make([]string, 0, len(fits))
		for r := range fits {
			racks = append(racks, r)
		}
		slices.Sort(racks)
		for _, r := range racks {
			if on := s.choose(g, fits[r], n); on != nil {
				if left := s.leftover(fits[r]); left < least {
					best, least = on, left
				}
			}
		}
	}
	if best != nil {
		return best
	}
	return s.choose(g, all, n)
}

// offer is how many GPUs of the gang the node could take if n nodes shared it.
func (s *Space) offer(node *Node, sh cluster.Shape, n int) int {
	if sh.GPUsPerNode > 0 {
		if node.most(sh, sh.GPUsPerNode, n) == sh.GPUsPerNode {
			return sh.GPUsPerNode
		}
		return 0
	}
	want := sh.GPUs
	if n > 1 { // leave at least one for each other node
		want = sh.GPUs - (n - 1)
	}
	return node.most(sh, want, n)
}

func (s *Space) leftover(on []cluster.Share) int {
	var free int
	for _, sh := range on {
		free += s.nodes[s.index[sh.Node]].free("")
	}
	return free
}

// choose picks n of the candidates, those that the gang requires before all:
// the fullest nodes for a fixed number of GPUs each, the emptiest for a total
// that must be reached.
func (s *Space) choose(g *Gang, from []cluster.Share, n int) []cluster.Share {
	if len(from) < n {
		return nil
	}
	from = slices.Clone(from)
	node := func(sh cluster.Share) *Node { return &s.nodes[s.index[sh.Node]] }
	free := func(sh cluster.Share) int { return node(sh).free("") }
	must := func(sh cluster.Share) int {
		if slices.Contains(g.Required, sh.Node) {
			return 0
		}
		return 1
	}
	each := g.Shape.GPUsPerNode > 0
	if n == 1 && !each {
		from = slices.DeleteFunc(from, func(c cluster.Share) bool { return c.GPUs < g.Shape.GPUs })
	}
	slices.SortStableFunc(from, func(a, b cluster.Share) int {
		lacks := cmp.Compare(node(a).lacks(a.GPUs), node(b).lacks(b.GPUs))
		if each || n == 1 {
			return cmp.Or(cmp.Compare(must(a), must(b)), lacks, cmp.Compare(free(a), free(b)))
		}
		return cmp.Or(cmp.Compare(must(a), must(b)), cmp.Compare(b.GPUs, a.GPUs), lacks)
	})
	if len(from) < n {
		return nil
	}
	on := from[:n]
	for _, r := range g.Required {
		if !slices.ContainsFunc(on, func(c cluster.Share) bool { return c.Node == r }) {
			return nil
		}
	}
	if each {
		return on
	}
	return split(on, g.Shape.GPUs)
}

// split divides a total over nodes that can take what their shares say, at
// least one GPU each; nil if they cannot take it all.
func split(on []cluster.Share, total int) []cluster.Share {
	out := make([]cluster.Share, 0, len(on))
	for i, c := range on {
		take := min(c.GPUs, total-(len(on)-1-i))
		if take <= 0 {
			return nil
		}
		out = append(out, cluster.Share{Node: c.Node, GPUs: take})
		total -= take
	}
	if total > 0 {
		return nil
	}
	return out
}

func (s *Space) take(g *Gang, on []cluster.Share) Placement {
	p := Placement{Gang: g.ID, On: slices.Clone(on)}
	var gpus int
	for _, sh := range on {
		s.move(g, sh, len(on), -1)
		gpus += sh.GPUs
	}
	p.Level = cluster.SpanOf(on, s.rack)
	p.Rate = float64(gpus)
	if g.Speed != nil {
		p.Rate *= g.Speed(p.Level)
	}
	return p
}

func (s *Space) give(g *Gang, on []cluster.Share) {
	for _, sh := range on {
		s.move(g, sh, len(on), +1)
	}
}

// move takes (sign -1) or returns (+1) a share. Types are taken in the node's
// order, and returned in the reverse.
func (s *Space) move(g *Gang, sh cluster.Share, nodes, sign int) {
	n := &s.nodes[s.index[sh.Node]]
	left := sh.GPUs
	for k := range n.GPUs {
		t := &n.GPUs[k]
		if g.Shape.Type != "" && t.Type != g.Shape.Type {
			continue
		}
		step := min(left, t.Total)
		if sign > 0 {
			step = min(left, t.Used)
		}
		t.Total += sign * step
		t.Used -= sign * step
		left -= step
	}
	if len(g.Held) == 0 { // what a running job keeps is not really free
		n.Real = max(n.Real+sign*sh.GPUs, 0)
	}
	w := needs(g.Shape, sh.GPUs, nodes)
	if n.CPUs >= 0 {
		n.CPUs += sign * w.cpus
	}
	if n.MemMiB >= 0 {
		n.MemMiB += int64(sign) * w.mem
	}
	if g.Shape.Exclusive {
		n.Idle = sign > 0
		if sign < 0 {
			for k := range n.GPUs { // nobody else gets the rest of the node
				n.GPUs[k].Used += n.GPUs[k].Total
				n.GPUs[k].Total = 0
			}
		}
	} else if sign < 0 {
		n.Idle = false
	}
}
