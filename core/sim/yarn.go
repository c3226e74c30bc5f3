// SPDX-License-Identifier: Apache-2.0

package sim

import "slices"

// yarn starts gangs in the order of YARN's schedulers, without preemption: the
// next GPUs go to the leaf that key puts first, FIFO inside. A gang that does not
// fit is passed over: YARN's reservations are of single containers. Elastic jobs
// run on all the GPUs that they can use.
type yarn struct {
	leaf func(j *Job) string
	user func(j *Job) string // above its leaf; used by key
	key  func(x, y *leaf) int

	pool    *pool
	leaves  map[string]*leaf
	active  []*leaf // that have waiting jobs
	users   map[string]*int
	running []*Job
}

// leaf is a queue's waiting jobs.
type leaf struct {
	held   int  // GPUs
	user   *int // GPUs of its user
	sizes  []fifoOf
	queued int
}

// fifoOf holds a leaf's jobs of one size by submission.
type fifoOf struct {
	gpus int
	jobs []*Job
}

func newYarn(w *World) *yarn {
	return &yarn{pool: newPool(w), leaves: map[string]*leaf{}, users: map[string]*int{}, user: func(*Job) string { return "" }}
}

func (y *yarn) Decide(w *World) {
	for _, j := range w.Ended {
		y.use(w, j, -1)
	}
	y.running = slices.DeleteFunc(y.running, func(j *Job) bool {
		failed := j.Held == 0 && !j.Finished()
		if failed {
			y.use(w, j, -1)
			y.enqueue(w, j)
		}
		return j.Held == 0
	})
	for _, j := range w.Arrived {
		y.enqueue(w, j)
	}
	if len(y.active) == 0 || w.Free == 0 {
		return
	}
	y.pool.load(w)
	for {
		l, size := y.next(w.Free)
		if l == nil {
			return
		}
		j := l.sizes[size].jobs[0]
		l.sizes[size].jobs = l.sizes[size].jobs[1:]
		if l.queued--; l.queued == 0 {
			y.active = slices.DeleteFunc(y.active, func(o *leaf) bool { return o == l })
		}
		w.Place(j, y.pool.fit(w.gang(j)))
		y.use(w, j, 1)
		y.running = append(y.running, j)
	}
}

func (y *yarn) enqueue(w *World, j *Job) {
	l := y.leaves[y.leaf(j)]
	if l == nil {
		u := y.users[y.user(j)]
		if u == nil {
			u = new(int)
			y.users[y.user(j)] = u
		}
		l = &leaf{user: u}
		y.leaves[y.leaf(j)] = l
	}
	if l.queued++; l.queued == 1 {
		y.active = append(y.active, l)
	}
	at, ok := slices.BinarySearchFunc(l.sizes, w.gang(j), func(f fifoOf, n int) int { return f.gpus - n })
	if !ok {
		l.sizes = slices.Insert(l.sizes, at, fifoOf{gpus: w.gang(j)})
	}
	f := &l.sizes[at]
	k, _ := slices.BinarySearchFunc(f.jobs, j, func(a, b *Job) int { return a.Index - b.Index })
	f.jobs = slices.Insert(f.jobs, k, j)
}

func (y *yarn) use(w *World, j *Job, sign int) {
	l := y.leaves[y.leaf(j)]
	l.held += sign * w.gang(j)
	*l.user += sign * w.gang(j)
}

// next is the first leaf by key, ties by submission, that has a job that fits,
// and the size of its first such job.
func (y *yarn) next(free int) (best *leaf, size int) {
	var first *Job
	for _, l := range y.active {
		if best != nil && y.key(l, best) > 0 {
			continue
		}
		at := -1
		for i, f := range l.sizes {
			if f.gpus > free {
				break
			}
			if len(f.jobs) > 0 && (at < 0 || f.jobs[0].Index < l.sizes[at].jobs[0].Index) {
				at = i
			}
		}
		if at >= 0 && (best == nil || y.key(l, best) < 0 || l.sizes[at].jobs[0].Index < first.Index) {
			best, size, first = l, at, l.sizes[at].jobs[0]
		}
	}
	return best, size
}
