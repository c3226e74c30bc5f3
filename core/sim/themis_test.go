// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"themis/core/cluster"
	"themis/core/trace"
)

// rack is a cluster of so many nodes of so many GPUs.
func rack(nodes, gpus int) *trace.Cluster {
	c := &trace.Cluster{Name: "test"}
	for i := range nodes {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprint("n", i), Rack: "r", GPUs: []cluster.GPUs{{Total: gpus}}})
	}
	return c
}

// busy is a seeded trace of apps that want about three times what there is.
func busy(seed uint64, elastic bool) *trace.Trace {
	r := rand.New(rand.NewPCG(seed, 1))
	t := &trace.Trace{Name: "busy"}
	at := time.Duration(0)
	for app := range 12 {
		for k := range 1 + r.IntN(5) {
			t.Jobs = append(t.Jobs, trace.Job{ID: fmt.Sprintf("%d.%d", app, k), App: fmt.Sprint("a", app), User: fmt.Sprint("u", app), Submit: at,
				Runtime: time.Duration(20+r.IntN(160)) * time.Minute, GPUs: 1 << r.IntN(3), Elastic: elastic})
		}
		at += time.Duration(r.IntN(20)) * time.Minute
	}
	return t
}

// The live policy keeps worst rhos near 1 where fifo does not.
func TestThemisKeepsReferences(t *testing.T) {
	for _, elastic := range []bool{false, true} {
		var ours, theirs []float64
		for seed := range uint64(8) {
			tr, c := busy(seed, elastic), rack(4, 4)
			if elastic { // machines too small for some
				c.Nodes[3].GPUs[0].Total = 2
			}
			refs := TraceReferences(tr, c.GPUs())
			for _, name := range []string{"themis", "fifo"} {
				res, err := Play(tr, c, Options{Lease: 5 * time.Minute, F: .8, Restart: 30 * time.Second}, name, refs)
				if err != nil || res.Unfinished > 0 {
					t.Fatalf("%s: %v, %d jobs unfinished", name, err, res.Unfinished)
				}
				var busy float64
				for _, b := range res.Busy {
					if busy += b / float64(len(res.Busy)); b < 0 || b > 1.000001 {
						t.Errorf("%s: %.3f of the GPUs in use", name, b)
					}
				}
				if d := busy - res.Utilisation; d > 1e-6 || d < -1e-6 {
					t.Errorf("%s: %.6f of the GPUs in use over time, %.6f in all", name, busy, res.Utilisation)
				}
				if name == "themis" {
					ours = append(ours, res.Rho["reference"].Max)
				} else {
					theirs = append(theirs, res.Rho["reference"].Max)
				}
			}
		}
		t.Logf("elastic %v: worst rho %.2f, by fifo %.2f", elastic, ours, theirs)
		slices.Sort(ours)
		if median := ours[len(ours)/2]; median > 1.2 || slices.Max(ours) > 1.4 {
			t.Errorf("elastic %v: worst rhos %.2f", elastic, ours)
		}
		if slices.Max(theirs) < 2 {
			t.Errorf("elastic %v: no contention: fifo has %.2f", elastic, theirs)
		}
	}
}

// What the live policy decides depends on what was declared, not on true run
// times, until a job's end shows them.
func TestThemisSeesNoTruth(t *testing.T) {
	play := func(longer float64) (lanes []Lane, first float64) {
		tr, c := busy(3, false), rack(4, 4)
		lies := map[string]float64{}
		for i := range tr.Jobs {
			j := &tr.Jobs[i]
			j.Runtime = time.Duration(float64(j.Runtime) * longer)
			lies[j.App] = 1 / longer
		}
		w := NewWorld(tr, c, Options{Lease: 5 * time.Minute, F: .8, Lies: lies, Lanes: true})
		p, _, err := New("themis", w)
		if err != nil {
			t.Fatal(err)
		}
		w.Run(p)
		first = w.jobs[0].End.Hours()
		for _, j := range w.jobs {
			first = min(first, j.End.Hours())
		}
		return w.run.lanes, first
	}
	honest, first := play(1)
	false_, _ := play(2)
	n := 0
	for i := range honest {
		if honest[i].From >= first {
			break
		}
		a, b := honest[i], false_[i]
		if a.Node != b.Node || a.From != b.From || a.GPUs != b.GPUs || a.App != b.App {
			t.Fatalf("start %d: %+v, with run times twice as long %+v", i, a, b)
		}
		n++
	}
	if n < 5 {
		t.Fatalf("only %d starts before the first end", n)
	}
}

// An agent runs a job that must wait on a machine too small for it, and moves it
// to one that has room for all of it as soon as there is one.
func TestStopgap(t *testing.T) {
	c := rack(1, 4)
	c.Nodes = append(c.Nodes, cluster.Node{Name: "small", Rack: "r", GPUs: []cluster.GPUs{{Total: 2}}})
	job := func(app string, runtime time.Duration) trace.Job {
		return trace.Job{ID: app, App: app, Runtime: runtime, GPUs: 4, Elastic: true, Place: []float64{1, 1, .5, .5}}
	}
	tr := &trace.Trace{Jobs: []trace.Job{job("first", time.Hour), job("second", 2*time.Hour)}}
	w := NewWorld(tr, c, Options{Lease: 10 * time.Minute, F: .8, Lanes: true})
	p, _, _ := New("themis", w)
	w.Run(p)
	var on []string
	for _, l := range w.run.lanes {
		on = append(on, fmt.Sprintf("%s:%d@%s", w.Apps[l.App].ID, l.GPUs, l.Node))
	}
	on = slices.Compact(on)
	if !slices.Contains(on, "second:2@small") || !slices.Contains(on, "second:4@n0") || !slices.Contains(on, "first:4@n0") {
		t.Errorf("ran as %v", on)
	}
	if end := w.jobs[1].End; end > 150*time.Minute { // 1 h on 2 of 4 GPUs, then 1.5 h on 4
		t.Errorf("second ended after %s", end)
	}
}

// What is known of run times matters: a user whose like jobs took 20 minutes of
// their four hours goes before one with a limit of two hours, unless there is no
// history to learn from.
func TestEstimatesOfRun(t *testing.T) {
	const m = time.Minute
	tr := &trace.Trace{Name: "test"}
	add := func(id, user string, at, limit, runtime time.Duration) {
		tr.Jobs = append(tr.Jobs, trace.Job{ID: id, App: id, User: user, Name: "train", Submit: at, Limit: limit, Runtime: runtime, GPUs: 1})
	}
	for i := range 6 {
		add(fmt.Sprint("before", i), "u", time.Duration(i)*30*m, 240*m, 20*m)
	}
	add("holder", "w", 200*m, 60*m, 50*m)
	add("known", "u", 201*m, 240*m, 20*m)
	add("unknown", "v", 201*m, 120*m, 100*m)
	c := rack(1, 1)
	for estimate, first := range map[string]string{"history": "known", "limit": "unknown"} {
		res, err := Play(tr, c, Options{Lease: 300 * m, F: .8, Estimate: estimate}, "themis", TraceReferences(tr, c.GPUs()))
		if err != nil {
			t.Fatal(err)
		}
		end := map[string]float64{}
		for _, a := range res.PerApp {
			end[a.App] = a.End
		}
		if got := map[bool]string{true: "known", false: "unknown"}[end["known"] < end["unknown"]]; got != first {
			t.Errorf("%s: %s ends first, at %v", estimate, got, end)
		}
	}
}
