// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"strings"
)

// jobcomp is the log of Slurm's jobcomp/filetxt plugin: a line per job that has
// ended. Times are local to the cluster and read as UTC. It has no comments, so
// apps are arrays only.
var jobcomp = format{
	name: "jobcomp", about: "Slurm: the log of JobCompType=jobcomp/filetxt",
	form: "the form is that of jobcomp/filetxt: JobId=1 UserId=a(1000) ... StartTime=... EndTime=... Tres=...,gres/gpu=4 Account=a ... SubmitTime=...",
	sniff: func(first, _ string) bool {
		return strings.HasPrefix(first, "JobId=") && strings.Contains(first, " EndTime=")
	},
	read: func(in *input) error {
		in.epoch = unix0
		s := slurmJobs{in: in}
		defer s.notes()
		next := lines(in.data, func(s string) []string { return []string{s} })
		for {
			line, cells, err := next()
			if err != nil {
				return nil
			}
			values := jobcompValues(cells[0])
			j, err := s.jobcompJob(&row{line: line, cell: func(col string) string { return values[col] }})
			if err := in.take(line, j, err); err != nil {
				return err
			}
		}
	},
}

// jobcompKeys are in the plugin's order (src/plugins/jobcomp/filetxt), which
// tells a key from the same text within a name. Older ones write Gres for Tres.
var jobcompKeys = []string{
	"JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList", "NodeCnt",
	"ProcCnt", "WorkDir", "ReservationName", "Gres", "Tres", "Account", "QOS", "WcKey", "Cluster", "SubmitTime", "EligibleTime",
	"ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "DerivedExitCode", "ExitCode",
}

func jobcompValues(s string) map[string]string {
	values, s, last := map[string]string{}, " "+s, ""
	for _, key := range jobcompKeys {
		i := strings.Index(s, " "+key+"=")
		if i < 0 {
			continue
		}
		values[last] = s[:i]
		s, last = s[i+len(key)+2:], key
	}
	values[last] = s
	return values
}

func (s *slurmJobs) jobcompJob(r *row) (Job, error) {
	user, _, _ := strings.Cut(r.text("UserId"), "(")
	j := Job{ID: r.text("JobId"), User: user, Account: cmp.Or(r.text("Account"), r.text("Partition")), Name: r.text("Name")}
	switch {
	case r.text("HetJobId") != "":
		return Job{}, s.in.leave("parts of heterogeneous jobs")
	case unstarted(r.text("StartTime")) || r.text("StartTime") == r.text("EndTime"):
		return Job{}, s.in.leave("never started")
	}
	if j.GPUs = gpusOfTRES(r.text("Tres")); j.GPUs == 0 {
		j.GPUs = s.perNode(gpusOfGRES(r.text("Gres")), r.text("NodeCnt"))
	}
	if j.GPUs == 0 {
		return Job{}, s.in.leave("no GPUs")
	}
	j.Submit, j.Limit = r.moment("SubmitTime"), r.slurmLimit("TimeLimit", true)
	j.Runtime = r.moment("EndTime") - r.moment("StartTime")
	if array := r.text("ArrayJobId"); array != "" {
		j.ID, j.App = array+"_"+r.text("ArrayTaskId"), j.User+"/"+array
	}
	s.again(&j)
	return j, r.err
}
