// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"regexp"
	"strings"
)

const asCluster = "give it as the cluster, and a workload as the trace.\n" + ourForm

// refusals are files that are known and no workload.
var refusals = []struct {
	sniff     func(first, head string) bool
	why, hint string
}{
	{header(",", "sn", "gpu", "model"), "is a list of nodes (Alibaba's), with no jobs in it", asCluster},
	{header(",", "name", "gpus"), "is a list of nodes, with no jobs in it", asCluster},
	{nodeLines, "is a list of nodes in Slurm's form, with no jobs in it", asCluster},
	{object("nodes"), "is a list of nodes, with no jobs in it", asCluster},
	{header(",", "num_gpu", "gpu_spec"), "is a list of Alibaba's pods without their times: creation_time, scheduled_time, deletion_time", "take openb_pod_list_default.csv, which has them.\n" + ourForm},
	{object("workloads", "job_classes"), "says how YARN's load simulator is to draw jobs, and has none", "give jobs, in its SLS form.\n" + ourForm},
	{object("k80", "v100", "p100"), "is a table of measured throughputs, with no jobs in it", ourForm},
	{func(_, head string) bool { return sacctTable.MatchString(head) }, "is sacct's table for people, which cuts values off", sacctForm},
}

var sacctTable = regexp.MustCompile(`(?m)^\s*JobID(Raw)? +.*\n-+ `)

func nodeLines(_, head string) bool {
	for line := range strings.Lines(head) {
		if strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "nodename=") {
			return true
		}
	}
	return false
}
