// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"strings"
	"time"

	"themis/bridge"
)

// sacctForm is the command whose output is read; a | within a name or comment
// does no harm if it is the last column's.
const sacctForm = "write it with: " + SacctCommand

// SacctCommand writes a site's own history in the form that is read.
const SacctCommand = "sacct --allusers --allocations --parsable2 --noconvert --starttime=2026-01-01 --format=JobID,User,Account,Partition,Submit,Start,End,Elapsed,Timelimit,State,ReqTRES,AllocTRES,JobName,Comment"

// sacct is what Slurm's sacct --parsable2 prints. Times are local to the cluster
// and read as UTC. Steps are passed over.
var sacct = format{
	name: "sacct", about: "Slurm: sacct --parsable2 with JobID,User,Account,Submit,Elapsed,AllocTRES,...",
	form: sacctForm,
	sniff: func(first, head string) bool {
		return strings.Count(first, "|") >= 3 || header("|", "jobid")(first, head)
	},
	read: readSacct,
}

func readSacct(in *input) error {
	in.epoch = unix0
	head, _, _ := strings.Cut(strings.TrimSpace(string(in.data)), "\n")
	names := strings.Split(strings.TrimSpace(head), "|")
	cols := columns(names)
	if err := in.sacctColumns(cols); err != nil {
		return err
	}
	next := lines(in.data, func(s string) []string {
		cells := strings.SplitN(s, "|", len(names))
		if n := len(names) - 1; names[n] == "" && len(cells) > n {
			cells[n] = "" // --parsable ends each line with |
		}
		return cells
	})
	s := slurmJobs{in: in}
	defer s.notes()
	return in.table(next, nil, func(r *row) (Job, error) { return s.sacctJob(r, cols) })
}

// sacctColumns refuses a dump that lacks something.
func (in *input) sacctColumns(cols map[string]int) error {
	for _, need := range []string{"JobID", "User", "Account", "Submit", "Elapsed or ElapsedRaw or Start,End", "AllocTRES or ReqTRES or AllocGRES or ReqGRES"} {
		if !anyOf(cols, need) {
			return in.fail(1, sacctForm, "has no column %s", need)
		}
	}
	return nil
}

// anyOf says whether one of the alternatives has all its columns.
func anyOf(cols map[string]int, need string) bool {
	for _, alternative := range strings.Split(need, " or ") {
		missing := 0
		for _, c := range strings.Split(alternative, ",") {
			if _, ok := cols[strings.ToLower(c)]; !ok {
				missing++
			}
		}
		if missing == 0 {
			return true
		}
	}
	return false
}

func (s *slurmJobs) sacctJob(r *row, cols map[string]int) (Job, error) {
	id := r.text("jobid")
	switch {
	case strings.Contains(id, "."):
		return Job{}, errLeft
	case strings.Contains(id, "+"):
		return Job{}, s.in.leave("parts of heterogeneous jobs")
	case strings.HasPrefix(r.text("state"), "PENDING") || strings.Contains(id, "["):
		return Job{}, s.in.leave("never started")
	}
	j := Job{ID: id, User: r.text("user"), Account: r.text("account"), Name: r.text("jobname"), Submit: r.moment("submit")}
	switch {
	case anyOf(cols, "Elapsed"):
		j.Runtime = r.slurmSpan("elapsed")
	case anyOf(cols, "ElapsedRaw"):
		j.Runtime = r.span("elapsedraw", time.Second)
	case unstarted(r.text("start")):
		return Job{}, s.in.leave("never started")
	default:
		j.Runtime = r.moment("end") - r.moment("start")
	}
	if r.err == nil && j.Runtime == 0 {
		return Job{}, s.in.leave("never started")
	}
	j.GPUs = s.sacctGPUs(r)
	if r.err == nil && j.GPUs == 0 {
		return Job{}, s.in.leave("no GPUs")
	}
	j.Limit = r.slurmLimit("timelimit", false)
	if strings.HasPrefix(r.text("state"), "RUNNING") {
		s.running++
	}
	if array, _, isArray := strings.Cut(id, "_"); isArray {
		j.App = j.User + "/" + array
	}
	s.hint(&j, r.text("comment"))
	s.again(&j)
	return j, r.err
}

// sacctGPUs counts what the job had, or else what it asked for. Slurm before 20.11
// has GRES columns, of which the one asked for is by node.
func (s *slurmJobs) sacctGPUs(r *row) int {
	if n := cmp.Or(gpusOfTRES(r.text("alloctres")), gpusOfTRES(r.text("reqtres")), gpusOfGRES(r.text("allocgres"))); n > 0 {
		return n
	}
	return s.perNode(gpusOfGRES(r.text("reqgres")), r.text("nnodes"))
}

// hint reads what the user declared in the job's comment.
func (s *slurmJobs) hint(j *Job, comment string) {
	h, err := bridge.ParseHint(comment)
	if err != nil {
		s.unread++
		return
	}
	if h.App != "" {
		j.App = j.User + "/" + h.App
	}
	j.Model, j.Place = h.Model, h.Place
}
