// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"themis/core/cluster"
	"themis/core/sim"
)

var titles = map[string]string{"themis": "Themis", "backfill": "Slurm: FIFO with backfill", "fifo": "FIFO", "las": "Tiresias (2D-LAS)",
	"srtf": "Shortest remaining first", "fair": "Fluid fair share, rounded", "gandiva": "Gandiva", "drf": "DRF", "optimus": "Optimus"}

// made is a result that looks like a run's: apps on nodes of 8 GPUs.
func made(policies []string, apps, nodes int, withLanes bool) *sim.Result {
	rng := rand.New(rand.NewPCG(1, uint64(apps)))
	r := &sim.Result{Trace: "philly-2017.csv", Format: "philly", Cluster: "32 nodes of 8 V100", Nodes: nodes, GPUs: 8 * nodes, Apps: apps, Jobs: 3 * apps,
		Floor: 31234.5, Seed: 7, Settings: sim.Settings{LeaseS: 600, F: 0.8, RestartS: 30, Jobs: "rigid", Estimate: "declared", Error: 0.2, Entity: "app", MTBFH: 4000},
		Notes: []string{"The trace names no racks: every node is its own."}, Skipped: 17,
		Bounds: &sim.Bounds{RhoMax: 1.08, Makespans: []sim.MakespanBound{{Rho: 0, Hours: 190.2}, {Rho: 1.5, Hours: 201.7}}}}
	type base struct{ submit, length, work float64 }
	bs := make([]base, apps)
	for i := range bs {
		l := math.Exp(rng.NormFloat64()*1.3 + 0.8)
		bs[i] = base{150 * float64(i) / float64(max(apps, 1)), l, l * float64(int(1)<<rng.IntN(5))}
	}
	for k, name := range policies {
		worse := float64(k + 1)
		if name == "themis" {
			worse = 0
		}
		p := sim.PolicyResult{Policy: name, Title: titles[name], Rho: map[string]sim.Rho{}, Utilisation: 0.8 - 0.05*worse, Placement: 0.93 - 0.02*worse,
			GPUHours: 33000 + 500*worse, IdleHours: 9000 + 700*worse, Starts: 3*apps + 11, Migrations: 3400 / (k + 1), Events: 99999}
		spread := 0.1 + 0.22*worse
		all, unfair := []float64{}, 0
		for i, b := range bs {
			x := 0.55 + 0.4*rng.Float64() + spread*math.Exp(rng.NormFloat64()*0.9)*0.5
			a := sim.AppResult{App: fmt.Sprintf("sweep-%d", i+1), User: []string{"alice", "bob", "carol", "dave"}[i%4], Jobs: 1 + i%5, Submit: b.submit,
				End: b.submit + b.length*x, Ref: b.submit + b.length, GPUHour: b.work, Rho: map[string]float64{"reference": x, "share": x * 1.05, "paper": x / 3}}
			if x > 1.05 {
				unfair++
			}
			all = append(all, x)
			p.Makespan = max(p.Makespan, a.End)
			p.JCTMean += b.length * x / float64(apps)
			p.PerApp = append(p.PerApp, a)
		}
		slices.Sort(all)
		if n := len(all); n > 0 {
			s := sim.Rho{Max: all[n-1], P99: all[n*99/100], Median: all[n/2], Mean: all[n/2] * 1.1, Jain: 0.9 - spread/4, Unfair: float64(unfair) / float64(n)}
			for _, d := range sim.Definitions {
				p.Rho[d.Name] = s
			}
		}
		p.JCTMedian, p.JCTP99 = p.JCTMean*0.6, p.JCTMean*9
		for i := range 200 {
			p.Busy = append(p.Busy, min(1, 0.55+0.45*math.Sin(float64(i)/25+float64(k))*rng.Float64()+0.3*float64(200-i)/200))
		}
		if withLanes && k < 2 {
			for n := range nodes {
				for half := range 2 {
					for t := rng.Float64() * 3; t < p.Makespan-12; {
						d := math.Exp(rng.NormFloat64()*0.8 + 1.6)
						p.Lanes = append(p.Lanes, sim.Lane{Node: fmt.Sprintf("gpu%d", n+1), From: t, To: t + d, GPUs: []int{4, 4, 2, 3}[rng.IntN(4)], App: rng.IntN(apps)})
						t += d
						if rng.IntN(4) == 0 {
							t += 2 * float64(half)
						}
					}
				}
			}
		}
		r.Policies = append(r.Policies, p)
	}
	return r
}

func render(t *testing.T, r *sim.Result, baseline string) string {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(&b, r, baseline); err != nil {
		t.Fatal(err)
	}
	sound(t, b.String())
	return b.String()
}

var (
	svgs    = regexp.MustCompile(`(?s)<svg.*?</svg>`)
	numbers = regexp.MustCompile(`\b(NaN|Inf)\b|\d[eE][+]\d|%!`)
	ids     = regexp.MustCompile(`\bid="([^"]*)"`)
	refs    = regexp.MustCompile(`(?:aria-labelledby|href)="([^"]*)"`)
)

// sound checks what holds for every report.
func sound(t *testing.T, page string) {
	t.Helper()
	for i, s := range svgs.FindAllString(page, -1) {
		d := xml.NewDecoder(strings.NewReader(s))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("picture %d isn't XML: %v", i, err)
			}
		}
		if !strings.Contains(s, "aria-hidden") && (!strings.Contains(s, "<title") || !strings.Contains(s, "<desc")) {
			t.Errorf("picture %d has no title or description", i)
		}
	}
	if m := numbers.FindStringIndex(page); m != nil {
		t.Errorf("not a number to print: %q", page[max(0, m[0]-60):min(len(page), m[1]+20)])
	}
	low := strings.ToLower(page)
	for _, s := range []string{"://", "<script", "url(", "@import", "src=", "<link", "zgotmplz", " on"} {
		if s == " on" {
			if regexp.MustCompile(` on[a-z]+="`).MatchString(low) {
				t.Error("an event handler")
			}
			continue
		}
		if strings.Contains(low, s) {
			t.Errorf("the page contains %q", s)
		}
	}
	have := map[string]bool{}
	for _, m := range ids.FindAllStringSubmatch(page, -1) {
		if have[m[1]] {
			t.Errorf("id %s twice", m[1])
		}
		have[m[1]] = true
	}
	for _, m := range refs.FindAllStringSubmatch(page, -1) {
		for _, id := range strings.Fields(m[1]) {
			if !have[strings.TrimPrefix(id, "#")] {
				t.Errorf("nothing has the id %s", id)
			}
		}
	}
	if n := len(page); n > 3<<20 {
		t.Errorf("%d bytes", n)
	}
}

func wants(t *testing.T, page string, want ...string) {
	t.Helper()
	for _, s := range want {
		if !strings.Contains(page, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
}

// TestReport: with REPORT_OUT=DIR the page is left there to be looked at.
func TestReport(t *testing.T) {
	r := made([]string{"backfill", "themis", "fifo", "las", "srtf", "drf"}, 300, 32, true)
	page := render(t, r, "")
	if dir := os.Getenv("REPORT_OUT"); dir != "" {
		os.WriteFile(dir+"/full.html", []byte(page), 0o644)
		os.WriteFile(dir+"/big.html", []byte(render(t, made([]string{"backfill", "themis"}, 82248, 600, true), "")), 0o644)
		os.WriteFile(dir+"/odd.html", []byte(render(t, odd(), "")), 0o644)
	}
	o, b := r.Policies[1], r.Policies[0]
	wants(t, page, "<b>"+rho(o.Rho["reference"].Max)+"</b>", " under themis, against ", "<b>"+rho(b.Rho["reference"].Max)+"</b>",
		"<b>"+hours(o.Makespan)+"</b>", "<td class=\"best\"><b>"+pct(o.Rho["reference"].Unfair), "philly-2017.csv", "leases of 10 min", "a strict 1/N share", "Slurm: FIFO with backfill",
		"17 rows of the trace skipped", "at least <b>1.08</b>", "every node is its own", "The largest gains, by hours", "The largest losses, by hours",
		"Who held which node under themis", "GPUs in use over time under fifo")
	if page != render(t, r, "") {
		t.Error("two reports of one result differ")
	}
	if strings.Contains(page, "in use now") || !strings.Contains(render(t, r, "backfill"), "in use now") {
		t.Error("only a baseline that was named is in use now")
	}
	if page == render(t, r, "fifo") {
		t.Error("the baseline makes no difference")
	}
	if err := HTML(io.Discard, r, "sjf"); err == nil {
		t.Error("a baseline that wasn't run is taken")
	}
}

const evil = `<script>alert("x")</script>&'` + "\x00\u202e"

// odd is a result of all that can be strange in one.
func odd() *sim.Result {
	r := made([]string{"themis", "fifo", "las"}, 12, 3, true)
	r.Trace, r.Cluster, r.Notes = evil, strings.Repeat("long-cluster-name-", 40), []string{evil, strings.Repeat("x", 400)}
	r.Settings.Lies = evil
	r.Bounds.Makespans = append(r.Bounds.Makespans, sim.MakespanBound{Rho: math.Inf(1), Hours: 0})
	p := &r.Policies[1]
	p.Policy, p.Title, p.Unfinished = evil, strings.Repeat("a policy with a very long name ", 9), 5
	p.Makespan, p.Utilisation, p.JCTMean, p.Busy = math.Inf(1), math.NaN(), math.NaN(), []float64{math.NaN(), 2, -1}
	p.Rho["reference"] = sim.Rho{Max: math.Inf(1), P99: math.NaN(), Unfair: math.NaN()}
	p.Rho[evil] = sim.Rho{Max: 1e300}
	for i := range p.PerApp {
		a, b := &p.PerApp[i], &r.Policies[0].PerApp[i]
		a.App = evil + strings.Repeat("Ωmega", 100)
		b.App = a.App
		switch i {
		case 0:
			a.End = 0
		case 1:
			a.End, a.Rho = math.NaN(), nil
		case 2:
			a.Rho["reference"] = math.Inf(1)
		case 3:
			a.Rho["reference"], a.End = 0, a.Submit
		case 4:
			a.User = strings.Repeat("u", 300)
			b.User = a.User
		}
	}
	p.Lanes = append(p.Lanes, sim.Lane{Node: evil, From: 0, To: 9, GPUs: 1 << 30, App: 1 << 30}, sim.Lane{Node: "gpu1", From: 3, To: math.NaN(), GPUs: -1, App: -1})
	return r
}

func TestOddResults(t *testing.T) {
	page := render(t, odd(), "")
	wants(t, page, "&lt;script&gt;alert", "stopped: 5 jobs unfinished", "left out: no end under both")
	if strings.ContainsAny(page, "\x00\u202e") {
		t.Error("a control character came through")
	}
	for name, r := range map[string]*sim.Result{
		"nothing":      {},
		"no apps":      made([]string{"themis", "fifo"}, 0, 4, false),
		"one app":      made([]string{"themis", "fifo"}, 1, 1, true),
		"ours only":    made([]string{"themis"}, 20, 2, true),
		"another only": made([]string{"fifo"}, 20, 2, false),
		"none of ours": made([]string{"fifo", "las"}, 20, 2, true),
		"many":         made([]string{"fifo", "las", "themis", "drf", "srtf", "gandiva", "optimus", "fair", "themis-f0", "themis-f1", "backfill"}, 50, 2, true),
	} {
		t.Run(name, func(t *testing.T) { render(t, r, "") })
	}
	same := made([]string{"themis", "fifo"}, 5, 1, false)
	same.Policies[1].PerApp = same.Policies[0].PerApp
	wants(t, render(t, same, ""), "No app takes less time.", "No app takes longer.")
	wants(t, render(t, same, "themis"), " under fifo, against ")
}

func TestBigResult(t *testing.T) {
	r := made([]string{"backfill", "themis", "fifo", "las", "srtf", "drf", "gandiva", "optimus"}, 82248, 600, true)
	for k := range r.Policies[:2] { // every stay another app's, as short as can be
		p := &r.Policies[k]
		p.Lanes = nil
		for i := range 400000 {
			t := p.Makespan * float64(i/600) / 700
			p.Lanes = append(p.Lanes, sim.Lane{Node: fmt.Sprintf("a-rather-long-node-name-%d", i%600), From: t, To: t + p.Makespan/700, GPUs: 1 + i%3, App: i % r.Apps})
		}
	}
	page := render(t, r, "")
	wants(t, page, "of 600 nodes that were used", "82,248 apps", "400 quantiles")
	for _, m := range regexp.MustCompile(`class="c s\d d\d" d="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if n := strings.Count(m[1], "V"); n > maxPoints {
			t.Errorf("a curve of %d points", n)
		}
	}
	t.Logf("%d bytes", len(page))
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{commas(1234567.4, 0), "1,234,567"}, {commas(-999.96, 1), "−1,000.0"}, {commas(-0.001, 2), "0.00"}, {commas(math.Inf(-1), 2), none},
		{quantity(9.996), "10.0"}, {quantity(99.96), "100"}, {pct(0.0004), "< 0.1%"}, {pct(0), "0.0%"}, {pct(math.NaN()), none},
		{signed(0.1, pct), "+10.0%"}, {signed(-0.1, pct), "−10.0%"}, {signed(1e-9, quantity), "0.00"}, {seconds(90), "90 s"}, {seconds(600), "10 min"}, {seconds(5400), "1.5 h"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	n := []string{"n10", "n2", "n02", "m", "n2a", "n"}
	slices.SortFunc(n, cluster.Natural)
	if got := strings.Join(n, " "); got != "m n n02 n2 n2a n10" {
		t.Error(got)
	}
}

// TestNodeBars: no GPU position is in two hands, and a stay that goes on is one bar.
func TestNodeBars(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 200 {
		var ls []sim.Lane
		for range 30 {
			from := float64(rng.IntN(20))
			ls = append(ls, sim.Lane{Node: "n", From: from, To: from + 1 + float64(rng.IntN(5)), GPUs: 1 + rng.IntN(4), App: rng.IntN(3)})
		}
		want := 0.0
		for _, l := range ls {
			want += (l.To - l.From) * float64(l.GPUs)
		}
		bars, slots := nodeBars(ls, 0)
		got := 0.0
		for i, a := range bars {
			got += (a.to - a.from) * float64(a.n)
			if a.slot < 0 || a.slot+a.n > slots {
				t.Fatal("outside", a, slots)
			}
			for _, b := range bars[:i] {
				if a.from < b.to && b.from < a.to && a.slot < b.slot+b.n && b.slot < a.slot+a.n {
					t.Fatal("overlap", a, b)
				}
			}
		}
		if math.Abs(got-want) > 1e-9 {
			t.Fatal(got, want)
		}
	}
	if bars, slots := nodeBars([]sim.Lane{{From: 0, To: 1, GPUs: 4, App: 2}, {From: 1, To: 2, GPUs: 4, App: 2}}, 0); len(bars) != 1 || slots != 4 {
		t.Error(bars, slots)
	}
}
