// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"math/bits"
	"slices"
	"time"
)

// hyperdrive is the form of the THEMIS paper's authors (kshiteejm/mltiply): JSON
// objects whose values are strings. total_iterations * time_per_iteration
// minutes is the time on one GPU; a job uses up to max_parallelism. The
// cross_*_slowdown are S within a machine, a rack and beyond. HyperBand stops
// jobs of one job_group_id early. A job_id is unique in its group only, so an ID
// here is GROUP/JOB.
var hyperdrive = format{
	name: "hyperdrive", about: "the paper authors' JSON: jobs of hyperparameter searches, halved step by step as HyperBand does",
	form:  `the form is: [{"job_id": "1", "job_group_id": "1", "start_time": "0", "total_iterations": "26000", "time_per_iteration": "0.0055", "max_parallelism": "4", "cross_slot_slowdown": "1", "cross_machine_slowdown": "0.98", "cross_rack_slowdown": "0.96"}, ...], minutes`,
	sniff: object("total_iterations"),
	read:  readHyperdrive,
}

func readHyperdrive(in *input) error {
	groups := map[string][]tried{}
	err := in.list(func(r *row) (Job, error) {
		g, j, err := hyperdriveJob(r)
		if err != nil {
			return j, err
		}
		if err := in.add(r.line, j); err != nil {
			return j, err
		}
		g.job = len(in.t.Jobs) - 1
		groups[j.App] = append(groups[j.App], g)
		return j, errLeft
	})
	if err != nil {
		return err
	}
	for _, g := range groups {
		halve(in.t.Jobs, g)
	}
	in.note("Jobs of a group end as HyperBand stops them; the times on one GPU are divided by max_parallelism.")
	return nil
}

// tried is a job of a group.
type tried struct {
	job        int // in Trace.Jobs
	iterations int
}

func hyperdriveJob(r *row) (tried, Job, error) {
	g := tried{iterations: r.count("total_iterations")}
	j := Job{
		App: r.text("job_group_id"), GPUs: r.count("max_parallelism"), Elastic: true,
		Submit: r.span("start_time", time.Minute), Place: []float64{1},
	}
	j.ID = j.App + "/" + r.text("job_id")
	j.Runtime = r.within("time_per_iteration", float64(g.iterations)*r.number("time_per_iteration")/float64(max(j.GPUs, 1)), time.Minute)
	for _, col := range []string{"cross_slot_slowdown", "cross_machine_slowdown", "cross_rack_slowdown"} {
		s := r.number(col)
		if !(s > 0 && s <= j.Place[len(j.Place)-1]) {
			r.wrong(col, "must be above 0, at most 1, and not rise from slot to rack")
		}
		j.Place = append(j.Place, s)
	}
	return g, j, r.err
}

// halve ends the jobs of a group early. With n > 1 jobs by iterations, and a
// step of the most iterations div floor(log2 n), the first half of those that
// remain ends in round c = 1, 2, ... after step*c iterations, if not by itself;
// the last job runs in full. (As the authors coded it.)
func halve(jobs []Job, group []tried) {
	n := len(group)
	if n < 2 {
		return
	}
	slices.SortStableFunc(group, func(a, b tried) int { return cmp.Compare(a.iterations, b.iterations) })
	step := max(group[n-1].iterations/(bits.Len(uint(n))-1), 1)
	for c, rest := 1, group; len(rest) > 1; c++ {
		half := len(rest) / 2
		for _, g := range rest[:half] {
			if j := &jobs[g.job]; step*c < g.iterations {
				j.Runtime = max(time.Duration(float64(j.Full)*float64(step*c)/float64(g.iterations)), 1)
			}
		}
		rest = rest[half:]
	}
}

// hyperdriveCSV is the authors' table of the Philly trace's searches: a row a
// job, times in UTC, run times in seconds. Two of the original's ran for none.
var hyperdriveCSV = format{
	name: "hyperdrive-csv", about: "the paper authors' CSV: experiment-id, job-id, start-time, run-time, num-gpus",
	form:  "the form is: experiment-id,job-id,start-time,run-time,num-gpus as in 1781, application_15_0075, 2018-06-16 04:51:49, 7953.0, 1",
	sniff: header(",", "experiment-id", "job-id"),
	read: func(in *input) error {
		in.epoch = unix0
		in.note("start-time is when a job ran on the cluster of then: it is taken as submitted with the first of its app.")
		err := in.table(commas(in.data), []string{"experiment-id", "job-id", "start-time", "run-time", "num-gpus"}, func(r *row) (Job, error) {
			if r.number("run-time") == 0 && r.err == nil {
				return Job{}, in.leave("never ran")
			}
			return Job{
				ID: r.text("job-id"), App: r.text("experiment-id"), Submit: r.moment("start-time"),
				Runtime: r.span("run-time", time.Second), GPUs: r.count("num-gpus"),
			}, r.err
		})
		first := map[string]time.Duration{}
		for _, j := range in.t.Jobs {
			if at, ok := first[j.App]; !ok || j.Submit < at {
				first[j.App] = j.Submit
			}
		}
		for i := range in.t.Jobs {
			in.t.Jobs[i].Submit = first[in.t.Jobs[i].App]
		}
		return err
	},
}
