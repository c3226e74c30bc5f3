// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// crowd keeps the mean number of live apps in each app's life, N_avg.
type crowd struct {
	live  int
	area  float64 // apps times seconds
	at    time.Duration
	since []float64 // area when the app arrived, by App.Index
}

func (c *crowd) see(w *World) {
	c.area += float64(c.live) * (w.Now - c.at).Seconds()
	c.at = w.Now
	for len(c.since) < len(w.Apps) {
		c.since = append(c.since, -1)
	}
	for _, j := range w.Arrived {
		if c.since[j.App.Index] < 0 {
			c.since[j.App.Index] = c.area
			c.live++
		}
	}
	for _, j := range w.Ended {
		if j.App.Left == 0 && j.App.End == w.Now {
			c.live--
			c.since[j.App.Index] = c.area
		}
	}
}

func (c *crowd) mean(w *World, a *App) float64 {
	if life := (w.Now - a.Submit).Seconds(); life > 0 {
		return max((c.area-c.since[a.Index])/life, 1)
	}
	return float64(max(c.live, 1))
}

// strawman is section 4's first attempt: all GPUs to the app with the worst rho.
// rho is T_sh over the paper's T_id = T_cluster * N_avg, both with the cluster all
// the app's own from now on, as T_sh without GPUs has no end; only jobs that have
// arrived count. N_avg is taken over the app's life so far.
type strawman struct {
	leased
	crowd
}

func newStrawman(w *World) *strawman {
	p := &strawman{leased: leased{pool: newPool(w)}}
	p.score = func(w *World, t *tenant, gpus int, s, before float64) float64 { return t.rho }
	p.bid = func(w *World, all []*tenant) []*tenant {
		rho := map[*App]float64{}
		for _, t := range all {
			v, ok := rho[t.App]
			if !ok {
				v = p.rho(w, t.App)
				rho[t.App] = v
			}
			t.rho = v
		}
		return all
	}
	return p
}

func (p *strawman) Decide(w *World) {
	p.crowd.see(w)
	p.leased.Decide(w)
}

func (p *strawman) rho(w *World, a *App) float64 {
	var longest, work, all, whole float64 // of what is left, and of what there was
	for _, j := range a.Jobs {
		if j.Submit > w.Now {
			continue
		}
		w.Sync(j)
		total := j.Done
		if !j.Finished() {
			total += j.Guess()
			work += j.Guess()
			longest = max(longest, j.Guess()/float64(j.GPUs))
		}
		whole = max(whole, total/float64(j.GPUs))
		all += total
	}
	alone := max(whole, all/float64(w.GPUs))
	left := max(longest, work/float64(w.GPUs))
	return ((w.Now - a.Submit).Seconds() + left) / (alone * p.mean(w, a))
}
