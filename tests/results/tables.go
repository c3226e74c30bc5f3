// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"themis/core/sim"
)

// slowRun is why leftOut leaves a run out.
const slowRun = "left out: its run alone takes a quarter of an hour and more on one core"

func (b *book) testbeds() error {
	b.head("4. W1 and W2, the testbed's workloads")
	b.say("All policies, 64 GPUs, rigid gangs, leases of 10 min, restart 45 s. Rho is max (median) over apps. The paper's figures [D] are from a real cluster of 64 GPUs on 20 machines, where its trace began and how it was cut is not known; its Themis stands beside `themis-paper`.")
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
			long, _ := longer(p, 10*time.Minute)
			rows = append(rows, []string{"`" + policy + "`", maxMedian(p, "reference"), rho(long), maxMedian(p, "paper"), maxMedian(p, "share"), testbed[mix][policy],
				percent(unfairApps(p)), tenth(p.JCTMean), tenth(p.GPUHours)})
		}
		b.table([]string{"policy", "reference", "longer than a lease", "paper", "share", "paper's testbed [D]", "apps above 1.05", "mean JCT, h", "GPU-hours"}, rows)
		for _, l := range left {
			b.say("%s", l)
		}
		b.testbedSays(mix)
	}
	b.say("The policies:")
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
		fmt.Sprintf("`themis` uses %s of the GPUs' hours until the last app ends: idle spans lie between bursts. Jobs that had run start again %s times, with `srtf` %s times.",
			percent(at(ours).Utilisation), thousands(fmt.Sprint(at(ours).Migrations)), thousands(fmt.Sprint(at("srtf").Migrations))),
		b.whyFar(mix))
	if same := b.alike(names, at); len(same) > 0 {
		lines = append(lines, "The very same schedule, or one as good in all of these figures: "+list(same)+". The trace has no users and no accounts, so queues of one are alike; and the relative gain of a whole gang orders jobs as their remaining times do.")
	}
	b.points(lines...)
}

// whyFar says how far the paper's testbed is, and what sets the worst rho here.
func (b *book) whyFar(mix string) string {
	var far, worst []string
	for _, name := range b.played(mix) {
		var want float64
		if _, err := fmt.Sscanf(testbed[mix][name], "%g", &want); err != nil {
			continue
		}
		p := b.get(onTestbed(name, mix))
		far = append(far, fmt.Sprintf("`%s` %s and %s", name, rho(ratio(reference(p), want)), rho(ratio(p.Rho["paper"].Max, want))))
		if apps := unfair(p); len(apps) > 0 {
			worst = append(worst, fmt.Sprintf("`%s` %s", name, fate(apps[0])))
		}
	}
	return fmt.Sprintf("Far from the testbed, where 1 would be the same: max rho over the paper's figure is by `reference` and by `paper`, which is nearer to what the paper measures: %s. "+
		"Which part of the trace ran on the testbed, and how fast, is not known; here all apps run in the trace's own time. By `reference` the worst apps are %s: mostly apps of few jobs, which wait while apps of many hold the GPUs.", strings.Join(far, "; "), list(worst))
}

// alike are groups of policies whose figures are all the same.
func (b *book) alike(names []string, at func(string) sim.PolicyResult) (groups []string) {
	by := map[string][]string{}
	var keys []string
	for _, n := range names {
		p := at(n)
		k := fmt.Sprint(p.GPUHours, p.JCTMean, p.Makespan, p.Rho)
		if by[k] == nil {
			keys = append(keys, k)
		}
		by[k] = append(by[k], "`"+n+"`")
	}
	for _, k := range keys {
		if len(by[k]) > 1 {
			groups = append(groups, strings.Join(by[k], " = "))
		}
	}
	return groups
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
		if header = append(header, fmt.Sprintf("±%.0f%%", 100*by)); by == 0 {
			header[len(header)-1] = "exact"
		}
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
	b.say("The paper reports that errors of ±20%% in bids move its max rho by %.1f%% [M]; here errors of ±20%% raise it by at most %.1f%%. Its bids are wrong in rho, ours in run times, from which rho follows.", paperError, max(most, 0))
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
	var pays, holds []string
	for _, policy := range some(b, 2, []string{ours, "themis-paper", "themis-coded", "srtf", "multifactor"}) {
		honest := b.get(lied(policy, 0, 0))
		row := []string{"`" + policy + "`", rho(reference(honest))}
		best := 0.
		for _, by := range []float64{.5, 2} {
			var mean, most, others float64
			for _, app := range apps {
				p := b.get(lied(policy, app, by))
				for i, a := range p.PerApp {
					if len(honest.PerApp) == 0 {
						break // not played yet, while p was kept
					}
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
			best = max(best, mean)
		}
		if best > 1.05 { // on average over who it is that lies
			pays = append(pays, "`"+policy+"`")
		} else {
			holds = append(holds, "`"+policy+"`")
		}
		rows = append(rows, row)
	}
	b.table([]string{"policy", "max rho, all honest", "×0.5: gain, mean", "gain, most", "others' max rho", "×2: gain, mean", "gain, most", "others' max rho"}, rows)
	first, last := math.Inf(1), 0.
	for _, a := range b.get(lied(ours, 0, 0)).PerApp {
		first, last = min(first, a.Rho["reference"]), max(last, a.Rho["reference"])
	}
	verdict := "That holds for " + list(holds) + "; with " + list(pays) + " a lie pays."
	if len(pays) == 0 {
		verdict = "That holds for all of these."
	}
	b.say("The paper says that with 8 equal apps the one that lies gains nothing [M]. %s "+
		"Policies that finish apps one after another put the one that claims to be shorter first. `themis` does so: honest apps have rho from %s to %s. What the liar gains is an early turn; the columns of the others show what it costs them. "+
		"The arbiter corrects what a user declares by what that user's earlier jobs took, also in these runs; but these users have no earlier jobs, and when the first have ended the turn is taken.", verdict, rho(first), rho(last))
	honest, paper := b.get(lied(ours, 0, 0)), b.get(lied("themis-paper", 0, 0))
	b.say("With all honest the last app ends after %s h with `themis` and %s h with `themis-paper`, which use %s and %s of the GPUs' time until then. With every GPU busy it would be 4 h.",
		hours(honest.Makespan), hours(paper.Makespan), percent(honest.Utilisation), percent(paper.Utilisation))
}

func (b *book) estimates() error {
	b.head("6. What is known of run times")
	b.say("*Declared*: each job's true run time. *History*: a time limit, the next that sites commonly offer (1, 2, 4, 8, 12, 24 h and so on) above the run time, and what like jobs of the same user took, learnt during the run. *Limit*: the limit, and no two jobs alike. `themis`, rigid, restart 45 s.")
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
	b.say("Without declared run times the fluid schedule that bids refer to is a guess, and the promise as good as the guess. Rho is measured against the true run times in every row.")
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
	easiest := 0.
	for _, n := range b.policies() {
		easiest = max(easiest, at(n).Rho["paper"].Max)
	}
	why := map[string]string{
		"reference": "T_id depends on the arrivals alone, so that no policy can move it.",
		"share":     "N_avg counts the apps that are there while the app is: who delays others raises their T_id, and so lowers their rho.",
		"paper":     fmt.Sprintf("The same inflation, and N_avg multiplies even the T_id of an app that could not use its share. The worst of all these policies is at %s, so passing says nothing.", rho(easiest)),
		"shockwave": "Contention is averaged over an app's own life. A policy that keeps all apps there to the end gives them all a large T_id; `themis` ends them one after another, and as contention falls in the lives of the last ones so does their T_id.",
		"job":       "Of jobs, not apps. Demand that has arrived is never reduced, so on this trace, in which all arrive at once, T_id is a job's run time times one number for all: the shortest job first wins it without being fair to apps. `themis` promises an app's end, and lets jobs inside an app wait for each other.",
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
	b.say("The reference knows of no failures: lost GPUs and lost work count against every policy. A policy that runs longer sees more of them. A liar's rho is by its true run times. `multifactor` goes by limits, which here follow what is declared.")
	return nil
}
