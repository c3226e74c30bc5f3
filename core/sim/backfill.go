// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"
)

// backfill runs gangs to their ends, best priority first, and lets later jobs
// start ahead where time limits say that this delays nobody who has a
// reservation: EASY gives one to the first job that does not fit (Lifka, JSSPP
// 1995); conservative to each job that it looks at and that could start within the
// window, as Slurm's sched/backfill. A running job stays to its end. Elastic jobs
// run on all the GPUs that they can use.
type backfill struct {
	priority     func(w *World, l *line, j *Job) float64 // within a line it may only fall from job to job
	name         func(j *Job) string                     // of its line
	conservative bool

	pool    *pool
	lines   map[string]*line
	active  []*line // that have waiting jobs
	all     line    // what all have used together
	heads   heads
	sizes   map[int]int // waiting jobs by GPUs
	waiting int
	running []*running // by end
	of      map[*Job]*running
	profile profile
}

// Limits of looking ahead. Slurm's defaults are bf_window 1440, bf_resolution 60
// and bf_max_job_test 500, on a plan every 30 s; here there is one at every event.
const (
	backfillDepth      = 500
	backfillWindow     = 24 * time.Hour
	backfillResolution = time.Minute
)

// line is a user's waiting jobs by submission, and what its user has used.
type line struct {
	jobs  []*Job
	next  int     // cursor
	score float64 // of the job there
	held  int     // GPUs
	usage float64 // decayed GPU-seconds
	at    time.Duration
}

// running is a job with the end that its time limit says.
type running struct {
	job  *Job
	line *line
	gpus int
	end  time.Duration
}

func newBackfill(w *World) *backfill {
	return &backfill{pool: newPool(w), lines: map[string]*line{}, sizes: map[int]int{}, of: map[*Job]*running{},
		name: func(*Job) string { return "" }}
}

// limit is how long a job may run as far as its host knows: its own time limit,
// else one and a half times what its user declares, else an hour.
func limit(j *Job) time.Duration { return cmp.Or(j.Limit, j.Told*3/2, time.Hour) }

func (b *backfill) Decide(w *World) {
	b.see(w)
	if b.waiting == 0 || !b.anyFits(w.Free) {
		return
	}
	b.pool.load(w)
	if b.conservative {
		b.plan(w)
	} else {
		b.easy(w)
	}
}

// see takes note of what happened.
func (b *backfill) see(w *World) {
	for _, j := range w.Ended {
		b.leave(w, b.of[j])
	}
	if w.MTBF > 0 {
		for _, r := range slices.Clone(b.running) {
			if r.job.Held == 0 { // its node failed
				b.leave(w, r)
				b.enqueue(w, r.job)
			}
		}
	}
	for _, j := range w.Arrived {
		b.enqueue(w, j)
	}
}

func (b *backfill) enqueue(w *World, j *Job) {
	name := b.name(j)
	l := b.lines[name]
	if l == nil {
		l = &line{}
		b.lines[name] = l
	}
	if len(l.jobs) == 0 {
		b.active = append(b.active, l)
	}
	at, _ := slices.BinarySearchFunc(l.jobs, j, func(x, y *Job) int { return x.Index - y.Index })
	l.jobs = slices.Insert(l.jobs, at, j)
	b.sizes[w.gang(j)]++
	b.waiting++
}

func (b *backfill) anyFits(free int) bool {
	for n := range b.sizes {
		if n <= free {
			return true
		}
	}
	return false
}

// start runs the line's job at its cursor.
func (b *backfill) start(w *World, l *line) {
	j, n := l.jobs[l.next], w.gang(l.jobs[l.next])
	w.Place(j, b.pool.fit(n))
	l.jobs = slices.Delete(l.jobs, l.next, l.next+1)
	if b.waiting--; len(l.jobs) == 0 {
		b.active = slices.DeleteFunc(b.active, func(o *line) bool { return o == l })
	}
	if b.sizes[n]--; b.sizes[n] == 0 {
		delete(b.sizes, n)
	}
	b.use(w, l, n)
	r := &running{j, l, n, w.Now + limit(j)}
	b.of[j] = r
	at, _ := slices.BinarySearchFunc(b.running, r, byEnd)
	b.running = slices.Insert(b.running, at, r)
}

func (b *backfill) leave(w *World, r *running) {
	at, _ := slices.BinarySearchFunc(b.running, r, byEnd)
	b.running = slices.Delete(b.running, at, at+1)
	delete(b.of, r.job)
	b.use(w, r.line, -r.gpus)
}

func (b *backfill) use(w *World, l *line, gpus int) {
	for _, l := range []*line{l, &b.all} {
		l.decay(w)
		l.held += gpus
	}
}

func byEnd(x, y *running) int {
	return cmp.Or(cmp.Compare(x.end, y.end), x.job.Index-y.job.Index)
}

// walk visits waiting jobs, best priority first, ties by submission; visit says
// whether it has started the one at the line's cursor, and whether to go on.
func (b *backfill) walk(w *World, visit func(l *line, j *Job) (started, more bool)) {
	b.heads = b.heads[:0]
	b.all.decay(w)
	for _, l := range b.active {
		l.decay(w)
		l.next, l.score = 0, b.priority(w, l, l.jobs[0])
		b.heads = append(b.heads, l)
	}
	heap.Init(&b.heads)
	for tested := 0; len(b.heads) > 0 && tested < backfillDepth; {
		l := b.heads[0]
		started, more := visit(l, l.jobs[l.next])
		if !more {
			return
		}
		if !started {
			l.next++
			tested++
		}
		if l.next < len(l.jobs) {
			l.score = b.priority(w, l, l.jobs[l.next])
			heap.Fix(&b.heads, 0)
		} else {
			heap.Pop(&b.heads)
		}
	}
}

// easy starts what fits in order; once a job does not, only what ends before it
// could start by the limits, or leaves it enough GPUs.
func (b *backfill) easy(w *World) {
	shadow, spare := time.Duration(-1), 0
	b.walk(w, func(l *line, j *Job) (bool, bool) {
		n := w.gang(j)
		switch {
		case n > w.Free && shadow < 0:
			shadow, spare = b.shadow(w, n)
			return false, b.anyFits(w.Free)
		case n > w.Free:
			return false, true
		case shadow >= 0 && w.Now+limit(j) > shadow:
			if n > spare {
				return false, true
			}
			spare -= n
		}
		b.start(w, l)
		return true, b.anyFits(w.Free)
	})
}

// shadow is when n GPUs will be free by the limits, and how many more then.
func (b *backfill) shadow(w *World, n int) (time.Duration, int) {
	free := w.Free
	for i, r := range b.running {
		free += r.gpus
		if free >= n && (i+1 == len(b.running) || b.running[i+1].end > r.end) {
			return max(r.end, w.Now), free - n
		}
	}
	return math.MaxInt64, math.MaxInt32 // nodes are down
}

// plan gives every job that it looks at the earliest time that disturbs no job
// before it, and starts those whose time is now.
func (b *backfill) plan(w *World) {
	b.profile.reset(w, b.running)
	b.walk(w, func(l *line, j *Job) (bool, bool) {
		n := w.gang(j)
		d := max((limit(j) + backfillResolution - 1).Truncate(backfillResolution), backfillResolution)
		at, ok := b.profile.find(n, d)
		if !ok {
			return false, true
		}
		b.profile.reserve(at, d, n)
		if at > 0 {
			return false, true
		}
		b.start(w, l)
		return true, b.anyFits(b.profile.free[0])
	})
}

// heads is a heap of lines by the priority of the job at their cursor.
type heads []*line

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, k int) bool {
	if h[i].score != h[k].score {
		return h[i].score > h[k].score
	}
	return h[i].jobs[h[i].next].Index < h[k].jobs[h[k].next].Index
}
func (h heads) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*line)) }
func (h *heads) Pop() any {
	l := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return l
}
