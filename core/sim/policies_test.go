// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"themis/core/cluster"
	"themis/core/trace"

	"pgregory.net/rapid"
)

// machines is a cluster of nodes with so many GPUs each, two to a rack.
func machines(gpus ...int) *trace.Cluster {
	c := &trace.Cluster{Name: "test"}
	for i, n := range gpus {
		c.Nodes = append(c.Nodes, cluster.Node{Name: fmt.Sprint("n", i), Rack: fmt.Sprint("r", i/2), GPUs: []cluster.GPUs{{Total: n}}})
	}
	return c
}

// gang is a job for a test: what is not given is "a", or none.
func gang(app string, gpus int, submit, runtime time.Duration) trace.Job {
	return trace.Job{App: app, User: app, GPUs: gpus, Submit: submit, Runtime: runtime, Full: runtime}
}

func traceOf(jobs ...trace.Job) *trace.Trace {
	t := &trace.Trace{Name: "test", Jobs: jobs}
	for i := range t.Jobs {
		t.Jobs[i].ID = strconv.Itoa(i + 1)
	}
	return t
}

// endsOf plays a trace and tells when each job ended.
func endsOf(t *testing.T, policy string, c *trace.Cluster, o Options, jobs ...trace.Job) []time.Duration {
	t.Helper()
	w := NewWorld(traceOf(jobs...), c, o)
	p, _, err := New(policy, w)
	if err != nil {
		t.Fatal(err)
	}
	w.Run(p)
	var out []time.Duration
	for _, j := range w.jobs {
		out = append(out, j.End.Round(time.Second))
	}
	return out
}

// watcher checks a policy after each decision.
type watcher struct {
	Policy
	after func(w *World)
}

func (p watcher) Decide(w *World) {
	p.Policy.Decide(w)
	p.after(w)
}

// busyPolicies leave no GPU idle while a job that fits waits. The others may:
// backfill keeps reservations, rounds have ends, and Themis weighs.
var busyPolicies = []string{"gandiva", "tiresias", "tiresias-2d", "optimus", "slaq", "srtf", "srsf", "strawman", "themis-coded", "capacity", "fair"}

// drawn is a small trace, cluster and options.
func drawn(t *rapid.T) (*trace.Trace, *trace.Cluster, Options) {
	var gpus []int
	most := 0
	for range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := rapid.IntRange(1, 4).Draw(t, "gpus")
		gpus = append(gpus, n)
		most += n
	}
	elastic := rapid.IntRange(0, 2).Draw(t, "elastic") // none, all, some
	var jobs []trace.Job
	at := time.Duration(0)
	for i := range rapid.IntRange(1, 14).Draw(t, "jobs") {
		at += time.Duration(rapid.IntRange(0, 3).Draw(t, "gap")) * 7 * time.Minute
		j := gang(fmt.Sprint("app", rapid.IntRange(0, 5).Draw(t, "app")), rapid.IntRange(1, min(most, 6)).Draw(t, "size"), at,
			time.Duration(rapid.IntRange(1, 200).Draw(t, "minutes"))*time.Minute)
		j.Elastic = elastic == 1 || elastic == 2 && i%2 == 0
		j.User = fmt.Sprint("u", rapid.IntRange(0, 2).Draw(t, "user"))
		j.Model = rapid.SampledFrom([]string{"", "vgg19", "resnet50"}).Draw(t, "model")
		if rapid.Bool().Draw(t, "limited") {
			j.Limit = 2 * j.Runtime
		}
		jobs = append(jobs, j)
	}
	o := Options{Seed: 7, F: .5, Restart: time.Duration(rapid.IntRange(0, 1).Draw(t, "restart")) * time.Minute,
		Error: float64(rapid.IntRange(0, 1).Draw(t, "error")) / 2}
	if rapid.Bool().Draw(t, "fails") {
		o.MTBF = 20 * time.Hour
	}
	return traceOf(jobs...), machines(gpus...), o
}

// Whatever the policy, all jobs end, no GPU is given twice (World panics), and the
// same input gives the same bytes.
func TestPolicies(t *testing.T) {
	names, _ := Policies()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				tr, c, o := drawn(rt)
				play := func() []byte {
					w := NewWorld(tr, c, o)
					p, title, err := New(name, w)
					if err != nil {
						rt.Fatal(err)
					}
					busy := slices.Contains(busyPolicies, name)
					w.Progress = func(now time.Duration, ended, jobs int) bool {
						return now < 5000*time.Hour
					}
					w.Run(watcher{p, func(w *World) {
						for _, j := range w.Live {
							least := j.GPUs
							if j.Elastic {
								least = 1
								if name == "capacity" || name == "fair" {
									least = w.gang(j)
								}
							}
							if busy && j.Held == 0 && least <= w.Free {
								rt.Fatalf("at %v job %s of %d GPUs waits while %d are free", w.Now, j.ID, j.GPUs, w.Free)
							}
						}
					}})
					for _, j := range w.jobs {
						if !j.Finished() {
							rt.Fatalf("job %s has not ended by %v", j.ID, w.Now)
						}
					}
					out, err := json.Marshal(w.Result(name, title, TraceReferences(tr, c.GPUs())))
					if err != nil {
						rt.Fatal(err)
					}
					return out
				}
				if a, b := play(), play(); string(a) != string(b) {
					rt.Fatalf("two runs differ:\n%s\n%s", a, b)
				}
			})
		})
	}
}

// Scenarios small enough to play by hand.
func TestPolicyScenarios(t *testing.T) {
	const h, m = time.Hour, time.Minute
	as := func(account string, j trace.Job) trace.Job {
		j.Account = account
		return j
	}
	elastic := func(j trace.Job) trace.Job {
		j.Elastic = true
		return j
	}
	limited := func(limit time.Duration, j trace.Job) trace.Job {
		j.Limit = limit
		return j
	}
	for _, s := range []struct {
		what, policy string
		c            *trace.Cluster
		jobs         []trace.Job
		want         []time.Duration
	}{
		{"the shortest first", "srtf", machines(1),
			[]trace.Job{gang("a", 1, 0, 3*h), gang("b", 1, 0, h), gang("c", 1, 0, 2*h)},
			[]time.Duration{6 * h, h, 3 * h}},
		{"a lease is left to its end", "srtf", machines(1),
			[]trace.Job{gang("a", 1, 0, 10*h), gang("b", 1, 5*m, 30*m)},
			[]time.Duration{10*h + 30*m, 40 * m}},
		{"time remaining is not service", "srtf", machines(4),
			[]trace.Job{gang("a", 4, 0, h), gang("b", 3, 0, 70*m)},
			[]time.Duration{h, 130 * m}},
		{"service is not time remaining", "srsf", machines(4),
			[]trace.Job{gang("a", 4, 0, h), gang("b", 3, 0, 70*m)},
			[]time.Duration{130 * m, 70 * m}},
		{"equal jobs take turns", "tiresias", machines(1),
			[]trace.Job{gang("a", 1, 0, h), gang("b", 1, 0, h)},
			[]time.Duration{110 * m, 2 * h}},
		{"within a queue they do not", "tiresias-2d", machines(1),
			[]trace.Job{gang("a", 1, 0, h), gang("b", 1, 0, h)},
			[]time.Duration{h, 2 * h}},
		{"the largest gang on one machine first", "gandiva", machines(4),
			[]trace.Job{gang("a", 1, 0, h), gang("b", 4, 0, h)},
			[]time.Duration{2 * h, h}},
		{"a second GPU gains more than a third", "optimus", machines(4),
			[]trace.Job{elastic(gang("a", 4, 0, h)), elastic(gang("b", 4, 0, h))},
			[]time.Duration{2 * h, 2 * h}},
		{"the youngest first", "slaq", machines(1),
			[]trace.Job{gang("a", 1, 0, 2*h), gang("b", 1, 5*m, 2*h)},
			[]time.Duration{230 * m, 4 * h}},
		{"all to the app that is worst off", "strawman", machines(2),
			[]trace.Job{elastic(gang("a", 2, 0, 20*m)), elastic(gang("b", 2, 0, 10*m)), elastic(gang("b", 2, 0, 10*m))},
			[]time.Duration{30 * m, 20 * m, 40 * m}}, // a, b; then equal: a, b
		{"a later job starts ahead only if the first waiting one is not delayed", "fifo", machines(4),
			[]trace.Job{gang("a", 3, 0, 2*h), gang("b", 4, 0, h), gang("c", 1, 0, 150*m), gang("d", 1, 0, h)},
			[]time.Duration{2 * h, 3 * h, 330 * m, h}},
		{"EASY lets a later job delay the second waiting one", "multifactor-easy", machines(4),
			[]trace.Job{limited(2*h, gang("a", 3, 0, 2*h)), limited(2*h, gang("a", 3, m, 2*h)), limited(h, gang("a", 4, 2*m, h)), limited(10*h, gang("a", 1, 3*m, 10*h))},
			[]time.Duration{2 * h, 4 * h, 11*h + 3*m, 10*h + 3*m}},
		{"conservative backfill does not", "multifactor", machines(4),
			[]trace.Job{limited(2*h, gang("a", 3, 0, 2*h)), limited(2*h, gang("a", 3, m, 2*h)), limited(h, gang("a", 4, 2*m, h)), limited(10*h, gang("a", 1, 3*m, 10*h))},
			[]time.Duration{2 * h, 4 * h, 5 * h, 15 * h}},
		{"who has used less goes first", "multifactor", machines(1),
			[]trace.Job{as("a", gang("x", 1, 0, h)), as("a", gang("x", 1, m, h)), as("b", gang("x", 1, 2*m, h))},
			[]time.Duration{h, 3 * h, 2 * h}},
		{"the queue that has less goes first", "capacity", machines(2),
			[]trace.Job{as("a", gang("x", 1, 0, 3*h)), as("a", gang("x", 1, 0, h)), as("a", gang("x", 1, m, h)), as("b", gang("x", 1, 2*m, h))},
			[]time.Duration{3 * h, h, 3 * h, 2 * h}},
		{"a user's apps share, too", "fair", machines(2),
			[]trace.Job{gang("x", 1, 0, 3*h), gang("x", 1, 0, h), gang("x", 1, m, h), {App: "y", User: "x", GPUs: 1, Submit: 2 * m, Runtime: h}},
			[]time.Duration{3 * h, h, 3 * h, 2 * h}},
		{"equal jobs get equal shares", "gavel", machines(1),
			[]trace.Job{gang("a", 1, 0, h), gang("b", 1, 0, h)},
			[]time.Duration{2 * h, 110 * m}}, // a, b, and then two rounds each in turn
		{"the short job is worth more", "shockwave", machines(1),
			[]trace.Job{gang("a", 1, 0, 5*h), gang("b", 1, 0, 10*m)},
			[]time.Duration{310 * m, 10 * m}},
	} {
		if got := endsOf(t, s.policy, s.c, Options{}, s.jobs...); !slices.Equal(got, s.want) {
			t.Errorf("%s: %s: jobs end at %v, want %v", s.policy, s.what, got, s.want)
		}
	}
}

// THEMIS as coded: with f = .5 one of two jobs bids, the one with the worse rho;
// the leftovers are auctioned again.
func TestCodedBids(t *testing.T) {
	const h, m = time.Hour, time.Minute
	got := endsOf(t, "themis-coded", machines(1), Options{F: .5}, gang("a", 1, 0, h), gang("b", 1, 5*m, 10*m))
	if want := []time.Duration{70 * m, 20 * m}; !slices.Equal(got, want) { // at 10m: rho of b is 1.5, of a 1 and more
		t.Errorf("jobs end at %v, want %v", got, want)
	}
	got = endsOf(t, "themis-coded", machines(2), Options{F: .5}, gang("a", 1, 0, h), gang("b", 1, 0, h))
	if want := []time.Duration{h, h}; !slices.Equal(got, want) {
		t.Errorf("jobs end at %v, want %v", got, want)
	}
}

func TestFit(t *testing.T) {
	for _, s := range []struct {
		nodes []int // two to a rack
		n     int
		want  []Share
	}{
		{[]int{4, 2, 3}, 2, []Share{{1, 2}}},
		{[]int{4, 4, 4}, 4, []Share{{0, 4}}},
		{[]int{4, 1, 3, 2}, 5, []Share{{0, 4}, {1, 1}}},
		{[]int{2, 1, 3, 2}, 4, []Share{{2, 3}, {3, 1}}},
		{[]int{3, 0, 2, 0, 1}, 4, []Share{{0, 3}, {4, 1}}},
		{[]int{1, 1}, 3, nil},
	} {
		w := NewWorld(traceOf(), machines(s.nodes...), Options{})
		p := newPool(w)
		p.load(w)
		if got := p.fit(s.n); !slices.Equal(got, s.want) {
			t.Errorf("%d GPUs of %v: %v, want %v", s.n, s.nodes, got, s.want)
		}
	}
}

// Who keeps a lease keeps the very same GPUs.
func TestLeasesStay(t *testing.T) {
	for _, e := range []bool{false, true} {
		var jobs []trace.Job
		for i := range 6 {
			j := gang(fmt.Sprint("a", i), 1+i%2, time.Duration(i)*time.Minute, 5*time.Hour)
			j.Elastic = e
			jobs = append(jobs, j)
		}
		w := NewWorld(traceOf(jobs...), machines(4, 4, 4), Options{})
		p, _, _ := New("srtf", w)
		w.Run(p)
		if w.run.migrations > 0 {
			t.Errorf("elastic %v: %d migrations, although all fit", e, w.run.migrations)
		}
	}
}

// phillyLike is a synthetic trace with the sizes and the bursts of Philly's.
func phillyLike(n int) (*trace.Trace, *trace.Cluster) {
	r := rand.New(rand.NewPCG(1, 2))
	c := machines(slices.Repeat([]int{8}, 312)...)
	var jobs []trace.Job
	at := 0.
	for i := range n {
		if at += r.ExpFloat64() * 78; i%1000 == 0 { // seconds
			at += 3600
		}
		size := []int{1, 2, 4, 8, 16, 32, 64, 128}[min(int(r.ExpFloat64()*1.5), 7)]
		j := gang(fmt.Sprint("app", i), size, time.Duration(at*1e9), time.Duration((60+r.ExpFloat64()*r.ExpFloat64()*30000)*1e9))
		j.User = fmt.Sprint("u", r.IntN(300))
		j.Account = fmt.Sprint("vc", r.IntN(11))
		jobs = append(jobs, j)
	}
	return traceOf(jobs...), c
}

func BenchmarkPolicies(b *testing.B) {
	n := 8000
	if s := os.Getenv("THEMIS_BENCH_JOBS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	tr, c := phillyLike(n)
	for _, name := range []string{"fifo", "srtf", "tiresias", "multifactor", "multifactor-easy", "capacity", "fair", "gandiva", "optimus", "slaq", "strawman", "themis-coded", "gavel", "shockwave"} {
		b.Run(name, func(b *testing.B) {
			events := 0
			for b.Loop() {
				w := NewWorld(tr, c, Options{F: .8})
				p, _, _ := New(name, w)
				w.Run(p)
				events += w.run.events
			}
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(events)/float64(b.N), "events")
		})
	}
}
