// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"math"
	"slices"
)

// Bound proves what no schedule of these jobs on so many GPUs can beat, whatever
// it knows and whichever policy makes it: the least worst rho (reference), and for
// each of rhos, and for any, the least makespan, in hours since the trace's zero.
// refs are References. A rho below the least has no makespan and is left out; the
// last makespan is of any rho. It returns nil, and so no bound, if an app has
// several jobs, and where the proof would take too long (windowsMost: about 2,000
// jobs). No End is read.
//
// The schedules meant are preemptive, use GPUs in any fraction, and never more
// than a job's at once at S <= 1: leases, gangs, places and restarts can only make
// it longer. In them let each job have a window, from its submission to its
// deadline. For any set of jobs, what they need must fit in what they can be
// served: at every instant the GPUs of those whose window is open, at most all
// there are. Max-flow min-cut makes this exact: if no set breaks it there is a
// schedule (jobs -> intervals between window edges -> GPUs). A set that breaks it
// proves by itself, without the flow, that the makespan or rho must grow until it
// fits; the bounds are found by growing them so, set by set, until the flow finds
// none. Rounding is down, by a part in 10^9.
func Bound(jobs []Outcome, refs []float64, gpus int, rhos []float64) *Bounds {
	tasks := make([]task, 0, len(jobs))
	seen := map[int]bool{}
	for i := range jobs {
		j := &jobs[i]
		if seen[j.App] {
			return nil
		}
		if seen[j.App] = true; j.Work > 0 {
			t := task{submit: j.Submit, work: j.Work, width: min(j.GPUs, float64(gpus))}
			t.fair = max(refs[j.App]-j.Submit, t.work/t.width) // rounding
			tasks = append(tasks, t)
		}
	}
	p := proof{tasks: tasks, gpus: float64(gpus)}
	least, _, ok := p.makespan(math.Inf(1)) // the largest flow
	if !ok {
		return nil
	}
	rho, ok := p.rho()
	if !ok {
		return nil
	}
	b := &Bounds{RhoMax: rho * (1 - slack)}
	add := func(rho, s float64) {
		b.Makespans = append(b.Makespans, MakespanBound{Rho: rho, Hours: s * (1 - slack) / 3600})
	}
	for _, r := range rhos {
		s, fits, ok := p.makespan(r)
		if !ok {
			return nil
		} else if fits {
			add(r, s)
		}
	}
	add(0, least)
	return b
}

const (
	// slack is what sums may be off by, relative. A set of jobs that breaks its
	// limit by less is none.
	slack = 1e-9
	// windowsMost bounds a flow: pairs of a job and an interval in its window.
	windowsMost = 2_000_000
	// setsMost is how many sets are tried for one bound; fewer than ten are usual.
	setsMost = 100
)

// task is a job with its time in the fluid schedule, from its submission.
type task struct {
	submit, fair, work, width float64 // s, s, GPU-s, GPUs
	deadline                  float64 // s
}

type proof struct {
	tasks []task
	gpus  float64
	open  []edge // of served
}

// edge is where the GPUs that can be used change.
type edge struct{ at, by float64 }

// within sets deadlines.
func (p *proof) within(rho float64) {
	for i := range p.tasks {
		t := &p.tasks[i]
		t.deadline = t.submit + rho*t.fair
	}
}

// rho is the least worst rho, in any makespan; not ok: it would take too long.
func (p *proof) rho() (rho float64, ok bool) {
	for i := range p.tasks {
		t := &p.tasks[i]
		rho = max(rho, t.work/(t.width*t.fair))
	}
	for range setsMost {
		p.within(rho)
		set, ok := p.breach(math.Inf(1))
		if len(set) == 0 || !ok {
			return rho, ok
		}
		low, high := rho, 2*rho
		fits := func(rho float64) bool {
			p.within(rho)
			_, fits := p.served(set)
			return fits
		}
		for ; !fits(high); high *= 2 {
			low = high
		}
		for range 60 {
			if mid := (low + high) / 2; fits(mid) {
				high = mid
			} else {
				low = mid
			}
		}
		if low <= rho*(1+slack) {
			break
		}
		rho = low
	}
	return rho, true
}

// makespan is the least at a worst rho of so much; it does not fit if none does.
func (p *proof) makespan(rho float64) (m float64, fits, ok bool) {
	p.within(rho)
	for i := range p.tasks {
		t := &p.tasks[i]
		m = max(m, t.submit+t.work/t.width)
		if t.submit+t.work/t.width > t.deadline+slack*t.fair {
			return 0, false, true
		}
	}
	for range setsMost {
		set, ok := p.breach(m)
		if len(set) == 0 || !ok {
			return m, true, ok
		}
		next, fits := p.served(set)
		if !fits {
			return 0, false, true
		}
		if next <= m*(1+slack) {
			break
		}
		m = next
	}
	return m, true, true
}

// served is when the set can have been served all it needs: no schedule that
// keeps the deadlines ends earlier. It does not fit if the deadlines come first.
func (p *proof) served(set []int) (at float64, fits bool) {
	p.open = p.open[:0]
	var need, width, sum float64
	for _, i := range set {
		t := &p.tasks[i]
		p.open = append(p.open, edge{t.submit, t.width}, edge{t.deadline, -t.width})
		need += t.work
	}
	sum = need
	slices.SortFunc(p.open, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	for i, e := range p.open {
		if i > 0 {
			rate := min(width, p.gpus)
			step := e.at - at
			if rate > 0 && need <= rate*step {
				return at + need/rate, true
			}
			if step > 0 {
				need -= rate * step
			}
		}
		at, width = e.at, width+e.by
	}
	return at, need <= slack*sum
}

// breach returns a set of jobs that cannot be served by their deadlines and the
// makespan: the one that lacks most, or none. Not ok: it would take too long.
func (p *proof) breach(makespan float64) (set []int, ok bool) {
	var edges []float64
	var sum float64
	for i := range p.tasks {
		t := &p.tasks[i]
		sum += t.work
		edges = append(edges, t.submit)
		if d := min(t.deadline, makespan); !math.IsInf(d, 1) {
			edges = append(edges, d)
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	index := func(t float64) int { i, _ := slices.BinarySearch(edges, t); return i }
	var windows int
	for i := range p.tasks {
		t := &p.tasks[i]
		windows += index(min(t.deadline, makespan)) - index(t.submit)
	}
	if windows > windowsMost {
		return nil, false
	}
	// Whole units make the flow exact; all work is 2^50 of them.
	const all = 1 << 50
	unit := func(gpuS float64) int64 { return int64(min(gpuS/sum, 1) * all) }
	n := len(p.tasks)
	source, sink := n+len(edges), n+len(edges)+1
	g := newGraph(sink+1, n+len(edges)+windows)
	for k := 0; k+1 < len(edges); k++ {
		g.link(n+k, sink, unit(p.gpus*(edges[k+1]-edges[k])))
	}
	var need int64
	for i := range p.tasks {
		t := &p.tasks[i]
		need += unit(t.work)
		g.link(source, i, unit(t.work))
		for k := index(min(t.deadline, makespan)) - 1; k >= index(t.submit); k-- {
			g.link(i, n+k, unit(t.width*(edges[k+1]-edges[k])))
		}
	}
	if float64(need-g.flow(source, sink)) <= all*slack {
		return nil, true
	}
	for i := range p.tasks {
		if g.level[i] >= 0 {
			set = append(set, i)
		}
	}
	return set, true
}

// graph finds a max-flow as Dinic (1970) does.
type graph struct {
	first, next []int32 // link of a node, and after a link; -1: none
	to          []int32
	left        []int64 // of a link; link i^1 goes back
	level       []int32 // from the source; -1: cut off
	at          []int32 // the link to be tried next
}

func newGraph(nodes, links int) *graph {
	g := &graph{first: make([]int32, nodes), level: make([]int32, nodes), at: make([]int32, nodes)}
	for i := range g.first {
		g.first[i] = -1
	}
	g.next, g.to, g.left = make([]int32, 0, 2*links), make([]int32, 0, 2*links), make([]int64, 0, 2*links)
	return g
}

func (g *graph) link(from, to int, room int64) {
	g.to = append(g.to, int32(to), int32(from))
	g.left = append(g.left, room, 0)
	g.next = append(g.next, g.first[from], g.first[to])
	g.first[from], g.first[to] = int32(len(g.to)-2), int32(len(g.to)-1)
}

// flow is the largest; afterwards level tells the source's side of a least cut.
func (g *graph) flow(source, sink int) (sum int64) {
	for g.layer(source, sink) {
		copy(g.at, g.first)
		sum += g.push(int32(source), int32(sink), math.MaxInt64)
	}
	return sum
}

func (g *graph) layer(source, sink int) bool {
	for i := range g.level {
		g.level[i] = -1
	}
	g.level[source] = 0
	queue := []int32{int32(source)}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		for l := g.first[v]; l >= 0; l = g.next[l] {
			if w := g.to[l]; g.left[l] > 0 && g.level[w] < 0 {
				g.level[w] = g.level[v] + 1
				queue = append(queue, w)
			}
		}
	}
	return g.level[sink] >= 0
}

// push sends up to so much from v on, and returns what arrived.
func (g *graph) push(v, sink int32, most int64) (sent int64) {
	if v == sink {
		return most
	}
	for ; g.at[v] >= 0; g.at[v] = g.next[g.at[v]] {
		l := g.at[v]
		if w := g.to[l]; g.left[l] > 0 && g.level[w] == g.level[v]+1 {
			got := g.push(w, sink, min(most-sent, g.left[l]))
			g.left[l] -= got
			g.left[l^1] += got
			if sent += got; sent == most {
				return sent
			}
		}
	}
	return sent
}
