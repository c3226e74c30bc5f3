// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"themis/core/sim"
)

// slowRun is why leftOut leaves a run out.
const slowRun = "left out: too long for this page, as its every auction proves its payments for hundreds of jobs"

func (b *book) testbeds() error {
	b.head("4. W1 and W2, the testbed's workloads")
	b.say("All policies, 64 GPUs, rigid gangs, leases of 10 min, restart 45 s. Rho is max (median) over apps. The paper's figures [D] are from a real cluster of 64 GPUs on 20 machines, and jobs' submissions there are not ours; its Themis stands beside `themis-paper`.")
	name := titles()
	for _, mix := range []string{"w1", "w2"} {
		fmt.Fprintf(b, "\n### %s\n", strings.ToUpper(mix))
		var rows [][]string
		var left []string
		for _, policy := range b.policies() {
			if why := leftOut(policy, mix); why != "" {
				left = append(left, "`"+policy+"` is "+why+".")
				continue
			}
			p := b.get(onTestbed(policy, mix))
			rows = append(rows, []string{"`" + policy + "`", maxMedian(p, "reference"), maxMedian(p, "paper"), maxMedian(p, "share"), testbed[mix][policy],
				percent(unfairApps(p)), tenth(p.JCTMean), tenth(p.GPUHours)})
		}
		b.table([]string{"policy", "reference", "paper", "share", "paper's testbed [D]", "apps above 1.05", "mean JCT, h", "GPU-hours"}, rows)
		for _, l := range left {
			b.say("%s", l)
		}
		b.testbedSays(mix)
	}
	b.say("Titles:")
	var lines []string
	for _, policy := range b.policies() {
		lines = append(lines, "`"+policy+"`: "+name[policy])
	}
	b.points(lines...)
	return nil
}

// played are the policies that have a run of the mix.
func (b *book) played(mix string) (names []string) {
	for _, n := range b.policies() {
		if leftOut(n, mix) == "" {
			names = append(names, n)
		}
	}
	return names
}

func (b *book) testbedSays(mix string) {
	names := b.played(mix)
	at := func(policy string) sim.PolicyResult { return b.get(onTestbed(policy, mix)) }
	var lines []string
	for _, d := range []string{"reference", "paper", "share"} {
		lines = append(lines, fmt.Sprintf("Better than `themis` in max rho of `%s` (%s): %s.", d, rho(at(ours).Rho[d].Max),
			list(lostTo(names, func(n string) float64 { return at(n).Rho[d].Max }))))
	}
	lines = append(lines,
		fmt.Sprintf("Better than `themis` in mean JCT (%s h): %s.", hours(at(ours).JCTMean), list(lostTo(names, func(n string) float64 { return at(n).JCTMean }))),
		fmt.Sprintf("`themis` uses %s of the GPUs' hours until the last app ends: long idle spans lie between bursts. It starts running jobs elsewhere %s times, `srtf` %s times.",
			percent(at(ours).Utilisation), thousands(fmt.Sprint(at(ours).Migrations)), thousands(fmt.Sprint(at("srtf").Migrations))))
	b.points(lines...)
}

func (b *book) errors() error {
	b.head("5. Wrong run times, and liars")
	b.say("Each job's declared run time is off by up to the share given, both ways, drawn evenly. `themis`, figure 19's workload, max rho; with errors the worst of seeds 1 to %d.", len(b.seeds()))
	shares := []float64{0, .5, .1, .2}
	shares = some(b, 2, shares)
	var rows [][]string
	var most float64 // of what 20% moves it
	header := []string{"jobs", "GPUs"}
	for _, by := range sortedFloats(shares) {
		header = append(header, fmt.Sprintf("±%.0f%%", 100*by))
	}
	for _, elastic := range []bool{true, false} {
		for _, cluster := range clusters {
			row := []string{mode(elastic), cluster}
			exact := b.wrong(cluster, elastic, 0)
			for _, by := range sortedFloats(shares) {
				x := b.wrong(cluster, elastic, by)
				cell := rho(x)
				if by > 0 {
					cell += fmt.Sprintf(" (%+.1f%%)", 100*(ratio(x, exact)-1))
				}
				if by == .2 {
					most = max(most, 100*(ratio(x, exact)-1))
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	b.table(header, rows)
	b.say("The paper reports that errors of ±20%% in bids move its max rho by %.1f%% [M]; here they raise it by at most %.1f%%. Its bids are wrong in rho, ours in run times, from which rho follows.", paperError, max(most, 0))
	b.liars()
	return nil
}

// lied is a run of the equal apps in which one lies; app 0 is none.
func lied(policy string, app int, by float64) run {
	r := run{workload{trace: equals, cluster: "64"}, policy, base()}
	r.Lease, r.Restart = 10*time.Minute, 45*time.Second
	if app > 0 {
		r.Lies = map[string]float64{fmt.Sprint(app): by}
	}
	return r
}

// liars lets each of eight equal apps lie in turn.
func (b *book) liars() {
	b.say("Eight equal apps of eight jobs (4 GPUs, 1 h each) arrive at once on 64 GPUs, which is four times what fits; rigid, leases of 10 min, restart 45 s. Each app in turn declares its run times times 0.5, or times 2. " +
		"What it gains is its rho when all are honest, over its rho when it lies: above 1 the lie pays.")
	apps := some(b, 2, []int{1, 2, 3, 4, 5, 6, 7, 8})
	var rows [][]string
	for _, policy := range some(b, 2, []string{ours, "themis-paper", "themis-coded", "srtf", "multifactor"}) {
		honest := b.get(lied(policy, 0, 0))
		row := []string{"`" + policy + "`", rho(reference(honest))}
		for _, by := range []float64{.5, 2} {
			var mean, most, others float64
			for _, app := range apps {
				p := b.get(lied(policy, app, by))
				for i, a := range p.PerApp {
					if a.App != fmt.Sprint(app) {
						others = max(others, a.Rho["reference"])
						continue
					}
					gain := ratio(honest.PerApp[i].Rho["reference"], a.Rho["reference"])
					mean += gain / float64(len(apps))
					most = max(most, gain)
				}
			}
			row = append(row, rho(mean), rho(most), rho(others))
		}
		rows = append(rows, row)
	}
	b.table([]string{"policy", "max rho, all honest", "×0.5: gain, mean", "gain, most", "others' max rho", "×2: gain, mean", "gain, most", "others' max rho"}, rows)
	p := b.get(lied(ours, 0, 0))
	first, last := 0., 0.
	for i, a := range p.PerApp {
		if x := a.Rho["reference"]; i == 0 || x < first {
			first = x
		}
		last = max(last, a.Rho["reference"])
	}
	b.say("The paper says that with 8 equal apps the one that lies gains nothing [M]. With `themis` equal apps are served one after another, so that all but the last end before their fair time: honest apps have rho from %s to %s. "+
		"A lie can change an app's place in that order, within what is fair to the others; the column of the others shows what it costs them. "+
		"In service, a record of declared against actual run times discounts such claims; it is not part of these runs.", rho(first), rho(last))
}

func (b *book) estimates() error {
	b.head("6. What is known of run times")
	b.say("*Declared*: each job's true run time. *History*: what like jobs of the same user took, learnt during the run. *Limit*: only a time limit, the next that sites commonly offer (1, 2, 4, 8, 12, 24 h and so on) above the run time. `themis`, rigid, restart 45 s.")
	var rows [][]string
	for _, s := range []struct {
		what string
		run
	}{
		{"figure 19, 64 GPUs", onFig19(ours, "64", false)},
		{"figure 19, 256 GPUs", onFig19(ours, "256", false)},
		{"W1", onTestbed(ours, "w1")},
	} {
		for _, known := range []string{"declared", "history", "limit"} {
			r := s.run
			if known != "declared" {
				r.Estimate = known
			}
			p := b.get(r)
			long, _ := longer(p, r.Lease)
			rows = append(rows, []string{s.what, known, maxMedian(p, "reference"), rho(long), percent(unfairApps(p)), hours(p.JCTMean), hours(p.Makespan), tenth(p.GPUHours)})
		}
	}
	b.table([]string{"workload", "known", "max rho (median)", "longer than a lease", "apps above 1.05", "mean JCT, h", "makespan, h", "GPU-hours"}, rows)
	b.say("The promise rests on run times: the fluid schedule that bids refer to is made of them. With less known it is a weaker promise, and the table says by how much. The measured reference is of the true run times in every row.")
	return nil
}

func (b *book) definitions() error {
	b.head("7. Every definition of rho")
	b.say("Figure 19, 256 GPUs, elastic, restart 0, leases of 5 min: max (median) by definition.")
	header := []string{"policy"}
	for _, d := range sim.Definitions {
		header = append(header, "`"+d.Name+"`")
	}
	header = append(header, "makespan, h", "GPU-hours")
	var rows [][]string
	at := func(policy string) sim.PolicyResult { return b.get(onFig19(policy, "256", true)) }
	for _, name := range b.policies() {
		p := at(name)
		row := []string{"`" + name + "`"}
		for _, d := range sim.Definitions {
			row = append(row, maxMedian(p, d.Name))
		}
		rows = append(rows, append(row, hours(p.Makespan), tenth(p.GPUHours)))
	}
	b.table(header, rows)
	b.say("T is finish less submission, W work in GPU-time, cp the longest job, R the cluster's GPUs. What each definition is, and where `themis` loses in max rho:")
	why := map[string]string{
		"reference": "T_id depends on the arrivals alone, so that no policy can move it.",
		"share":     "N_avg counts the apps that are there while the app is: who delays others raises their T_id, and so lowers their rho.",
		"paper":     "The same inflation, and N_avg multiplies even an app that could not use its share: all apps pass easily, so passing says nothing.",
		"shockwave": "Contention is counted in what apps could use at once, and averaged over an app's own life: whoever keeps an app waiting behind many is excused. `themis` ends apps early, so the contention in their lives is short, and it gives an app its fair time, not less of it.",
		"job":       "Of jobs, not apps. Demand that has arrived is never reduced, so T_id is the same for all jobs of this trace, in which all arrive at once: the shortest first \"wins\" it without being fair. `themis` promises an app's end, and lets jobs inside an app wait for each other.",
		"job-live":  "As `job`, with demand that falls as jobs end: a job that runs late, when few are left, has a small T_id. `themis` serves apps one after another, so some short jobs wait for their app's turn.",
	}
	var lines []string
	for _, d := range sim.Definitions {
		loses := lostTo(b.policies(), func(n string) float64 { return at(n).Rho[d.Name].Max })
		lines = append(lines, fmt.Sprintf("`%s`, of each %s: %s. %s Better than `themis` (%s): %s.", d.Name, d.Of, d.What, why[d.Name], rho(at(ours).Rho[d.Name].Max), list(loses)))
	}
	b.points(lines...)
	b.say("`job` keeps the formula that is given for the authors' code: C is all demand that has arrived, over R. The code itself [C] (kshiteejm/mltiply, JobStatistics.java at f69d69a) differs in more than that: it averages C over a job's life, as max(1, D/R) in whole numbers after an arrival and as D itself after an end.")
	return nil
}

func (b *book) robustness() error {
	b.head("8. Failing nodes and many liars")
	b.say("Figure 19, rigid, restart 45 s, leases of 5 min. *Failures*: each node fails once in 24 h on average and is back after 1 h; its jobs fall back to their last checkpoint, 10 min apart. *Liars*: every third app declares its run times times 0.5, or times 2.")
	lies := func(by float64) map[string]float64 {
		d, err := b.load(onFig19(ours, "64", false).workload)
		if err != nil {
			return nil // preface has told
		}
		seen, m := map[string]bool{}, map[string]float64{}
		for i := range d.trace.Jobs {
			if app := d.trace.Jobs[i].App; !seen[app] {
				if seen[app] = true; len(seen)%3 == 0 {
					m[app] = by
				}
			}
		}
		return m
	}
	type trouble struct {
		what string
		set  func(r *run)
	}
	troubles := some(b, 2, []trouble{
		{"none", func(r *run) {}},
		{"failures", func(r *run) { r.MTBF = 24 * time.Hour }},
		{"liars, ×0.5", func(r *run) { r.Lies = lies(.5) }},
		{"liars, ×2", func(r *run) { r.Lies = lies(2) }},
	})
	var rows [][]string
	for _, cluster := range some(b, 1, clusters) {
		for _, t := range troubles {
			for _, policy := range some(b, 1, []string{ours, "multifactor", "srtf"}) {
				r := onFig19(policy, cluster, false)
				t.set(&r)
				p := b.get(r)
				var honest float64
				for _, a := range p.PerApp {
					if r.Lies[a.App] == 0 {
						honest = max(honest, a.Rho["reference"])
					}
				}
				rows = append(rows, []string{cluster, t.what, "`" + policy + "`", maxMedian(p, "reference"), rho(honest), hours(p.JCTMean), hours(p.Makespan), tenth(p.GPUHours), fmt.Sprint(p.Failures)})
			}
		}
	}
	b.table([]string{"GPUs", "trouble", "policy", "max rho (median)", "honest apps' max rho", "mean JCT, h", "makespan, h", "GPU-hours", "node failures"}, rows)
	b.say("The reference knows of no failures: lost GPUs and lost work count against every policy. A policy that runs longer sees more failures.")
	return nil
}
