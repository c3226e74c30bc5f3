// SPDX-License-Identifier: Apache-2.0

package auction

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"themis/core/cluster"
)

// Node is what one node has on offer.
type Node struct {
	Name   string
	Rack   string
	GPUs   []cluster.GPUs // Total is what is free; at most mostTypes types count
	CPUs   int            // free; -1: not a resource here
	MemMiB int64          // free; -1: not a resource here
	Slots  []int          // free GPUs by slot, if these are told apart
	Idle   bool           // no job is on it
	Real   int            // of the free GPUs, those no running job still holds
}

// Claim takes (sign -1) GPUs of a lease that has not started out of the offer,
// or puts (sign +1) those of a running job on offer, with the CPUs and memory
// that the shape needs beside them; in are the GPUs by slot.
func (n *Node) Claim(sh cluster.Shape, gpus, nodes, sign int, in cluster.InSlots) {
	left := gpus
	for k := range n.Slots {
		n.Slots[k] = max(n.Slots[k]+sign*int(in[k]), 0)
	}
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
		n.CPUs = max(n.CPUs+sign*w.CPUs, 0)
	}
	if n.MemMiB >= 0 {
		n.MemMiB = max(n.MemMiB+int64(sign)*w.MemMiB, 0)
	}
	if sign < 0 {
		n.Real = max(n.Real-gpus, 0)
		n.Idle = false
		if sh.Exclusive {
			n.GPUs, n.Real = nil, 0
		}
	}
}

// Need is what a gang takes of one node.
type Need struct {
	GPUs   int   `json:"gpus"`
	CPUs   int   `json:"cpus"`
	MemMiB int64 `json:"mem_mib"`
}

// needs is what one node must give for g GPUs of a gang spread over n nodes.
func needs(sh cluster.Shape, gpus, nodes int) Need {
	cpus := max(sh.CPUsPerNode, sh.CPUsPerGPU*gpus, (sh.CPUs+nodes-1)/max(nodes, 1), 1)
	mem := max(sh.MemPerNode, sh.MemPerCPU*int64(cpus), sh.MemPerGPU*int64(gpus))
	return Need{gpus, cpus, mem}
}

// Scope is a set of nodes that gangs may run on. Gangs with the same choice
// share one Scope.
type Scope struct{ names map[string]bool }

// NewScope makes the set of the named nodes.
func NewScope(nodes []string) *Scope {
	s := &Scope{names: make(map[string]bool, len(nodes))}
	for _, n := range nodes {
		s.names[n] = true
	}
	return s
}

// Gang is one job in a bid: it is placed whole or not at all.
type Gang struct {
	ID       string
	Group    string // gangs of one non-empty Group are placed together, on nodes of their own
	Shape    cluster.Shape
	Scope    *Scope          // nodes it may run on; nil: any
	Required []string        // nodes it must have
	Held     []cluster.Share // it runs here and can run nowhere else
	Restart  float64         // GPU-seconds lost if it holds GPUs and wins none
	// Rate is the speed on so many GPUs at a level, in GPUs within one machine;
	// nil: each GPU counts as one.
	Rate func(gpus int, level cluster.Level) float64
	// Faster are the sets of nodes on which it is faster than that, the fastest
	// first, each with the one before it: a gang is as fast as its slowest node.
	Faster []Faster
}

// Faster says that a gang whose nodes are all of a scope runs Times as fast.
type Faster struct {
	Scope *Scope
	Times float64 // above 1, less than that of the set before
}

func (g *Gang) rate(gpus int, level cluster.Level) float64 {
	if g.Rate == nil {
		return float64(gpus)
	}
	return g.Rate(gpus, level)
}

// Placement is where a gang goes.
type Placement struct {
	Gang  string
	On    []cluster.Share
	Level cluster.Level
	Rate  float64
}

// mostTypes is how many GPU types of one node are told apart.
const mostTypes = 8

// cell is what is left of a node while a round is solved.
type cell struct {
	kind  [mostTypes]int16 // type ids
	free  [mostTypes]int16 // that typed gangs may still take
	types int
	cpus  int // -1: not a resource
	mem   int64
	idle  bool // before the round
	jobs  int  // placed in the round
	real  int
	rack  int32           // -1: unknown
	slots int             // told apart
	room  cluster.InSlots // free, by slot
}

// Space is the free room of a round; gangs are placed into it one by one. Its
// nodes are kept in an order that depends on names only between equal ones.
type Space struct {
	cells     []cell
	free      []int32 // GPUs of all types, by node
	names     []string
	index     map[string]int32
	racks     [][2]int32 // from, to
	rackNames []string
	types     []string
	scopes    map[*Scope][]bool
	lean      lean // of the round that is solved; zero: unknown
	slot      int  // most GPUs of any slot; a node not told apart is one
	divided   bool // some node has several
}

// NewSpace takes the nodes on offer. Their order does not matter; of nodes with
// the same name only the first counts.
func NewSpace(nodes []Node) *Space {
	s := &Space{cells: make([]cell, 0, len(nodes)), free: make([]int32, 0, len(nodes)), names: make([]string, 0, len(nodes)),
		index: make(map[string]int32, len(nodes)), scopes: map[*Scope][]bool{}}
	for _, n := range ordered(nodes) {
		if _, ok := s.index[n.Name]; ok {
			continue
		}
		id := int32(len(s.cells))
		c := cell{cpus: max(n.CPUs, -1), mem: max(n.MemMiB, -1), idle: n.Idle, real: max(n.Real, 0), rack: -1}
		var free int32
		for _, g := range n.GPUs[:min(len(n.GPUs), mostTypes)] {
			have := int16(min(max(g.Total, 0), 1<<14))
			free += int32(have)
			id := s.typeID(g.Type)
			if k := slices.Index(c.kind[:c.types], id); k >= 0 {
				c.free[k] = int16(min(int(c.free[k])+int(have), 1<<14))
				continue
			}
			c.kind[c.types], c.free[c.types] = id, have
			c.types++
		}
		if len(n.Slots) > 0 && len(n.Slots) <= cluster.SlotsMost {
			c.slots, s.divided = len(n.Slots), true
			for k, free := range n.Slots {
				c.room[k] = uint8(min(max(free, 0), math.MaxUint8))
				s.slot = max(s.slot, int(c.room[k]))
			}
		} else {
			s.slot = max(s.slot, int(free))
		}
		if n.Rack != "" {
			if len(s.racks) == 0 || s.rackNames[len(s.racks)-1] != n.Rack {
				s.racks = append(s.racks, [2]int32{id, id})
				s.rackNames = append(s.rackNames, n.Rack)
			}
			c.rack = int32(len(s.racks) - 1)
			s.racks[c.rack][1] = id + 1
		}
		s.index[n.Name] = id
		s.names = append(s.names, n.Name)
		s.cells = append(s.cells, c)
		s.free = append(s.free, free)
	}
	return s
}

// compare orders nodes by what they have.
func (n *Node) compare(o *Node) int {
	return cmp.Or(
		slices.CompareFunc(n.GPUs, o.GPUs, func(x, y cluster.GPUs) int {
			return cmp.Or(cmp.Compare(x.Total, y.Total), cmp.Compare(x.Type, y.Type))
		}),
		cmp.Compare(n.CPUs, o.CPUs), cmp.Compare(n.MemMiB, o.MemMiB), cmp.Compare(n.Real, o.Real), slices.Compare(n.Slots, o.Slots))
}

// ordered are the nodes by what their racks have, then by what they have
// themselves; names decide only between equal ones.
func ordered(nodes []Node) []*Node {
	var like [][]*Node // those that have the same
	for i := range nodes {
		n := &nodes[i]
		at, found := slices.BinarySearchFunc(like, n, func(l []*Node, n *Node) int { return l[0].compare(n) })
		if !found {
			like = slices.Insert(like, at, nil)
		}
		like[at] = append(like[at], n)
	}
	all := make([]*Node, 0, len(nodes))
	one := true // rack at most
	for _, l := range like {
		slices.SortStableFunc(l, func(x, y *Node) int { return strings.Compare(x.Name, y.Name) })
		all = append(all, l...)
		one = one && !slices.ContainsFunc(l, func(n *Node) bool { return n.Rack != all[0].Rack })
	}
	if one {
		return all
	}
	var racks [][]*Node
	at := map[string]int{}
	for _, n := range all {
		k, ok := at[n.Rack]
		if !ok {
			k = len(racks)
			at[n.Rack], racks = k, append(racks, nil)
		}
		racks[k] = append(racks[k], n)
	}
	slices.SortFunc(racks, func(x, y []*Node) int {
		return cmp.Or(slices.CompareFunc(x, y, (*Node).compare), strings.Compare(x[0].Rack, y[0].Rack))
	})
	return slices.Concat(racks...)
}

func (s *Space) typeID(name string) int16 {
	if i := slices.Index(s.types, name); i >= 0 {
		return int16(i)
	}
	s.types = append(s.types, name)
	return int16(len(s.types) - 1)
}

func (s *Space) clone() *Space {
	c := *s
	c.cells, c.free = slices.Clone(s.cells), slices.Clone(s.free)
	return &c
}

// Free counts the GPUs that are left.
func (s *Space) Free() int {
	var free int
	for _, f := range s.free {
		free += int(f)
	}
	return free
}

// spec is a gang as the space reads it.
type spec struct {
	g        *Gang
	sh       cluster.Shape
	typ      int16  // -1: any
	scope    []bool // nil: any
	required []int32
	held     []share
	grows    bool // it is faster on one more node than it needs
	spills   bool // its CPUs, stated in all, may need more nodes than it asks for
	never    bool // it names a node or type that is not on offer
	kind     int  // in the model that reads it
	slotted  bool // it is faster in one slot
	nearer   bool // it is faster in one rack
	faster   []faster
}

// need is what one of so many nodes gives for a share. A gang that grows keeps
// the CPUs with which it started, so that it can shrink again.
func (sp *spec) need(gpus, nodes int) Need {
	if sp.grows {
		nodes = fewest(sp)
	}
	return needs(sp.sh, gpus, nodes)
}

// share is a part of a placement: GPUs of one node, from which slots is said once
// it is taken.
type share struct {
	node int32
	gpus int
	in   cluster.InSlots
}

func (s *Space) read(g *Gang) spec {
	sp := spec{g: g, sh: g.Shape, typ: -1, never: !sane(g, len(s.cells))}
	if g.Shape.Type != "" {
		if sp.typ = int16(slices.Index(s.types, g.Shape.Type)); sp.typ < 0 {
			sp.never = true
		}
	}
	if g.Scope != nil {
		sp.scope = s.within(g.Scope)
	}
	for _, name := range g.Required {
		i, ok := s.index[name]
		sp.required = append(sp.required, i)
		sp.never = sp.never || !ok
	}
	for _, h := range g.Held {
		i, ok := s.index[h.Node]
		sp.held = append(sp.held, share{i, h.GPUs, h.Slots})
		sp.never = sp.never || !ok
	}
	n := g.Shape.Count()
	sp.slotted = n <= s.slot && g.rate(n, cluster.Slot) > g.rate(n, cluster.Machine)
	sp.nearer = g.rate(n, cluster.Rack) > g.rate(n, cluster.Cluster)
	sp.faster = s.faster(&sp)
	s.mold(&sp)
	return sp
}

// within lists which nodes are of a scope.
func (s *Space) within(scope *Scope) []bool {
	ok := s.scopes[scope]
	if ok == nil {
		ok = make([]bool, len(s.cells))
		for i, name := range s.names {
			ok[i] = scope.names[name]
		}
		s.scopes[scope] = ok
	}
	return ok
}

// mold sets how a gang uses more nodes than it needs. It depends on the gang's
// speed as well as on its shape.
func (s *Space) mold(sp *spec) {
	if sh := &sp.sh; !sp.never && sh.GPUsPerNode > 0 && len(sp.held) == 0 && sh.NodesMax != max(sh.NodesMin, 1) {
		sp.grows = s.grows(sp)
		sp.spills = sh.CPUs > 0 && !sp.grows
	}
}

// grows says whether a gang fits on as few nodes as it asks for and is faster on
// one more.
func (s *Space) grows(sp *spec) bool {
	g, per, n := sp.g, sp.sh.GPUsPerNode, fewest(sp)
	return g.Group == "" && n < sp.sh.NodesMax && g.Rate != nil &&
		g.Rate((n+1)*per, cluster.Rack) > g.Rate(n*per, cluster.Rack) && s.tightest(sp, n, nil) != nil
}

// sane says whether a gang's numbers can mean anything on so many nodes.
func sane(g *Gang, nodes int) bool {
	sh := &g.Shape
	seen := map[string]bool{}
	for _, h := range g.Held {
		if seen[h.Node] || h.GPUs < 1 || h.GPUs > countMost {
			return false
		}
		seen[h.Node] = true
	}
	least := max(sh.NodesMin, len(g.Required), 1)
	for _, n := range []int{sh.NodesMin, sh.NodesMax, sh.GPUsPerNode, sh.GPUs, sh.Unit, sh.CPUsPerNode, sh.CPUs, sh.CPUsPerGPU} {
		if n < 0 || n > countMost {
			return false
		}
	}
	const memMost = 1 << 42 // MiB
	for _, n := range []int64{sh.MemPerNode, sh.MemPerCPU, sh.MemPerGPU} {
		if n < 0 || n > memMost/countMost {
			return false
		}
	}
	return least <= nodes && (sh.NodesMax == 0 || least <= sh.NodesMax) && sh.Count() >= 1 && sh.Count() <= countMost &&
		sh.GPUs%sh.Split() == 0
}

// countMost bounds nodes, GPUs and CPUs of a gang.
const countMost = 1 << 20

// has is how many GPUs of the gang's type are free on the node.
func (s *Space) has(sp *spec, n int32) int {
	free := int(s.free[n])
	if sp.typ < 0 {
		return free
	}
	c := &s.cells[n]
	if k := slices.Index(c.kind[:c.types], sp.typ); k >= 0 {
		return min(free, int(c.free[k]))
	}
	return 0
}

// lacksType says whether the node has no GPU of the gang's type at all.
func (s *Space) lacksType(sp *spec, n int32) bool {
	c := &s.cells[n]
	return sp.typ >= 0 && !slices.Contains(c.kind[:c.types], sp.typ)
}

// typedShort says whether typed gangs alone leave too few GPUs of its type.
func (s *Space) typedShort(sp *spec, n int32, gpus int) bool {
	c := &s.cells[n]
	k := slices.Index(c.kind[:c.types], sp.typ)
	return sp.typ >= 0 && k >= 0 && int(c.free[k]) < gpus
}

// holds says whether the node can take so many GPUs of a gang spread over so
// many nodes, that the node is one of its choice aside.
func (s *Space) holds(sp *spec, n int32, gpus, nodes int) bool {
	c := &s.cells[n]
	if s.has(sp, n) < gpus || sp.sh.Exclusive && (c.jobs > 0 || !c.idle && len(sp.held) == 0) {
		return false
	}
	if c.cpus < 0 && c.mem < 0 {
		return true
	}
	w := sp.need(gpus, nodes)
	return (c.cpus < 0 || w.CPUs <= c.cpus) && (c.mem < 0 || w.MemMiB <= c.mem)
}

// most is how many GPUs of the gang the node could take, at most want.
func (s *Space) most(sp *spec, n int32, want, nodes int) int {
	unit := sp.sh.Split()
	for g := min(want, s.has(sp, n)) / unit * unit; g > 0; g -= unit {
		if s.holds(sp, n, g, nodes) {
			return g
		}
	}
	return 0
}

// hold is what a placement took of one node.
type hold struct {
	share
	all  int32 // GPUs that others no longer get: more than gpus if exclusive
	cpus int
	mem  int64
	real int
	typ  int16
	room cluster.InSlots // of its slots: less than the share's if a running job has others
}

// take removes a share from the space. Which type a gang without a type gets
// stays open as long as the typed ones find theirs; an exclusive gang takes the
// whole node.
func (s *Space) take(sp *spec, sh share, nodes int) hold {
	c := &s.cells[sh.node]
	w := sp.need(sh.gpus, nodes)
	h := hold{share: sh, all: int32(sh.gpus), cpus: w.CPUs, mem: w.MemMiB, typ: sp.typ}
	if sp.sh.Exclusive {
		h.all, h.cpus, h.mem = s.free[sh.node], c.cpus, c.mem
	}
	if len(sp.held) == 0 { // what a running job keeps is not really free
		h.real = min(c.real, sh.gpus)
	}
	if c.slots > 0 {
		s.pick(sp, c, &h)
	}
	s.again(&h)
	return h
}

// again is take of the very same, after give.
func (s *Space) again(h *hold) { s.apply(h, -1) }

// give is take undone.
func (s *Space) give(h *hold) { s.apply(h, +1) }

func (s *Space) apply(h *hold, sign int) {
	c := &s.cells[h.node]
	s.free[h.node] += int32(sign) * h.all
	if h.typ >= 0 {
		c.free[slices.Index(c.kind[:c.types], h.typ)] += int16(sign * h.gpus)
	}
	if c.cpus >= 0 {
		c.cpus += sign * h.cpus
	}
	if c.mem >= 0 {
		c.mem += int64(sign) * h.mem
	}
	for k, n := range h.room {
		c.room[k] += uint8(sign) * n
	}
	c.real += sign * h.real
	c.jobs -= sign
}
