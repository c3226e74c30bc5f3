// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"themis/core/cluster"
	"themis/core/sim"
)

const (
	maxPoints = 400   // of a curve
	maxDots   = 1500  // of a scatter; more are counted in cells
	maxNodes  = 40    // of a time line
	maxRects  = 12000 // of a time line
	maxTexts  = 1500  // numbers written into a time line, and apps named in it
)

// svg builds one picture. Its text goes through xml.EscapeText, its numbers through px.
type svg struct{ strings.Builder }

func esc(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(clean(s))) // never fails: a Builder doesn't
	return b.String()
}

// px is a coordinate: a tenth of a unit is enough.
func px(x float64) string {
	if !finite(x) {
		x = 0
	}
	x = math.Round(x*10) / 10
	if x == 0 {
		x = 0 // no -0
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

func newSVG(id, class string, w, h float64, title, desc string) *svg {
	s := &svg{}
	fmt.Fprintf(s, `<svg class="%s" viewBox="0 0 %s %s" role="img" aria-labelledby="%s-t %s-d"><title id="%s-t">%s</title><desc id="%s-d">%s</desc>`,
		class, px(w), px(h), id, id, id, esc(title), id, esc(desc))
	return s
}

func (s *svg) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(s, `<path class="%s" d="M%s %sL%s %s"/>`, class, px(x1), px(y1), px(x2), px(y2))
}

func (s *svg) text(class string, x, y float64, t string) {
	fmt.Fprintf(s, `<text class="%s" x="%s" y="%s">%s</text>`, class, px(x), px(y), esc(t))
}

func (s *svg) done() template.HTML {
	s.WriteString("</svg>")
	return template.HTML(s.String())
}

// mark is a policy's sign: shapes differ where colours may not.
func (s *svg) mark(i int, x, y float64) {
	var d string
	switch i % 6 {
	case 0:
		d = fmt.Sprintf("M%s %sa4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", px(x-4), px(y))
	case 1:
		d = fmt.Sprintf("M%s %sh7v7h-7z", px(x-3.5), px(y-3.5))
	case 2:
		d = fmt.Sprintf("M%s %sl4.5 8h-9z", px(x), px(y-4.5))
	case 3:
		d = fmt.Sprintf("M%s %sl5 5l-5 5l-5 -5z", px(x), px(y-5))
	case 4:
		d = fmt.Sprintf("M%s %sl4.5 -8h-9z", px(x), px(y+4.5))
	default:
		d = fmt.Sprintf("M%s %sl8 8m0 -8l-8 8", px(x-4), px(y-4))
	}
	fmt.Fprintf(s, `<path class="m s%d" d="%s"/>`, i%8, d)
}

// swatch is a policy's line in a legend.
func swatch(i int) template.HTML {
	s := &svg{}
	s.WriteString(`<svg class="swatch" viewBox="0 0 46 12" aria-hidden="true">`)
	fmt.Fprintf(s, `<path class="c s%d d%d" d="M1 6H34"/>`, i%8, i%8)
	s.mark(i, 40, 6)
	return s.done()
}

// linTicks are round numbers from 0 or lo to hi, about n of them.
func linTicks(lo, hi float64, n int) []float64 {
	if !(hi > lo) || n < 1 {
		return []float64{lo}
	}
	raw := (hi - lo) / float64(n)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * mag
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*mag >= raw*0.999 {
			step = m * mag
			break
		}
	}
	var t []float64
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi*(1+1e-12); k++ {
		t = append(t, k*step+0) // +0: no -0
	}
	return t
}

// logTicks are 1, 2, 5, 10 ... in [lo, hi]; round numbers where the range is short.
func logTicks(lo, hi float64, n int) []float64 {
	if hi/lo < 6 {
		return linTicks(lo, hi, n)
	}
	muls := []float64{1, 2, 5}
	if math.Log10(hi/lo)*3 > float64(n)+2 {
		muls = muls[:1]
	}
	var t []float64
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, m := range muls {
			if v := m * math.Pow(10, e); v >= lo*(1-1e-9) && v <= hi*(1+1e-9) {
				t = append(t, v)
			}
		}
	}
	return t
}

func tickText(v float64) string { return group(strconv.FormatFloat(v, 'g', 4, 64), v) }

// group writes big round numbers with commas rather than as 1e+04.
func group(s string, v float64) string {
	if math.Abs(v) >= 1000 {
		return commas(v, 0)
	}
	return s
}

// curve is one policy in the CDF.
type curve struct {
	style int // of the policy
	name  string
	x     []float64 // sorted
}

// rhos are the finite rho of p's apps by the reference definition, sorted.
func rhos(p *sim.PolicyResult) []float64 {
	var x []float64
	for _, a := range p.PerApp {
		if v, ok := a.Rho["reference"]; ok && finite(v) && v >= 0 && ended(a) {
			x = append(x, v)
		}
	}
	slices.Sort(x)
	return x
}

// thin keeps at most n of sorted x with their share of apps at or below; the last always.
func thin(x []float64, n int) (v, share []float64) {
	if len(x) == 0 {
		return nil, nil
	}
	k := min(n, len(x))
	for i := 1; i <= k; i++ {
		j := i * len(x) / k // apps at or below x[j-1]
		v, share = append(v, x[j-1]), append(share, float64(j)/float64(len(x)))
	}
	return v, share
}

// cdf draws the share of apps at or below each rho. Ours comes last, on top.
func cdf(id, class string, w, h float64, cs []curve) template.HTML {
	lo, hi := 0.9, 1.2
	var worst []string
	for _, c := range cs {
		lo, hi = min(lo, c.x[0]), max(hi, c.x[len(c.x)-1])
		worst = append(worst, fmt.Sprintf("%s: half of the apps at most %s, all at most %s", c.name, rho(c.x[(len(c.x)-1)/2]), rho(c.x[len(c.x)-1])))
	}
	lo = max(lo*0.97, 0.1)
	hi *= 1.05
	s := newSVG(id, class, w, h, "Share of apps by rho (reference)", strings.Join(worst, "; ")+".")
	l, r, t, b := 44.0, 14.0, 26.0, 42.0
	X := func(v float64) float64 {
		return l + (w-l-r)*math.Log(max(v, lo)/lo)/math.Log(hi/lo)
	}
	Y := func(v float64) float64 { return t + (h-t-b)*(1-v) }
	for i := 0; i <= 4; i++ {
		y := Y(float64(i) / 4)
		s.line("grid", l, y, w-r, y)
		s.text("t e", l-6, y+4, fmt.Sprintf("%d%%", i*25))
	}
	last := math.Inf(-1)
	for _, v := range logTicks(lo, hi, int(w/70)) {
		x := X(v)
		if v != 1 && (math.Abs(x-X(1)) < 26 || x-last < 32) {
			continue
		}
		if v != 1 {
			last = x
		}
		s.line("tick", x, h-b, x, h-b+4)
		if v != 1 {
			s.text("t m", x, h-b+17, tickText(v))
		}
	}
	s.line("axis", l, h-b, w-r, h-b)
	s.line("one", X(1), t-6, X(1), h-b+4)
	s.text("t m b", X(1), h-b+17, "1")
	x1, anchor := X(1), "t m b"
	if x1 < l+60 {
		x1, anchor = X(1)-4, "t b"
	} else if x1 > w-r-60 {
		x1, anchor = X(1)+4, "t e b"
	}
	s.text(anchor, x1, t-11, "fair share: rho = 1")
	s.text("t e", w-r, h-6, "rho (reference, log scale)")
	s.text("t", 4, h-6, "share of apps at or below")
	for i := len(cs) - 1; i >= 0; i-- {
		c := cs[i]
		v, share := thin(c.x, maxPoints)
		var d strings.Builder
		fmt.Fprintf(&d, "M%s %s", px(X(v[0])), px(Y(0)))
		for k := range v {
			fmt.Fprintf(&d, "H%sV%s", px(X(v[k])), px(Y(share[k])))
		}
		fmt.Fprintf(s, `<path class="c s%d d%d" d="%s"/>`, c.style%8, c.style%8, d.String())
	}
	for i := len(cs) - 1; i >= 0; i-- {
		s.mark(cs[i].style, X(cs[i].x[len(cs[i].x)-1]), Y(1))
	}
	return s.done()
}

// busy draws the share of GPUs in use over one policy's makespan, on the time axis of all.
func busy(id string, style int, p *sim.PolicyResult, name string, hi float64) template.HTML {
	const w, h, l, r, t, b = 340.0, 150.0, 42.0, 10.0, 10.0, 32.0
	parts := p.Busy
	if len(parts) > maxPoints { // means of equal runs
		var m []float64
		for i := range maxPoints {
			run := parts[i*len(parts)/maxPoints : (i+1)*len(parts)/maxPoints]
			sum := 0.0
			for _, v := range run {
				sum += unit(v)
			}
			m = append(m, sum/float64(len(run)))
		}
		parts = m
	}
	s := newSVG(id, "chart", w, h, "GPUs in use over time under "+name,
		fmt.Sprintf("%s of all GPUs in use on average up to the makespan of %s.", pct(p.Utilisation), hours(p.Makespan)))
	X := func(v float64) float64 { return l + (w-l-r)*v/hi }
	Y := func(v float64) float64 { return t + (h-t-b)*(1-unit(v)) }
	for i := 0; i <= 2; i++ {
		y := Y(float64(i) / 2)
		s.line("grid", l, y, w-r, y)
		s.text("t e", l-5, y+4, fmt.Sprintf("%d%%", i*50))
	}
	if n := len(parts); n > 0 && finite(p.Makespan) && p.Makespan > 0 {
		var d strings.Builder
		fmt.Fprintf(&d, "M%s %s", px(X(0)), px(Y(0)))
		for i, v := range parts {
			fmt.Fprintf(&d, "V%sH%s", px(Y(v)), px(X(p.Makespan*float64(i+1)/float64(n))))
		}
		fmt.Fprintf(&d, "V%sz", px(Y(0)))
		fmt.Fprintf(s, `<path class="area s%d" d="%s"/>`, style%8, d.String())
		s.line("end", X(p.Makespan), t-4, X(p.Makespan), Y(0))
	}
	hourAxis(s, X, hi, l, w-r, h-b, 4)
	return s.done()
}

func hourAxis(s *svg, X func(float64) float64, hi, l, r, y float64, n int) {
	s.line("axis", l, y, r, y)
	ts := linTicks(0, hi, n)
	for i, v := range ts {
		s.line("tick", X(v), y, X(v), y+4)
		txt, cl := tickText(v), "t m"
		if i == len(ts)-1 {
			txt += " h"
			if X(v) > r-14 {
				cl, v = "t e", hi
			}
		}
		s.text(cl, X(v), y+17, txt)
	}
}

// change is how one app fares under ours against the baseline.
type change struct {
	app       int // in ours' PerApp
	ours, was sim.AppResult
	now, then float64 // hours from submission to end
}

func (c change) diff() float64  { return c.now - c.then }
func (c change) ratio() float64 { return c.now / c.then }

// scatter draws each app's new over old duration against the old one.
func scatter(id, class string, w, h float64, cs []change, ours, base string) template.HTML {
	lo, hi, span := math.Inf(1), 0.0, 1.0
	for _, c := range cs {
		lo, hi = min(lo, c.then), max(hi, c.then)
		span = max(span, math.Abs(math.Log2(c.ratio())))
	}
	lo = max(lo, hi*1e-5)
	if hi < lo*1.5 {
		lo, hi = lo/1.3, hi*1.3
	}
	lo, hi, span = lo*0.9, hi*1.1, min(math.Ceil(span), 6)
	s := newSVG(id, class, w, h, "How much longer or shorter each app takes under "+ours+" than under "+base,
		"One dot an app, or a cell of apps: to the right, apps that take longer under "+base+"; above the middle line, apps that take longer under "+ours+"; below, shorter.")
	l, r, t, b := 40.0, 14.0, 12.0, 44.0
	X := func(v float64) float64 { return l + (w-l-r)*math.Log(max(v, lo)/lo)/math.Log(hi/lo) }
	Y := func(q float64) float64 {
		return t + (h-t-b)*(0.5-0.5*max(-span, min(span, math.Log2(q)))/span)
	}
	step := 1.0
	if span > 3 {
		step = 2
	}
	for e := step; e <= span; e += step {
		n := math.Exp2(e)
		s.line("grid", l, Y(n), w-r, Y(n))
		s.line("grid", l, Y(1/n), w-r, Y(1/n))
		s.text("t e", l-5, Y(n)+4, fmt.Sprintf("× %g", n))
		s.text("t e", l-5, Y(1/n)+4, fmt.Sprintf("÷ %g", n))
	}
	last := math.Inf(-1)
	for _, v := range logTicks(lo, hi, int(w/70)) {
		if x := X(v); x-last >= 40 {
			s.line("tick", x, h-b, x, h-b+4)
			s.text("t m", x, h-b+17, tickText(v))
			last = x
		}
	}
	s.line("axis", l, h-b, w-r, h-b)
	if len(cs) <= maxDots {
		s.WriteString(`<path class="dots" d="`)
		for _, c := range cs { // round caps of no length
			fmt.Fprintf(s, "M%s %sh0", px(X(c.then)), px(Y(c.ratio())))
		}
		s.WriteString(`"/>`)
	} else {
		const cell = 7
		count, top := map[[2]int]int{}, 0
		for _, c := range cs {
			k := [2]int{int(X(c.then) / cell), int(Y(c.ratio()) / cell)}
			count[k]++
			top = max(top, count[k])
		}
		keys := make([][2]int, 0, len(count))
		for k := range count {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
		for _, k := range keys {
			d := 1.5 + (cell-1.5)*math.Sqrt(math.Log1p(float64(count[k]))/math.Log1p(float64(top)))
			fmt.Fprintf(s, `<circle class="dot" cx="%s" cy="%s" r="%s"/>`, px(cell*(float64(k[0])+.5)), px(cell*(float64(k[1])+.5)), px(d/2))
		}
	}
	s.line("one", l, Y(1), w-r, Y(1))
	s.text("t e b", l-5, Y(1)+4, "same")
	s.text("t e b halo", w-r-4, t+14, "↑ takes longer")
	s.text("t e b halo", w-r-4, h-b-8, "↓ takes less time")
	s.text("t e", w-r, h-6, "hours from submission to end under the baseline (log scale)")
	return s.done()
}

// bar is part of an app's stay on one GPU position of a node.
type bar struct {
	app, slot, n int
	from, to     float64
}

// nodeBars places a node's lanes on GPU positions: an app keeps those it had.
func nodeBars(lanes []sim.Lane, gap float64) (bars []bar, slots int) {
	type slot struct {
		free float64
		app  int
		bar  int // the last one that starts at this slot
	}
	var ss []slot
	slices.SortStableFunc(lanes, func(a, b sim.Lane) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), a.App-b.App)
	})
	for _, ln := range lanes {
		n := min(max(ln.GPUs, 1), 64)
		var take []int
		for pass := 0; pass < 2 && len(take) < n; pass++ { // its own first
			for i := range ss {
				if len(take) < n && ss[i].free <= ln.From+1e-9 && (ss[i].app == ln.App) == (pass == 0) {
					take = append(take, i)
				}
			}
		}
		for len(take) < n {
			take = append(take, len(ss))
			ss = append(ss, slot{free: math.Inf(-1), app: -1, bar: -1})
		}
		slices.Sort(take)
		for i := 0; i < len(take); {
			j := i + 1
			for j < len(take) && take[j] == take[j-1]+1 {
				j++
			}
			s0 := take[i]
			if k := ss[s0].bar; k >= 0 && bars[k].app == ln.App && bars[k].n == j-i && ln.From-bars[k].to <= gap && ss[s0].free == bars[k].to {
				bars[k].to = ln.To
			} else {
				bars = append(bars, bar{ln.App, s0, j - i, ln.From, ln.To})
				ss[s0].bar = len(bars) - 1
			}
			for _, q := range take[i:j] {
				ss[q].free, ss[q].app = ln.To, ln.App
				if q != s0 {
					ss[q].bar = -1
				}
			}
			i = j
		}
	}
	return bars, len(ss)
}

// lanes are the time lines of some policies made ready: the same nodes for all.
type lanes struct {
	nodes []string
	bars  []map[string][]bar // by policy
	slots map[string]int     // GPUs in use at once, the most of any policy
	all   int                // nodes with lanes
	cut   int                // stays left out of the nodes shown
}

func readyLanes(ps []*sim.PolicyResult, hi, width float64) lanes {
	out := lanes{slots: map[string]int{}}
	var by []map[string][]sim.Lane
	seen := map[string]bool{}
	var names []string
	for _, p := range ps {
		m := map[string][]sim.Lane{}
		for _, l := range p.Lanes {
			if !finite(l.From) || !finite(l.To) || l.To <= l.From || l.App < 0 {
				continue
			}
			m[l.Node] = append(m[l.Node], l)
			if !seen[l.Node] {
				seen[l.Node] = true
				names = append(names, l.Node)
			}
		}
		by = append(by, m)
		out.bars = append(out.bars, map[string][]bar{})
	}
	slices.SortFunc(names, cluster.Natural)
	out.all = len(names)
	left := make([]int, len(ps))
	for k := range left {
		left[k] = maxRects
	}
	for i, n := range names[:min(len(names), maxNodes)] {
		bars := make([][]bar, len(ps))
		for k := range ps {
			var slots int
			bars[k], slots = nodeBars(by[k][n], 0.1*hi/width)
			if len(bars[k]) > left[k] {
				if i > 0 {
					return out
				}
				out.cut += len(bars[k]) - left[k]
				bars[k] = bars[k][:left[k]]
			}
			out.slots[n] = max(out.slots[n], slots)
		}
		for k := range ps {
			left[k] -= len(bars[k])
			out.bars[k][n] = bars[k]
		}
		out.nodes = append(out.nodes, n)
	}
	return out
}

// timeline draws policy k of ln.
func timeline(id string, p *sim.PolicyResult, name string, ln lanes, k int, hi float64) template.HTML {
	const w, l, r, row, gap, b = 900.0, 110.0, 12.0, 18.0, 3.0, 26.0
	h := float64(len(ln.nodes))*(row+gap) + gap + b
	s := newSVG(id, "lanes", w, h, "Who held which node under "+name,
		fmt.Sprintf("One row a node, %d of them, over %s; the numbers are the apps'.", len(ln.nodes), hours(hi)))
	X := func(v float64) float64 { return l + (w-l-r)*min(max(v, 0), hi)/hi }
	type label struct {
		x, y, w float64
		app     int
	}
	paths, held := map[int]*strings.Builder{}, map[int]float64{}
	var apps []int
	var labels []label
	for i, n := range ln.nodes {
		y := gap + float64(i)*(row+gap)
		fmt.Fprintf(s, `<path class="row" d="M%s %sH%sV%sH%sz"/>`, px(l), px(y), px(w-r), px(y+row), px(l))
		s.text("t e", l-6, y+row-5, tail(n, 14))
		u := row / float64(max(ln.slots[n], 1))
		for _, q := range ln.bars[k][n] {
			d := paths[q.app]
			if d == nil {
				d = &strings.Builder{}
				paths[q.app] = d
				apps = append(apps, q.app)
			}
			x0, x1 := X(q.from), X(q.to)
			y0 := y + u*float64(q.slot)
			y1 := y + u*float64(q.slot+q.n)
			fmt.Fprintf(d, "M%s %sH%sV%sH%sz", px(x0), px(y0), px(max(x1, x0+0.2)), px(y1), px(x0))
			held[q.app] += (q.to - q.from) * float64(q.n)
			if t := strconv.Itoa(q.app + 1); y1-y0 >= 8.5 && x1-x0 >= 5.5*float64(len(t))+3 {
				labels = append(labels, label{(x0 + x1) / 2, (y0+y1)/2 + 3, x1 - x0, q.app})
			}
		}
	}
	slices.Sort(apps)
	for _, a := range apps {
		fmt.Fprintf(s, `<path class="l l%d" d="%s">`, a%8, paths[a].String())
		if len(apps) <= maxTexts && a < len(p.PerApp) {
			fmt.Fprintf(s, "<title>%d: %s</title>", a+1, esc(short(p.PerApp[a].App, 40)))
		}
		s.WriteString("</path>")
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(b.w, a.w) })
	for _, t := range labels[:min(len(labels), maxTexts)] {
		fmt.Fprintf(s, `<text class="n" x="%s" y="%s">%d</text>`, px(t.x), px(t.y), t.app+1)
	}
	hourAxis(s, X, hi, l, w-r, h-b, 8)
	return s.done()
}
