// SPDX-License-Identifier: Apache-2.0

// Package report writes a simulator's result as one HTML file that needs nothing
// else: no script, no font, no address.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"themis/core/sim"
)

//go:embed report.html.tmpl
var page string

var tmpl = template.Must(template.New("report").Parse(page))

// HTML writes the report. Gains and losses are against baseline, the name of the
// policy in use now; "" stands for the first that isn't ours.
func HTML(w io.Writer, r *sim.Result, baseline string) error {
	v, err := newView(r, baseline)
	if err != nil {
		return err
	}
	return tmpl.Execute(w, v)
}

type (
	span struct {
		Text   string
		Strong bool
	}
	head struct{ Name, Unit, Better string }
	cell struct {
		Text string
		Best bool
	}
	row struct {
		Name, Title, Tag, Warn string
		Cells                  []cell
	}
	defined struct {
		Name, Of, What string
		Rows           []row
	}
	legend struct {
		Swatch template.HTML
		Name   string
		Value  string
	}
	figure struct {
		Name, Note string
		SVG        template.HTML
	}
	fate struct {
		App, User, Submit, Jobs, Work, Then, Now, Diff, Ratio, RhoThen, RhoNow string
	}
	fates struct {
		Caption, Ours, Base string
		Rows                []fate
	}
	bound   struct{ Rho, Hours, Kept string }
	pair    struct{ Name, Text string }
	lanesOf struct {
		Figures    []figure
		Apps       []pair
		More, Left string
	}
)

type view struct {
	Title, Line            string
	Headline               []span
	Warnings               []string
	Ours, Base             string
	Heads                  []head
	Summary                []row
	HasBest                bool
	CDF, CDFNarrow         template.HTML
	Legend                 []legend
	CDFNote                string
	Definitions            []defined
	Busy                   []figure
	Lanes                  *lanesOf
	Compared               bool
	Verdict                string
	Scatter, ScatterNarrow template.HTML
	ScatterNote            string
	Gains, Losses          *fates
	HasBounds              bool
	RhoBound               string
	Bounds                 []bound
	Notes                  []string
	Settings               []pair
}

// ended tells whether an app has an end; one of a stopped run has none.
func ended(a sim.AppResult) bool {
	return finite(a.Submit) && finite(a.End) && a.End >= a.Submit && a.End > 0
}

func isOurs(name string) bool { return name == "themis" || strings.HasPrefix(name, "themis") }

// pick finds our policy and the baseline; -1: there is none.
func pick(ps []sim.PolicyResult, baseline string) (ours, base int, err error) {
	ours = slices.IndexFunc(ps, func(p sim.PolicyResult) bool { return p.Policy == "themis" })
	if ours < 0 {
		ours = slices.IndexFunc(ps, func(p sim.PolicyResult) bool { return isOurs(p.Policy) && p.Policy != baseline })
	}
	if baseline != "" {
		if base = slices.IndexFunc(ps, func(p sim.PolicyResult) bool { return p.Policy == baseline }); base < 0 {
			return 0, 0, fmt.Errorf("report: the baseline %q is none of the policies run", baseline)
		}
	} else {
		base = slices.IndexFunc(ps, func(p sim.PolicyResult) bool { return !isOurs(p.Policy) })
		if base < 0 { // variants of ours only
			base = slices.IndexFunc(ps, func(p sim.PolicyResult) bool { return ours < 0 || p.Policy != ps[ours].Policy })
		}
	}
	if ours < 0 || ours == base { // nothing of ours, or it is the baseline
		ours = slices.IndexFunc(ps, func(p sim.PolicyResult) bool { return base < 0 || p.Policy != ps[base].Policy })
	}
	if ours < 0 { // one policy
		ours, base = base, -1
	}
	return ours, base, nil
}

func newView(r *sim.Result, baseline string) (*view, error) {
	ps := r.Policies
	ours, base, err := pick(ps, baseline)
	if err != nil {
		return nil, err
	}
	// Ours is first, then the baseline, then the rest in their order; so are the styles.
	var order []int
	for _, i := range []int{ours, base} {
		if i >= 0 {
			order = append(order, i)
		}
	}
	for i := range ps {
		if i != ours && i != base {
			order = append(order, i)
		}
	}
	names := make([]string, len(ps))
	for i, p := range ps {
		names[i] = short(p.Policy, 40)
	}
	v := &view{Title: short(r.Trace, 200), Line: line(r)}
	if ours >= 0 {
		v.Ours = names[ours]
	}
	if base >= 0 {
		v.Base = names[base]
	}
	now, tag := "", "baseline"
	if baseline != "" {
		now, tag = " now", "in use now"
	}
	v.Headline = headline(r, ours, base, names, now)
	for _, i := range order {
		if n := ps[i].Unfinished; n > 0 {
			v.Warnings = append(v.Warnings, fmt.Sprintf("The run of %s was stopped with %s unfinished: its numbers are of what had ended, and it is never marked best.", names[i], plural(n, "job", "jobs")))
		}
	}
	v.summary(ps, order, base, names, tag)
	v.curves(ps, order, names)
	v.definitions(ps, order, names)
	hi := 0.0
	for _, p := range ps {
		if finite(p.Makespan) {
			hi = max(hi, p.Makespan)
		}
	}
	if hi > 0 {
		for k, i := range order {
			note := pct(ps[i].Utilisation) + " to the last end, at " + hours(ps[i].Makespan)
			v.Busy = append(v.Busy, figure{names[i], note, busy(fmt.Sprintf("busy%d", k), k, &ps[i], names[i], hi)})
		}
	}
	v.timelines(ps, order, names)
	if ours >= 0 && base >= 0 {
		v.changes(&ps[ours], &ps[base])
	}
	v.bounds(r, order, names)
	for _, n := range r.Notes {
		v.Notes = append(v.Notes, clean(n))
	}
	if r.Skipped > 0 {
		v.Notes = append(v.Notes, plural(r.Skipped, "row", "rows")+" of the trace skipped: no job that could run was read from them.")
	}
	v.Settings = settings(r)
	return v, nil
}

// line is the run in one line.
func line(r *sim.Result) string {
	s := r.Settings
	parts := []string{
		short(r.Cluster, 120) + ": " + plural(r.Nodes, "node", "nodes") + ", " + plural(r.GPUs, "GPU", "GPUs"),
		plural(r.Apps, "app", "apps") + ", " + plural(r.Jobs, "job", "jobs"),
		commas(r.Floor, 0) + " GPU-hours of work",
		"leases of " + seconds(s.LeaseS),
	}
	if s.Jobs != "" {
		parts = append(parts, clean(s.Jobs)+" jobs")
	}
	if s.Estimate != "" {
		parts = append(parts, "run times from "+estimates(s))
	}
	if s.MTBFH > 0 {
		parts = append(parts, "a node fails every "+hours(s.MTBFH))
	}
	return strings.Join(parts, " · ")
}

func estimates(s sim.Settings) string {
	t := clean(s.Estimate)
	switch s.Estimate {
	case "declared":
		t = "what is declared"
	case "limit":
		t = "the time limit"
	}
	if s.Error > 0 {
		t += ", off by up to " + pct(s.Error)
	}
	return t
}

func settings(r *sim.Result) []pair {
	s := r.Settings
	mtbf := "none fails"
	if s.MTBFH > 0 {
		mtbf = hours(s.MTBFH)
	}
	ps := []pair{
		{"trace", short(r.Trace, 300)}, {"format", short(r.Format, 60)}, {"cluster", short(r.Cluster, 300)},
		{"lease", seconds(s.LeaseS)}, {"f", commas(s.F, 2)}, {"restart costs", seconds(s.RestartS)},
		{"jobs", clean(s.Jobs)}, {"run times from", estimates(s)}, {"shares are of each", clean(s.Entity)},
		{"mean time between failures of a node", mtbf}, {"seed", strconv.FormatUint(r.Seed, 10)},
	}
	if s.Lies != "" {
		ps = append(ps, pair{"lies", clean(s.Lies)})
	}
	return ps
}

func headline(r *sim.Result, ours, base int, names []string, now string) []span {
	if ours < 0 {
		return []span{{"No policy was run.", false}}
	}
	o := &r.Policies[ours]
	if len(o.PerApp) == 0 && r.Apps == 0 {
		return []span{{"The trace holds no apps: there is nothing to compare.", false}}
	}
	or := refRho(o)
	if base < 0 {
		return []span{{"Under " + names[ours] + " the worst rho is ", false}, {rho(or.Max), true},
			{", the makespan is ", false}, {hours(o.Makespan), true}, {", and ", false}, {pct(or.Unfair), true},
			{" of apps are worse than 1.05.", false}}
	}
	b := &r.Policies[base]
	br := refRho(b)
	out := []span{{"The worst rho is ", false}, {rho(or.Max), true}, {" under " + names[ours] + ", against ", false},
		{rho(br.Max), true}, {" under " + names[base] + now + ". The makespan is ", false}, {hours(o.Makespan), true}}
	switch d := o.Makespan/b.Makespan - 1; {
	case !finite(d) || !finite(b.Makespan) || b.Makespan <= 0:
		out = append(out, span{", against " + hours(b.Makespan), false})
	case math.Abs(d) < 0.0005:
		out = append(out, span{", the same", false})
	case d < 0:
		out = append(out, span{", " + pct(-d) + " shorter than " + hours(b.Makespan), false})
	default:
		out = append(out, span{", " + pct(d) + " longer than " + hours(b.Makespan), false})
	}
	return append(out, span{"; ", false}, span{pct(or.Unfair), true}, span{" of apps are worse than 1.05, against ", false},
		span{pct(br.Unfair), true}, span{".", false})
}

func refRho(p *sim.PolicyResult) sim.Rho {
	if x, ok := p.Rho["reference"]; ok {
		return x
	}
	n := math.NaN()
	return sim.Rho{Max: n, P99: n, Median: n, Mean: n, Jain: n, Unfair: n}
}

// column is one of the summary; up: more is better.
type column struct {
	head
	get  func(*sim.PolicyResult) float64
	show func(float64) string
	up   bool
}

var columns = []column{
	{head{"worst rho", "", ""}, func(p *sim.PolicyResult) float64 { return refRho(p).Max }, rho, false},
	{head{"p99 rho", "", ""}, func(p *sim.PolicyResult) float64 { return refRho(p).P99 }, rho, false},
	{head{"median rho", "", ""}, func(p *sim.PolicyResult) float64 { return refRho(p).Median }, rho, false},
	{head{"apps above 1.05", "", ""}, func(p *sim.PolicyResult) float64 { return refRho(p).Unfair }, pct, false},
	{head{"mean JCT", "h", ""}, func(p *sim.PolicyResult) float64 { return p.JCTMean }, quantity, false},
	{head{"makespan", "h", ""}, func(p *sim.PolicyResult) float64 { return p.Makespan }, quantity, false},
	{head{"GPU-hours", "", ""}, func(p *sim.PolicyResult) float64 { return p.GPUHours }, quantity, false},
	{head{"idle GPU-hours", "", ""}, func(p *sim.PolicyResult) float64 { return p.IdleHours }, quantity, false},
	{head{"migra\u00adtions", "", ""}, func(p *sim.PolicyResult) float64 { return float64(p.Migrations) }, func(x float64) string { return commas(x, 0) }, false},
	{head{"utilisa\u00adtion", "", ""}, func(p *sim.PolicyResult) float64 { return p.Utilisation }, pct, true},
	{head{"place\u00adment", "", ""}, func(p *sim.PolicyResult) float64 { return p.Placement }, func(x float64) string { return commas(x, 3) }, true},
}

func (v *view) summary(ps []sim.PolicyResult, order []int, base int, names []string, tag string) {
	for _, i := range order {
		p := &ps[i]
		w := row{Name: names[i], Title: short(p.Title, 120)}
		if i == base {
			w.Tag = tag
		}
		if p.Unfinished > 0 {
			w.Warn = "stopped: " + plural(p.Unfinished, "job", "jobs") + " unfinished"
		}
		v.Summary = append(v.Summary, w)
	}
	for _, c := range columns {
		c.Better = "lower is better"
		if c.up {
			c.Better = "higher is better"
		}
		v.Heads = append(v.Heads, c.head)
		best, differ := math.NaN(), false
		for _, i := range order {
			x := c.get(&ps[i])
			if !finite(x) || ps[i].Unfinished > 0 {
				continue
			}
			if finite(best) && c.show(x) != c.show(best) {
				differ = true
			}
			if !finite(best) || (c.up && x > best) || (!c.up && x < best) {
				best = x
			}
		}
		for k, i := range order {
			x := c.get(&ps[i])
			b := differ && finite(x) && ps[i].Unfinished == 0 && c.show(x) == c.show(best)
			v.HasBest = v.HasBest || b
			v.Summary[k].Cells = append(v.Summary[k].Cells, cell{c.show(x), b})
		}
	}
}

func (v *view) curves(ps []sim.PolicyResult, order []int, names []string) {
	var cs []curve
	under, n := 0, 0
	for k, i := range order {
		x := rhos(&ps[i])
		if len(x) == 0 {
			continue
		}
		if x[0] < 0.1 {
			under++
		}
		n = max(n, len(x))
		cs = append(cs, curve{k, names[i], x})
		v.Legend = append(v.Legend, legend{swatch(k), names[i], rho(x[len(x)-1])})
	}
	if len(cs) == 0 {
		return
	}
	v.CDF = cdf("cdf", "chart wide", 900, 380, cs)
	v.CDFNarrow = cdf("cdfn", "chart narrow", 440, 340, cs)
	v.CDFNote = "A curve further left is better; its mark stands at the worst app."
	if n > maxPoints {
		v.CDFNote += fmt.Sprintf(" Drawn from %d quantiles of each policy's apps; the worst is exact.", maxPoints)
	}
	if under > 0 {
		v.CDFNote += " Below 0.1 is drawn at 0.1."
	}
}

func (v *view) definitions(ps []sim.PolicyResult, order []int, names []string) {
	add := func(name, of, what string) {
		g := defined{Name: clean(name), Of: of, What: what}
		for _, i := range order {
			x, ok := ps[i].Rho[name]
			if !ok {
				continue
			}
			w := row{Name: names[i]}
			for _, t := range []string{rho(x.Max), rho(x.P99), rho(x.Median), rho(x.Mean), pct(x.Unfair), commas(x.Jain, 3)} {
				w.Cells = append(w.Cells, cell{Text: t})
			}
			g.Rows = append(g.Rows, w)
		}
		if len(g.Rows) > 0 {
			v.Definitions = append(v.Definitions, g)
		}
	}
	known := map[string]bool{}
	for _, d := range sim.Definitions {
		known[d.Name] = true
		add(d.Name, d.Of+"s", d.What)
	}
	var more []string
	for _, p := range ps {
		for n := range p.Rho {
			if !known[n] {
				known[n] = true
				more = append(more, n)
			}
		}
	}
	slices.Sort(more)
	for _, n := range more {
		add(n, "", "not described")
	}
}

func (v *view) timelines(ps []sim.PolicyResult, order []int, names []string) {
	const width = 778 // of the time lines' axis
	var show []int
	for k, i := range order {
		if len(ps[i].Lanes) > 0 && (k < 2 || len(show) == 0) {
			show = append(show, i)
		}
	}
	hi := 0.0
	for _, i := range show {
		for _, l := range ps[i].Lanes {
			if finite(l.To) {
				hi = max(hi, l.To)
			}
		}
	}
	if hi <= 0 {
		return
	}
	some := make([]*sim.PolicyResult, len(show))
	for k, i := range show {
		some[k] = &ps[i]
	}
	ln := readyLanes(some, hi, width)
	out := &lanesOf{}
	held := map[int]float64{}
	for k, i := range show {
		for _, n := range ln.nodes {
			for _, b := range ln.bars[k][n] {
				held[b.app] += (b.to - b.from) * float64(b.n)
			}
		}
		if len(ln.nodes) > 0 {
			out.Figures = append(out.Figures, figure{Name: names[i], SVG: timeline(fmt.Sprintf("lanes%d", k), some[k], names[i], ln, k, hi)})
		}
	}
	if ln.all > len(ln.nodes) {
		out.Left = fmt.Sprintf("Shown are the first %s of %s nodes that were used.", count(len(ln.nodes)), count(ln.all))
	}
	if ln.cut > 0 {
		out.Left += fmt.Sprintf(" %s left out.", plural(ln.cut, "later stay is", "later stays are"))
	}
	if len(out.Figures) == 0 {
		return
	}
	apps := make([]int, 0, len(held))
	for a := range held {
		if a < len(ps[show[0]].PerApp) {
			apps = append(apps, a)
		}
	}
	slices.SortFunc(apps, func(a, b int) int { return cmp.Or(cmp.Compare(held[b], held[a]), a-b) })
	if len(apps) > 200 {
		out.More = fmt.Sprintf("The 200 that held most GPU-hours here, of %s.", count(len(apps)))
		apps = apps[:200]
	}
	slices.Sort(apps)
	for _, a := range apps {
		x := ps[show[0]].PerApp[a]
		out.Apps = append(out.Apps, pair{count(a + 1), short(x.App, 60)})
		if u := short(x.User, 40); u != "" {
			out.Apps[len(out.Apps)-1].Text += " (" + u + ")"
		}
	}
	v.Lanes = out
}

// match pairs the apps of two policies and counts those that have no end in one of them.
func match(o, b *sim.PolicyResult) (cs []change, without int) {
	type key struct {
		app, user string
		submit    float64
	}
	at := map[key][]int{}
	for i, a := range b.PerApp {
		k := key{a.App, a.User, a.Submit}
		at[k] = append(at[k], i)
	}
	for i, a := range o.PerApp {
		k := key{a.App, a.User, a.Submit}
		q := at[k]
		if len(q) == 0 {
			without++
			continue
		}
		w := b.PerApp[q[0]]
		at[k] = q[1:]
		c := change{i, a, w, a.End - a.Submit, w.End - w.Submit}
		if !ended(a) || !ended(w) || c.now <= 0 || c.then <= 0 || !finite(c.ratio()) {
			without++
			continue
		}
		cs = append(cs, c)
	}
	return cs, without
}

func (v *view) changes(o, b *sim.PolicyResult) {
	cs, without := match(o, b)
	if len(cs) == 0 {
		return
	}
	v.Compared = true
	sooner, later := 0, 0
	ratios := make([]float64, 0, len(cs))
	for _, c := range cs {
		q := c.ratio()
		ratios = append(ratios, q)
		if q < 0.95 {
			sooner++
		} else if q > 1.05 {
			later++
		}
	}
	slices.Sort(ratios)
	n := float64(len(cs))
	v.Verdict = fmt.Sprintf("Of %s, %s (%s) take more than 5%% less time from submission to end than under %s, %s (%s) more than 5%% longer; the median change is %s.",
		plural(len(cs), "app", "apps"), count(sooner), pct(float64(sooner)/n), v.Base, count(later), pct(float64(later)/n),
		signed(ratios[(len(ratios)-1)/2]-1, pct))
	if without > 0 {
		v.Verdict += " " + plural(without, "app", "apps") + " left out: no end under both."
	}
	v.Scatter = scatter("gain", "chart wide", 900, 360, cs, v.Ours, v.Base)
	v.ScatterNarrow = scatter("gainn", "chart narrow", 440, 360, cs, v.Ours, v.Base)
	v.ScatterNote = "One dot an app; below the line it takes less time than under " + v.Base + "."
	if len(cs) > maxDots {
		v.ScatterNote = "A dot stands for the apps of a small cell, and is larger for more of them; below the line they take less time than under " + v.Base + "."
	}
	slices.SortStableFunc(cs, func(x, y change) int { return cmp.Or(cmp.Compare(x.diff(), y.diff()), x.app-y.app) })
	var gains, losses []fate
	for i := range min(10, len(cs)) {
		if c := cs[i]; c.diff() < 0 {
			gains = append(gains, tell(c))
		}
		if c := cs[len(cs)-1-i]; c.diff() > 0 {
			losses = append(losses, tell(c))
		}
	}
	if len(gains) > 0 {
		v.Gains = &fates{"The largest gains, by hours", v.Ours, v.Base, gains}
	}
	if len(losses) > 0 {
		v.Losses = &fates{"The largest losses, by hours", v.Ours, v.Base, losses}
	}
}

func tell(c change) fate {
	at := func(a sim.AppResult) string {
		if x, ok := a.Rho["reference"]; ok {
			return rho(x)
		}
		return none
	}
	return fate{short(c.ours.App, 80), short(c.ours.User, 40), quantity(c.ours.Submit), count(c.ours.Jobs), quantity(c.ours.GPUHour),
		quantity(c.then), quantity(c.now), signed(c.diff(), quantity), signed(c.ratio()-1, pct), at(c.was), at(c.ours)}
}

func (v *view) bounds(r *sim.Result, order []int, names []string) {
	b := r.Bounds
	if b == nil {
		return
	}
	v.HasBounds = true
	v.RhoBound = rho(b.RhoMax)
	for _, m := range b.Makespans {
		w := bound{"any", quantity(m.Hours), "none of these policies"}
		if m.Rho > 0 && finite(m.Rho) {
			w.Rho = "at most " + rho(m.Rho)
		}
		var kept []string
		for _, i := range order {
			p := &r.Policies[i]
			if x := refRho(p).Max; p.Unfinished == 0 && (m.Rho <= 0 || x <= m.Rho) && finite(p.Makespan) {
				kept = append(kept, fmt.Sprintf("%s %s (%s)", names[i], quantity(p.Makespan), signed(p.Makespan/m.Hours-1, pct)))
			}
		}
		if len(kept) > 0 {
			w.Kept = strings.Join(kept, ", ")
		}
		v.Bounds = append(v.Bounds, w)
	}
}
